"""Lab 05, on paper: banks, phases, sectors and padding, counted in plain Python.

The machine that is counted here (compute capability 5.0 and later):

- A warp has 32 lanes. What it asks for with one instruction is a *request*: one address for each
  active lane, `width` bytes each. Lists of addresses are in the order of the lanes; an address is
  None for a lane that takes no part, and lanes beyond the end of a short list take none either.
- Shared memory has 32 banks. Words of 4 bytes lie in turn: word 0 in bank 0, word 1 in bank 1, ...,
  word 32 in bank 0 again. A bank gives one word a pass, to every lane that wants that word.
- Lanes of up to 4 bytes go in one phase of 32. Lanes of 8 bytes go in two phases (lanes 0 to 15,
  then 16 to 31), lanes of 16 bytes in four phases of 8. Phases cannot conflict with each other.
- Global memory moves in sectors of 32 bytes; a cache line is four of them, 128 bytes.

Plain Python or NumPy, as you like; return Python or NumPy integers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from math import ceil

from types_lab05 import (
    BANK_CONFLICT,
    DIVERGENCE,
    NONE,
    UNCOALESCED_LOAD,
    UNCOALESCED_STORE,
    Cause,
    KernelReport,
)

WARP = 32
BANKS = 32
BANK_BYTES = 4
SECTOR_BYTES = 32
LINE_BYTES = 128

Addresses = Sequence[int | None]


# --- 1 -------------------------------------------------------------------------------------------


def bank_of(byte_address: int) -> int:
    """The bank of shared memory, 0 to 31, that holds the byte at this address.

    byte_address: in bytes from the beginning of shared memory, 0 or more.
    Source: CUDA C++ Programming Guide, shared memory of compute capability 5.x and later.
    """
    # BEGIN SOLUTION bank_of
    return byte_address // BANK_BYTES % BANKS
    # END SOLUTION


# --- 2 -------------------------------------------------------------------------------------------


def conflict_degree(byte_addresses: Addresses, width: int) -> int:
    """The degree of a request's bank conflict: the largest number of distinct words that one bank
    gives in one phase. 1 is no conflict, 32 the worst, 0 a request without any lane.

    byte_addresses: up to 32, in shared memory, each a multiple of width. A lane that takes no part
    is a None among them: it counts towards the 32, and the lanes behind it stay in their phases.
    width: bytes a lane, one of 1, 2, 4, 8, 16. A lane of 8 bytes wants two words, one of 16 bytes
    four. Lanes that want the same word, or bytes of it, are served together.
    Raises ValueError for another width, for more than 32 lanes, and for an address that is no
    multiple of the width (a GPU stops the kernel there).
    """
    # BEGIN SOLUTION conflict_degree
    if width not in (1, 2, 4, 8, 16):
        raise ValueError(f"width is {width}: a lane reads 1, 2, 4, 8 or 16 bytes at once.")
    if len(byte_addresses) > WARP:
        raise ValueError(f"{len(byte_addresses)} addresses: a warp has {WARP} lanes.")
    lanes_a_phase = {8: 16, 16: 8}.get(width, WARP)
    worst = 0
    for start in range(0, len(byte_addresses), lanes_a_phase):
        words: dict[int, set[int]] = defaultdict(set)
        for address in byte_addresses[start : start + lanes_a_phase]:
            if address is None:
                continue
            if address % width:
                raise ValueError(f"address {address} is no multiple of {width}.")
            for byte in range(address, address + width, BANK_BYTES):
                words[bank_of(byte)].add(byte // BANK_BYTES)
        worst = max(worst, max(map(len, words.values()), default=0))
    return worst
    # END SOLUTION


# --- 3 -------------------------------------------------------------------------------------------


def sectors(byte_addresses: Addresses, width: int) -> tuple[int, int]:
    """How many 32-byte sectors, and how many 128-byte lines, of global memory a request touches.

    byte_addresses: up to 32, counted from an address that is a multiple of 128, or None. A GPU has
    more than 4 GiB, so an address may be beyond 2**32.
    width: bytes a lane, 1 or more. Addresses need not be multiples of it, nor width a power of two:
    for a struct of 12 bytes that all lanes read, give 12. A sector counts once, however many lanes
    need bytes of it, and a lane may need bytes of several. A request without any lane touches 0, 0.
    """
    # BEGIN SOLUTION sectors
    touched: set[int] = set()
    for address in byte_addresses:
        if address is not None:
            last = (address + width - 1) // SECTOR_BYTES
            touched.update(range(address // SECTOR_BYTES, last + 1))
    lines = {sector * SECTOR_BYTES // LINE_BYTES for sector in touched}
    return len(touched), len(lines)
    # END SOLUTION


# --- 4 -------------------------------------------------------------------------------------------


def padding(rows: int, cols: int, element_bytes: int) -> int:
    """The smallest number of elements to add to each row of a shared tile, so that a warp reads a
    column of it without bank conflict.

    The tile is row after row: element (r, c) lies at byte `(r * (cols + padding) + c) *
    element_bytes`. Lane i reads row i of one column, lanes from `rows` on take no part; of a tile
    with more than 32 rows a warp reads 32 neighbouring ones. rows, cols: 1 or more.
    element_bytes: 4, 8 or 16.
    The answer is in elements, not in bytes, and 0 where nothing is needed.
    """
    # BEGIN SOLUTION padding
    pad = 0
    while True:
        pitch = (cols + pad) * element_bytes
        if conflict_degree([row * pitch for row in range(min(rows, WARP))], element_bytes) <= 1:
            return pad
        pad += 1
    # END SOLUTION


# --- 9 -------------------------------------------------------------------------------------------


def explain(report: KernelReport) -> Cause:
    """What limits a kernel, by its counters: the cause with the largest *share of waste*.

    Each share says how much of what a unit did was not needed (0 for a unit that did nothing):

    - "uncoalesced_load": sectors beyond the ideal that global reads touched, as a share of the
      sectors of all global reads and writes;
    - "uncoalesced_store": the same for global writes, of the same whole;
    - "bank_conflict": wavefronts beyond the ideal, as a share of the wavefronts of all shared
      accesses (atomic ones too);
    - "divergence": idle lanes, as a share of the lanes that the warps have. A block of T threads is
      cut into ceil(T / 32) warps, so a warp has T / ceil(T / 32) lanes on average; in each of
      `flow_requests` basic blocks that many could have been active, and in all `flow_lanes` were.

    "none" if no share reaches 0.25. Global atomics are left out, of the waste and of the whole. No
    test is a close call: the largest share is at least 0.03 away from every other one and from
    0.25. The constants are in `types_lab05.py`.
    """
    # BEGIN SOLUTION explain
    read = [row for row in report.accesses if (row.space, row.kind) == ("global", "read")]
    written = [row for row in report.accesses if (row.space, row.kind) == ("global", "write")]
    shared = [row for row in report.accesses if row.space == "shared"]
    moved = sum(row.sectors for row in read + written)
    passes = sum(row.wavefronts for row in shared)
    lanes_a_warp = report.threads / ceil(report.threads / WARP)
    lanes = report.flow_requests * lanes_a_warp

    def share(waste: float, whole: float) -> float:
        return waste / whole if whole else 0.0

    shares: dict[Cause, float] = {
        UNCOALESCED_LOAD: share(sum(row.sectors - row.ideal_sectors for row in read), moved),
        UNCOALESCED_STORE: share(sum(row.sectors - row.ideal_sectors for row in written), moved),
        BANK_CONFLICT: share(sum(row.wavefronts - row.ideal_wavefronts for row in shared), passes),
        DIVERGENCE: share(lanes - report.flow_lanes, lanes),
    }
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else NONE
    # END SOLUTION


# --- 11 ------------------------------------------------------------------------------------------


def swizzled(byte_address: int, bits: int, base: int, shift: int) -> int:
    """Given: an XOR swizzle of byte addresses. The `bits` bits from bit `base` on become their XOR
    with the bits that lie `shift` above each of them (CUTLASS: Swizzle<bits, base, shift> of an
    address in bytes)."""
    return byte_address ^ (byte_address >> shift & ((1 << bits) - 1) << base)


def ldmatrix_rows(row: int, chunk: int) -> list[int]:
    """The eight addresses that `ldmatrix` needs for one 8 x 8 fragment of 2-byte elements.

    The tile has rows of 128 bytes and begins at 0, and is stored under the 128-byte swizzle: the 16
    bytes of chunk c (0 to 7) of row r lie at chunk c XOR (r mod 8) of that row. The fragment has
    rows `row` to `row + 7`, and of each the 16 bytes of chunk `chunk`; row may be any number from 0
    on. Returns byte addresses, one for each row, in order: those of lanes 0 to 7.
    Source: PTX ISA, ldmatrix, and the 128-byte swizzling mode of tensor copies.
    """
    # BEGIN SOLUTION ldmatrix_rows
    return [r * 128 + (chunk ^ r % 8) * 16 for r in range(row, row + 8)]
    # END SOLUTION


def swizzle_search(row_bytes: int) -> list[tuple[int, int, int]]:
    """All XOR swizzles that make a tile free of conflicts for its writes and its fragment reads.

    The tile has 32 rows of row_bytes (a power of two, 32 to 1,024) and begins at 0; what belongs at
    byte address a is stored at `swizzled(a, bits, base, shift)`. Free of conflicts means degree 1
    for
    - every write: 8 lanes of 16 bytes each store 128 neighbouring bytes, from a multiple of 128 on;
    - every fragment read: 8 lanes read the same 16-byte chunk of 8 neighbouring rows, the first of
      them a multiple of 8.
    A swizzle counts only if the 16 bytes of every chunk stay together and in order, at a multiple
    of 16.
    Searches bits 0 to 4, base 0 to 6 and shift 1 to 6. Returns (bits, base, shift), sorted.
    """
    # BEGIN SOLUTION swizzle_search
    size = 32 * row_bytes
    writes = [range(start, start + 128, 16) for start in range(0, size, 128)]
    reads = [
        range(start + chunk, start + chunk + 8 * row_bytes, row_bytes)
        for start in range(0, size, 8 * row_bytes)
        for chunk in range(0, row_bytes, 16)
    ]

    def is_free(bits: int, base: int, shift: int) -> bool:
        if bits and base < 4:
            return False  # bytes of a chunk would part
        return all(
            conflict_degree([swizzled(a, bits, base, shift) for a in lanes], 16) == 1
            for lanes in (*reads, *writes)
        )

    triples = product(range(5), range(7), range(1, 7))
    return [triple for triple in triples if is_free(*triple)]
    # END SOLUTION
