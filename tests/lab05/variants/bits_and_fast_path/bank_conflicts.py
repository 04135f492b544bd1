"""Lab 05 with whole numbers as sets: bit i of a number is piece i."""

from types_lab05 import BANK_CONFLICT, DIVERGENCE, NONE, UNCOALESCED_LOAD, UNCOALESCED_STORE


def bank_of(byte_address):
    return (byte_address & 0b1111100) // 4


def conflict_degree(byte_addresses, width):
    if width < 1 or width > 16 or width & width - 1:
        raise ValueError(f"a lane of {width} bytes")
    lanes = list(byte_addresses)
    if len(lanes) > 32:
        raise ValueError(f"{len(lanes)} lanes are too many")
    lanes += [None] * (32 - len(lanes))
    if width == 16:
        phases = lanes[:8], lanes[8:16], lanes[16:24], lanes[24:]
    elif width == 8:
        phases = lanes[:16], lanes[16:]
    else:
        phases = (lanes,)
    return max(_ways(phase, width) for phase in phases)


def _ways(phase, width):
    rows = [0] * 32  # for each bank the rows of 128 bytes in which a word of it is wanted
    for address in phase:
        if address is None:
            continue
        if address % width != 0:
            raise ValueError(f"address {address} with lanes of {width} bytes")
        word = address // 4
        for _ in range(max(1, width // 4)):
            rows[word % 32] |= 1 << word // 32
            word += 1
    return max(row.bit_count() for row in rows)


def sectors(byte_addresses, width):
    active = [address for address in byte_addresses if address is not None]
    low = min(active, default=0) // 128 * 128  # numbers as long as the stretch between the lanes
    if max(active, default=0) - low > 1 << 22:
        far = [address for address in active if address >= low + (1 << 21)]
        near = [address for address in active if address < low + (1 << 21)]
        return tuple(map(sum, zip(sectors(near, width), sectors(far, width), strict=True)))
    small = large = 0
    for address in active:
        first, last = (address - low) // 32, (address - low + width - 1) // 32
        small |= (1 << last + 1) - (1 << first)
        large |= (1 << last // 4 + 1) - (1 << first // 4)
    return small.bit_count(), large.bit_count()


def padding(rows, cols, element_bytes):
    lanes = min(rows, 32)

    def has_conflict(pitch):
        return (
            conflict_degree([lane * pitch * element_bytes for lane in range(lanes)], element_bytes)
            > 1
        )

    pad = 0
    while has_conflict(cols + pad):
        pad += 1
    return pad


def explain(report):
    waste = {UNCOALESCED_LOAD: 0, UNCOALESCED_STORE: 0, BANK_CONFLICT: 0}
    whole = dict.fromkeys(waste, 0)
    for row in report.accesses:
        match row.space, row.kind:
            case "shared", _:
                waste[BANK_CONFLICT] += row.wavefronts - row.ideal_wavefronts
                whole[BANK_CONFLICT] += row.wavefronts
            case "global", "read" | "write":
                cause = UNCOALESCED_LOAD if row.kind == "read" else UNCOALESCED_STORE
                waste[cause] += row.sectors - row.ideal_sectors
                whole[UNCOALESCED_LOAD] += row.sectors
                whole[UNCOALESCED_STORE] += row.sectors
    warps = -(-report.threads // 32)
    waste[DIVERGENCE] = report.flow_requests * report.threads / warps - report.flow_lanes
    whole[DIVERGENCE] = report.flow_requests * report.threads / warps
    largest, answer = 0.25, NONE
    for cause in waste:
        if whole[cause] and waste[cause] / whole[cause] >= largest:
            largest, answer = waste[cause] / whole[cause], cause
    return answer


def swizzled(byte_address, bits, base, shift):
    return byte_address ^ (byte_address >> shift & ((1 << bits) - 1) << base)


def ldmatrix_rows(row, chunk):
    return [swizzled(128 * r + 16 * chunk, 3, 4, 3) for r in range(row, row + 8)]


def swizzle_search(row_bytes):
    found = []
    for bits in range(4 + 1):
        for base in range(6 + 1):
            for shift in range(1, 6 + 1):

                def place(row, byte, bits=bits, base=base, shift=shift):
                    return swizzled(row * row_bytes + byte, bits, base, shift)

                whole = all(
                    place(row, chunk + byte) == place(row, chunk) + byte
                    for row in range(32)
                    for chunk in range(0, row_bytes, 16)
                    for byte in (1, 2, 4, 8, 15)
                )
                if not whole or any(place(row, 0) % 16 for row in range(32)):
                    continue
                flat = [
                    swizzled(address, bits, base, shift) for address in range(0, 32 * row_bytes, 16)
                ]
                stores = [flat[i : i + 8] for i in range(0, len(flat), 8)]
                reads = [
                    [place(row + lane, chunk) for lane in range(8)]
                    for row in (0, 8, 16, 24)
                    for chunk in range(0, row_bytes, 16)
                ]
                if all(len({a // 16 % 8 for a in lanes}) == 8 for lanes in stores + reads):
                    found.append((bits, base, shift))
    return found
