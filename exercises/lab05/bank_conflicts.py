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
    # TODO(lab05.bank_of): The bank of a byte
    raise NotImplementedError("lab05.bank_of")


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
    # TODO(lab05.conflict_degree): The way of a request's bank conflict
    raise NotImplementedError("lab05.conflict_degree")


# --- 3 -------------------------------------------------------------------------------------------


def sectors(byte_addresses: Addresses, width: int) -> tuple[int, int]:
    """How many 32-byte sectors, and how many 128-byte lines, of global memory a request touches.

    byte_addresses: up to 32, counted from an address that is a multiple of 128, or None. A GPU has
    more than 4 GiB, so an address may be beyond 2**32.
    width: bytes a lane, 1 or more. Addresses need not be multiples of it, nor width a power of two:
    for a struct of 12 bytes that all lanes read, give 12. A sector counts once, however many lanes
    need bytes of it, and a lane may need bytes of several. A request without any lane touches 0, 0.
    """
    # TODO(lab05.sectors): Sectors and lines of a request
    raise NotImplementedError("lab05.sectors")


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
    # TODO(lab05.padding): The smallest padding of a tile
    raise NotImplementedError("lab05.padding")


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
    # TODO(lab05.explain): Name the limiter from its counters
    raise NotImplementedError("lab05.explain")


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
    # TODO(lab05.ldmatrix_rows): Row addresses of a fragment
    raise NotImplementedError("lab05.ldmatrix_rows")


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
    # TODO(lab05.swizzle_search): All swizzles that do
    raise NotImplementedError("lab05.swizzle_search")
