from grader.suite import lines

rows_must_divide = lines(
    """torch.chunk gives ceil-sized chunks; the last rank may be short or empty. FSDP2 takes 65 rows
    on 3 ranks without a complaint.""",
    (
        "    rows = shape[0]\n",
        "    rows = shape[0]\n    if rows % N:\n"
        '        raise ValueError(f"{rows} rows do not divide by {N}")\n',
    ),
)

floor_of_the_rows = lines(
    """A chunk has ceil(rows / N) rows, not floor: with floor the last rows, 65 - 3 x 21 of them,
    belong to nobody.""",
    ("each = -(-rows // N)\n    left", "each = rows // N\n    left"),
)

the_last_rank_takes_the_rest = lines(
    """The first ranks hold ceil(rows / N) rows and the last what is left; floor rows with the rest
    on the last rank (21, 21, 23 of 65) is another partition.""",
    ("each = -(-rows // N)\n    left", "each = rows // N\n    left"),
    (
        "(min(each, left), *shape[1:])",
        "(left if rank == N - 1 else each, *shape[1:])",
    ),
)

spread_evenly = lines(
    """That is numpy.array_split and torch.tensor_split, which make sizes differ by one at most: 3,
    2, 2 of 7. torch.chunk fills the first ranks: 3, 3, 1.""",
    ("(min(each, left), *shape[1:])", "(rows // N + (rank < rows % N), *shape[1:])"),
)

padded_rows_are_held = lines(
    """All ranks hold 22 of 65 rows here: that is the size that FSDP pads to for its collectives.
    The last rank's parameter has 21.""",
    ("(min(each, left), *shape[1:])", "(each, *shape[1:])"),
)

rows_below_zero = lines(
    """When the rows are used up a rank holds 0 of them: rows - rank * ceil(rows / N) goes below
    zero on later ranks.""",
    ("max(0, rows - rank * each)", "rows - rank * each"),
)

an_empty_shard_has_one_dimension = lines(
    """An empty shard keeps its other dimensions, (0, 32): it is still part of a matrix with 32
    columns, and a checkpoint joins shards along dimension 0.""",
    (
        "return (min(each, left), *shape[1:])",
        "return (min(each, left), *shape[1:]) if left else (0,)",
    ),
)

no_rank_is_empty = lines(
    """A rank may hold no row at all: 7 rows on 8 ranks leave one without, and a row that two ranks
    hold would be stepped twice.""",
    ("left = max(0,", "left = max(1,"),
)

cut_along_the_last_dimension = lines(
    """FSDP2 cuts dimension 0, the rows; columns are what some tensor-parallel layers cut.""",
    ("rows = shape[0]", "rows = shape[-1]"),
    ("(min(each, left), *shape[1:])", "(*shape[:-1], min(each, left))"),
)

flattened_first = lines(
    """Elements are not rows: FSDP1 flattened parameters, FSDP2 keeps their dimensions and gives
    whole rows to a rank.""",
    ("rows = shape[0]", "rows = math.prod(shape)"),
    ("(min(each, left), *shape[1:])", "(min(each, left),)"),
)

a_shape_is_a_tuple = lines(
    """A tuple is added to a slice of the shape: for a shape that is a list that raises TypeError.
    Unpack what is left of it, (rows, *shape[1:]), and any sequence will do.""",
    ("(min(each, left), *shape[1:])", "(min(each, left),) + shape[1:]"),
    gate=False,
)

a_rank_below_zero_has_rows = lines(
    """Only ranks from N on are refused; rank -1 does not exist either, and gets a full chunk
    here.""",
    ("if not 0 <= rank < N:", "if rank >= N:"),
    gate=False,
)
