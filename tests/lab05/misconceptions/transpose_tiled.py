from grader.suite import block, lines

from ._passages import _LOAD, _LONGER, _MEET, _STORE

_SQUARE = "    __shared__ float tile[TILE][TILE];"

no_barrier = block(
    """A thread reads what others have written: without __syncthreads() between the two halves
    it may read before they do. (__syncwarp() does not do: a column was written by all eight
    warps.)""",
    _SQUARE + _LOAD + _STORE,
)

barrier_inside_the_guard = block(
    """Threads outside the matrix never get to the barrier, because it stands inside an if or
    because they have returned before. They too must wait: in the mirrored tile they may have
    something to store.""",
    """
    __shared__ float tile[TILE][TILE];
    int x = blockIdx.x * TILE + threadIdx.x;
    if (x < w) {
        for (int j = threadIdx.y; j < TILE; j += ROWS) {
            int y = blockIdx.y * TILE + j;
            if (y < h)
                tile[j][threadIdx.x] = in[y * w + x];
        }
        __syncthreads();
    }
"""
    + _STORE,
)

stores_in_columns = block(
    """The tile is there, but each thread stores the element that it has loaded: the stores are as
    strided as before, 32 sectors each. After the barrier threadIdx.x must run along a row of
    `out`.""",
    _SQUARE
    + _LOAD
    + _MEET
    + """
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (x < w && y < h)
            out[x * h + y] = tile[j][threadIdx.x];
    }
""",
)

block_stays_where_it_is = lines(
    """The elements of the tile are exchanged, but the tile itself stays at its place: in `out` its
    rows begin at 32 blockIdx.x and its columns at 32 blockIdx.y.""",
    ("y * TILE + threadIdx.x; // of `out`", "x * TILE + threadIdx.x;"),
    ("int row = blockIdx.x * TILE + j; // of `out`", "int row = blockIdx.y * TILE + j;"),
)

tile_stays_as_it_is = block(
    """The tile goes to its mirrored place, but its elements are not exchanged: what was loaded
    into tile[j][threadIdx.x] must be read as tile[threadIdx.x][j].""",
    _SQUARE + _LOAD + _MEET + _STORE.replace("tile[threadIdx.x][j]", "tile[j][threadIdx.x]"),
)

no_guard_for_the_store = block(
    """The store needs a guard of its own: it goes to another element of `out` than the load came
    from, whose column must be below h and whose row below w.""",
    _SQUARE + _LOAD + _MEET + _STORE.replace("if (column < h && row < w)", ""),
)

tiled_with_padding = block(
    """The tile has a 33rd column, which is the next task; this one keeps its 32 x 32 floats and the
    conflict that comes with them.""",
    _LONGER + _LOAD + _MEET + _STORE,
)

rows_of_out_have_w_here_too = block(
    """A row of `out` has h elements: out[row * w + column] is right for square matrices only.""",
    _SQUARE + _LOAD + _MEET + _STORE.replace("row * h + column", "row * w + column"),
)

guard_is_not_mirrored = block(
    """The second guard is that of the first half; of `out` the columns end at h and the rows at w,
    so it is column < h && row < w.""",
    _SQUARE + _LOAD + _MEET + _STORE.replace("column < h && row < w", "column < w && row < h"),
)

guard_of_the_load_again = block(
    """The second half is guarded by x and y of the load; it stores another element, whose column
    must be below h and whose row below w.""",
    _SQUARE
    + _LOAD
    + _MEET
    + _STORE.replace("column < h && row < w", "x < w && (int)blockIdx.y * TILE + j < h"),
)

one_guard_for_the_whole_tile = block(
    """y * w + x < w * h does not stop at the right edge: the element after a row's last is the next
    row's first. Guard x and y each, and row and column.""",
    _SQUARE
    + _LOAD.replace("x < w && y < h", "y * w + x < w * h")
    + _MEET
    + _STORE.replace("column < h && row < w", "row * h + column < w * h"),
)

tile_of_whole_numbers = block(
    """The tile holds whole numbers, so each float loses what stands behind its point; declare it as
    float.""",
    _SQUARE.replace("float", "int") + _LOAD + _MEET + _STORE,
)

_EARLY = """Threads outside the matrix never get to the barrier, because it stands inside an if or
    because they have returned before. They too must wait: in the mirrored tile they may have
    something to store."""

_RETURN = "    if ({})\n        return;\n    for"

rows_below_return_early = block(
    _EARLY,
    _SQUARE
    + _LOAD.replace("    for", _RETURN.format("(int)(blockIdx.y * TILE + threadIdx.y) >= h"), 1)
    + _MEET
    + _STORE,
)

columns_beyond_return_early = block(
    _EARLY,
    _SQUARE + _LOAD.replace("    for", _RETURN.format("x >= w"), 1) + _MEET + _STORE,
)

both_return_early = block(
    _EARLY,
    _SQUARE
    + _LOAD.replace(
        "    for", _RETURN.format("x >= w || (int)(blockIdx.y * TILE + threadIdx.y) >= h"), 1
    )
    + _MEET
    + _STORE,
)

tiled_with_a_33rd_row = block(
    """The tile has a 33rd row, in which nothing ever lies: 132 bytes more than the 4,096 of 32 x 32
    floats.""",
    _SQUARE.replace("[TILE][TILE]", "[TILE + 1][TILE]") + _LOAD + _MEET + _STORE,
)

fills_the_tile_by_clamping = block(
    """The tile is filled beyond the edge too, with elements of the last column and row, which are
    read many times. What lies outside of the matrix is never stored, so it need not be loaded.""",
    _SQUARE
    + _LOAD.replace("        if (x < w && y < h)\n    ", "").replace(
        "in[y * w + x]", "in[min(y, h - 1) * w + min(x, w - 1)]"
    )
    + _MEET
    + _STORE,
    gate=False,
)
