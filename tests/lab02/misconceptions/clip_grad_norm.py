from grader.suite import lines, misconception

GRADS = "    grads = [p.grad for p in params if p.grad is not None]\n"
NORM = "    norm = torch.linalg.vector_norm(torch.stack(norms))\n"
FACTOR = "    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)\n"
MULTIPLY = "    for g in grads:\n        g.mul_(factor)\n"

each_tensor_for_itself = lines(
    """Each tensor is clipped by its own norm, which bends the step: the gradients are ONE vector,
    and all of them shrink by one factor.""",
    (FACTOR, ""),
    (
        MULTIPLY,
        "    for g, own in zip(grads, norms, strict=True):\n"
        "        g.mul_((max_norm / (own + 1e-6)).clamp(max=1.0))\n",
    ),
)

returns_the_norm_after_clipping = lines(
    """The norm AFTER clipping comes back, which is max_norm whenever it matters; the norm before
    is what tells that a run is about to diverge.""",
    (MULTIPLY + "    return norm\n", MULTIPLY + "    return norm * factor\n"),
)

norms_are_added = lines(
    """The tensors' norms are added up; lengths of perpendicular parts add as squares: the norm of
    everything is the root of the sum of all squares.""",
    (NORM, "    norm = torch.stack(norms).sum()\n"),
)

largest_norm = lines(
    """The largest of the tensors' norms is taken for the norm of all: their squares add up, and the
    root of the sum is the norm.""",
    (NORM, "    norm = torch.stack(norms).max()\n"),
)

mean_of_norms = lines(
    """The mean of the tensors' norms is taken for the norm of all: their squares add up, and the
    root of the sum is the norm.""",
    (NORM, "    norm = torch.stack(norms).mean()\n"),
)

no_root = lines(
    """The sum of squares is taken for the norm: its root is missing.""",
    (NORM, NORM + "    norm = norm * norm\n"),
)

short_gradients_grow = lines(
    """Every gradient is brought to length max_norm, short ones too: clipping never makes a
    gradient longer, so the factor is at most 1.""",
    (".clamp(max=1.0)", ""),
)

clips_values = lines(
    """Each element is cut to [-max_norm, max_norm]; that is clipping by value, which changes the
    direction of the step.""",
    (FACTOR, ""),
    ("g.mul_(factor)", "g.clamp_(-max_norm, max_norm)"),
)

walks_the_generator_twice = lines(
    """The parameters are walked twice, but `model.parameters()` is a generator: the second walk
    finds nothing, so nothing is clipped.""",
    (
        MULTIPLY,
        "    for p in params:\n        if p.grad is not None:\n            p.grad.mul_(factor)\n",
    ),
)

REPLACED = """`.grad` is replaced by a new tensor; whoever else holds the gradient (a view of a DDP
bucket, an optimizer's list) keeps the unclipped one. Multiply in place."""

new_gradient_tensors = lines(
    REPLACED,
    (GRADS, "    params = [p for p in params if p.grad is not None]\n"
            "    grads = [p.grad for p in params]\n"),
    (MULTIPLY, "    for p in params:\n        p.grad = p.grad * factor\n"),
)  # fmt: skip

new_gradient_data = lines(REPLACED, ("g.mul_(factor)", "g.data = g.data * factor"))

without_the_millionth = lines(
    """The factor is max_norm / norm; the definition adds 1e-6 to the norm, so that a norm of 0 does
    not divide.""",
    (FACTOR, "    factor = (max_norm / norm).clamp(max=1.0)\n"),
)

WAITS = """A tensor's value is read on the way, by `.item()`, `float()` or an `if`: on a GPU the
program then waits for every kernel before it. Bound the factor with clamp, and keep it a
tensor."""

asks_whether_to_clip = lines(
    WAITS,
    (MULTIPLY, "    if norm > max_norm:\n        for g in grads:\n            g.mul_(factor)\n"),
)

reads_the_norm = lines(
    WAITS,
    (FACTOR, "    factor = min(1.0, max_norm / (norm.item() + 1e-6))\n"),
)

reads_and_asks = lines(
    WAITS,
    (FACTOR, "    factor = max_norm / (norm.item() + 1e-6)\n"),
    (MULTIPLY, "    if factor < 1:\n        for g in grads:\n            g.mul_(factor)\n"),
)
no_bound_no_error = lines(
    """Without a bound nothing is looked at: max_norm of math.inf returns before the norm is asked
    whether it is finite, so a NaN passes although error_if_nonfinite is set. First the error, then
    the bound.""",
    (
        "    if max_norm == math.inf:\n"
        "        return norm  # an infinite norm would make the factor inf / inf\n",
        "",
    ),
    (
        "    if error_if_nonfinite and not torch.isfinite(norm):\n",
        "    if max_norm == math.inf:\n"
        "        return norm\n"
        "    if error_if_nonfinite and not torch.isfinite(norm):\n",
    ),
    gate=False,
)

factor_in_half = lines(
    """The factor is rounded to the gradient's dtype: as a float16 it has 11 bits, and below 6e-8
    it is 0, which wipes the gradient out. Multiply by the float32 factor.""",
    ("g.mul_(factor)", "g.mul_(factor.to(g.dtype))"),
    gate=False,
)


@misconception()
def calls_the_library(params, max_norm, error_if_nonfinite=False):
    """torch.nn.utils.clip_grad_norm_ is called; it is what you are writing here."""
    return torch.nn.utils.clip_grad_norm_(params, max_norm, error_if_nonfinite=error_if_nonfinite)
