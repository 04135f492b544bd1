from grader.suite import lines

every_rank_takes_its_own_norm = lines(
    """Each rank clips by the norm of its own shard: no error, but shards are multiplied by
    different numbers, so the step goes where no gradient points and the run drifts away.""",
    ("    dist.all_reduce(squares, group=pg)\n", ""),
)

norms_are_added = lines(
    """The ranks' norms are added; norms do not add up, squares do: sqrt(3^2 + 4^2) is 5, not 7, and
    the error grows with the number of ranks.""",
    (
        "dist.all_reduce(squares, group=pg)\n    norm = squares.sqrt()",
        "norm = squares.sqrt()\n    dist.all_reduce(norm, group=pg)",
    ),
)

squares_are_averaged = lines(
    """The mean over ranks is for gradients; shards are parts of one vector, whose squares are added
    up, or the norm is too small by the root of the number of ranks.""",
    (
        "dist.all_reduce(squares, group=pg)",
        "dist.all_reduce(squares, op=dist.ReduceOp.AVG, group=pg)",
    ),
)

padding_counts = lines(
    """The padding behind the last element is part of the norm: whatever a buffer had there before
    makes every gradient smaller.""",
    ("grad[:count] for", "grad for"),
)

tied_counts_twice = lines(
    """A tied parameter is listed under both its names, but there is one gradient: counted twice the
    norm is too large, and multiplied twice that gradient is clipped twice.""",
    (
        "{id(grad): grad[:count] for grad, count in zip(grads, real, strict=True)}",
        "{i: grads[i][: real[i]] for i in range(len(grads))}",
    ),
)

tied_is_scaled_twice = lines(
    """The norm counts a tied parameter once, but the loop over the list multiplies its gradient
    twice, once for each name: by the square of the coefficient.""",
    (
        "for part in parts.values():\n        part.mul_(coefficient)",
        "for grad in grads:\n        grad.mul_(coefficient)",
    ),
)

short_gradients_are_stretched = lines(
    """The coefficient is not held to 1: gradients that are shorter than max_norm are made longer,
    and every step has the same length, however flat the loss is.""",
    (".clamp(max=1.0)", ""),
)

clipped_before_the_reduction = lines(
    """The norm that is returned is right, but the shard was multiplied by a coefficient of its own
    norm, from before the all-reduce: the log looks right and the gradients are wrong.""",
    ("dist.all_reduce(squares", "own = squares.sqrt()\n    dist.all_reduce(squares"),
    ("(norm + 1e-6)", "(own + 1e-6)"),
)

shards_are_gathered = lines(
    """The whole gradient travels to every rank for the sake of one number; that costs what sharding
    has saved, in traffic and in memory. Each rank can send its sum of squares.""",
    (
        "squares += part.float().square().sum()",
        "squares += torch.cat(gathered(part)).float().square().sum()",
    ),
    (
        "    squares = torch.zeros(())\n",
        """    def gathered(part):
        counts = [torch.tensor(0) for _ in range(dist.get_world_size(pg))]
        dist.all_gather(counts, torch.tensor(len(part)), group=pg)
        longest = int(max(counts))
        mine = torch.zeros(longest, dtype=part.dtype)
        mine[: len(part)] = part
        pieces = [torch.zeros_like(mine) for _ in counts]
        dist.all_gather(pieces, mine, group=pg)
        return pieces

    squares = torch.zeros(())
""",
    ),
    ("    dist.all_reduce(squares, group=pg)\n", ""),
)

_DTYPE = """Squares are taken in the gradients' own dtype: bfloat16 leaves 8 bits of each, and in
    float16 the square of 256 and more is infinite."""

squares_keep_the_dtype = lines(
    _DTYPE,
    ("part.float().square()", "part.square()"),
)

squares_are_added_in_float32 = lines(
    _DTYPE, ("part.float().square().sum()", "part.square().float().sum()")
)

each_rank_looks_at_its_own = lines(
    """Only the rank whose own shard has the infinity raises; the others clip by it, or wait in the
    next collective for a rank that has left. Test the norm over all ranks, which is the same on
    each.""",
    (
        "    dist.all_reduce(squares, group=pg)\n",
        "    own = squares.sqrt()\n    dist.all_reduce(squares, group=pg)\n",
    ),
    ("not norm.isfinite()", "not own.isfinite()"),
)

nothing_is_added_to_the_norm = lines(
    """torch divides by norm + 1e-6: without it a norm of 0 gives NaN for max_norm 0, and a small
    one another coefficient.""",
    ("(max_norm / (norm + 1e-6))", "(max_norm / norm)"),
)

the_norm_is_float64 = lines(
    """The norm is returned in float64: a float32 number is the contract, as torch returns for
    float32 gradients. Add in float64 if you like, and convert in the end.""",
    ("squares = torch.zeros(())", "squares = torch.zeros((), dtype=torch.float64)"),
)

let_through_up_to_max_norm = lines(
    """Nothing is multiplied where the norm is at most max_norm; but max_norm / (norm + 1e-6) is
    below 1 already for a norm a little below max_norm, and torch multiplies by it.""",
    ("    coefficient = ", "    if norm <= max_norm:\n        return norm\n    coefficient = "),
    gate=False,
)

an_infinite_norm_passes = lines(
    """error_if_nonfinite looks for NaN only: a norm that is infinite is not finite either, and its
    coefficient, 0, wipes every gradient out.""",
    ("not norm.isfinite()", "norm.isnan()"),
)

no_elements_mean_all = lines(
    """real[i] = 0 is taken for "no limit": a shard that is nothing but padding then counts with all
    of its elements.""",
    ("grad[:count] for", "grad[: count or None] for"),
)
