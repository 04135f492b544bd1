"""Known wrong answers of lab 05. Python ones run inside a fresh copy of the reference module; those
of `transpose.cu` give the text of a wrong file."""

from grader.skeleton import with_block
from grader.suite import misconception

# --- bank_of -------------------------------------------------------------------------------------


@misconception("bank_of")
def bank_by_byte(byte_address):
    """Banks are counted by bytes here; a bank is 4 bytes wide, so the four bytes of a word are in
    one bank, and the banks repeat every 128 bytes, not every 32."""
    return byte_address % 32


@misconception("bank_of")
def banks_without_end(byte_address):
    """This is the number of the word; there are 32 banks, and word 32 is in bank 0 again."""
    return byte_address // 4


@misconception("bank_of")
def banks_of_eight_bytes(byte_address):
    """The banks are 8 bytes wide here, a mode that only GPUs of compute capability 3 had; since
    then a bank is 4 bytes wide."""
    return byte_address // 8 % 32


@misconception("bank_of")
def blocks_of_banks(byte_address):
    """Each bank holds a stretch of 128 bytes in a row here; it is the other way round, neighbouring
    words are in neighbouring banks."""
    return byte_address // 128 % 32


# --- conflict_degree -----------------------------------------------------------------------------


@misconception("conflict_degree")
def broadcast_is_a_conflict(byte_addresses, width):
    """Lanes that want the same word are served together, by a broadcast; the lanes of a bank are
    counted here, where its different words should be."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    lanes = {8: 16, 16: 8}.get(width, 32)
    worst = 0
    for start in range(0, len(byte_addresses), lanes):
        banks = [a // 4 % 32 for a in byte_addresses[start : start + lanes] if a is not None]
        worst = max([worst, *(banks.count(bank) for bank in banks)])
    return worst


@misconception("conflict_degree")
def degree_by_byte_banks(byte_addresses, width):
    """The bank is taken as the address modulo 32; a bank is a word of 4 bytes wide, so it is the
    address divided by 4, modulo 32."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    lanes = {8: 16, 16: 8}.get(width, 32)
    worst = 0
    for start in range(0, len(byte_addresses), lanes):
        words = {}
        for a in byte_addresses[start : start + lanes]:
            for byte in range(a or 0, (a or 0) + (width if a is not None else 0), 4):
                words.setdefault(byte % 32, set()).add(byte // 4)
        worst = max(worst, max(map(len, words.values()), default=0))
    return worst


@misconception("conflict_degree")
def no_phases(byte_addresses, width):
    """All 32 lanes are put into one pass; lanes of 8 bytes go as two half-warps and lanes of 16
    bytes as four quarter-warps, so float4 in a row have no conflict."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    words = {}
    for a in byte_addresses:
        for byte in range(a or 0, (a or 0) + (width if a is not None else 0), 4):
            words.setdefault(byte // 4 % 32, set()).add(byte // 4)
    return max(map(len, words.values()), default=0)


@misconception("conflict_degree")
def lanes_of_a_bank_all_at_once(byte_addresses, width):
    """The lanes of each bank are counted, all 32 at once; count its different words instead, and
    for lanes of 8 and 16 bytes half- or quarter-warp by half- or quarter-warp."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    banks = [a // 4 % 32 for a in byte_addresses if a is not None]
    return max((banks.count(bank) for bank in banks), default=0)


@misconception("conflict_degree")
def wavefronts_of_all_phases(byte_addresses, width):
    """The phases are added up: that is the number of wavefronts, which is 4 for float4 at its best;
    the degree of the conflict is that of the worst phase."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    lanes = {8: 16, 16: 8}.get(width, 32)
    total = 0
    for start in range(0, len(byte_addresses), lanes):
        words = {}
        for a in byte_addresses[start : start + lanes]:
            for byte in range(a or 0, (a or 0) + (width if a is not None else 0), 4):
                words.setdefault(byte // 4 % 32, set()).add(byte // 4)
        total += max(map(len, words.values()), default=0)
    return total


@misconception("conflict_degree")
def one_less(byte_addresses, width):
    """An access without conflict has degree 1, one pass, not 0: the degree counts the passes, not
    the extra ones."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    lanes = {8: 16, 16: 8}.get(width, 32)
    worst = 0
    for start in range(0, len(byte_addresses), lanes):
        words = {}
        for a in byte_addresses[start : start + lanes]:
            for byte in range(a or 0, (a or 0) + (width if a is not None else 0), 4):
                words.setdefault(byte // 4 % 32, set()).add(byte // 4)
        worst = max(worst, max(map(len, words.values()), default=0))
    return max(worst - 1, 0)


@misconception("conflict_degree")
def only_the_stride_is_looked_at(byte_addresses, width):
    """gcd(stride, 32) holds for lanes at one stride; the stride of the first two lanes says nothing
    about a permutation, a gather or two halves that differ."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    import math

    known = [a for a in byte_addresses if a is not None]
    if len(known) < 2:
        return len(known)
    units = abs(known[1] - known[0]) // width
    lanes = {8: 16, 16: 8}.get(width, 32)
    return math.gcd(units, lanes) if units else 1


@misconception("conflict_degree")
def phases_of_interleaved_lanes(byte_addresses, width):
    """The phases take every second or fourth lane here; a phase is a run of neighbours, lanes 0
    to 15 or 0 to 7."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    step = {8: 2, 16: 4}.get(width, 1)
    worst = 0
    for start in range(step):
        words = {}
        for a in byte_addresses[start::step]:
            for byte in range(a or 0, (a or 0) + (width if a is not None else 0), 4):
                words.setdefault(byte // 4 % 32, set()).add(byte // 4)
        worst = max(worst, max(map(len, words.values()), default=0))
    return worst


@misconception("conflict_degree")
def lanes_over_banks(byte_addresses, width):
    """Lanes divided by the banks that they use is a mean; the fullest bank decides, and the others
    wait for it."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    lanes = {8: 16, 16: 8}.get(width, 32)
    worst = 0
    for start in range(0, len(byte_addresses), lanes):
        part = {a for a in byte_addresses[start : start + lanes] if a is not None}
        words = {byte // 4 for a in part for byte in range(a, a + width, 4)}
        if words:
            worst = max(worst, -(-len(words) // len({word % 32 for word in words})))
    return worst


# --- sectors -------------------------------------------------------------------------------------


@misconception("sectors")
def lines_for_sectors(byte_addresses, width):
    """Lines of 128 bytes are counted twice here; a cache line is four sectors, and what moves is
    the sectors: 32 bytes each."""
    lines = {
        piece
        for a in byte_addresses
        if a is not None
        for piece in range(a // 128, (a + width - 1) // 128 + 1)
    }
    return len(lines), len(lines)


@misconception("sectors")
def lines_come_first(byte_addresses, width):
    """The order is (sectors, lines); it is the other way round here."""
    bytes_ = {b for a in byte_addresses if a is not None for b in range(a, a + width)}
    return len({b // 128 for b in bytes_}), len({b // 32 for b in bytes_})


@misconception("sectors")
def counted_from_the_first_lane(byte_addresses, width):
    """Sectors begin at multiples of 32 in memory, not at the first lane's address: 128 bytes from
    byte 4 on touch five of them."""
    known = [a for a in byte_addresses if a is not None]
    low = min(known, default=0)
    bytes_ = {b - low for a in known for b in range(a, a + width)}
    return len({b // 32 for b in bytes_}), len({b // 128 for b in bytes_})


@misconception("sectors")
def bytes_over_32(byte_addresses, width):
    """The bytes that are asked for, divided by 32, are the ideal; a sector is moved whole, even
    for 4 bytes of it."""
    bytes_ = {b for a in byte_addresses if a is not None for b in range(a, a + width)}
    return -(-len(bytes_) // 32), -(-len(bytes_) // 128)


@misconception("sectors")
def span_over_32(byte_addresses, width):
    """From the first byte to the last there may be sectors that no lane touches, and these do not
    move: count the sectors, not the distance."""
    known = [a for a in byte_addresses if a is not None]
    if not known:
        return 0, 0
    low, high = min(known), max(known) + width - 1
    return high // 32 - low // 32 + 1, high // 128 - low // 128 + 1


@misconception("sectors")
def first_bytes_only(byte_addresses, width):
    """Only the first byte of each lane is looked at; 12 bytes from byte 24 on end in the next
    sector."""
    known = [a for a in byte_addresses if a is not None]
    return len({a // 32 for a in known}), len({a // 128 for a in known})


@misconception("sectors")
def a_sector_for_each_lane(byte_addresses, width):
    """Sectors are counted lane by lane and added up; lanes that fall into the same sector share
    it."""
    known = [a for a in byte_addresses if a is not None]
    each = sum((a + width - 1) // 32 - a // 32 + 1 for a in known)
    return each, sum((a + width - 1) // 128 - a // 128 + 1 for a in known)


# --- padding -------------------------------------------------------------------------------------


@misconception("padding")
def pads_by_two(rows, cols, element_bytes):
    """Two more elements leave a 2-way conflict: a row of 34 words shares the factor 2 with 32."""
    return 2 if cols % 2 == 0 else 0


@misconception("padding")
def pads_by_a_warp(rows, cols, element_bytes):
    """A row that is 32 elements longer begins in the same bank as before: what counts is the length
    modulo 32."""
    return 32 if cols % 2 == 0 else 0


@misconception("padding")
def padding_in_bytes(rows, cols, element_bytes):
    """The answer is in bytes here; it is asked for in elements, as in tile[32][32 + 1]."""
    for pad in range(64):
        column = [row * (cols + pad) * element_bytes for row in range(min(rows, 32))]
        if conflict_degree(column, element_bytes) <= 1:
            return pad * element_bytes
    return 0


@misconception("padding")
def padding_in_words(rows, cols, element_bytes):
    """One word of 4 bytes is added for every size of element here; the padding is of whole
    elements, since a row must begin at a multiple of the element's size."""
    for pad in range(64):
        column = [row * (cols + pad) * element_bytes for row in range(min(rows, 32))]
        if conflict_degree(column, element_bytes) <= 1:
            return pad * element_bytes // 4
    return 0


@misconception("padding")
def always_one_more(rows, cols, element_bytes):
    """A tile with an odd number of columns needs nothing, and one more element would make it
    even: a conflict where there was none."""
    return 1


@misconception("padding")
def always_32_rows(rows, cols, element_bytes):
    """A tile of fewer than 32 rows has fewer lanes in a column: 36 columns of floats do for 8 rows
    without padding, since their eight rows begin in eight banks."""
    return 1 - cols % 2


@misconception("padding")
def every_element_is_a_word(rows, cols, element_bytes):
    """The addresses are taken as if each element had 4 bytes; 8 rows of 4 doubles lie 8 words
    apart, and eight steps of 8 words come round to bank 0 twice."""
    for pad in range(64):
        column = [row * (cols + pad) * 4 for row in range(min(rows, 32))]
        if conflict_degree(column, 4) <= 1:
            return pad
    return 0


@misconception("padding")
def rows_for_columns(rows, cols, element_bytes):
    """The row's length is cols; the number of rows was padded here, which moves no element to
    another bank."""
    for pad in range(64):
        column = [row * (rows + pad) * element_bytes for row in range(min(rows, 32))]
        if conflict_degree(column, element_bytes) <= 1:
            return pad
    return 0


# --- transpose_naive -----------------------------------------------------------------------------


@misconception("transpose_naive", file="transpose.cu")
def rows_of_out_have_w(text):
    """A row of `out` has h elements, not w: out[x * w + y] is right for square matrices only."""
    return with_block(
        text,
        "transpose_naive",
        """
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (x < w && y < h)
            out[x * w + y] = in[y * w + x];
    }
""",
    )


@misconception("transpose_naive", file="transpose.cu")
def copies(text):
    """x and y are exchanged in neither address, so this is a copy: element (y, x) of `in` belongs
    to row x of `out`."""
    return with_block(
        text,
        "transpose_naive",
        """
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (x < w && y < h)
            out[y * w + x] = in[y * w + x];
    }
""",
    )


@misconception("transpose_naive", file="transpose.cu")
def reads_in_columns(text):
    """The lanes run along y here: the values are right, but each load touches 32 sectors and each
    store 4. This task wants the loads coalesced: let x follow threadIdx.x."""
    return with_block(
        text,
        "transpose_naive",
        """
    int y = blockIdx.y * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int x = blockIdx.x * TILE + j;
        if (x < w && y < h)
            out[x * h + y] = in[y * w + x];
    }
""",
    )


@misconception("transpose_naive", file="transpose.cu")
def reads_and_writes_exchanged(text):
    """The block's tile is taken as one of `out`: in[x * h + y] goes to out[y * w + x]. Rows of `in`
    are w long, and the grid covers w columns of `in`."""
    return with_block(
        text,
        "transpose_naive",
        """
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (x < w && y < h)
            out[y * w + x] = in[x * h + y];
    }
""",
    )


@misconception("transpose_naive", file="transpose.cu")
def one_element_a_thread(text):
    """Each thread moves one element: the first 8 rows of each tile. A block has 8 rows of threads
    for 32 rows of elements, so each thread has four to move."""
    return with_block(
        text,
        "transpose_naive",
        """
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    if (x < w && y < h)
        out[x * h + y] = in[y * w + x];
""",
    )


@misconception("transpose_naive", file="transpose.cu")
def tiles_of_eight_rows(text):
    """blockIdx.y * blockDim.y steps by 8 rows a block; a block owns 32 rows, so it must step by 32:
    most rows are never read here."""
    return with_block(
        text,
        "transpose_naive",
        """
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS)
        if (x < w && y + j < h)
            out[x * h + y + j] = in[(y + j) * w + x];
""",
    )


@misconception("transpose_naive", file="transpose.cu")
def no_guard(text):
    """Where w or h is no multiple of 32 the last tiles hang over the edge: guard with x < w and
    y < h."""
    return with_block(
        text,
        "transpose_naive",
        """
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        out[x * h + y] = in[y * w + x];
    }
""",
    )


@misconception("transpose_naive", file="transpose.cu")
def guards_exchanged(text):
    """x runs over the w columns and y over the h rows of `in`; the guard compares x with h and y
    with w here, which does for square matrices only."""
    return with_block(
        text,
        "transpose_naive",
        """
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (x < h && y < w)
            out[x * h + y] = in[y * w + x];
    }
""",
    )


@misconception("transpose_naive", file="transpose.cu")
def one_guard_for_the_whole(text):
    """y * w + x < w * h does not stop at the right edge: the element after a row's last is the next
    row's first, and it is written to a place that belongs to nobody or to another."""
    return with_block(
        text,
        "transpose_naive",
        """
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (y * w + x < w * h)
            out[x * h + y] = in[y * w + x];
    }
""",
    )


# --- transpose_tiled -----------------------------------------------------------------------------

_LOAD = """
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (x < w && y < h)
            tile[j][threadIdx.x] = in[y * w + x];
    }
"""
_STORE = """
    int column = blockIdx.y * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int row = blockIdx.x * TILE + j;
        if (column < h && row < w)
            out[row * h + column] = tile[threadIdx.x][j];
    }
"""
_SQUARE = "    __shared__ float tile[TILE][TILE];"
_LONGER = "    __shared__ float tile[TILE][TILE + 1];"
_MEET = "    __syncthreads();"


@misconception("transpose_tiled", file="transpose.cu")
def no_barrier(text):
    """A thread reads what others have written: without __syncthreads() between the two halves it
    may read before they do. (__syncwarp() does not do: a column was written by all eight warps.)"""
    return with_block(text, "transpose_tiled", _SQUARE + _LOAD + _STORE)


@misconception("transpose_tiled", file="transpose.cu")
def barrier_inside_the_guard(text):
    """Threads outside the matrix never get to the barrier, because it stands inside an if or
    because they have returned before. They too must wait: in the mirrored tile they may have
    something to store."""
    return with_block(
        text,
        "transpose_tiled",
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


@misconception("transpose_tiled", file="transpose.cu")
def stores_in_columns(text):
    """The tile is there, but each thread stores the element that it has loaded: the stores are as
    strided as before, 32 sectors each. After the barrier threadIdx.x must run along a row of
    `out`."""
    return with_block(
        text,
        "transpose_tiled",
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


@misconception("transpose_tiled", file="transpose.cu")
def block_stays_where_it_is(text):
    """The elements of the tile are exchanged, but the tile itself stays at its place: in `out` its
    rows begin at 32 blockIdx.x and its columns at 32 blockIdx.y."""
    return with_block(
        text,
        "transpose_tiled",
        _SQUARE
        + _LOAD
        + _MEET
        + """
    int column = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int row = blockIdx.y * TILE + j;
        if (column < h && row < w)
            out[row * h + column] = tile[threadIdx.x][j];
    }
""",
    )


@misconception("transpose_tiled", file="transpose.cu")
def tile_stays_as_it_is(text):
    """The tile goes to its mirrored place, but its elements are not exchanged: what was loaded
    into tile[j][threadIdx.x] must be read as tile[threadIdx.x][j]."""
    return with_block(
        text,
        "transpose_tiled",
        _SQUARE + _LOAD + _MEET + _STORE.replace("tile[threadIdx.x][j]", "tile[j][threadIdx.x]"),
    )


@misconception("transpose_tiled", file="transpose.cu")
def no_guard_for_the_store(text):
    """The store needs a guard of its own: it goes to another element of `out` than the load came
    from, whose column must be below h and whose row below w."""
    return with_block(
        text,
        "transpose_tiled",
        _SQUARE + _LOAD + _MEET + _STORE.replace("if (column < h && row < w)", ""),
    )


@misconception("transpose_tiled", file="transpose.cu")
def tiled_with_padding(text):
    """The tile has a 33rd column, which is the next task; this one keeps its 32 x 32 floats and the
    conflict that comes with them."""
    return with_block(text, "transpose_tiled", _LONGER + _LOAD + _MEET + _STORE)


@misconception("transpose_tiled", file="transpose.cu")
def rows_of_out_have_w_here_too(text):
    """A row of `out` has h elements: out[row * w + column] is right for square matrices only."""
    return with_block(
        text,
        "transpose_tiled",
        _SQUARE + _LOAD + _MEET + _STORE.replace("row * h + column", "row * w + column"),
    )


# --- transpose_padded ----------------------------------------------------------------------------


def _padded(text, declaration):
    return with_block(text, "transpose_padded", declaration + _LOAD + _MEET + _STORE)


@misconception("transpose_padded", file="transpose.cu")
def no_padding(text):
    """The tile has rows of 32 words, so all 32 words of a column are in one bank: each row must be
    one word longer."""
    return _padded(text, _SQUARE)


@misconception("transpose_padded", file="transpose.cu")
def padded_by_two(text):
    """Rows of 34 words leave a 2-way conflict: 34 and 32 share the factor 2. An odd number is
    needed, and 33 is the smallest."""
    return _padded(text, "    __shared__ float tile[TILE][TILE + 2];")


@misconception("transpose_padded", file="transpose.cu")
def padded_by_a_warp(text):
    """Rows of 64 words begin in the same bank as rows of 32: all the memory for nothing. What
    counts is the length modulo 32."""
    return _padded(text, "    __shared__ float tile[TILE][2 * TILE];")


@misconception("transpose_padded", file="transpose.cu")
def padded_in_bytes(text):
    """Four elements were added, perhaps because a word has four bytes: rows of 36 words leave a
    4-way conflict. One element is one bank."""
    return _padded(text, "    __shared__ float tile[TILE][TILE + 4];")


@misconception("transpose_padded", file="transpose.cu")
def padded_by_a_row(text):
    """There is a 33rd row here; it is the rows that must be longer, tile[32][33], so that each
    begins in another bank."""
    return _padded(text, "    __shared__ float tile[TILE + 1][TILE];")


@misconception("transpose_padded", file="transpose.cu")
def padded_on_both_sides(text):
    """A 33rd row serves nobody: 132 bytes more than the 4,224 that are needed."""
    return _padded(text, "    __shared__ float tile[TILE + 1][TILE + 1];")


@misconception("transpose_padded", file="transpose.cu")
def padded_without_a_barrier(text):
    """The padding removes conflicts between banks, not the need to wait: __syncthreads() is missing
    between the two halves."""
    return with_block(text, "transpose_padded", _LONGER + _LOAD + _STORE)


@misconception("transpose_padded", file="transpose.cu")
def padded_but_stores_in_columns(text):
    """The stores to `out` go in columns, 32 sectors each: the tile is written and read by rows, so
    its padding has nothing to do."""
    return with_block(
        text,
        "transpose_padded",
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


@misconception("transpose_padded", file="transpose.cu")
def padded_and_a_barrier_inside_the_guard(text):
    """Threads outside the matrix never get to the barrier, because it stands inside an if or
    because they have returned before; all threads of a block must reach it."""
    return with_block(
        text,
        "transpose_padded",
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


# --- transpose_swizzled --------------------------------------------------------------------------

_RULE = "    return row ^ col;"
_PUT = "tile[j][swizzle(j, threadIdx.x)]"
_GET = "tile[threadIdx.x][swizzle(threadIdx.x, j)]"


def _other(text, *changes):
    """The reference with lines of its swizzled kernel or of its rule exchanged."""
    for old, new in changes:
        if old not in text:
            raise ValueError(f"the reference has no {old!r}")
        text = text.replace(old, new)
    return text


@misconception("transpose_swizzled", file="transpose.cu")
def row_for_row_xor_col(text):
    """The swizzle gives the row alone, so all 32 elements of a row land in one word; each row
    needs a permutation of its columns, as row ^ col is."""
    return _other(text, (_RULE, "    return row;"))


@misconception("transpose_swizzled", file="transpose.cu")
def nothing_is_moved(text):
    """The swizzle gives back the column, so nothing is moved and each column is in one bank: the
    place must depend on the row."""
    return _other(text, (_RULE, "    return col;"))


@misconception("transpose_swizzled", file="transpose.cu")
def eight_rows_only(text):
    """col ^ (row & 7) is the swizzle for chunks of 16 bytes, eight of which fill the banks; of
    4-byte words there are 32, so rows 0, 8, 16 and 24 still meet: a 4-way conflict."""
    return _other(text, (_RULE, "    return col ^ (row & 7);"))


@misconception("transpose_swizzled", file="transpose.cu")
def turns_by_two(text):
    """Each row is turned by two words more than the one above, so row 16 is back where row 0 is: a
    2-way conflict. Turn by an odd number."""
    return _other(text, (_RULE, "    return (col + 2 * row) % 32;"))


@misconception("transpose_swizzled", file="transpose.cu")
def half_the_row(text):
    """row >> 1 is the same for two neighbouring rows, and the two meet in each column: a 2-way
    conflict."""
    return _other(text, (_RULE, "    return col ^ (row >> 1);"))


@misconception("transpose_swizzled", file="transpose.cu")
def or_for_xor(text):
    """row | col is no permutation: row 31 puts all its elements into column 31. XOR keeps them
    apart, because row ^ a == row ^ b only where a == b."""
    return _other(text, (_RULE, "    return row | col;"))


@misconception("transpose_swizzled", file="transpose.cu")
def beyond_the_row(text):
    """row + col goes beyond column 31, into the next row: take it modulo 32."""
    return _other(text, (_RULE, "    return row + col;"))


@misconception("transpose_swizzled", file="transpose.cu")
def swizzled_on_one_side_only(text):
    """The tile is written through the swizzle and read without it, or the other way round, so other
    elements come out: element (row, col) must be looked up where it was put."""
    return _other(text, (_GET, "tile[threadIdx.x][j]"))


@misconception("transpose_swizzled", file="transpose.cu")
def rows_are_swizzled(text):
    """The row is permuted where the column should be; the bank is decided by the column, so a
    column of the tile still lies in one bank."""
    return _other(
        text,
        (_PUT, "tile[swizzle(j, threadIdx.x)][threadIdx.x]"),
        (_GET, "tile[swizzle(threadIdx.x, j)][j]"),
    )


@misconception("transpose_swizzled", file="transpose.cu")
def swizzle_is_not_used(text):
    """The rule is right, but the kernel does not use it: the tile is written and read as it
    stands."""
    return _other(text, (_PUT, "tile[j][threadIdx.x]"), (_GET, "tile[threadIdx.x][j]"))


@misconception("transpose_swizzled", file="transpose.cu")
def swizzled_and_padded(text):
    """The tile has a 33rd column and a swizzle: either of them would do, and only the swizzle is
    free of cost."""
    before, name, after = text.partition("__global__ void transpose_swizzled(")
    return before + name + _other(after, ("tile[TILE][TILE];", "tile[TILE][TILE + 1];"))


@misconception("transpose_swizzled", file="transpose.cu")
def swizzled_without_a_barrier(text):
    """A swizzle changes where elements lie, not who wrote them: __syncthreads() is missing
    between the two halves."""
    before, name, after = text.partition("__global__ void transpose_swizzled(")
    return before + name + _other(after, ("    __syncthreads();\n", ""))


# --- explain -------------------------------------------------------------------------------------


@misconception("explain")
def absolute_wavefronts(report):
    """More than one wavefront a request is taken for a conflict; 32 lanes of 16 bytes need four.
    Compare with ideal_wavefronts."""
    from math import ceil

    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    written = [r for r in report.accesses if (r.space, r.kind) == ("global", "write")]
    shared = [r for r in report.accesses if r.space == "shared"]
    moved = sum(r.sectors for r in read + written) or 1
    lanes = report.flow_requests * report.threads / ceil(report.threads / 32) or 1
    passes = sum(r.wavefronts for r in shared)
    shares = {
        "uncoalesced_load": sum(r.sectors - r.ideal_sectors for r in read) / moved,
        "uncoalesced_store": sum(r.sectors - r.ideal_sectors for r in written) / moved,
        "bank_conflict": (passes - sum(r.requests for r in shared)) / (passes or 1),
        "divergence": 1 - report.flow_lanes / lanes,
    }
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else "none"


@misconception("explain")
def four_sectors_for_everybody(report):
    """Four sectors a request are taken as the ideal whatever the lanes ask for; 32 lanes of 16
    bytes need 16, and eight lanes of 4 bytes one. Compare with ideal_sectors."""
    from math import ceil

    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    written = [r for r in report.accesses if (r.space, r.kind) == ("global", "write")]
    shared = [r for r in report.accesses if r.space == "shared"]
    moved = sum(r.sectors for r in read + written) or 1
    lanes = report.flow_requests * report.threads / ceil(report.threads / 32) or 1
    passes = sum(r.wavefronts for r in shared)
    shares = {
        "uncoalesced_load": sum(max(r.sectors - 4 * r.requests, 0) for r in read) / moved,
        "uncoalesced_store": sum(max(r.sectors - 4 * r.requests, 0) for r in written) / moved,
        "bank_conflict": (passes - sum(r.ideal_wavefronts for r in shared)) / (passes or 1),
        "divergence": 1 - report.flow_lanes / lanes,
    }
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else "none"


@misconception("explain")
def every_warp_has_32_lanes(report):
    """A block of 8 threads has one warp with 8 lanes, all of which may be active; measured
    against 32 it would be divergent from birth."""
    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    written = [r for r in report.accesses if (r.space, r.kind) == ("global", "write")]
    shared = [r for r in report.accesses if r.space == "shared"]
    moved = sum(r.sectors for r in read + written) or 1
    passes = sum(r.wavefronts for r in shared)
    shares = {
        "uncoalesced_load": sum(r.sectors - r.ideal_sectors for r in read) / moved,
        "uncoalesced_store": sum(r.sectors - r.ideal_sectors for r in written) / moved,
        "bank_conflict": (passes - sum(r.ideal_wavefronts for r in shared)) / (passes or 1),
        "divergence": 1 - report.flow_lanes / (32 * report.flow_requests or 1),
    }
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else "none"


@misconception("explain")
def divergence_by_accesses(report):
    """Divergence is taken from the lanes of loads and stores; a branch that only computes has
    none of these. flow_requests and flow_lanes count every basic block."""
    from math import ceil

    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    written = [r for r in report.accesses if (r.space, r.kind) == ("global", "write")]
    shared = [r for r in report.accesses if r.space == "shared"]
    moved = sum(r.sectors for r in read + written) or 1
    lanes = sum(r.requests for r in report.accesses) * report.threads / ceil(report.threads / 32)
    passes = sum(r.wavefronts for r in shared)
    shares = {
        "uncoalesced_load": sum(r.sectors - r.ideal_sectors for r in read) / moved,
        "uncoalesced_store": sum(r.sectors - r.ideal_sectors for r in written) / moved,
        "bank_conflict": (passes - sum(r.ideal_wavefronts for r in shared)) / (passes or 1),
        "divergence": 1 - sum(r.lanes for r in report.accesses) / (lanes or 1),
    }
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else "none"


@misconception("explain")
def worst_row_decides(report):
    """The row with the worst ratio decides here, however few requests it has; sum over all rows
    first: one stray request among a thousand limits nothing."""
    from math import ceil

    shares = dict.fromkeys(
        ("uncoalesced_load", "uncoalesced_store", "bank_conflict", "divergence"), 0.0
    )
    names = {"read": "uncoalesced_load", "write": "uncoalesced_store"}
    for r in report.accesses:
        if r.space == "shared":
            share = 1 - r.ideal_wavefronts / (r.wavefronts or 1)
            shares["bank_conflict"] = max(shares["bank_conflict"], share)
        elif r.kind in names:
            share = 1 - r.ideal_sectors / (r.sectors or 1)
            shares[names[r.kind]] = max(shares[names[r.kind]], share)
    lanes = report.flow_requests * report.threads / ceil(report.threads / 32) or 1
    shares["divergence"] = 1 - report.flow_lanes / lanes
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else "none"


@misconception("explain")
def first_fault_found(report):
    """The first cause that reaches a quarter is named, though a later one is larger: compare all
    four."""
    from math import ceil

    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    written = [r for r in report.accesses if (r.space, r.kind) == ("global", "write")]
    shared = [r for r in report.accesses if r.space == "shared"]
    moved = sum(r.sectors for r in read + written) or 1
    lanes = report.flow_requests * report.threads / ceil(report.threads / 32) or 1
    passes = sum(r.wavefronts for r in shared)
    if sum(r.sectors - r.ideal_sectors for r in read) >= 0.25 * moved:
        return "uncoalesced_load"
    if sum(r.sectors - r.ideal_sectors for r in written) >= 0.25 * moved:
        return "uncoalesced_store"
    if passes and passes - sum(r.ideal_wavefronts for r in shared) >= 0.25 * passes:
        return "bank_conflict"
    return "divergence" if 1 - report.flow_lanes / lanes >= 0.25 else "none"


@misconception("explain")
def always_names_a_cause(report):
    """A cause is named for every kernel; where no share of waste reaches a quarter the answer is
    "none"."""
    from math import ceil

    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    written = [r for r in report.accesses if (r.space, r.kind) == ("global", "write")]
    shared = [r for r in report.accesses if r.space == "shared"]
    moved = sum(r.sectors for r in read + written) or 1
    lanes = report.flow_requests * report.threads / ceil(report.threads / 32) or 1
    passes = sum(r.wavefronts for r in shared)
    shares = {
        "uncoalesced_load": sum(r.sectors - r.ideal_sectors for r in read) / moved,
        "uncoalesced_store": sum(r.sectors - r.ideal_sectors for r in written) / moved,
        "bank_conflict": (passes - sum(r.ideal_wavefronts for r in shared)) / (passes or 1),
        "divergence": 1 - report.flow_lanes / lanes,
    }
    return max(shares, key=lambda cause: shares[cause])


@misconception("explain")
def most_requests_win(report):
    """The unit with the most traffic is named, not the one with the most waste: a kernel that
    reads a lot is not limited by its loads if each of them is ideal."""
    counts = {
        "uncoalesced_load": sum(r.sectors for r in report.accesses if r.kind == "read"),
        "uncoalesced_store": sum(r.sectors for r in report.accesses if r.kind == "write"),
        "bank_conflict": sum(r.wavefronts for r in report.accesses),
    }
    return max(counts, key=lambda cause: counts[cause])


@misconception("explain")
def loads_and_stores_exchanged(report):
    """Loads are reads and stores are writes; the two names are exchanged here."""
    from math import ceil

    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "write")]
    written = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    shared = [r for r in report.accesses if r.space == "shared"]
    moved = sum(r.sectors for r in read + written) or 1
    lanes = report.flow_requests * report.threads / ceil(report.threads / 32) or 1
    passes = sum(r.wavefronts for r in shared)
    shares = {
        "uncoalesced_load": sum(r.sectors - r.ideal_sectors for r in read) / moved,
        "uncoalesced_store": sum(r.sectors - r.ideal_sectors for r in written) / moved,
        "bank_conflict": (passes - sum(r.ideal_wavefronts for r in shared)) / (passes or 1),
        "divergence": 1 - report.flow_lanes / lanes,
    }
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else "none"


@misconception("explain")
def atomics_are_stores(report):
    """Global atomics are counted among the stores; the contract leaves them out."""
    from math import ceil

    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    written = [r for r in report.accesses if r.space == "global" and r.kind != "read"]
    shared = [r for r in report.accesses if r.space == "shared"]
    moved = sum(r.sectors for r in read + written) or 1
    lanes = report.flow_requests * report.threads / ceil(report.threads / 32) or 1
    passes = sum(r.wavefronts for r in shared)
    shares = {
        "uncoalesced_load": sum(r.sectors - r.ideal_sectors for r in read) / moved,
        "uncoalesced_store": sum(r.sectors - r.ideal_sectors for r in written) / moved,
        "bank_conflict": (passes - sum(r.ideal_wavefronts for r in shared)) / (passes or 1),
        "divergence": 1 - report.flow_lanes / lanes,
    }
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else "none"


@misconception("explain")
def each_kind_over_its_own(report):
    """The waste of loads is taken over the loads alone, and that of stores over the stores; then
    a few bad stores beat many bad loads. Both go over all sectors that moved."""
    from math import ceil

    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    written = [r for r in report.accesses if (r.space, r.kind) == ("global", "write")]
    shared = [r for r in report.accesses if r.space == "shared"]
    lanes = report.flow_requests * report.threads / ceil(report.threads / 32) or 1
    passes = sum(r.wavefronts for r in shared)
    shares = {
        "uncoalesced_load": sum(r.sectors - r.ideal_sectors for r in read)
        / (sum(r.sectors for r in read) or 1),
        "uncoalesced_store": sum(r.sectors - r.ideal_sectors for r in written)
        / (sum(r.sectors for r in written) or 1),
        "bank_conflict": (passes - sum(r.ideal_wavefronts for r in shared)) / (passes or 1),
        "divergence": 1 - report.flow_lanes / lanes,
    }
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else "none"


@misconception("explain")
def counts_instead_of_shares(report):
    """Wasted sectors, wasted wavefronts and idle lanes are compared as they stand; they are
    different things, so each must be divided by its own whole first."""
    from math import ceil

    def waste(kind, space, field):
        return sum(
            getattr(r, field) - getattr(r, f"ideal_{field}")
            for r in report.accesses
            if r.space == space and kind in ("", r.kind)
        )

    lanes = report.flow_requests * report.threads / ceil(report.threads / 32)
    idle = lanes - report.flow_lanes
    found = {
        "uncoalesced_load": waste("read", "global", "sectors"),
        "uncoalesced_store": waste("write", "global", "sectors"),
        "bank_conflict": waste("", "shared", "wavefronts"),
        "divergence": idle,
    }
    worst = max(found, key=lambda cause: found[cause])
    return worst if found[worst] > 64 else "none"


# --- transpose_vec4 ------------------------------------------------------------------------------

_CHUNK_PLACE = "int place = chunk ^ (line / 4);"
_CHUNK_PUT = "tile + line * TILE + 4 * place"
_CHUNK_GET = "tile[(4 * chunk + k) * TILE + 4 * (line / 4 ^ chunk) + line % 4]"
_CHUNK_TILE = "__shared__ __align__(16) float tile[TILE * TILE];"


@misconception("transpose_vec4", file="transpose.cu")
def rows_of_33_for_float4(text):
    """A row of 33 floats does not begin at a multiple of 16 bytes, and a float4 must: an odd
    padding is for single floats."""
    return _other(
        text,
        (_CHUNK_TILE, "__shared__ __align__(16) float tile[TILE * (TILE + 1)];"),
        (_CHUNK_PUT, "tile + line * (TILE + 1) + 4 * chunk"),
        (_CHUNK_GET, "tile[(4 * chunk + k) * (TILE + 1) + line]"),
    )


@misconception("transpose_vec4", file="transpose.cu")
def chunks_where_they_are(text):
    """The 16-byte side is free of conflicts and the other is not: eight rows of a column, four
    apart, lie in the same banks, so the chunks must be moved from row to row."""
    return _other(
        text,
        (_CHUNK_PUT, "tile + line * TILE + 4 * chunk"),
        (_CHUNK_GET, "tile[(4 * chunk + k) * TILE + line]"),
    )


@misconception("transpose_vec4", file="transpose.cu")
def chunks_by_the_row(text):
    """chunk ^ (row & 7) tells neighbouring rows apart, but the lanes of a request want rows that
    lie four apart: of those only two are told apart, a 4-way conflict."""
    return _other(
        text,
        (_CHUNK_PLACE, "int place = chunk ^ (line & 7);"),
        (
            _CHUNK_GET,
            "tile[(4 * chunk + k) * TILE + 4 * (line / 4 ^ ((4 * chunk + k) & 7)) + line % 4]",
        ),
    )


@misconception("transpose_vec4", file="transpose.cu")
def single_floats(text):
    """The floats are read and written one by one: right, but four times the requests. Read a
    float4 from `in` and write a float4 to `out`."""
    block = text.partition("// BEGIN SOLUTION transpose_swizzled")[2]
    block = block.partition("// BEGIN SOLUTION transpose_swizzled")[2].partition("// END")[0]
    return with_block(text, "transpose_vec4", block)


# --- ldmatrix_rows -------------------------------------------------------------------------------


@misconception("ldmatrix_rows")
def fragment_without_swizzle(row, chunk):
    """These are the addresses in a plain tile; it is stored under a swizzle, and without one
    eight rows of 128 bytes would meet in four banks."""
    return [r * 128 + chunk * 16 for r in range(row, row + 8)]


@misconception("ldmatrix_rows")
def swizzled_by_the_lane(row, chunk):
    """The chunk is XORed with the lane, 0 to 7; it is the row of the tile that counts, which
    differs as soon as the fragment does not begin at a multiple of 8."""
    return [(row + i) * 128 + (chunk ^ i) * 16 for i in range(8)]


@misconception("ldmatrix_rows")
def swizzled_by_groups_of_rows(row, chunk):
    """The chunk is XORed with row // 8, which is one number for the whole fragment: its rows stay
    above each other. row mod 8 tells them apart."""
    return [r * 128 + (chunk ^ r // 8 % 8) * 16 for r in range(row, row + 8)]


@misconception("ldmatrix_rows")
def addresses_in_elements(row, chunk):
    """These count elements of 2 bytes; the addresses are in bytes, 128 a row and 16 a chunk."""
    return [r * 64 + (chunk ^ r % 8) * 8 for r in range(row, row + 8)]


# --- swizzle_search ------------------------------------------------------------------------------


@misconception("swizzle_search")
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


@misconception("swizzle_search")
def chunks_may_part(row_bytes):
    """Swizzles with a base below 4 are among these; they exchange bytes within a chunk of 16,
    which a 16-byte access must find together and in order."""
    from itertools import product

    size = 32 * row_bytes
    lanes_of = [range(start, start + 128, 16) for start in range(0, size, 128)]
    lanes_of += [
        range(start + chunk, start + chunk + 8 * row_bytes, row_bytes)
        for start in range(0, size, 8 * row_bytes)
        for chunk in range(0, row_bytes, 16)
    ]
    return [
        (bits, base, shift)
        for bits, base, shift in product(range(5), range(7), range(1, 7))
        if all(
            conflict_degree([swizzled(a, bits, base, shift) // 16 * 16 for a in lanes], 16) == 1
            for lanes in lanes_of
        )
    ]


@misconception("swizzle_search")
def the_known_one_for_all(row_bytes):
    """Swizzle<3, 4, 3> fits rows of 128 bytes. Rows of 256 differ in higher bits, rows of 64 in
    lower ones, and there are others that do as well: try all."""
    return [(3, 4, 3)]
