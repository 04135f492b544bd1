from grader.lab.skeleton import changed, changed_in
from grader.suite import lines, misconception

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

dropout_backward_block_of_1024 = lines(
    """The backward's block has 1,024 lanes whatever the row, unlike the forward's: of a longer row
    the rest has no part in the sum and gets no gradient. BLOCK is the same in both.""",
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

seed_of_the_row = lines(
    """The seed is that of the row, seed + r, and the offset its column; both ways of the mask are
    then others than rand(seed, r * N + c), which is what the contract fixes.""",
    ("kept = tl.rand(seed, at)", "kept = tl.rand(seed + row, cols)"),
    ("tl.where(tl.rand(seed, at)", "tl.where(tl.rand(seed + row, cols)"),
)


OTHER_OFFSETS = """The backward asks for other random numbers than the forward: the same seed, but
    not the same offset, r * N + c. So it drops other elements."""

backward_offset_by_the_column = lines(
    OTHER_OFFSETS,
    ("tl.where(tl.rand(seed, at)", "tl.where(tl.rand(seed, cols)"),
)


seed_is_ignored = lines(
    """The seed is ignored, and every call drops the same elements.""",
    ("kept = tl.rand(seed, at)", "kept = tl.rand(0, at)"),
    ("tl.where(tl.rand(seed, at)", "tl.where(tl.rand(0, at)"),
)


kept_above_the_rate_forward = lines(
    """A random number that equals the rate drops its element; it is kept where the number is at
    least the rate, forward and backward.""",
    ("kept = tl.rand(seed, at) >= rate", "kept = tl.rand(seed, at) > rate"),
)

backward_keeps_above_the_rate = lines(
    """A random number that equals the rate drops its element; it is kept where the number is at
    least the rate, forward and backward.""",
    ("tl.where(tl.rand(seed, at) >= rate", "tl.where(tl.rand(seed, at) > rate"),
)


multiplied_by_the_share_kept = lines(
    """What is kept is multiplied with 1 - rate; it is divided by it, so that the mean stays as it
    was without dropout.""",
    ("p / (1.0 - rate)", "p * (1.0 - rate)"),
    ("dout / (1.0 - rate), 0.0)", "dout * (1.0 - rate), 0.0)"),
)

multiplied_by_the_share_kept_forward = lines(
    """What is kept is multiplied with 1 - rate; it is divided by it, so that the mean stays as it
    was without dropout.""",
    ("p / (1.0 - rate)", "p * (1.0 - rate)"),
)

p_is_scaled = lines(
    """p is stored divided by 1 - rate; it is the plain softmax, whose rows sum to 1.""",
    ("tl.store(p_ptr + at, p.to(", "tl.store(p_ptr + at, (p / (1.0 - rate)).to("),
)

p_and_out_exchanged = lines(
    """The two results are exchanged: out, which dropout has thinned, is the first, and p the
    second.""",
    (
        "warps_for(block)\n    )\n    return out, p\n",
        "warps_for(block)\n    )\n    return p, out\n",
    ),
)

out_alone = lines(
    """Only what dropout leaves is returned; the backward needs p, the softmax, as well.""",
    ("warps_for(block)\n    )\n    return out, p\n", "warps_for(block)\n    )\n    return out\n"),
)

p_rounded_before_dropout = lines(
    """p is rounded to the dtype of x before it is divided by 1 - rate, and the quotient a second
    time. Results are rounded once, when they are stored.""",
    (
        "tl.where(kept, p / (1.0 - rate), 0.0)",
        "tl.where(kept, p.to(x_ptr.dtype.element_ty).to(tl.float32) / (1.0 - rate), 0.0)",
    ),
)

softmax_and_dropout_in_two_launches = lines(
    """The softmax is a launch of its own, whose result a second one reads again for the dropout: a
    program has its probabilities in registers and can drop them there.""",
    ("    e = tl.exp(x - tl.max(x, axis=0))\n    p = e / tl.sum(e, axis=0)\n", "    p = x\n"),
    ("rows = as_rows(x)", "rows = as_rows(softmax(x))"),
)


@misconception()
def torch_draws_the_mask(x, rate, seed):
    """torch draws the mask and applies it: other numbers than tl.rand's, and matrices written and
    read that the program could have made from the seed in its registers."""
    p = softmax(x)
    kept = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) >= rate
    return torch.where(kept, p.float() / (1 - rate), 0.0).to(x.dtype), p


@misconception(file="triton_softmax.py")
def mask_is_stored(text):
    """The mask is stored, M N elements more; it can be made again from the seed, and that is what
    it is for."""
    text = changed(
        text,
        (
            "x_ptr, out_ptr, p_ptr, N, x_stride_m,",
            "x_ptr, out_ptr, p_ptr, mask_ptr, N, x_stride_m,",
        ),
    )
    return changed_in(
        text,
        "softmax_dropout",
        (
            "    out = tl.where(kept,",
            "    tl.store(mask_ptr + at, kept, mask=inside)\n    out = tl.where(kept,",
        ),
        (
            "rows, out, p, N,",
            "rows, out, p, torch.empty(x.shape, dtype=torch.bool), N,",
        ),
    )


rate_0_without_a_launch_of_its_own = lines(
    """Without dropout one tensor is returned for both results; out and p are two, and the caller
    may change one of them.""",
    (
        "    rows = as_rows(x)\n",
        "    if rate == 0.0:\n        p = softmax(x)\n        return p, p\n    rows = as_rows(x)\n",
    ),
)

gradient_is_dropped = lines(
    """The gradient by the logits is dropped; it is dout that passes the dropout first, and then
    goes through the softmax, which couples all logits of a row.""",
    (
        "dp = tl.where(tl.rand(seed, at) >= rate, dout / (1.0 - rate), 0.0)",
        "dp = dout",
    ),
    (
        "dx = p * (dp - tl.sum(p * dp, axis=0))",
        "dx = p * (dp - tl.sum(p * dp, axis=0))\n"
        "    dx = tl.where(tl.rand(seed, at) >= rate, dx / (1.0 - rate), 0.0)",
    ),
)

dropped_logits_get_no_gradient = lines(
    """p is taken after dropout in the whole formula, so that a dropped logit has no gradient; it
    has one, through the sum in the denominator of the others: p is the softmax.""",
    (
        "dx = p * (dp - tl.sum(p * dp, axis=0))",
        "dx = tl.where(tl.rand(seed, at) >= rate, p, 0.0) * (dp - tl.sum(p * dp, axis=0))",
    ),
)

backward_ends_at_the_probabilities = lines(
    """This is the gradient by the probabilities; from there it goes on through the softmax, to the
    logits.""",
    ("dx = p * (dp - tl.sum(p * dp, axis=0))", "dx = dp"),
)

dropout_backward_without_coupling = lines(
    """dx = p * dp is half of the softmax's gradient: without - p * sum(p * dp), adding a constant
    to the row would change the loss, and it does not.""",
    ("dx = p * (dp - tl.sum(p * dp, axis=0))", "dx = p * dp"),
)

dropout_backward_sum_without_p = lines(
    """The sum of dp is subtracted; it is the sum of p * dp, the mean of dp under the row's
    probabilities.""",
    ("tl.sum(p * dp, axis=0)", "tl.sum(dp, axis=0)"),
)


dropout_padding_is_zero = lines(
    """other=0: exp(0) = 1, so the padding joined the denominator, and in a row below 0 it is the
    maximum, too. It is -inf.""",
    ('mask=inside, other=-float("inf")', "mask=inside, other=0.0"),
)

dropout_maximum_not_subtracted = lines(
    """exp(x) without the maximum of the row: exp(89) is infinite in float32, and inf / inf is
    NaN.""",
    ("tl.exp(x - tl.max(x, axis=0))", "tl.exp(x)"),
)

dropout_stores_without_mask = lines(
    """A store has no mask: lanes beyond the row's end write into the next row, and behind the
    tensor in the last one. Each of the two stores needs it.""",
    ("p.to(p_ptr.dtype.element_ty), mask=inside)", "p.to(p_ptr.dtype.element_ty))"),
)


dropout_exponentials_in_half_precision = lines(
    """The exponentials are rounded to the dtype of x before they are summed and divided. All
    arithmetic is in float32, and only what is stored is rounded.""",
    (
        "e = tl.exp(x - tl.max(x, axis=0))",
        "e = tl.exp(x - tl.max(x, axis=0)).to(x_ptr.dtype.element_ty).to(tl.float32)",
    ),
)


dropout_taken_for_contiguous = lines(
    """x is taken to be contiguous, rows N apart and columns 1 apart; it may be transposed or a
    slice, so use both of its strides.""",
    ("x_ptr + row.to(tl.int64) * x_stride_m", "x_ptr + row.to(tl.int64) * N"),
    ("x_row + cols * x_stride_n", "x_row + cols"),
)


dout_has_the_strides_of_p = lines(
    """dout is read with the strides of p; each of the two has its own.""",
    ("*dout.stride()", "*p.stride()"),
)

dropout_backward_taken_for_contiguous = lines(
    """p and dout are taken to be contiguous, rows N apart and columns 1 apart; each has strides of
    its own, and dout is what autograd passes.""",
    ("p_ptr + wide * p_stride_m", "p_ptr + wide * N"),
    ("dout_ptr + wide * dout_stride_m", "dout_ptr + wide * N"),
    ("p_row + cols * p_stride_n", "p_row + cols"),
    ("dout_row + cols * dout_stride_n", "dout_row + cols"),
)

dropout_results_strided_like_x = lines(
    """torch.empty_like(x) of a transposed x is transposed, too, and the kernel stores rows of N one
    after another: make the results with torch.empty(x.shape, ...).""",
    ("torch.empty(x.shape, dtype=x.dtype, device=x.device)", "torch.empty_like(x)"),
)

dropout_gradient_strided_like_p = lines(
    """torch.empty_like(p) of a transposed p is transposed, too, and the kernel stores rows of N one
    after another: make dx with torch.empty(p.shape, ...).""",
    ("torch.empty(p.shape, dtype=p.dtype, device=p.device)", "torch.empty_like(p)"),
)

dropout_copies_to_be_contiguous = lines(
    """.contiguous() reads and writes the whole tensor once more, before the kernel has begun; a
    kernel that is given the strides needs no copy.""",
    ("rows = as_rows(x)", "rows = as_rows(x).contiguous()"),
)


dropout_of_two_axes_only = lines(
    """x is taken to have two axes; it may have any number, (N,) or (B, H, S, N), and all but the
    last count rows.""",
    ("M, N = rows.shape", "M, N = x.shape"),
)

dropout_empty_tensors_are_launched = lines(
    """A tensor without elements is not looked at by itself: there is no block of 0 lanes and no
    grid of 0 programs. It gives empty results of its shape and dtype, without a launch.""",
    ("    if x.numel() == 0:\n        return out, p\n", ""),
    ("    if p.numel() == 0:\n        return dx\n", ""),
    gate=False,
)
