from grader.suite import block, lines

rows_of_out_have_w = lines(
    """A row of `out` has h elements, not w: out[x * w + y] is right for square matrices only.""",
    ("out[x * h + y] = in[y * w + x];", "out[x * w + y] = in[y * w + x];"),
)

copies = lines(
    """x and y are exchanged in neither address, so this is a copy: element (y, x) of `in` belongs
    to row x of `out`.""",
    ("out[x * h + y] = in[y * w + x];", "out[y * w + x] = in[y * w + x];"),
)

reads_in_columns = lines(
    """The lanes run along y here: the values are right, but each load touches 32 sectors and each
    store 4. This task wants the loads coalesced: let x follow threadIdx.x.""",
    ("int x = blockIdx.x * TILE + threadIdx.x;", "int y = blockIdx.y * TILE + threadIdx.x;"),
    ("int y = blockIdx.y * TILE + j;", "int x = blockIdx.x * TILE + j;"),
)

reads_and_writes_exchanged = lines(
    """The block's tile is taken as one of `out`: in[x * h + y] goes to out[y * w + x]. Rows of `in`
    are w long, and the grid covers w columns of `in`.""",
    ("out[x * h + y] = in[y * w + x];", "out[y * w + x] = in[x * h + y];"),
)

one_element_a_thread = block(
    """Each thread moves one element: the first 8 rows of each tile. A block has 8 rows of threads
    for 32 rows of elements, so each thread has four to move.""",
    """
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    if (x < w && y < h)
        out[x * h + y] = in[y * w + x];
""",
)

tiles_of_eight_rows = block(
    """blockIdx.y * blockDim.y steps by 8 rows a block; a block owns 32 rows, so it must step by 32:
    most rows are never read here.""",
    """
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS)
        if (x < w && y + j < h)
            out[x * h + y + j] = in[(y + j) * w + x];
""",
)

no_guard = lines(
    """Where w or h is no multiple of 32 the last tiles hang over the edge: guard with x < w and
    y < h.""",
    (
        "if (x < w && y < h)\n            out[x * h + y] = in[y * w + x];",
        "out[x * h + y] = in[y * w + x];",
    ),
)

guards_exchanged = lines(
    """x runs over the w columns and y over the h rows of `in`; the guard compares x with h and y
    with w here, which does for square matrices only.""",
    ("if (x < w && y < h)", "if (x < h && y < w)"),
)

one_guard_for_the_whole = lines(
    """y * w + x < w * h does not stop at the right edge: the element after a row's last is the next
    row's first, and it is written to a place that belongs to nobody or to another.""",
    ("if (x < w && y < h)", "if (y * w + x < w * h)"),
)

through_a_tile_for_nothing = block(
    """The elements go through shared memory, each to the thread that has put it there: the stores
    are as strided as before. This task has no tile.""",
    """
    __shared__ float tile[TILE][TILE];
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (x < w && y < h) {
            tile[j][threadIdx.x] = in[y * w + x];
            out[x * h + y] = tile[j][threadIdx.x];
        }
    }
""",
)

rows_in_steps_of_four = lines(
    """The rows go in steps of 4, and a block has 8 rows of threads: from row 4 on each row is read
    and written by two warps. Step by the rows of threads.""",
    ("j += ROWS", "j += 4"),
)

_INSIDE = "if (x < w && y < h)\n            out[x * h + y] = in[y * w + x];"

clamps_instead_of_guarding = lines(
    """x and y are held back at the last column and row, so the threads beyond the edge repeat its
    elements: the values are right, and each of them is read and written many times. Leave these
    threads idle.""",
    ("blockIdx.x * TILE + threadIdx.x;", "min((int)(blockIdx.x * TILE + threadIdx.x), w - 1);"),
    ("int y = blockIdx.y * TILE + j;", "int y = min((int)blockIdx.y * TILE + j, h - 1);"),
    (_INSIDE, "out[x * h + y] = in[y * w + x];"),
    gate=False,
)
