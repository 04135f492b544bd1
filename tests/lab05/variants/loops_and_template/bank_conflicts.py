"""Lab 05 with loops and counters, bank after bank."""

from collections import Counter
from fractions import Fraction
from math import gcd

from types_lab05 import KernelReport


def bank_of(byte_address):
    word, _ = divmod(byte_address, 4)
    return word - word // 32 * 32


def conflict_degree(byte_addresses, width):
    phase_of = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}
    if width not in phase_of:
        raise ValueError(width)
    if len(byte_addresses) > 32:
        raise ValueError("a warp has 32 lanes")
    wanted = set()
    for lane, address in enumerate(byte_addresses):
        if address is None:
            continue
        if address % width:
            raise ValueError(f"misaligned: {address}")
        # An aligned lane of 8 or 16 bytes takes its words from neighbouring banks: the first tells.
        wanted.add((lane // phase_of[width], address // 4))
    counts = Counter((phase, word % 32) for phase, word in wanted)
    return max(counts.values(), default=0)


def sectors(byte_addresses, width):
    small, large = set(), set()
    for address in byte_addresses:
        if address is None:
            continue
        for byte in range(address, address + width):
            small.add(byte // 32)
            large.add(byte // 128)
    return [len(small), len(large)]


def padding(rows, cols, element_bytes):
    fill = 128 // element_bytes
    lanes = min(rows, fill)
    for pad in range(fill):
        if fill // gcd(cols + pad, fill) >= lanes:
            return pad
    raise AssertionError("one of two neighbours is odd")


def explain(report: KernelReport):
    moved = wasted_in = wasted_out = passes = conflicts = 0
    for row in report.accesses:
        if row.space == "shared":
            passes += row.wavefronts
            conflicts += row.wavefronts - row.ideal_wavefronts
        elif row.kind == "read":
            moved += row.sectors
            wasted_in += row.sectors - row.ideal_sectors
        elif row.kind == "write":
            moved += row.sectors
            wasted_out += row.sectors - row.ideal_sectors
    warps = (report.threads + 31) // 32
    active = Fraction(report.flow_lanes * warps, report.flow_requests * report.threads or 1)
    if not report.flow_requests:
        active = Fraction(1)
    found = sorted(
        [
            (Fraction(wasted_in, moved or 1), "uncoalesced_load"),
            (Fraction(wasted_out, moved or 1), "uncoalesced_store"),
            (Fraction(conflicts, passes or 1), "bank_conflict"),
            (1 - active, "divergence"),
            (Fraction(1, 4) - Fraction(1, 10**9), "none"),
        ]
    )
    return found[-1][1]


def swizzled(byte_address, bits, base, shift):
    mask = (1 << bits) - 1 << base
    return byte_address ^ (byte_address >> shift) & mask


def ldmatrix_rows(row, chunk):
    return [swizzled(128 * (row + lane) + 16 * chunk, 3, 4, 3) for lane in range(8)]


def swizzle_search(row_bytes):
    found = []
    for bits in range(5):
        for base in range(7):
            for shift in range(1, 7):
                if _free(row_bytes, bits, base, shift):
                    found.append((bits, base, shift))
    return sorted(found)


def _free(row_bytes, bits, base, shift):
    for start in range(0, 32 * row_bytes, 16):
        first = swizzled(start, bits, base, shift)
        for byte in range(16):
            if swizzled(start + byte, bits, base, shift) != first + byte:
                return False
    for top in range(0, 32, 8):
        for left in range(0, row_bytes, 16):
            lanes = [(top + row) * row_bytes + left for row in range(8)]
            if conflict_degree([swizzled(a, bits, base, shift) for a in lanes], 16) != 1:
                return False
    for start in range(0, 32 * row_bytes, 128):
        lanes = [swizzled(start + 16 * lane, bits, base, shift) for lane in range(8)]
        if conflict_degree(lanes, 16) != 1:
            return False
    return True
