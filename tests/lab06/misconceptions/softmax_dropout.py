from grader.suite import lines

kept_elements_not_scaled = lines(
    """What is kept must be divided by 1 - rate, or the mean of the weights shrinks while training
    and not afterwards.""",
    ("p / (1.0 - rate)", "p"),
)

rate_is_the_share_kept = lines(
    """The elements below rate are kept; rate is the share that is dropped.""",
    ("kept = tl.rand(seed, at) >= rate", "kept = tl.rand(seed, at) < rate"),
)

every_row_drops_alike = lines(
    """The offset is the column alone, so that all rows lose the same columns; row * N + col is a
    number of its own for each element.""",
    ("kept = tl.rand(seed, at)", "kept = tl.rand(seed, cols)"),
    ("tl.where(tl.rand(seed, at)", "tl.where(tl.rand(seed, cols)"),
)

backward_drops_nothing = lines(
    """The gradient takes no notice of the mask: what was dropped had no part in the result, so its
    dp is 0, and that of the others dout / (1 - rate).""",
    ("dp = tl.where(tl.rand(seed, at) >= rate, dout / (1.0 - rate), 0.0)", "dp = dout"),
)
