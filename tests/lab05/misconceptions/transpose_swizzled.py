from grader.suite import lines, misconception

row_for_row_xor_col = lines(
    """The swizzle gives the row alone, so all 32 elements of a row land in one word; each row
    needs a permutation of its columns, as row ^ col is.""",
    ("return row ^ col;", "return row;"),
)

nothing_is_moved = lines(
    """The swizzle gives back the column, so nothing is moved and each column is in one bank: the
    place must depend on the row.""",
    ("return row ^ col;", "return col;"),
)

eight_rows_only = lines(
    """col ^ (row & 7) is the swizzle for chunks of 16 bytes, eight of which fill the banks; of
    4-byte words there are 32, so rows 0, 8, 16 and 24 still meet: a 4-way conflict.""",
    ("return row ^ col;", "return col ^ (row & 7);"),
)

turns_by_two = lines(
    """Each row is turned by two words more than the one above, so row 16 is back where row 0 is: a
    2-way conflict. Turn by an odd number.""",
    ("return row ^ col;", "return (col + 2 * row) % 32;"),
)

half_the_row = lines(
    """row >> 1 is the same for two neighbouring rows, and the two meet in each column: a 2-way
    conflict.""",
    ("return row ^ col;", "return col ^ (row >> 1);"),
)

or_for_xor = lines(
    """row | col is no permutation: row 31 puts all its elements into column 31. XOR keeps them
    apart, because row ^ a == row ^ b only where a == b.""",
    ("return row ^ col;", "return row | col;"),
)

beyond_the_row = lines(
    """row + col goes beyond column 31, into the next row: take it modulo 32.""",
    ("return row ^ col;", "return row + col;"),
)

swizzled_on_one_side_only = lines(
    """The tile is written through the swizzle and read without it, or the other way round, so other
    elements come out: element (row, col) must be looked up where it was put.""",
    ("swizzle(threadIdx.x, j)", "j"),
)

rows_are_swizzled = lines(
    """The row is permuted where the column should be; the bank is decided by the column, so a
    column of the tile still lies in one bank.""",
    ("[j][swizzle(j, threadIdx.x)]", "[swizzle(j, threadIdx.x)][threadIdx.x]"),
    ("[threadIdx.x][swizzle(threadIdx.x, j)]", "[swizzle(threadIdx.x, j)][j]"),
)

swizzle_is_not_used = lines(
    """The rule is right, but the kernel does not use it: the tile is written and read as it
    stands.""",
    ("swizzle(j, threadIdx.x)", "threadIdx.x"),
    ("swizzle(threadIdx.x, j)", "j"),
)

swizzled_and_padded = lines(
    """The tile has a 33rd column and a swizzle: either of them would do, and only the swizzle is
    free of cost.""",
    ("__shared__ float tile[TILE][TILE];", "__shared__ float tile[TILE][TILE + 1];"),
)


def _other(text, *changes):
    """The reference with lines of its swizzled kernel or of its rule exchanged."""
    for old, new in changes:
        if old not in text:
            raise ValueError(f"the reference has no {old!r}")
        text = text.replace(old, new)
    return text


@misconception(file="transpose.cu")
def swizzled_without_a_barrier(text):
    """A swizzle changes where elements lie, not who wrote them: __syncthreads() is missing
    between the two halves."""
    before, name, after = text.partition("__global__ void transpose_swizzled(")
    return before + name + _other(after, ("    __syncthreads();\n", ""))


looks_in_another_row = lines(
    """The tile is written at [row][swizzle(row, col)] and read at [swizzle(row, col)][row]: row and
    place are exchanged on one side, so other elements come out.""",
    ("tile[threadIdx.x][swizzle(threadIdx.x, j)]", "tile[swizzle(threadIdx.x, j)][threadIdx.x]"),
)

another_rule_in_the_kernel = lines(
    """The kernel goes through its tile by a rule of its own, which is written out there. swizzle()
    says where the elements lie: call it wherever the tile is written or read.""",
    ("swizzle(j, threadIdx.x)", "(j + threadIdx.x) % TILE"),
    ("swizzle(threadIdx.x, j)", "(j + threadIdx.x) % TILE"),
)

the_rule_is_written_out = lines(
    """The kernel goes through its tile by a rule of its own, which is written out there. swizzle()
    says where the elements lie: call it wherever the tile is written or read.""",
    ("swizzle(j, threadIdx.x)", "j ^ threadIdx.x"),
    ("swizzle(threadIdx.x, j)", "j ^ threadIdx.x"),
)

asks_with_row_and_column_exchanged = lines(
    """swizzle() is asked with row and column exchanged, on both sides: with row ^ col nobody sees
    it, under another rule the elements lie elsewhere. Its first argument is the row of the
    tile.""",
    ("swizzle(j, threadIdx.x)", "swizzle(threadIdx.x, j)"),
    ("[threadIdx.x][swizzle(threadIdx.x, j)]", "[threadIdx.x][swizzle(j, threadIdx.x)]"),
)

remainder_below_zero = lines(
    """In C++ (col - row) % 32 is negative where col is below row, so the element goes into the row
    before. Write (col - row) & 31, or add 32 first.""",
    ("return row ^ col;", "return (col - row) % 32;"),
)

remainder_of_row_less_col = lines(
    """In C++ (row - col) % 32 is negative where row is below col, so the element goes into the row
    before. Write (row - col) & 31, or add 32 first.""",
    ("return row ^ col;", "return (row - col) % 32;"),
)
