from grader.suite import lines, misconception


@misconception()
def pads_by_two(rows, cols, element_bytes):
    """Two more elements leave a 2-way conflict: a row of 34 words shares the factor 2 with 32."""
    return 2 if cols % 2 == 0 else 0


@misconception()
def pads_by_a_warp(rows, cols, element_bytes):
    """A row that is 32 elements longer begins in the same bank as before: what counts is the length
    modulo 32."""
    return 32 if cols % 2 == 0 else 0


@misconception()
def padding_in_bytes(rows, cols, element_bytes):
    """The answer is in bytes here; it is asked for in elements, as in tile[32][32 + 1]."""
    for pad in range(64):
        column = [row * (cols + pad) * element_bytes for row in range(min(rows, 32))]
        if conflict_degree(column, element_bytes) <= 1:
            return pad * element_bytes
    return 0


@misconception()
def padding_in_words(rows, cols, element_bytes):
    """One word of 4 bytes is added for every size of element here; the padding is of whole
    elements, since a row must begin at a multiple of the element's size."""
    for pad in range(64):
        column = [row * (cols + pad) * element_bytes for row in range(min(rows, 32))]
        if conflict_degree(column, element_bytes) <= 1:
            return pad * element_bytes // 4
    return 0


@misconception()
def always_one_more(rows, cols, element_bytes):
    """A tile with an odd number of columns needs nothing, and one more element would make it
    even: a conflict where there was none."""
    return 1


@misconception()
def always_32_rows(rows, cols, element_bytes):
    """A tile of fewer than 32 rows has fewer lanes in a column: 36 columns of floats do for 8 rows
    without padding, since their eight rows begin in eight banks."""
    return 1 - cols % 2


@misconception()
def every_element_is_a_word(rows, cols, element_bytes):
    """The addresses are taken as if each element had 4 bytes; 8 rows of 4 doubles lie 8 words
    apart, and eight steps of 8 words come round to bank 0 twice."""
    for pad in range(64):
        column = [row * (cols + pad) * 4 for row in range(min(rows, 32))]
        if conflict_degree(column, 4) <= 1:
            return pad
    return 0


@misconception()
def rows_for_columns(rows, cols, element_bytes):
    """The row's length is cols; the number of rows was padded here, which moves no element to
    another bank."""
    for pad in range(64):
        column = [row * (rows + pad) * element_bytes for row in range(min(rows, 32))]
        if conflict_degree(column, element_bytes) <= 1:
            return pad
    return 0


_PAD = "    pad = 0\n"

pads_at_least_one = lines(
    """One element is added even where none is needed: a row of 33 floats has no conflict as it is.
    Begin the search at 0.""",
    (_PAD, _PAD.replace("0", "1")),
)

eight_rows_are_enough = lines(
    """Eight lanes are a phase for elements of 16 bytes only; of 4 bytes 32 lanes go at once, and of
    8 bytes 16.""",
    ("min(rows, WARP)", "min(rows, 8)"),
)

taller_than_a_warp = lines(
    """All rows of the tile are asked for at once; a warp has 32 lanes, so of a taller tile it reads
    32 rows.""",
    ("min(rows, WARP)", "rows"),
)
