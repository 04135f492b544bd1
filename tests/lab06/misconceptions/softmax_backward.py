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
