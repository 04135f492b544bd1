from grader.suite import lines

inverse_is_never_reduced = lines(
    """Each column's error goes out by a row of the whole inverse, as if the columns that are
    quantized already could still give way. Every column that is fixed must leave the inverse: its
    upper Cholesky factor holds these ever smaller inverses, row by row.""",
    (
        "upper = torch.linalg.cholesky(inverse, upper=True)",
        "upper = inverse / inverse.diagonal().sqrt()[:, None]",
    ),
)

updates_columns_that_are_fixed = lines(
    """The error is given to all columns, also to those in front that are quantized already; what
    they then hold is on no grid, or is thrown away. Only columns behind j may still change.""",
    (
        "upper = torch.linalg.cholesky(inverse, upper=True)",
        "upper = inverse / inverse.diagonal()[:, None]",
    ),
    ("error = (w[:, j] - result[:, j]) / upper[j, j]", "error = w[:, j] - result[:, j]"),
    (
        "w[:, j + 1 : end] -= error[:, None] * upper[j, j + 1 : end]",
        "w[:, start:end] -= error[:, None] * upper[j, start:end]\n"
        "            result[:, :j] -= error[:, None] * upper[j, :j]",
    ),
)

takes_the_lower_factor = lines(
    """The lower Cholesky factor has nothing to the right of its diagonal, so no column ever hears
    of an error and the result is plain rounding. The upper factor is wanted: upper.T @ upper is
    the inverse.""",
    ("torch.linalg.cholesky(inverse, upper=True)", "torch.linalg.cholesky(inverse)"),
)

factor_of_h_itself = lines(
    """The factor is that of H, not of its inverse. H says how inputs go together; how much the
    other columns must move to make up for an error is in the inverse of H.""",
    (
        "upper = torch.linalg.cholesky(inverse, upper=True)",
        "upper = torch.linalg.cholesky(h, upper=True)",
    ),
)

error_is_not_divided = lines(
    """The error goes out without being divided by the factor's diagonal, so what the columns behind
    take over is off by upper[j, j], which has a unit: of one over the size of the input.""",
    ("error = (w[:, j] - result[:, j]) / upper[j, j]", "error = w[:, j] - result[:, j]"),
)

adds_the_error = lines(
    """The columns behind are moved with the error instead of against it, which doubles what was
    lost. Subtract error * upper[j, j+1:], with error = (w - q) / upper[j, j].""",
    (
        "error = (w[:, j] - result[:, j]) / upper[j, j]",
        "error = (result[:, j] - w[:, j]) / upper[j, j]",
    ),
)

does_not_damp = lines(
    """Nothing is added to H's diagonal, so directions that the calibration inputs hardly show are
    taken for free to move weights along, and a singular H fails in the Cholesky factor. Add damp
    times the mean of the diagonal.""",
    ("h = h + damp * h.diagonal().mean() * torch.eye(k, dtype=w.dtype)", "h = h + 0.0"),
)

damps_by_a_constant = lines(
    """damp itself is added to the diagonal, so the same inputs in other units, or twice as many of
    them, give another result. It is a share: damp times the mean of the diagonal.""",
    ("damp * h.diagonal().mean() *", "damp *"),
)

dead_inputs_stay = lines(
    """An input that is 0 in all of the calibration leaves a zero on H's diagonal, and without
    damping the Cholesky factor fails. Set that weight to 0 and the diagonal to 1 first.""",
    ("w[:, dead] = 0\n", "pass\n"),
    ("h = h + torch.diag(dead.to(w.dtype))", "h = h + 0.0"),
)

order_is_not_undone = lines(
    """Columns come back in the order in which they were worked on, while the layer's inputs still
    come in their own; each weight then multiplies another input. Put column order[j] back to where
    it was.""",
    ("back[:, order] = result", "back = result"),
)

order_is_applied_twice = lines(
    """result[:, order] orders the columns once more instead of undoing it; the inverse permutation
    is an assignment, back[:, order] = result.""",
    ("back[:, order] = result", "back = result[:, order]"),
)

smallest_inputs_first = lines(
    """Columns are taken in ascending order. act_order does the largest h[j, j] first, while there
    are still many columns left to make up for the errors that cost most.""",
    ("descending=True", "descending=False"),
)

group_scales_of_the_original = lines(
    """The scales of a group are taken from the original weights, or from a copy that is brought up
    to date only at a block's end. The weights that are rounded are other ones by then, and overflow
    the grid or use only a part of it. Take a group's scale where the group begins, from the weights
    as all columns before it left them.""",
    (
        "    scale = int_scale(w, bits)\n    for",
        "    first = w.clone()\n    scale = int_scale(w, bits)\n    for",
    ),
    (
        "scale = int_scale(w[:, j : j + g], bits)",
        "scale = int_scale(first[:, j : j + g], bits)",
    ),
)

groups_have_no_scale_of_their_own = lines(
    """g is ignored and one scale serves a whole row; a large weight then makes the steps of all
    others coarse. With g, each g columns get a scale.""",
    ("if g is not None and j % g == 0:", "if False:"),
)

next_block_hears_nothing = lines(
    """Errors stay within their block of columns: the update of everything behind the block, once at
    its end, is missing.""",
    ("w[:, end:] -= errors @ upper[start:end, end:]", "pass"),
)

block_errors_are_not_divided = lines(
    """At a block's end the differences w - q go out, while within the block they were divided by
    the factor's diagonal. Keep the divided errors.""",
    ("errors[:, j - start] = error", "errors[:, j - start] = error * upper[j, j]"),
)

grid_of_each_column = lines(
    """Every column gets a scale of its own, from one weight, so each weight lands exactly on the
    grid's end: that is a scale a weight, which nobody stores. A scale belongs to a row, or to g
    columns of it.""",
    ("if g is not None and j % g == 0:", "if (g := g or 1) and j % 1 == 0:"),
    ("w[:, j : j + g], bits", "w[:, j : j + 1], bits"),
)

dead_weights_are_rounded = lines(
    """The weight of an input that is never used is rounded like others. It counts nowhere, and is
    set to 0 before anything else.""",
    ("w[:, dead] = 0\n", "pass\n"),
)

each_diagonal_is_damped_by_itself = lines(
    """damp is a share of each diagonal element, so a small direction hardly gets any. It is a
    share of the mean of the diagonal, the same for all.""",
    ("damp * h.diagonal().mean() * torch.eye(k, dtype=w.dtype)", "damp * torch.diag(h.diagonal())"),
)

groups_begin_with_their_block = lines(
    """A group's columns were counted from the start of the block, so with g above `block` each
    block takes a new scale. No result depends on `block`: count from the first column.""",
    ("if g is not None and j % g == 0:", "if g is not None and (j - start) % g == 0:"),
)

mean_before_the_ones = lines(
    """The mean for the damping was taken before dead inputs got their 1, so it is too small. They
    get it before anything else: the mean is that of the diagonal with the ones.""",
    (
        "    dead = h.diagonal() == 0\n",
        "    dead = h.diagonal() == 0\n    share = damp * h.diagonal().mean()\n",
    ),
    ("damp * h.diagonal().mean() * torch.eye", "share * torch.eye"),
)

unused_weights_set_the_step = lines(
    """The scale of a row was taken from all of its weights. Those of dead inputs are 0 by then: a
    large one, which is never used, makes the step of the others coarse.""",
    ("    w[:, dead] = 0\n", "    scale = int_scale(w, bits)\n    w[:, dead] = 0\n"),
    ("    scale = int_scale(w, bits)\n    for start", "    for start"),
)

weights_in_memory_order = lines(
    """`view` needs a tensor that lies in memory row by row, and a transposed one does not;
    `reshape` copies where it must.""",
    ("w, h = w.clone(), h.to(w.dtype)", "w, h = w.view(-1).clone().view(n, k), h.to(w.dtype)"),
    gate=False,
)

a_matrix_in_memory_order = lines(
    """`view` needs a tensor that lies in memory row by row, and a transposed one does not;
    `reshape` copies where it must.""",
    ("w, h = w.clone(), h.to(w.dtype)", "w, h = w.clone(), h.view(-1).to(w.dtype).view(k, k)"),
    gate=False,
)
