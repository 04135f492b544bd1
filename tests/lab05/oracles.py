"""Lab 05's oracles: each byte walked by hand, nothing divided out."""

from __future__ import annotations

from itertools import count

PHASE_LANES = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}
LAYOUT = [bank for bank in range(32) for _byte in range(4)]  # one row of words, byte for byte


def degree(addresses, width):
    """Most different words that a bank gives in one phase, byte by byte."""
    lanes = PHASE_LANES[width]
    phases = [addresses[i : i + lanes] for i in range(0, len(addresses), lanes)]
    worst = 0
    for phase in phases:
        wanted = {
            (LAYOUT[byte % 128], byte >> 2)
            for address in phase
            if address is not None
            for byte in range(address, address + width)
        }
        banks = [bank for bank, _word in wanted]
        worst = max([worst, *(banks.count(bank) for bank in set(banks))])
    return worst


def touched(addresses, width, piece):
    """Pieces of that many bytes in which a byte of any lane lies."""
    bytes_asked = {b for a in addresses if a is not None for b in range(a, a + width)}
    return len({b // piece for b in bytes_asked})


def column(rows, pitch, element_bytes):
    """Addresses of a column's first 32 elements; `pitch` in elements."""
    return [row * pitch * element_bytes for row in range(rows)][:32]


def least_padding(rows, cols, element_bytes):
    """Tries one padding after the other."""
    return next(
        pad
        for pad in count()
        if degree(column(rows, cols + pad, element_bytes), element_bytes) == 1
    )
