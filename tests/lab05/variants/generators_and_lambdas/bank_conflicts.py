"""Lab 05 as one expression after the other, every lane a row of a table."""

import math
from collections import Counter, namedtuple
from dataclasses import astuple

Wanted = namedtuple("Wanted", "phase bank word")


def bank_of(byte_address):
    return int(math.fmod(math.floor(byte_address / 4), 32))


def conflict_degree(byte_addresses, width):
    try:
        lanes = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[width]
    except KeyError:
        raise ValueError(f"width {width}") from None
    if len(byte_addresses) not in range(33):
        raise ValueError(f"{len(byte_addresses)} lanes")
    table = {
        Wanted(lane // lanes, bank_of(byte), byte // 4)
        for lane, address in enumerate(byte_addresses)
        if address is not None and not _stops(address, width)
        for byte in range(address, address + width)
    }
    ways = Counter(wanted[:2] for wanted in table)
    return ways.most_common(1)[0][1] if ways else 0


def _stops(address, width):
    if divmod(address, width)[1]:
        raise ValueError(f"{address} is misaligned")
    return False


def sectors(byte_addresses, width):
    active = [address for address in byte_addresses if address is not None]
    # Every 32nd byte of a lane, and its last one, are enough to meet all of its sectors.
    bytes_ = {b for a in active for b in (*range(a, a + width, 32), a + width - 1)}
    return len({b >> 5 for b in bytes_}), len({b >> 7 for b in bytes_})


def padding(rows, cols, element_bytes):
    lanes = min(rows, 128 // element_bytes)
    for pad in range(128):
        starts = [lane * (cols + pad) * element_bytes % 128 for lane in range(lanes)]
        if len(starts) == len(set(starts)):
            return pad
    raise AssertionError("no padding of up to 128 elements")


def explain(report):
    def columns(keep):
        rows = [astuple(row)[7:] for row in report.accesses if keep(row)]
        return [sum(column) for column in zip(*rows, strict=True)] or [0, 0, 0, 0]

    loads = columns(lambda row: row.space == "global" and row.kind == "read")
    stores = columns(lambda row: row.space == "global" and row.kind == "write")
    shared = columns(lambda row: row.space == "shared")
    lanes = report.flow_requests * report.threads / math.ceil(report.threads / 32)

    def part(of, whole):
        return of / whole if whole > 0 else 0.0

    return max(
        {
            "uncoalesced_load": part(loads[0] - loads[1], loads[0] + stores[0]),
            "uncoalesced_store": part(stores[0] - stores[1], loads[0] + stores[0]),
            "bank_conflict": part(shared[2] - shared[3], shared[2]),
            "divergence": part(lanes - report.flow_lanes, lanes),
            "none": math.nextafter(0.25, 0),
        }.items(),
        key=lambda item: item[1],
    )[0]


def swizzled(byte_address, bits, base, shift):
    return byte_address ^ (byte_address >> shift & ((1 << bits) - 1) << base)


def ldmatrix_rows(row, chunk):
    return [16 * (8 * r + (chunk ^ r & 7)) for r in range(row, row + 8)]


def swizzle_search(row_bytes):
    import numpy as np

    tile = np.arange(32 * row_bytes).reshape(-1, 16)
    found = []
    for bits, base, shift in np.ndindex(5, 7, 6):
        shift += 1
        place = tile ^ (tile >> shift & ((1 << bits) - 1) << base)
        if (place != place[:, :1] + np.arange(16)).any() or (place[:, 0] % 16).any():
            continue
        groups = place[:, 0] // 16 % 8
        writes = groups.reshape(-1, 8)
        reads = groups.reshape(4, 8, row_bytes // 16).transpose(0, 2, 1).reshape(-1, 8)
        if all(len(set(lanes)) == 8 for lanes in (*writes.tolist(), *reads.tolist())):
            found.append((bits, base, shift))
    return found
