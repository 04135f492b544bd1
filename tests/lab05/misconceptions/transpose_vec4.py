from grader.lab.skeleton import with_block
from grader.suite import lines, misconception

rows_of_33_for_float4 = lines(
    """A row of 33 floats does not begin at a multiple of 16 bytes, and a float4 must: an odd
    padding is for single floats.""",
    ("TILE * TILE", "TILE * (TILE + 1)"),
    ("TILE + 4 * place", "(TILE + 1) + 4 * chunk"),
    ("TILE + 4 * (line / 4 ^ chunk) + line % 4", "(TILE + 1) + line"),
)

chunks_where_they_are = lines(
    """The 16-byte side is free of conflicts and the other is not: eight rows of a column, four
    apart, lie in the same banks, so the chunks must be moved from row to row.""",
    ("4 * place", "4 * chunk"),
    ("4 * (line / 4 ^ chunk) + line % 4", "line"),
)

chunks_by_the_row = lines(
    """chunk ^ (row & 7) tells neighbouring rows apart, but the lanes of a request want rows that
    lie four apart: of those only two are told apart, a 4-way conflict.""",
    ("int place = chunk ^ (line / 4);", "int place = chunk ^ (line & 7);"),
    ("4 ^ chunk", "4 ^ ((4 * chunk + k) & 7)"),
)


@misconception(file="transpose.cu")
def single_floats(text):
    """The floats are read and written one by one: right, but four times the requests. Read a
    float4 from `in` and write a float4 to `out`."""
    block = text.partition("// BEGIN SOLUTION transpose_swizzled")[2]
    block = block.partition("// BEGIN SOLUTION transpose_swizzled")[2].partition("// END")[0]
    return with_block(text, "transpose_vec4", block)


chunks_without_a_barrier = lines(
    """A thread reads what others have written: __syncthreads() is missing between the two
    halves.""",
    ("    __syncthreads();\n", ""),
)

column_of_a_line = lines(
    """Float k of a thread's chunk of `out` is taken from row `line` of the tile; it is element
    (4 * chunk + k, line): the row is what runs along the chunk.""",
    (
        "tile[(4 * chunk + k) * TILE + 4 * (line / 4 ^ chunk) + line % 4]",
        "tile[line * TILE + 4 * (chunk ^ line / 4) + k]",
    ),
)

guards_of_four_exchanged = lines(
    """The second guard is that of the first half; of `out` the columns end at h and the rows at w,
    so it is column < h && row < w.""",
    ("column < h && row < w", "column < w && row < h"),
)

_WHOLE = "        to[0] = make_float4(four[0], four[1], four[2], four[3]);\n"
_EDGE = """Where the tile hangs over the edge the floats are moved one by one here; w and h are
    multiples of 4, so a chunk of 16 bytes lies in the matrix as a whole or not at all."""


def _single_unless(whole):
    one_by_one = "            for (int k = 0; k < 4; ++k) out[row * h + column + k] = four[k];\n"
    return (_WHOLE, f"        if ({whole})\n    {_WHOLE}        else\n{one_by_one}")


single_floats_below = lines(
    _EDGE, _single_unless("(int)(blockIdx.y * TILE + TILE) <= h"), gate=False
)

single_floats_at_both_edges = lines(
    _EDGE,
    _single_unless("(int)(blockIdx.y * TILE + TILE) <= h && (int)(blockIdx.x * TILE + TILE) <= w"),
    gate=False,
)
