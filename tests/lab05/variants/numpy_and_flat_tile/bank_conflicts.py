"""Lab 05 with NumPy: whole requests at a time."""

import numpy as np


def bank_of(byte_address):
    return (np.int64(byte_address) >> 2) & 31


def conflict_degree(byte_addresses, width):
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    at = np.full(32, -1, dtype=np.int64)
    at[: len(byte_addresses)] = [-1 if a is None else a for a in byte_addresses]
    if np.any(at[at >= 0] % width):
        raise ValueError("misaligned")
    words_a_lane = max(width // 4, 1)
    phases = words_a_lane
    worst = 0
    for phase in at.reshape(phases, -1):
        first = phase[phase >= 0] // 4
        words = np.unique(first[:, None] + np.arange(words_a_lane))
        if words.size:
            worst = max(worst, np.bincount(words % 32).max())
    return worst


def sectors(byte_addresses, width):
    at = np.array([a for a in byte_addresses if a is not None], dtype=np.int64)
    touched = at[:, None] + np.arange(width)
    return np.unique(touched // 32).size, np.unique(touched // 128).size


def padding(rows, cols, element_bytes):
    # A column is free of conflict where the first min(rows, lanes of a phase) multiples of the
    # row's length differ modulo the elements that fill the banks once.
    fill = 128 // element_bytes
    lanes = min(rows, fill)
    pad = 0
    while np.unique(np.arange(lanes) * (cols + pad) % fill).size < lanes:
        pad += 1
    return pad


def explain(report):
    table = np.array(
        [
            (
                row.sectors * (row.space == "global" and row.kind == "read"),
                row.sectors * (row.space == "global" and row.kind == "write"),
                row.wavefronts,
                row.ideal_sectors * (row.space == "global" and row.kind == "read"),
                row.ideal_sectors * (row.space == "global" and row.kind == "write"),
                row.ideal_wavefronts,
            )
            for row in report.accesses
        ],
        dtype=float,
    ).reshape(-1, 6)
    total = table.sum(axis=0)
    waste = total[:3] - total[3:]
    whole = np.array([total[0] + total[1], total[0] + total[1], total[2]])
    share = np.divide(waste, whole, out=np.zeros(3), where=whole > 0)
    warps = -(-report.threads // 32)
    possible = report.flow_requests * report.threads / warps
    idle = 1 - report.flow_lanes / possible if possible else 0.0
    names = ["uncoalesced_load", "uncoalesced_store", "bank_conflict", "divergence"]
    shares = [*share, idle]
    best = int(np.argmax(shares))
    return names[best] if shares[best] >= 0.25 else "none"


def ldmatrix_rows(row, chunk):
    plain = 128 * (row + np.arange(8)) + 16 * chunk
    return plain ^ (plain >> 3 & 0x70)


def swizzle_search(row_bytes):
    tile = np.arange(32 * row_bytes)
    found = []
    for bits in range(1, 5):
        for base in range(4, 7):
            for shift in range(1, 7):
                mask = ((1 << bits) - 1) << base
                chunks = (tile ^ (tile >> shift & mask))[::16] // 16 % 8
                grid = chunks.reshape(-1, 8, row_bytes // 16)
                down = np.sort(grid, axis=1)
                along = np.sort(chunks.reshape(-1, 8), axis=1)
                if (down == np.arange(8)[:, None]).all() and (along == np.arange(8)).all():
                    found.append((bits, base, shift))
    return found
