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
