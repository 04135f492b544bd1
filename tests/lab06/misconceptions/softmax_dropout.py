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


dropout_block_of_1024 = lines(
    """The block has 1,024 lanes whatever the row: a longer row is cut, forward and backward. BLOCK
    is the number of elements, next_power_of_2(N).""",
    (
        "M, N = rows.shape\n    block = triton.next_power_of_2(N)",
        "M, N = rows.shape\n    block = 1024",
    ),
    (
        "M, N = p.shape\n    block = triton.next_power_of_2(N)",
        "M, N = p.shape\n    block = 1024",
    ),
)

dropout_backward_over_p = lines(
    """The gradient is written over p where p is contiguous: p is the caller's. Make dx a new
    tensor.""",
    (
        "dx = torch.empty(p.shape, dtype=p.dtype, device=p.device)",
        "dx = p if p.is_contiguous() else torch.empty(p.shape, dtype=p.dtype, device=p.device)",
    ),
)

dropout_backward_over_dout = lines(
    """The gradient is written over dout where dout is contiguous: dout belongs to autograd. Make dx
    a new tensor.""",
    (
        "dx = torch.empty(p.shape, dtype=p.dtype, device=p.device)",
        "dx = dout\n    if not dout.is_contiguous():\n"
        "        dx = torch.empty(p.shape, dtype=p.dtype, device=p.device)",
    ),
)

seed_of_32_bits = lines(
    """Only the lower 32 bits of the seed are used, so seeds that differ above give one mask;
    tl.rand takes 64.""",
    ("*rows.stride(), rate, seed,", "*rows.stride(), rate, seed % 2**32,"),
    (
        "        rate,\n        seed,\n        BLOCK",
        "        rate,\n        seed % 2**32,\n        BLOCK",
    ),
)

offset_by_the_block = lines(
    """The offset is row * BLOCK + col: the mask changes with the width of the block. It belongs to
    the element, row * N + col.""",
    ("kept = tl.rand(seed, at)", "kept = tl.rand(seed, row * BLOCK + cols)"),
    ("tl.where(tl.rand(seed, at)", "tl.where(tl.rand(seed, row * BLOCK + cols)"),
)

offset_by_the_strides = lines(
    """The offset is the element's place in memory: a transposed tensor gets another mask than its
    copy, and p in the backward another one than x. It is row * N + col, whatever the strides.""",
    (
        "kept = tl.rand(seed, at)",
        "kept = tl.rand(seed, (row * x_stride_m + cols * x_stride_n).to(tl.int32))",
    ),
    (
        "tl.where(tl.rand(seed, at)",
        "tl.where(tl.rand(seed, (row * p_stride_m + cols * p_stride_n).to(tl.int32))",
    ),
)

renormalised_after_dropout = lines(
    """What is kept is divided by its own sum, so that a row sums to 1 again; dropout divides by
    1 - rate, and a row sums to 1 only on average.""",
    (
        "tl.where(kept, p / (1.0 - rate), 0.0)",
        "tl.where(kept, p, 0.0) / tl.sum(tl.where(kept, p, 0.0), axis=0)",
    ),
)

backward_not_scaled = lines(
    """The gradient lacks the factor 1 / (1 - rate) that the forward had.""",
    ("dout / (1.0 - rate), 0.0)", "dout, 0.0)"),
)

p_is_what_is_left = lines(
    """p is stored after dropout: what was dropped is 0 in it, and the backward has lost those
    probabilities. p is the softmax.""",
    ("tl.store(p_ptr + at, p.to(", "tl.store(p_ptr + at, out.to("),
)

logits_are_dropped = lines(
    """Logits are dropped before the softmax, so that the others share their weight; here
    probabilities are dropped, after it.""",
    (
        "    e = tl.exp(x - tl.max(x, axis=0))\n",
        "    seen = tl.rand(seed, row * N + cols) >= rate\n"
        "    e = tl.where(seen, tl.exp(x - tl.max(x, axis=0)), 0.0)\n",
    ),
)

mean_of_the_undropped_gradient = lines(
    """The sum of p * dp takes dout as it came, dropped elements included: it is over dp, the
    gradient after the mask.""",
    ("tl.sum(p * dp, axis=0)", "tl.sum(p * dout, axis=0)"),
)

kept_above_the_rate = lines(
    """A random number that equals the rate drops its element; it is kept where the number is at
    least the rate, forward and backward.""",
    ("kept = tl.rand(seed, at) >= rate", "kept = tl.rand(seed, at) > rate"),
    ("tl.where(tl.rand(seed, at) >= rate", "tl.where(tl.rand(seed, at) > rate"),
)

rate_is_the_share_kept_both_ways = lines(
    """The elements below rate are kept; rate is the share that is dropped.""",
    ("kept = tl.rand(seed, at) >= rate", "kept = tl.rand(seed, at) < rate"),
    ("tl.where(tl.rand(seed, at) >= rate", "tl.where(tl.rand(seed, at) < rate"),
)

kept_below_one_less_rate = lines(
    """Elements are kept where the random number is below 1 - rate: as many, but others than where
    it is at least rate, and a mask is the same for all who make it from the seed.""",
    ("kept = tl.rand(seed, at) >= rate", "kept = tl.rand(seed, at) < 1.0 - rate"),
    ("tl.where(tl.rand(seed, at) >= rate", "tl.where(tl.rand(seed, at) < 1.0 - rate"),
)

kept_below_one_less_rate_forward = lines(
    """Elements are kept where the random number is below 1 - rate: as many, but others than where
    it is at least rate, and a mask is the same for all who make it from the seed.""",
    ("kept = tl.rand(seed, at) >= rate", "kept = tl.rand(seed, at) < 1.0 - rate"),
)

backward_keeps_what_was_dropped = lines(
    """The gradient goes through the elements that were dropped and not through those that were
    kept: the comparison is the other way round than in the forward.""",
    ("tl.where(tl.rand(seed, at) >= rate", "tl.where(tl.rand(seed, at) < rate"),
)

nothing_is_scaled = lines(
    """The factor 1 / (1 - rate) is missing forward and backward: without it the mean of the weights
    shrinks while training and not afterwards.""",
    ("p / (1.0 - rate)", "p"),
    ("dout / (1.0 - rate), 0.0)", "dout, 0.0)"),
)

divided_by_the_rate = lines(
    """What is kept is divided by rate, the share that is dropped; the share that is kept is
    1 - rate.""",
    ("p / (1.0 - rate)", "p / tl.where(rate == 0.0, 1.0, rate)"),
    ("dout / (1.0 - rate), 0.0)", "dout / tl.where(rate == 0.0, 1.0, rate), 0.0)"),
)

offset_down_the_columns = lines(
    """Elements are numbered down the columns, col * M + row; the offset is row * N + col.""",
    ("kept = tl.rand(seed, at)", "kept = tl.rand(seed, cols * tl.num_programs(0) + row)"),
    ("tl.where(tl.rand(seed, at)", "tl.where(tl.rand(seed, cols * tl.num_programs(0) + row)"),
)
