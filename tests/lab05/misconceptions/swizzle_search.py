from grader.suite import lines, misconception


@misconception()
def writes_only(row_bytes):
    """Only the writes are looked at, and nearly every swizzle leaves these free of conflicts; it
    is the fragment reads, down a column of chunks, that need one."""
    from itertools import product

    writes = [range(start, start + 128, 16) for start in range(0, 32 * row_bytes, 128)]
    return [
        (bits, base, shift)
        for bits, base, shift in product(range(5), range(7), range(1, 7))
        if (base >= 4 or not bits)
        and all(
            conflict_degree([swizzled(a, bits, base, shift) for a in lanes], 16) == 1
            for lanes in writes
        )
    ]


_PARTS = """Swizzles with a base below 4 are among these; they exchange bytes within a chunk of 16,
    which a 16-byte access must find together and in order."""

_NO_GUARD = (
    "        if bits and base < 4:\n            return False  # bytes of a chunk would part\n",
    "",
)

chunks_may_part = lines(
    _PARTS,
    _NO_GUARD,
    ("swizzled(a, bits, base, shift) for", "swizzled(a, bits, base, shift) // 16 * 16 for"),
)

first_words_may_part = lines(
    _PARTS,
    _NO_GUARD,
    (
        "[swizzled(a, bits, base, shift) for a in lanes], 16)",
        "[swizzled(a, bits, base, shift) // 4 * 4 for a in lanes], 4)",
    ),
)


@misconception()
def the_known_one_for_all(row_bytes):
    """Swizzle<3, 4, 3> fits rows of 128 bytes. Rows of 256 differ in higher bits, rows of 64 in
    lower ones, and there are others that do as well: try all."""
    return [(3, 4, 3)]


ranges_without_their_ends = lines(
    """The last of each range is left out: bits 4, base 6 and shift 6 are searched too, and
    range(4) ends at 3.""",
    ("product(range(5), range(7), range(1, 7))", "product(range(4), range(6), range(1, 6))"),
)


@misconception()
def fragments_along_a_row(row_bytes):
    """A fragment read takes eight chunks of one row here; its eight lanes read the same chunk of
    eight rows, one below the other."""
    from itertools import product

    size = 32 * row_bytes
    asked = [range(start, start + 128, 16) for start in range(0, size, 128)]
    asked += [
        [row * row_bytes + (chunk + 16 * lane) % row_bytes for lane in range(8)]
        for row in range(0, 32, 8)
        for chunk in range(0, row_bytes, 16)
    ]
    return [
        (bits, base, shift)
        for bits, base, shift in product(range(5), range(7), range(1, 7))
        if (base >= 4 or not bits)
        and all(
            conflict_degree([swizzled(a, bits, base, shift) for a in lanes], 16) == 1
            for lanes in asked
        )
    ]


eight_chunks_whatever_the_row = lines(
    """Eight chunks a row are tried for every length, as a row of 128 bytes has them; in rows of 32
    or 64 bytes chunks 2 or 4 and on belong to the next row, and longer rows have more of them.""",
    ("for chunk in range(0, row_bytes, 16)", "for chunk in range(0, 128, 16)"),
)

shift_ends_at_five = lines(
    """The last shift is left out: shift 6 is searched too, and range(1, 6) ends at 5. Rows of 1,024
    bytes need it.""",
    ("product(range(5), range(7), range(1, 7))", "product(range(5), range(7), range(1, 6))"),
)
