from grader.suite import block, lines

from ._passages import _LOAD, _LONGER, _MEET, _STORE

no_padding = lines(
    """The tile has rows of 32 words, so all 32 words of a column are in one bank: each row must be
    one word longer.""",
    ("[TILE + 1]; // 33 words on, the next row begins one bank further", "[TILE];"),
)

padded_by_two = lines(
    """Rows of 34 words leave a 2-way conflict: 34 and 32 share the factor 2. An odd number is
    needed, and 33 is the smallest.""",
    ("[TILE + 1]; // 33 words on, the next row begins one bank further", "[TILE + 2];"),
)

padded_by_a_warp = lines(
    """Rows of 64 words begin in the same bank as rows of 32: all the memory for nothing. What
    counts is the length modulo 32.""",
    ("[TILE + 1]; // 33 words on, the next row begins one bank further", "[2 * TILE];"),
)

padded_in_bytes = lines(
    """Four elements were added, perhaps because a word has four bytes: rows of 36 words leave a
    4-way conflict. One element is one bank.""",
    ("[TILE + 1]; // 33 words on, the next row begins one bank further", "[TILE + 4];"),
)

padded_by_a_row = lines(
    """There is a 33rd row here; it is the rows that must be longer, tile[32][33], so that each
    begins in another bank.""",
    ("[TILE][TILE + 1]; // 33 words on, the next row begins one bank further", "[TILE + 1][TILE];"),
)

padded_on_both_sides = lines(
    """A 33rd row serves nobody: 132 bytes more than the 4,224 that are needed.""",
    (
        "[TILE][TILE + 1]; // 33 words on, the next row begins one bank further",
        "[TILE + 1][TILE + 1];",
    ),
)

padded_without_a_barrier = block(
    """The padding removes conflicts between banks, not the need to wait: __syncthreads() is missing
    between the two halves.""",
    _LONGER + _LOAD + _STORE,
)

padded_but_stores_in_columns = block(
    """The stores to `out` go in columns, 32 sectors each: the tile is written and read by rows, so
    its padding has nothing to do.""",
    _LONGER
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

padded_and_a_barrier_inside_the_guard = block(
    """Threads outside the matrix never get to the barrier, because it stands inside an if or
    because they have returned before; all threads of a block must reach it.""",
    """
    __shared__ float tile[TILE][TILE + 1];
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

padded_and_one_guard_for_the_whole = block(
    """y * w + x < w * h does not stop at the right edge: the element after a row's last is the next
    row's first. Guard x and y each, and row and column.""",
    _LONGER
    + _LOAD.replace("x < w && y < h", "y * w + x < w * h")
    + _MEET
    + _STORE.replace("column < h && row < w", "row * h + column < w * h"),
)

padded_and_guard_is_not_mirrored = block(
    """The second guard is that of the first half; of `out` the columns end at h and the rows at w,
    so it is column < h && row < w.""",
    _LONGER + _LOAD + _MEET + _STORE.replace("column < h && row < w", "column < w && row < h"),
)

swizzled_in_place_of_padding = block(
    """Nothing is padded: the columns are permuted, which is the next task. Here the rows of the
    tile are one word longer, 4,224 bytes in all.""",
    "    __shared__ float tile[TILE][TILE];"
    + _LOAD.replace("tile[j][threadIdx.x]", "tile[j][threadIdx.x ^ j]")
    + _MEET
    + _STORE.replace("tile[threadIdx.x][j]", "tile[threadIdx.x][threadIdx.x ^ j]"),
)
