from grader.suite import lines

dense_replicas_for_experts = lines(
    """Two ranks of a dense data group may hold different experts; their gradients must not be
    summed. With EP the replicas of an expert are edp = tp * cp * dp / (etp * ep) ranks.""",
    (
        '    return rank_groups(grid, order, "-".join(',
        '    if token == "edp":\n        return rank_groups(sizes, order, "dp")\n'
        '    return rank_groups(grid, order, "-".join(',
    ),
)

experts_have_gpus_of_their_own = lines(
    """EP multiplied into the world counts ranks that do not exist: experts stand on the stage's tp
    * cp * dp ranks, and edp is what is left of them.""",
    ('"dp": stage // (etp * ep), "pp"', '"dp": stage // etp, "pp"'),
)

context_ranks_have_no_experts = lines(
    """A stage has tp * cp * dp ranks, and experts stand on all of them; without cp the grid is too
    small for the world.""",
    ('for name in ("tp", "cp", "dp"))', 'for name in ("tp", "dp"))'),
)

tensor_ranks_have_no_experts = lines(
    """A stage has tp * cp * dp ranks, and experts stand on all of them; without tp the grid is too
    small for the world.""",
    ('for name in ("tp", "cp", "dp"))', 'for name in ("cp", "dp"))'),
)

sizes_of_zero_divide = lines(
    """An ep or etp of 0 is not looked at before something is divided by it, so it ends in a
    ZeroDivisionError. Sizes below 1 raise ValueError, and 0 is one of them.""",
    ("if etp < 1 or ep < 1 or", "if etp < 0 or ep < 0 or"),
    gate=False,
)
