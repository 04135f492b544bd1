from grader.suite import lines, misconception


@misconception()
def zeroes_after_backward(model, opt, x, y, loss_fn, *, scaler=None, max_norm=None):
    """zero_grad stands between backward and step, so the step sees no gradient at all and nothing
    is learnt: zero first, then forward, backward, step."""
    loss = loss_fn(model(x), y)
    (loss if scaler is None else scaler.scale(loss)).backward()
    opt.zero_grad()
    norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
    return StepStats(loss.item(), norm, skipped, int((y != IGNORE_INDEX).sum()))


@misconception()
def zeroes_at_the_end(model, opt, x, y, loss_fn, *, scaler=None, max_norm=None):
    """Gradients are zeroed after the step only: what stood in .grad before the first step is
    learnt with it. Zero before the forward."""
    loss = loss_fn(model(x), y)
    (loss if scaler is None else scaler.scale(loss)).backward()
    norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
    opt.zero_grad()
    return StepStats(loss.item(), norm, skipped, int((y != IGNORE_INDEX).sum()))


never_zeroes = lines(
    """The gradients are never zeroed: backward adds to what stands in .grad, so each step uses the
    sum of all batches so far.""",
    ("    opt.zero_grad(set_to_none=True)\n", ""),
)

returns_the_graph = lines(
    """The loss that comes back is a tensor with its graph; a list of them keeps memory for every
    step that was ever taken. Return loss.item().""",
    (".item(),", ","),
)

returns_the_scaled_loss = lines(
    """The loss that comes back is multiplied by the loss scale; the scale is for the gradients'
    sake, and a curve of it jumps whenever the scale changes.""",
    (
        "(loss if scaler is None else scaler.scale(loss)).backward()",
        "loss = loss if scaler is None else scaler.scale(loss)\n    loss.backward()",
    ),
)

counts_masked_targets = lines(
    """n_tokens counts padding as well; a throughput from it is too high by the share of masked
    targets.""",
    ("int((y != IGNORE_INDEX).sum())", "y.numel()"),
)

counts_sequences = lines(
    """n_tokens counts sequences; a step's targets are the elements of y that are not masked.""",
    ("int((y != IGNORE_INDEX).sum())", "len(y)"),
)


@misconception(replaces="finish_step")
def clips_before_unscaling(opt, *, scaler=None, max_norm=None):
    """The gradients are clipped while the loss scale is still in them: against 1024 times the
    gradient, max_norm is 1024 times too strict. Unscale, then clip."""
    params = [p for group in opt.param_groups for p in group["params"]]
    norm = clip_grad_norm(params, math.inf if max_norm is None else max_norm)
    if scaler is None:
        opt.step()
        return float(norm), False
    before = scaler.get_scale()
    scaler.unscale_(opt)
    scaler.step(opt)
    scaler.update()
    return float(norm) / before, scaler.get_scale() < before


@misconception(replaces="finish_step")
def clips_after_the_step(opt, *, scaler=None, max_norm=None):
    """The step uses gradients that nobody has clipped: max_norm is left out, or comes after step()
    has used them, which protects nothing."""
    params = [p for group in opt.param_groups for p in group["params"]]
    if scaler is None:
        opt.step()
        return float(clip_grad_norm(params, math.inf if max_norm is None else max_norm)), False
    before = scaler.get_scale()
    scaler.unscale_(opt)
    scaler.step(opt)
    norm = clip_grad_norm(params, math.inf if max_norm is None else max_norm)
    scaler.update()
    return float(norm), scaler.get_scale() < before


norm_of_the_clipped_gradient = lines(
    """grad_norm is measured after clipping, where it is max_norm at most; the norm before clipping
    is the one that warns.""",
    (
        "norm = clip_grad_norm(params, math.inf if max_norm is None else max_norm)",
        "clip_grad_norm(params, math.inf if max_norm is None else max_norm)\n"
        "    norm = clip_grad_norm(params, math.inf)",
    ),
)

steps_past_the_scaler = lines(
    """opt.step() is called directly, so a step with infinite gradients is taken: with a scaler it
    is scaler.step(opt) that steps, or not.""",
    (
        "norm = clip_grad_norm(params, math.inf if max_norm is None else max_norm)",
        "norm = clip_grad_norm(params, math.inf if max_norm is None else max_norm)\n    opt.step()",
    ),
    ("        opt.step()\n", ""),
    ("    scaler.step(opt)\n", ""),
)


@misconception(replaces="finish_step")
def never_says_skipped(opt, *, scaler=None, max_norm=None):
    """A skipped step is reported as taken; a learning-rate schedule and a log must know which
    steps there were."""
    if scaler is not None:
        scaler.unscale_(opt)
    params = [p for group in opt.param_groups for p in group["params"]]
    norm = clip_grad_norm(params, math.inf if max_norm is None else max_norm)
    if scaler is None:
        opt.step()
    else:
        scaler.step(opt)
        scaler.update()
    return float(norm), False
