from grader.lab.skeleton import changed, changed_in
from grader.suite import lines, misconception


@misconception()
def sum_over_the_wrong_axis(p, dp):
    """The sum of p * dp runs down the columns; it belongs to the axis of the softmax, the last one:
    one number for each row."""
    p, dp = as_rows(p).T, as_rows(dp).T
    out = torch.empty(p.shape, dtype=p.dtype)
    M, N = p.shape
    block = triton.next_power_of_2(N)
    softmax_backward_kernel[(M,)](p, dp, out, N, *p.stride(), *dp.stride(), BLOCK=block)
    return out.T


diagonal_only = lines(
    """p (1 - p) dp is the diagonal of the Jacobian alone; a logit moves all probabilities of its
    row through their common sum, and that gives the term with the sum of p * dp.""",
    ("p * (dp - tl.sum(p * dp, axis=0))", "p * (1.0 - p) * dp"),
)

sum_without_weights = lines(
    """The sum of dp is subtracted; it is the sum of p * dp, the mean of dp under the row's
    probabilities.""",
    ("tl.sum(p * dp, axis=0)", "tl.sum(dp, axis=0)"),
)

sum_is_not_weighted_by_p = lines(
    """dx = p * dp - sum(p * dp) lacks a p: the coupling reaches each logit in proportion to its
    probability, dx = p * (dp - sum(p * dp)).""",
    ("p * (dp - tl.sum(p * dp, axis=0))", "p * dp - tl.sum(p * dp, axis=0)"),
)

no_coupling = lines(
    """dx = p * dp is half of the formula: without - p * sum(p * dp), adding a constant to the row
    would change the loss, and it does not.""",
    ("p * (dp - tl.sum(p * dp, axis=0))", "p * dp"),
)

dp_has_the_strides_of_p = lines(
    """dp is read with the strides of p; autograd passes what it has, after sum() one number with
    strides of 0.""",
    ("*dp.stride(), BLOCK", "*p.stride(), BLOCK"),
)

gradient_stored_without_mask = lines(
    """The store has no mask: lanes beyond the row's end write into the next row of dx, and behind
    the tensor in the last one.""",
    ("element_ty), mask=inside)", "element_ty))"),
)


@misconception()
def torch_computes_the_gradient(p, dp):
    """The gradient is computed by torch, in four passes over memory and no launch of yours; one
    kernel has p, dp and the sum of a row at hand at once."""
    return p * (dp - (p * dp).sum(-1, keepdim=True))


torch_makes_the_product = lines(
    """torch makes p * dp first, which is a matrix more to write and to read; load p and dp, and
    multiply in the kernel.""",
    ("dx = p * (dp - tl.sum(p * dp, axis=0))", "dx = dp - p * tl.sum(dp, axis=0)"),
    ("p, dp = as_rows(p), as_rows(dp)", "p, dp = as_rows(p), as_rows(p * dp)"),
)

softmax_made_again = lines(
    """x is saved and the softmax made again in the backward, a launch more; the gradient is written
    in p, so save the result.""",
    ("ctx.save_for_backward(p)", "ctx.save_for_backward(x)"),
    ("softmax_backward(p, dp)", "softmax_backward(softmax(p), dp)"),
)

library_forward = lines(
    """SoftmaxFunction calls torch.softmax on the way forward; it is to launch the kernel of task
    3.""",
    ("p = softmax(x)", "p = torch.softmax(x, -1)"),
)


gradient_over_p = lines(
    """The gradient is written over p where p is contiguous: p is the caller's, and autograd may
    need it again. Make dx a new tensor.""",
    (
        "dx = torch.empty(p.shape, dtype=p.dtype, device=p.device)",
        "dx = p if p.is_contiguous() else torch.empty(p.shape, dtype=p.dtype, device=p.device)",
    ),
)

gradient_over_dp = lines(
    """The gradient is written over dp where dp is contiguous: dp belongs to autograd, which may
    hand the same tensor to another function. Make dx a new tensor.""",
    (
        "dx = torch.empty(p.shape, dtype=p.dtype, device=p.device)",
        "dx = dp if dp.is_contiguous() else torch.empty(p.shape, dtype=p.dtype, device=p.device)",
    ),
)

p_has_the_strides_of_dp = lines(
    """p is read with the strides of dp: each of the two has its own.""",
    ("*p.stride(), *dp.stride()", "*dp.stride(), *dp.stride()"),
)

dp_copied_to_be_contiguous = lines(
    """dp is copied to be contiguous: after sum() it is one number with strides of 0, of which the
    copy makes a matrix. The kernel can take its strides.""",
    ("as_rows(p), as_rows(dp)", "as_rows(p), as_rows(dp).contiguous()"),
)

gradient_in_half_precision = lines(
    """p and dp are multiplied and summed in the dtype that they were loaded in, with a rounding at
    each step; convert both to float32 after the load.""",
    (
        "cols * p_stride_n, mask=inside, other=0.0).to(tl.float32)",
        "cols * p_stride_n, mask=inside, other=0.0)",
    ),
    (
        "cols * dp_stride_n, mask=inside, other=0.0).to(tl.float32)",
        "cols * dp_stride_n, mask=inside, other=0.0)",
    ),
)

gradient_block_of_1024 = lines(
    """The block has 1,024 lanes whatever the row: what lies beyond is missing in the sum and is not
    stored. BLOCK is the number of elements, next_power_of_2(N).""",
    ("triton.next_power_of_2(N)", "1024"),
)

p_is_an_attribute = lines(
    """p is kept as an attribute of ctx: autograd does not know of it, and p lives on after the
    backward. ctx.save_for_backward(p) is the way.""",
    ("ctx.save_for_backward(p)", "ctx.p = p"),
    ("(p,) = ctx.saved_tensors", "p = ctx.p"),
)

x_is_saved_too = lines(
    """x is saved besides p, 4 M N bytes that live until the backward; the gradient needs p and dp
    alone.""",
    ("ctx.save_for_backward(p)", "ctx.save_for_backward(x, p)"),
    ("(p,) = ctx.saved_tensors", "_, p = ctx.saved_tensors"),
)

a_copy_is_saved = lines(
    """A copy of p is saved: a matrix more in memory, and one more pass. The result itself may be
    saved.""",
    ("ctx.save_for_backward(p)", "ctx.save_for_backward(p.clone())"),
)

plain_mean_of_dp = lines(
    """The plain mean of dp is subtracted, where each column has weight 1 / N; the weights are the
    row's probabilities: the sum of p * dp.""",
    ("tl.sum(p * dp, axis=0)", "tl.sum(dp, axis=0) / N"),
)

mean_of_the_products = lines(
    """The sum of p * dp is divided by N; it is a mean already, since the probabilities of a row sum
    to 1.""",
    ("tl.sum(p * dp, axis=0)", "tl.sum(p * dp, axis=0) / N"),
)

gradient_of_the_logarithm = lines(
    """dx = dp - p * sum(dp) is the gradient of log_softmax, from the gradient by the logarithms;
    dp is by the probabilities here.""",
    ("p * (dp - tl.sum(p * dp, axis=0))", "dp - p * tl.sum(dp, axis=0)"),
)

gradient_has_the_wrong_sign = lines(
    """The difference is the other way round, sum(p * dp) - dp: this is the gradient of -loss.""",
    ("dp - tl.sum(p * dp, axis=0)", "tl.sum(p * dp, axis=0) - dp"),
)

x_is_taken_for_p = lines(
    """SoftmaxFunction saves x and hands it to softmax_backward as if it were p; the gradient is
    written in the probabilities, so save the result.""",
    ("ctx.save_for_backward(p)", "ctx.save_for_backward(x)"),
)

p_and_dp_exchanged = lines(
    """SoftmaxFunction hands p and dp to softmax_backward in the wrong order: p is the first.""",
    ("softmax_backward(p, dp)", "softmax_backward(dp, p)"),
)

INFINITE_PADDING = """The padding is -inf, as for a softmax; the only reduction here is a sum, whose
    neutral element is 0, and -inf in it gives an infinite sum or NaN."""

gradient_padding_is_minus_inf = lines(
    INFINITE_PADDING,
    (
        "cols * p_stride_n, mask=inside, other=0.0",
        'cols * p_stride_n, mask=inside, other=-float("inf")',
    ),
    (
        "cols * dp_stride_n, mask=inside, other=0.0",
        'cols * dp_stride_n, mask=inside, other=-float("inf")',
    ),
)


gradient_loads_without_other = lines(
    """The loads have a mask and no `other`: what the lanes beyond the row's end hold is undefined
    then, and it takes part in the sum. other=0 adds nothing.""",
    ("cols * p_stride_n, mask=inside, other=0.0", "cols * p_stride_n, mask=inside"),
    ("cols * dp_stride_n, mask=inside, other=0.0", "cols * dp_stride_n, mask=inside"),
)

gradient_loads_without_mask = lines(
    """The loads have no mask: lanes beyond the row's end read the next row, and in the last row
    what lies behind the tensor.""",
    ("cols * p_stride_n, mask=inside, other=0.0", "cols * p_stride_n"),
    ("cols * dp_stride_n, mask=inside, other=0.0", "cols * dp_stride_n"),
)


CONTIGUOUS = """p and dp are taken to be contiguous, rows N apart and columns 1 apart; autograd
    passes transposed tensors, too, and single numbers with strides of 0."""

p_and_dp_are_taken_for_contiguous = lines(
    CONTIGUOUS,
    ("p_ptr + row * p_stride_m,", "p_ptr + row * N,"),
    ("dp_ptr + row * dp_stride_m", "dp_ptr + row * N"),
    ("p_row + cols * p_stride_n", "p_row + cols"),
    ("dp_row + cols * dp_stride_n", "dp_row + cols"),
)

dp_is_taken_for_contiguous = lines(
    """dp is taken to be contiguous, rows N apart and columns 1 apart; autograd passes what it has:
    transposed tensors, or after sum() one number with strides of 0.""",
    ("dp_ptr + row * dp_stride_m", "dp_ptr + row * N"),
    ("dp_row + cols * dp_stride_n", "dp_row + cols"),
)


columns_of_the_gradients_are_one_apart = lines(
    """Neighbouring columns of p and dp are taken to be neighbours in memory; each tensor has a
    second stride, that of its columns.""",
    ("p_row + cols * p_stride_n", "p_row + cols"),
    ("dp_row + cols * dp_stride_n", "dp_row + cols"),
)


strides_of_p_and_dp_exchanged = lines(
    """p is read with the strides of dp and dp with those of p: their order in the launch is not
    that of the kernel.""",
    ("*p.stride(), *dp.stride()", "*dp.stride(), *p.stride()"),
)

dx_stored_with_the_strides_of_p = lines(
    """dx is stored with the strides of p; it is a tensor of its own, contiguous, with rows N apart
    and columns 1 apart.""",
    ("dx_ptr + row * N + cols", "dx_ptr + row * p_stride_m + cols * p_stride_n"),
)

gradient_strided_like_p = lines(
    """torch.empty_like(p) of a transposed p is transposed, too, and the kernel stores rows of N one
    after another: make dx with torch.empty(p.shape, ...), or pass its strides as well.""",
    ("torch.empty(p.shape, dtype=p.dtype, device=p.device)", "torch.empty_like(p)"),
)

gradient_is_float32 = lines(
    """dx is made in float32; a gradient has the dtype of p.""",
    ("dtype=p.dtype", "dtype=torch.float32"),
)

gradient_filled_with_zeros = lines(
    """torch.zeros writes M N zeros, which the kernel then overwrites: that is a pass more.
    torch.empty writes nothing.""",
    (
        "torch.empty(p.shape, dtype=p.dtype, device=p.device)",
        "torch.zeros(p.shape, dtype=p.dtype, device=p.device)",
    ),
)

p_copied_to_be_contiguous = lines(
    """p is copied to be contiguous: a matrix more to read and to write. The kernel can take its
    strides.""",
    ("as_rows(p), as_rows(dp)", "as_rows(p).contiguous(), as_rows(dp)"),
)

gradients_made_float32_by_torch = lines(
    """torch converts p and dp to float32 before the kernel has begun: two matrices more to write
    and to read. Convert what the kernel has loaded.""",
    ("as_rows(p), as_rows(dp)", "as_rows(p.float()), as_rows(dp.float())"),
)


both_loaded_again = lines(
    """p and dp are loaded for the sum and loaded again for the result; what has been loaded stays
    in registers, use it twice.""",
    (
        "    dx = p * (dp - tl.sum(p * dp, axis=0))\n",
        "    mean = tl.sum(p * dp, axis=0)\n"
        "    p = tl.load(p_row + cols * p_stride_n, mask=inside, other=0.0).to(tl.float32)\n"
        "    dp = tl.load(dp_row + cols * dp_stride_n, mask=inside, other=0.0).to(tl.float32)\n"
        "    dx = p * (dp - mean)\n",
    ),
)


@misconception(file="triton_softmax.py")
def torch_makes_the_sums(text):
    """torch computes p * dp and its row sums before the kernel runs: that reads both matrices and
    writes a third one. The program that owns a row has both in registers and can sum."""
    text = changed(
        text, ("    dp_ptr,\n    dx_ptr,\n", "    dp_ptr,\n    dx_ptr,\n    sums_ptr,\n")
    )
    return changed_in(
        text,
        "softmax_backward",
        ("tl.sum(p * dp, axis=0)", "tl.load(sums_ptr + row)"),
        ("p, dp, dx, N,", "p, dp, dx, (p.float() * dp.float()).sum(-1), N,"),
    )


@misconception(file="triton_softmax.py")
def two_launches_for_one_gradient(text):
    """One launch makes the sums and a second one the gradient, and each reads p and dp: fused means
    one launch, in which the row and its sum stay on the chip."""
    text = changed(
        text,
        (
            "    dp_ptr,\n    dx_ptr,\n",
            "    dp_ptr,\n    dx_ptr,\n    sums_ptr,\n    STEP: tl.constexpr,\n",
        ),
    )
    return changed_in(
        text,
        "softmax_backward",
        (
            "    dx = p * (dp - tl.sum(p * dp, axis=0))\n"
            "    tl.store(dx_ptr + row * N + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)\n",
            "    if STEP == 0:\n"
            "        tl.store(sums_ptr + row, tl.sum(p * dp, axis=0))\n"
            "    if STEP == 1:\n"
            "        dx = p * (dp - tl.load(sums_ptr + row))\n"
            "        at = dx_ptr + row * N + cols\n"
            "        tl.store(at, dx.to(dx_ptr.dtype.element_ty), mask=inside)\n",
        ),
        (
            "    softmax_backward_kernel[(M,)](\n        p, dp, dx, N,",
            "    sums = torch.empty(M, device=p.device)\n"
            "    softmax_backward_kernel[(M,)](\n"
            "        p, dp, dx, sums, 0, N, *p.stride(), *dp.stride(), BLOCK=block\n"
            "    )\n"
            "    softmax_backward_kernel[(M,)](\n"
            "        p, dp, dx, sums, 1, N,",
        ),
    )


coupling_is_added = lines(
    """The sum of p * dp is added; it is subtracted, so that a gradient which is equal for all
    probabilities of a row moves no logit.""",
    ("dp - tl.sum(p * dp, axis=0)", "dp + tl.sum(p * dp, axis=0)"),
)

p_and_dp_change_places = lines(
    """p and dp have changed places in the formula: dp * (p - sum) is not p * (dp - sum).""",
    ("p * (dp - tl.sum(p * dp, axis=0))", "dp * (p - tl.sum(p * dp, axis=0))"),
)

factor_p_is_missing = lines(
    """The difference dp - sum(p * dp) is not multiplied with p: a logit moves its own probability
    in proportion to it.""",
    ("p * (dp - tl.sum(p * dp, axis=0))", "dp - tl.sum(p * dp, axis=0)"),
)


outer_product_without_the_sum = lines(
    """p p^T dp is taken as p * p * sum(dp); a row of the outer product times dp is p times the sum
    of p * dp, where each dp meets its own p.""",
    ("p * (dp - tl.sum(p * dp, axis=0))", "p * dp - p * p * tl.sum(dp, axis=0)"),
)


products_in_half_precision = lines(
    """The products p * dp are rounded to the dtype of p before they are summed; all arithmetic is
    in float32, and only what is stored is rounded.""",
    (
        "tl.sum(p * dp, axis=0)",
        "tl.sum((p * dp).to(p_ptr.dtype.element_ty).to(tl.float32), axis=0)",
    ),
)

sum_in_half_precision = lines(
    """The sum of p * dp is rounded to the dtype of p before it is subtracted; all arithmetic is in
    float32, and only what is stored is rounded.""",
    ("tl.sum(p * dp, axis=0)", "tl.sum(p * dp, axis=0).to(p_ptr.dtype.element_ty).to(tl.float32)"),
)


a_program_for_each_column_of_dx = lines(
    """The grid has N programs, one a column; a program owns a row, and there are M of them.""",
    ("[(M,)]", "[(N,)]"),
)


GRADIENT_AXES = """p and dp are taken to have two axes; they may have any number, (N,) or (B, H, S,
    N), and all but the last count rows."""

gradient_of_two_axes_only = lines(
    GRADIENT_AXES,
    ("    M, N = p.shape\n", "    M, N = dx.shape\n"),
)


gradient_has_the_shape_of_the_rows = lines(
    """dx comes back as M rows of N; it has the shape of p, with all its leading axes.""",
    ("    )\n    return dx\n", "    )\n    return dx.reshape(M, N)\n"),
)


function_computes_in_torch = lines(
    """SoftmaxFunction.backward computes the gradient in torch; it is to launch softmax_backward,
    which needs one pass.""",
    ("return softmax_backward(p, dp)", "return p * (dp - (p * dp).sum(-1, keepdim=True))"),
)

function_copies_dp = lines(
    """SoftmaxFunction.backward copies dp to be contiguous: after sum() it is one number with
    strides of 0, of which the copy makes a matrix. The kernel can take its strides.""",
    ("return softmax_backward(p, dp)", "return softmax_backward(p, dp.contiguous())"),
)


function_returns_dp_times_p = lines(
    """SoftmaxFunction.backward multiplies the kernel's result with dp once more; dp is in it
    already, and it is the gradient by x.""",
    ("return softmax_backward(p, dp)", "return softmax_backward(p, dp) * dp"),
)


gradients_without_elements_are_launched = lines(
    """A tensor without elements is not looked at by itself: there is no block of 0 lanes and no
    grid of 0 programs. It gives an empty result of its shape and dtype, without a launch.""",
    ("    if p.numel() == 0:\n        return dx\n", ""),
    gate=False,
)
