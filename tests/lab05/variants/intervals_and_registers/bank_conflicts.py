"""Lab 05 by sorting: neighbours in sorted lists are compared, nothing is put into a set."""

from itertools import groupby
from math import gcd


def bank_of(byte_address):
    return byte_address % 128 >> 2


def conflict_degree(byte_addresses, width):
    _checked(byte_addresses, width)
    size = 128 // max(width, 4)  # lanes that fill the banks once
    degree = 0
    for start in range(0, len(byte_addresses), size):
        active = sorted(a for a in byte_addresses[start : start + size] if a is not None)
        words = [word for word, _ in groupby(w for a in active for w in _words(a, width))]
        words = sorted(set(words), key=lambda word: (word % 32, word))
        for _, same_bank in groupby(words, key=lambda word: word % 32):
            degree = max(degree, sum(1 for _ in same_bank))
    return degree


def _checked(byte_addresses, width):
    if not any(width == known for known in (1, 2, 4, 8, 16)):
        raise ValueError(f"no lane reads {width} bytes")
    if len(byte_addresses) >= 33:
        raise ValueError(f"{len(byte_addresses)} lanes")
    for lane, address in enumerate(byte_addresses):
        if address is not None and address & width - 1:
            raise ValueError(f"lane {lane} is misaligned: {address}")


def _words(address, width):
    return range(address // 4, (address + width + 3) // 4)


def sectors(byte_addresses, width):
    ends = sorted((a, a + width) for a in byte_addresses if a is not None)
    return _pieces(ends, 32), _pieces(ends, 128)


def _pieces(ends, size):
    """Pieces in which sorted stretches lie; `following` is the first that is not counted yet."""
    count, following = 0, 0
    for begin, end in ends:
        first, stop = max(begin // size, following), -(-end // size)
        if stop > first:
            count, following = count + stop - first, stop
    return count


def padding(rows, cols, element_bytes):
    lanes = 128 // element_bytes
    return 0 if min(rows, lanes) <= lanes // gcd(lanes, cols) else 1


def explain(report):
    def total(field, space, *kinds):
        return sum(
            getattr(row, field)
            for row in report.accesses
            if row.space == space and row.kind in kinds
        )

    everything = ("read", "write", "atomic")
    moved = total("sectors", "global", "read", "write") or 1
    passes = total("wavefronts", "shared", *everything) or 1
    warps = (report.threads - 1) // 32 + 1
    lanes = report.flow_requests * report.threads
    shares = [
        (1 - total("ideal_wavefronts", "shared", *everything) / passes, "bank_conflict"),
        (1 - report.flow_lanes * warps / lanes if lanes else 0.0, "divergence"),
    ]
    if not total("wavefronts", "shared", *everything):
        shares[0] = (0.0, "bank_conflict")
    for kind, cause in (("write", "uncoalesced_store"), ("read", "uncoalesced_load")):
        wasted = total("sectors", "global", kind) - total("ideal_sectors", "global", kind)
        shares.append((wasted / moved, cause))
    share, cause = max(shares)
    return cause if share >= 0.25 else "none"


def swizzled(byte_address, bits, base, shift):
    return byte_address ^ (byte_address >> shift & ((1 << bits) - 1) << base)


def ldmatrix_rows(row, chunk):
    addresses = []
    for r in range(row, row + 8):
        addresses += [(r << 7) + ((r & 7 ^ chunk) << 4)]
    return addresses


def swizzle_search(row_bytes):
    """An address is a vector of bits: two of eight lanes meet if the banks' bits, 4 to 6, of the
    XOR of their addresses are 0; and the XOR of swizzled addresses is the swizzled XOR."""
    height = row_bytes.bit_length() - 1
    along = [number << 4 for number in range(1, 8)]
    down = [number << height for number in range(1, 8)]

    def apart(difference, bits, base, shift):
        return swizzled(difference, bits, base, shift) & 0x70

    return sorted(
        (bits, base, shift)
        for shift in range(1, 7)
        for base in range(7)
        for bits in range(5)
        if (bits == 0 or base >= 4)
        and all(apart(difference, bits, base, shift) for difference in along + down)
    )
