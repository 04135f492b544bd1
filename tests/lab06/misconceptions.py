"""Known wrong answers of lab 06. Functions run inside a fresh copy of the reference module; those
with `file` give the text of a wrong file: the reference with some lines of a task changed."""

from grader.skeleton import changed_in
from grader.suite import misconception

FILE = "triton_softmax.py"


def first_block(text, task, code):
    """The reference's text with other code in the first block of the task: that of its kernel."""
    before, begin, rest = text.partition(f"# BEGIN SOLUTION {task}\n")
    if not begin:
        raise ValueError(f"no block of `{task}`")
    return before + begin + code.strip("\n") + "\n    " + rest[rest.index("# END SOLUTION") :]


# --- traffic -------------------------------------------------------------------------------------


@misconception("traffic")
def maxima_and_sums_are_free(M, N, itemsize, fused):
    """Only the operations on whole matrices are counted; the M maxima and the M sums are written by
    one operation and read by the next, so 2 M belong to each side."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return 5 * M * N * itemsize, 3 * M * N * itemsize


@misconception("traffic")
def elements_not_bytes(M, N, itemsize, fused):
    """These are elements; bytes are itemsize times as many."""
    if fused:
        return M * N, M * N
    return 5 * M * N + 2 * M, 3 * M * N + 2 * M


@misconception("traffic")
def fused_reads_x_three_times(M, N, itemsize, fused):
    """The kernel uses x for the maximum, for the sum and for the quotient, but it loads it once: in
    between x stays in the registers of the program."""
    if fused:
        return 3 * M * N * itemsize, M * N * itemsize
    return (5 * M * N + 2 * M) * itemsize, (3 * M * N + 2 * M) * itemsize


@misconception("traffic")
def a_statistic_for_each_column(M, N, itemsize, fused):
    """A softmax of rows has a maximum and a sum for each of the M rows, not for each of the N
    columns."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return (5 * M * N + 2 * N) * itemsize, (3 * M * N + 2 * N) * itemsize


@misconception("traffic")
def each_operation_reads_one_operand(M, N, itemsize, fused):
    """A difference and a quotient have two operands each: besides the M N elements they read the M
    maxima or the M sums."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return 5 * M * N * itemsize, (3 * M * N + 2 * M) * itemsize


@misconception("traffic")
def read_and_written_exchanged(M, N, itemsize, fused):
    """Read and written are exchanged: a softmax that is not fused reads 5 matrices and writes 3."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return (3 * M * N + 2 * M) * itemsize, (5 * M * N + 2 * M) * itemsize


@misconception("traffic")
def fusion_saves_the_intermediate_writes_only(M, N, itemsize, fused):
    """Fused, the intermediate matrices are neither written nor read again: one read of M N remains,
    not five."""
    read = (5 * M * N + 2 * M) * itemsize
    return (read, M * N * itemsize) if fused else (read, (3 * M * N + 2 * M) * itemsize)


# --- naive_softmax -------------------------------------------------------------------------------


@misconception("naive_softmax")
def no_maximum(x):
    """exp(x) without the maximum: exp(89) is infinite in float32, and rows around -200 become 0 /
    0; x - max leaves the quotient as it is, and its largest exponential is 1."""
    e = torch.exp(x)
    return e / e.sum(dim=1, keepdim=True)


@misconception("naive_softmax")
def one_maximum_for_all_rows(x):
    """One maximum of the whole matrix is subtracted: in a row far below it all exponentials
    underflow, and 0 / 0 is NaN. Every row has its own maximum."""
    e = torch.exp(x - x.max())
    return e / e.sum(dim=1, keepdim=True)


@misconception("naive_softmax")
def down_the_columns(x):
    """The sums run down the columns; dim=1 is the axis of the columns, along which a row sums to
    1."""
    e = torch.exp(x - x.amax(dim=0, keepdim=True))
    return e / e.sum(dim=0, keepdim=True)


@misconception("naive_softmax")
def the_library_does_it(x):
    """torch.softmax is one kernel that is fused already; write the five operations that it
    saves."""
    return torch.softmax(x, dim=1)


@misconception("naive_softmax")
def exponentials_twice(x):
    """Difference and exponential are computed twice, for the sum and for the quotient: two more
    passes over memory that a name for the exponentials would save."""
    m = x.amax(dim=1, keepdim=True)
    return torch.exp(x - m) / torch.exp(x - m).sum(dim=1, keepdim=True)


# --- softmax -------------------------------------------------------------------------------------


@misconception("softmax", file=FILE)
def padding_is_zero(text):
    """other=0: exp(0) = 1, so your padding joined the denominator, and in a row below 0 it is the
    maximum, too. The neutral element of a maximum is -inf, and exp(-inf) adds 0 to the sum."""
    return changed_in(text, "softmax", ('other=-float("inf")', "other=0.0"))


@misconception("softmax", file=FILE)
def load_without_mask(text):
    """The load has no mask: lanes beyond the row's end read the next row, and in the last row what
    lies behind the tensor. mask=cols < N switches them off."""
    return changed_in(text, "softmax", (', mask=inside, other=-float("inf")', ""))


@misconception("softmax", file=FILE)
def store_without_mask(text):
    """The store has no mask: lanes beyond the row's end write into the row of another program, and
    behind the tensor in the last one. mask=cols < N belongs to the store, too."""
    return changed_in(text, "softmax", ("element_ty), mask=inside)", "element_ty))"))


@misconception("softmax", file=FILE)
def maximum_not_subtracted(text):
    """exp(x) without the maximum of the row: exp(89) is infinite in float32, and inf / inf is
    NaN."""
    return changed_in(text, "softmax", ("tl.exp(x - tl.max(x, axis=0))", "tl.exp(x)"))


@misconception("softmax", file=FILE)
def not_divided_by_the_sum(text):
    """The exponentials are not divided by their sum, so a row does not sum to 1."""
    return changed_in(text, "softmax", ("e / tl.sum(e, axis=0)", "e"))


@misconception("softmax", file=FILE)
def rows_are_n_apart(text):
    """Row r is taken to begin at r * N: that holds for a contiguous matrix only. Pass x.stride(0)
    and multiply the row with that."""
    return changed_in(text, "softmax", ("row * x_stride_m", "row * N"))


@misconception("softmax", file=FILE)
def columns_are_one_apart(text):
    """Neighbouring columns are taken to be neighbours in memory; in a transposed matrix they are
    x.stride(1) elements apart."""
    return changed_in(text, "softmax", ("cols * x_stride_n", "cols"))


@misconception("softmax", file=FILE)
def copies_to_be_contiguous(text):
    """.contiguous() reads and writes the whole tensor once more, before the kernel has begun; a
    kernel that is given the strides needs no copy."""
    return changed_in(text, "softmax", ("rows = as_rows(x)", "rows = as_rows(x).contiguous()"))


@misconception("softmax", file=FILE)
def result_strided_like_the_input(text):
    """torch.empty_like(x) of a transposed x is transposed, too, and the kernel stores rows of N one
    after another: make the result with torch.empty(x.shape, ...), or pass out.stride() as well."""
    return changed_in(
        text,
        "softmax",
        ("torch.empty(x.shape, dtype=x.dtype, device=x.device)", "torch.empty_like(x)"),
    )


@misconception("softmax", file=FILE)
def a_program_for_each_column(text):
    """The grid has N programs, one a column; a program owns a row, and there are M of them."""
    return changed_in(text, "softmax", ("[(M,)]", "[(N,)]"))


@misconception("softmax", file=FILE)
def result_is_float32(text):
    """The result is made in float32; a result has the dtype of its input, or the next operation
    moves twice the bytes."""
    return changed_in(text, "softmax", ("dtype=x.dtype", "dtype=torch.float32"))


@misconception("softmax")
def library_softmax(x):
    """torch.softmax is called and no kernel of yours is launched; this task is to write the kernel
    that stands behind it."""
    return torch.softmax(x, dim=-1)


@misconception("softmax", file=FILE)
def torch_divides(text):
    """The kernel stores the exponentials and torch sums and divides: two more passes, of what the
    program had in its registers."""
    return changed_in(
        text,
        "softmax",
        ("e / tl.sum(e, axis=0)", "e"),
        (
            "warps_for(block))\n    return out\n",
            "warps_for(block))\n    return out / out.sum(-1, keepdim=True)\n",
        ),
    )


@misconception("softmax", file=FILE)
def loaded_twice(text):
    """x is loaded for the maximum and loaded again for the exponentials; a block that has been
    loaded stays in registers, use it twice."""
    load = 'tl.load(x_row + cols * x_stride_n, mask=inside, other=-float("inf")).to(tl.float32)'
    return changed_in(text, "softmax", ("tl.exp(x - tl", f"tl.exp({load} - tl"))


@misconception("softmax", file=FILE)
def one_program_for_all_rows(text):
    """One program walks over all rows, so one multiprocessor of the GPU works and the others wait:
    launch a program for each row, a grid of (M,)."""
    text = first_block(
        text,
        "softmax",
        """
    cols = tl.arange(0, BLOCK).to(tl.int64)
    inside = cols < N
    for row in range(0, M):
        x_row = x_ptr + row * x_stride_m
        x = tl.load(x_row + cols * x_stride_n, mask=inside, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        p = e / tl.sum(e, axis=0)
        tl.store(out_ptr + row * N + cols, p.to(out_ptr.dtype.element_ty), mask=inside)
""",
    )
    text = text.replace(
        "softmax_kernel(x_ptr, out_ptr, N,", "softmax_kernel(x_ptr, out_ptr, M, N,", 1
    )
    return changed_in(text, "softmax", ("[(M,)](rows, out, N,", "[(1,)](rows, out, M, N,"))


@misconception("softmax", file=FILE)
def three_launches(text):
    """Maxima, sums and quotients are made by launches of their own, and each reads the matrix
    again; fused means one launch in which a row stays on the chip."""
    text = first_block(
        text,
        "softmax",
        """
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    inside = cols < N
    x_row = x_ptr + row * x_stride_m
    x = tl.load(x_row + cols * x_stride_n, mask=inside, other=-float("inf")).to(tl.float32)
    if STEP == 0:
        tl.store(maxima_ptr + row, tl.max(x, axis=0))
    if STEP == 1:
        tl.store(sums_ptr + row, tl.sum(tl.exp(x - tl.load(maxima_ptr + row)), axis=0))
    if STEP == 2:
        p = tl.exp(x - tl.load(maxima_ptr + row)) / tl.load(sums_ptr + row)
        tl.store(out_ptr + row * N + cols, p.to(out_ptr.dtype.element_ty), mask=inside)
""",
    )
    head = "def softmax_kernel(x_ptr, out_ptr, N, x_stride_m, x_stride_n, "
    more = "maxima_ptr, sums_ptr, STEP: tl.constexpr, "
    call = (
        "softmax_kernel[(M,)](rows, out, N, *rows.stride(), BLOCK=block, "
        "num_warps=warps_for(block))"
    )
    three = (
        "maxima, sums = (torch.empty(M, device=x.device) for _ in range(2))\n"
        "    for step in range(3):\n"
        "        softmax_kernel[(M,)](rows, out, N, *rows.stride(), maxima, sums, step, block)"
    )
    return changed_in(text.replace(head, head + more, 1), "softmax", (call, three))


# --- softmax_scaled_masked -----------------------------------------------------------------------

MASKED = "softmax_scaled_masked"


@misconception("softmax_scaled_masked", file=FILE)
def hidden_row_is_nan(text):
    """A row that sees nothing has maximum -inf, -inf - -inf is NaN, and 0 / 0 is NaN again:
    subtract 0 instead of such a maximum, and do not divide by a sum of 0."""
    return changed_in(
        text,
        MASKED,
        ('tl.where(top == -float("inf"), 0.0, top)', "top"),
        ("tl.where(total == 0.0, 1.0, total)", "total"),
    )


@misconception("softmax_scaled_masked", file=FILE)
def hidden_logits_get_minus_1e9(text):
    """Hidden logits get -1e9 instead of -inf: beside visible ones that is as good, but in a row
    that sees nothing all are equally far down, and each gets 1 / N."""
    hidden = 'tl.where(mask != 0, s, -float("inf"))'
    return changed_in(
        text,
        MASKED,
        (hidden, "tl.where(inside & (mask == 0), -1e9, s)"),
        ("s + mask.to(tl.float32)", "s + tl.maximum(mask.to(tl.float32), -1e9)"),
    )


@misconception("softmax_scaled_masked", file=FILE)
def maximum_before_the_mask(text):
    """The maximum is taken over hidden logits, too: where those are the largest, all visible ones
    underflow. Mask first, then the maximum."""
    return changed_in(
        text,
        MASKED,
        ("    if KIND != 0:", "    top = tl.max(s, axis=0)\n    if KIND != 0:"),
        ("    top = tl.max(s, axis=0)\n    # -inf", "    # -inf"),
    )


@misconception("softmax_scaled_masked", file=FILE)
def scale_after_the_maximum(text):
    """The maximum is taken of x and subtracted from scale * x: with a scale of 3 the exponent is up
    to 2 max above 0, and exp overflows. The logits are scale * x, so scale before the maximum."""
    return changed_in(
        text,
        MASKED,
        (").to(tl.float32) * scale", ").to(tl.float32)"),
        ("    if KIND != 0:", "    top = tl.max(s, axis=0)\n    s = s * scale\n"
         '    s = tl.where(inside, s, -float("inf"))\n    if KIND != 0:'),
        ("    top = tl.max(s, axis=0)\n    # -inf", "    # -inf"),
    )  # fmt: skip


@misconception("softmax_scaled_masked", file=FILE)
def padding_times_a_negative_scale(text):
    """The padding's -inf is multiplied with the scale: a negative one makes it +inf, which is the
    maximum then. Put -inf into the padding after the scale."""
    return changed_in(text, MASKED, ('    s = tl.where(inside, s, -float("inf"))\n', ""))


@misconception("softmax_scaled_masked", file=FILE)
def scale_is_ignored(text):
    """The logits are scale * x; here the scale is not applied at all."""
    return changed_in(text, MASKED, (").to(tl.float32) * scale", ").to(tl.float32)"))


@misconception("softmax_scaled_masked", file=FILE)
def mask_is_scaled_too(text):
    """The mask is added before the scale and so is scaled with x; attention computes
    scale * x + mask."""
    return changed_in(text, MASKED, ("s + mask.to(tl.float32)", "s + mask.to(tl.float32) * scale"))


@misconception("softmax_scaled_masked", file=FILE)
def hidden_logits_are_zero(text):
    """A hidden logit is set to 0, which is a logit like any other, with weight exp(0 - max); weight
    0 needs -inf."""
    return changed_in(
        text, MASKED, ('tl.where(mask != 0, s, -float("inf"))', "tl.where(mask != 0, s, 0.0)")
    )


@misconception("softmax_scaled_masked", file=FILE)
def true_means_hidden(text):
    """True is taken to hide a logit; in scaled_dot_product_attention, and here, True takes part."""
    return changed_in(text, MASKED, ("tl.where(mask != 0, s", "tl.where(mask == 0, s"))


@misconception("softmax_scaled_masked", file=FILE)
def mask_after_the_softmax(text):
    """The probabilities are masked, not the logits: what is hidden still stands in the denominator,
    and a row sums to less than 1."""
    return changed_in(
        text,
        MASKED,
        ('s = tl.where(mask != 0, s, -float("inf"))', "seen = mask != 0"),
        ("p = e / tl.where(total == 0.0, 1.0, total)",
         "p = e / tl.where(total == 0.0, 1.0, total)\n    if KIND == 1:\n"
         "        p = tl.where(seen, p, 0.0)"),
    )  # fmt: skip


@misconception("softmax_scaled_masked", file=FILE)
def added_mask_taken_for_boolean(text):
    """A float mask is added to the logits; here it only tells zero from other numbers."""
    return changed_in(
        text, MASKED, ("s = s + mask.to(tl.float32)", 's = tl.where(mask != 0, s, -float("inf"))')
    )


@misconception("softmax_scaled_masked", file=FILE)
def mask_spread_out_in_memory(text):
    """.contiguous() writes the broadcast mask out, M N elements that hold N different ones; expand
    alone gives strides of 0, and the kernel reads the same elements again."""
    return changed_in(text, MASKED, ("mask.expand(M, N)", "mask.expand(M, N).contiguous()"))


@misconception("softmax_scaled_masked", file=FILE)
def strides_of_the_mask_are_those_of_x(text):
    """The mask is read with the strides of x: a broadcast mask has no elements there. Its own,
    after expand, are 0 along the axis that it lacks."""
    return changed_in(text, MASKED, ("*mask.stride()", "*x.stride()"))


@misconception("softmax_scaled_masked")
def torch_makes_the_logits(x, scale=1.0, mask=None):
    """torch scales and masks before the kernel runs: two more passes over memory for what the
    program could do with the row that it has loaded."""
    s = x.float() * scale
    if mask is not None:
        mask = mask.expand(x.shape)
        s = s.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else s + mask
    hidden = (s == -math.inf).all(-1, keepdim=True)
    p = softmax(s.masked_fill(hidden, 0.0)).masked_fill(hidden, 0.0)
    return p.to(x.dtype)


# --- softmax_backward ----------------------------------------------------------------------------


@misconception("softmax_backward")
def sum_over_the_wrong_axis(p, dp):
    """The sum of p * dp runs down the columns; it belongs to the axis of the softmax, the last one:
    one number for each row."""
    p, dp = as_rows(p).T, as_rows(dp).T
    out = torch.empty(p.shape, dtype=p.dtype)
    M, N = p.shape
    block = triton.next_power_of_2(N)
    softmax_backward_kernel[(M,)](p, dp, out, N, *p.stride(), *dp.stride(), BLOCK=block)
    return out.T


@misconception("softmax_backward", file=FILE)
def diagonal_only(text):
    """p (1 - p) dp is the diagonal of the Jacobian alone; a logit moves all probabilities of its
    row through their common sum, and that gives the term with the sum of p * dp."""
    return changed_in(
        text, "softmax_backward", ("p * (dp - tl.sum(p * dp, axis=0))", "p * (1.0 - p) * dp")
    )


@misconception("softmax_backward", file=FILE)
def sum_without_weights(text):
    """The sum of dp is subtracted; it is the sum of p * dp, the mean of dp under the row's
    probabilities."""
    return changed_in(text, "softmax_backward", ("tl.sum(p * dp, axis=0)", "tl.sum(dp, axis=0)"))


@misconception("softmax_backward", file=FILE)
def sum_is_not_weighted_by_p(text):
    """dx = p * dp - sum(p * dp) lacks a p: the coupling reaches each logit in proportion to its
    probability, dx = p * (dp - sum(p * dp))."""
    return changed_in(
        text,
        "softmax_backward",
        ("p * (dp - tl.sum(p * dp, axis=0))", "p * dp - tl.sum(p * dp, axis=0)"),
    )


@misconception("softmax_backward", file=FILE)
def no_coupling(text):
    """dx = p * dp is half of the formula: without - p * sum(p * dp), adding a constant to the row
    would change the loss, and it does not."""
    return changed_in(text, "softmax_backward", ("p * (dp - tl.sum(p * dp, axis=0))", "p * dp"))


@misconception("softmax_backward", file=FILE)
def dp_has_the_strides_of_p(text):
    """dp is read with the strides of p; autograd passes what it has, after sum() one number with
    strides of 0."""
    return changed_in(text, "softmax_backward", ("*dp.stride(), BLOCK", "*p.stride(), BLOCK"))


@misconception("softmax_backward", file=FILE)
def gradient_stored_without_mask(text):
    """The store has no mask: lanes beyond the row's end write into the next row of dx, and behind
    the tensor in the last one."""
    return changed_in(text, "softmax_backward", ("element_ty), mask=inside)", "element_ty))"))


@misconception("softmax_backward")
def torch_computes_the_gradient(p, dp):
    """The gradient is computed by torch, in four passes over memory and no launch of yours; one
    kernel has p, dp and the sum of a row at hand at once."""
    return p * (dp - (p * dp).sum(-1, keepdim=True))


@misconception("softmax_backward", file=FILE)
def torch_makes_the_product(text):
    """torch makes p * dp first, which is a matrix more to write and to read; load p and dp, and
    multiply in the kernel."""
    return changed_in(
        text,
        "softmax_backward",
        ("dx = p * (dp - tl.sum(p * dp, axis=0))", "dx = dp - p * tl.sum(dp, axis=0)"),
        ("p, dp = as_rows(p), as_rows(dp)", "p, dp = as_rows(p), as_rows(p * dp)"),
    )


@misconception("softmax_backward", file=FILE)
def softmax_made_again(text):
    """x is saved and the softmax made again in the backward, a launch more; the gradient is written
    in p, so save the result."""
    return changed_in(
        text,
        "softmax_backward",
        ("ctx.save_for_backward(p)", "ctx.save_for_backward(x)"),
        ("softmax_backward(p, dp)", "softmax_backward(softmax(p), dp)"),
    )


@misconception("softmax_backward", file=FILE)
def library_forward(text):
    """SoftmaxFunction calls torch.softmax on the way forward; it is to launch the kernel of task
    3."""
    return changed_in(text, "softmax_backward", ("p = softmax(x)", "p = torch.softmax(x, -1)"))


# --- online_softmax ------------------------------------------------------------------------------

ONLINE = "online_softmax"


@misconception("online_softmax", file=FILE)
def sum_not_rescaled(text):
    """d was measured from the old maximum; when m grows, d must be multiplied by exp(m_old - m_new)
    before the block is added ([1, 2, 3, 4] in twos: 2.7358 for 1.5530)."""
    return changed_in(text, ONLINE, ("d = d * tl.exp(m - shift) + ", "d = d + "))


@misconception("online_softmax", file=FILE)
def rescaled_the_wrong_way(text):
    """The factor is exp(m_old - m_new), at most 1: seen from a larger maximum the old terms are
    smaller."""
    inverse = 'tl.where(m == -float("inf"), 0.0, tl.exp(shift - m))'
    return changed_in(text, ONLINE, ("d * tl.exp(m - shift)", f"d * {inverse}"))


@misconception("online_softmax", file=FILE)
def block_rescaled_instead(text):
    """The factor exp(m_old - m_new) is on the new block; the block is measured from m_new already,
    what has to be repaired is the old d."""
    return changed_in(
        text,
        ONLINE,
        (
            "d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)",
            "d + tl.exp(m - shift) * tl.sum(tl.exp(x - shift), axis=0)",
        ),
    )


@misconception("online_softmax", file=FILE)
def a_softmax_for_each_block(text):
    """Each block is divided by its own sum; the denominator is that of the whole row, so nothing
    can be stored before the last block has been seen."""
    return first_block(
        text,
        ONLINE,
        """
    row = tl.program_id(0).to(tl.int64)
    x_row, out_row = x_ptr + row * x_stride_m, out_ptr + row * N
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_row + at * x_stride_n, mask=at < N, other=-float("inf")).to(tl.float32)
        top = tl.max(x, axis=0)
        e = tl.exp(x - tl.where(top == -float("inf"), 0.0, top))
        d = tl.sum(e, axis=0)
        p = e / tl.where(d == 0.0, 1.0, d)
        tl.store(out_row + at, p.to(out_ptr.dtype.element_ty), mask=at < N)
""",
    )


@misconception("online_softmax", file=FILE)
def three_passes(text):
    """A pass for the maximum, one for the sum and one for the result: with the sum rescaled
    whenever the maximum grows, the first two are one."""
    return changed_in(
        text,
        ONLINE,
        (
            "        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)\n"
            "        m = m_new\n",
            "        m = m_new\n    for start in range(0, N, BLOCK):\n        at = start + cols\n"
            '        x = tl.load(x_row + at * x_stride_n, mask=at < N, other=-float("inf"))\n'
            "        d = d + tl.sum(tl.exp(x.to(tl.float32) - shift), axis=0)\n",
        ),
    )


@misconception("online_softmax", file=FILE)
def the_whole_row_at_once(text):
    """The block is as long as the row: registers hold some 32,000 elements of a program, beyond
    that they spill to memory. `block` elements at a time are enough."""
    return changed_in(text, ONLINE, ("BLOCK=block", "BLOCK=triton.next_power_of_2(N)"))


@misconception("online_softmax", file=FILE)
def last_block_left_out(text):
    """The loops end with the last whole block; the rest of the row is a block, too, a masked
    one."""
    loop, short = "range(0, N, BLOCK)", "range(0, N - BLOCK + 1, BLOCK)"
    return changed_in(
        text,
        ONLINE,
        (f"d = 0.0\n    for start in {loop}", f"d = 0.0\n    for start in {short}"),
        (f"1.0, d)\n    for start in {loop}", f"1.0, d)\n    for start in {short}"),
    )


@misconception("online_softmax", file=FILE)
def maximum_of_nothing_subtracted(text):
    """While a row has shown nothing but -inf, its maximum is -inf and -inf - -inf is NaN, which
    stays in d for ever: subtract 0 instead."""
    return changed_in(
        text,
        ONLINE,
        ('tl.where(m_new == -float("inf"), 0.0, m_new)', "m_new"),
        ('tl.where(m == -float("inf"), 0.0, m)', "m"),
    )


@misconception("online_softmax", file=FILE)
def online_padding_is_zero(text):
    """other=0 in the last block: exp(0 - m) joins the sum for each padded lane, and in a row below
    0 the padding is the maximum. It is -inf."""
    padded = 'other=-float("inf")).to(tl.float32)\n        '
    return changed_in(
        text,
        ONLINE,
        (f"{padded}m_new", "other=0.0).to(tl.float32)\n        m_new"),
        (f"{padded}p =", "other=0.0).to(tl.float32)\n        p ="),
    )


@misconception("online_softmax", file=FILE)
def maximum_starts_at_zero(text):
    """The running maximum starts at 0: in a row around -200 all exponentials underflow. The maximum
    of nothing is -inf."""
    return changed_in(text, ONLINE, ('m = -float("inf")\n', "m = 0.0\n"))


@misconception("online_softmax", file=FILE)
def sum_starts_at_one(text):
    """d starts at 1; the sum of nothing is 0. (The first block's maximum adds its exp(0) = 1 by
    itself, and here the 1 vanishes only if the first factor is exp(-inf) = 0.)"""
    return changed_in(
        text,
        ONLINE,
        ("    d = 0.0\n", "    d = 0.0\n    count = 1.0\n"),
        ("/ d\n", "/ (d + count)\n"),
    )


@misconception("online_softmax")
def task_three_again(x, block=1024):
    """This is task 3, which holds the whole row in one block; it ends where a row no longer
    fits."""
    return softmax(x)


@misconception("online_softmax")
def library_online(x, block=1024):
    """torch.softmax is called and no kernel of yours is launched; this task is to write the loop
    over blocks."""
    return torch.softmax(x, dim=-1)


# --- log_softmax_cross_entropy -------------------------------------------------------------------

LOSS = "log_softmax_cross_entropy"


@misconception("log_softmax_cross_entropy", file=FILE)
def ignored_rows_in_the_mean(text):
    """The losses are divided by the number of all rows; ignored ones add 0 to the sum and must not
    count below either, or the loss shrinks with every padded token."""
    return changed_in(
        text, LOSS, ("losses.sum() / (labels != ignore_index).sum()", "losses.mean()")
    )


@misconception("log_softmax_cross_entropy", file=FILE)
def a_sum_instead_of_the_mean(text):
    """This is the sum of the losses; the mean divides by the number of rows that count."""
    return changed_in(text, LOSS, ("losses.sum() / (labels != ignore_index).sum()", "losses.sum()"))


@misconception("log_softmax_cross_entropy", file=FILE)
def ignored_label_as_an_index(text):
    """The logit of the label is loaded for ignored rows, too: -100 is no column, it lies before the
    row. Switch the load off where the label is ignore_index."""
    return changed_in(
        text,
        LOSS,
        ("label * logits_stride_v, mask=counted, other=0.0)", "label * logits_stride_v)"),
    )


@misconception("log_softmax_cross_entropy", file=FILE)
def only_negative_labels_are_ignored(text):
    """Negative labels are ignored, whatever ignore_index says; it is an argument, and may be the
    number of a column."""
    return changed_in(
        text,
        LOSS,
        ("counted = label != ignore_index", "counted = label >= 0"),
        ("(labels != ignore_index).sum()", "(labels >= 0).sum()"),
    )


@misconception("log_softmax_cross_entropy", file=FILE)
def ignored_rows_have_a_loss(text):
    """An ignored row adds its lse to the losses: its label's logit is taken as 0, but nothing of
    such a row belongs into the sum."""
    return changed_in(text, LOSS, ("tl.where(counted, lse - target, 0.0)", "lse - target"))


@misconception("log_softmax_cross_entropy", file=FILE)
def ignored_rows_have_no_lse(text):
    """lse is stored as 0 for ignored rows; it belongs to the logits and not to the label, and every
    row has one."""
    return changed_in(
        text, LOSS, ("lse_ptr + row, lse)", "lse_ptr + row, tl.where(counted, lse, 0.0))")
    )


@misconception("log_softmax_cross_entropy", file=FILE)
def lse_without_the_maximum(text):
    """ln(d) is measured from the row's maximum; the log-sum-exp is m + ln(d)."""
    return changed_in(text, LOSS, ("lse = m + tl.log(d)", "lse = tl.log(d)"))


@misconception("log_softmax_cross_entropy", file=FILE)
def lse_in_base_two(text):
    """The logarithm is that to base 2; lse and loss are natural logarithms: multiply by ln 2, or
    use tl.log."""
    return changed_in(text, LOSS, ("tl.log(d)", "tl.log2(d)"))


@misconception("log_softmax_cross_entropy", file=FILE)
def loss_has_the_wrong_sign(text):
    """The loss is -log p = lse - logit of the label, and never negative; this is log p."""
    return changed_in(text, LOSS, ("lse - target", "target - lse"))


@misconception("log_softmax_cross_entropy", file=FILE)
def exp_of_bare_logits(text):
    """exp is taken of the logits without their maximum: exp(89) is infinite in float32, and logits
    of 200 are no rarity before a model is trained."""
    return changed_in(
        text, LOSS, ('tl.where(m_new == -float("inf"), 0.0, m_new)', "m_new * 0.0"),
        ("m + tl.log(d)", "tl.log(d)"), ("d * tl.exp(m - shift)", "d"),
    )  # fmt: skip


@misconception("log_softmax_cross_entropy", file=FILE)
def loss_sum_not_rescaled(text):
    """d was measured from the old maximum; when m grows, d must be multiplied by exp(m_old - m_new)
    before the block is added."""
    return changed_in(text, LOSS, ("d = d * tl.exp(m - shift) + ", "d = d + "))


@misconception("log_softmax_cross_entropy", file=FILE)
def logits_read_twice(text):
    """The logits are read for their maximum and again for the sum; the online loop of task 6 has
    both after one pass."""
    return changed_in(
        text,
        LOSS,
        (
            "        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)\n"
            "        m = m_new\n",
            "        m = m_new\n    for start in range(0, V, BLOCK):\n        at = start + cols\n"
            "        x = tl.load(logits_row + at * logits_stride_v, mask=at < V, "
            'other=-float("inf"))\n'
            "        d = d + tl.sum(tl.exp(x.to(tl.float32) - shift), axis=0)\n",
        ),
    )


@misconception("log_softmax_cross_entropy", file=FILE)
def the_whole_row_of_logits_at_once(text):
    """The block is as long as the row: a vocabulary of 128,256 is 131,072 lanes, more than the
    registers of a program hold. `block` elements at a time are enough."""
    return changed_in(text, LOSS, ("BLOCK=block", "BLOCK=triton.next_power_of_2(V)"))


@misconception("log_softmax_cross_entropy", file=FILE)
def label_s_column_without_its_stride(text):
    """The label's logit is looked for `label` elements after the row's beginning; neighbouring
    columns lie logits.stride(1) apart."""
    return changed_in(text, LOSS, ("logits_row + label * logits_stride_v", "logits_row + label"))


@misconception("log_softmax_cross_entropy", file=FILE)
def label_s_logit_of_the_first_row(text):
    """The label's logit is looked for in row 0, whatever the row: its address begins where the
    program's own row does."""
    return changed_in(text, LOSS, ("logits_row + label *", "logits_ptr + label *"))


@misconception("log_softmax_cross_entropy")
def library_cross_entropy(logits, labels, ignore_index=-100, block=4096):
    """torch's cross_entropy is called and no kernel of yours is launched: it writes the M x V
    log-probabilities that this task is to save."""
    loss = torch.nn.functional.cross_entropy(logits.float(), labels, ignore_index=ignore_index)
    return loss, torch.logsumexp(logits.float(), -1)


@misconception("log_softmax_cross_entropy")
def log_of_the_softmax(logits, labels, ignore_index=-100, block=4096):
    """The probabilities are written and their logarithm taken: M V elements out and back in, and
    log(0) = -inf where a probability underflows. lse - logit needs neither."""
    p = softmax(logits.float())
    counted = labels != ignore_index
    chosen = p.gather(1, labels.clamp(min=0)[:, None])[:, 0]
    losses = torch.where(counted, -torch.log(chosen), 0.0)
    return losses.sum() / counted.sum(), torch.logsumexp(logits.float(), -1)


# --- softmax_dropout -----------------------------------------------------------------------------

DROPOUT = "softmax_dropout"


@misconception("softmax_dropout", file=FILE)
def kept_elements_not_scaled(text):
    """What is kept must be divided by 1 - rate, or the mean of the weights shrinks while training
    and not afterwards."""
    return changed_in(text, DROPOUT, ("p / (1.0 - rate)", "p"))


@misconception("softmax_dropout", file=FILE)
def rate_is_the_share_kept(text):
    """The elements below rate are kept; rate is the share that is dropped."""
    return changed_in(
        text, DROPOUT, ("kept = tl.rand(seed, at) >= rate", "kept = tl.rand(seed, at) < rate")
    )


@misconception("softmax_dropout", file=FILE)
def every_row_drops_alike(text):
    """The offset is the column alone, so that all rows lose the same columns; row * N + col is a
    number of its own for each element."""
    return changed_in(
        text,
        DROPOUT,
        ("kept = tl.rand(seed, at)", "kept = tl.rand(seed, cols)"),
        ("tl.where(tl.rand(seed, at)", "tl.where(tl.rand(seed, cols)"),
    )


@misconception("softmax_dropout", file=FILE)
def backward_drops_nothing(text):
    """The gradient takes no notice of the mask: what was dropped had no part in the result, so its
    dp is 0, and that of the others dout / (1 - rate)."""
    return changed_in(
        text,
        DROPOUT,
        ("dp = tl.where(tl.rand(seed, at) >= rate, dout / (1.0 - rate), 0.0)", "dp = dout"),
    )


# --- softmax_persistent --------------------------------------------------------------------------


@misconception("softmax_persistent", file=FILE)
def a_search_in_every_call(text):
    """The search is made in every call; it costs many launches, so its result is kept for each N
    and dtype."""
    return changed_in(text, "softmax_persistent", ("if key not in self.best:", "if key:"))


@misconception("softmax_persistent", file=FILE)
def key_without_the_dtype(text):
    """Configurations are kept by N alone; half the bytes an element make another kernel, so the
    dtype belongs to the key."""
    return changed_in(
        text,
        "softmax_persistent",
        ("key = x.shape[-1], x.dtype", "key = x.shape[-1], torch.float32"),
    )


@misconception("softmax_persistent", file=FILE)
def only_the_first_rows(text):
    """Each program takes one row and ends; it has to go on with every num_programs(0)-th row after
    its first."""
    return changed_in(
        text,
        "softmax_persistent",
        ("tl.range(first, M, tl.num_programs(0)", "tl.range(first, first + 1, 1"),
    )


@misconception("softmax_persistent", file=FILE)
def more_programs_than_rows(text):
    """num_programs are launched even where there are fewer rows; those beyond have nothing to do,
    launch min(num_programs, M)."""
    return changed_in(text, "softmax_persistent", ("min(num_programs, M)", "num_programs"))
