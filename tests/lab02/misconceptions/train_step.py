from grader.suite import lines

ZERO = "    opt.zero_grad(set_to_none=True)\n"
BACKWARD = "    (loss if scaler is None else scaler.scale(loss)).backward()\n"
FORWARD = "    loss = loss_fn(model(x), y)\n"
PARAMS = 'params = [p for group in opt.param_groups for p in group["params"]]'
CLIP = "    norm = clip_grad_norm(params, math.inf if max_norm is None else max_norm)\n"
UNSCALE = "    if scaler is not None:\n        scaler.unscale_(opt)\n"
ROW = "    return StepStats(loss.item(), norm, skipped, int((y != IGNORE_INDEX).sum()))"

AFTER_BACKWARD = """zero_grad stands between backward and step, so the step sees no gradient at
all and nothing is learnt: zero first, then forward, backward, step."""

zeroes_after_backward = lines(AFTER_BACKWARD, (ZERO, ""), (BACKWARD, BACKWARD + ZERO))

zeroes_at_the_end = lines(
    """Gradients are zeroed after the step only: what stood in .grad before the first step is
    learnt with it. Zero before the forward.""",
    (ZERO, ""),
    (ROW, "    opt.zero_grad()\n" + ROW),
)

never_zeroes = lines(
    """The gradients are never zeroed: backward adds to what stands in .grad, so each step uses the
    sum of all batches so far.""",
    (ZERO, ""),
)

BESIDE = """The old gradients stand beside the activations: they are freed (set_to_none=True)
before the forward, not after it, and not filled with zeros."""

zeroes_between_forward_and_backward = lines(BESIDE, (ZERO, ""), (FORWARD, FORWARD + ZERO))

fills_with_zeros = lines(BESIDE, (ZERO, "    opt.zero_grad(set_to_none=False)\n"))

zeroes_the_model = lines(
    """The model's gradients are zeroed and not the optimizer's: the model may be any callable, and
    opt.zero_grad() frees what opt steps.""",
    (ZERO, "    model.zero_grad(set_to_none=True)\n"),
)

retains_the_graph = lines(
    """backward(retain_graph=True) keeps every activation alive to the end of the step; without it,
    they die while gradients are born.""",
    (BACKWARD, BACKWARD.replace("backward()", "backward(retain_graph=True)")),
)

runs_the_model_twice = lines(
    """The model runs a second time for the loss that is told: one forward gives the loss, and its
    value is the one before the step.""",
    (ROW, ROW.replace("loss.item()", "loss_fn(model(x), y).item()")),
)

returns_the_graph = lines(
    """The loss that comes back is a tensor with its graph; a list of them keeps memory for every
    step that was ever taken. Return loss.item().""",
    (".item(),", ","),
)

returns_the_scaled_loss = lines(
    """The loss that comes back is multiplied by the loss scale; the scale is for the gradients'
    sake, and a curve of it jumps whenever the scale changes.""",
    (BACKWARD, "    loss = loss if scaler is None else scaler.scale(loss)\n    loss.backward()\n"),
)

does_not_scale = lines(
    """The loss is not scaled but the gradients are unscaled: with a scaler, backward starts from
    scaler.scale(loss).""",
    (BACKWARD, "    loss.backward()\n"),
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

BEFORE_UNSCALING = """The gradients are clipped while the loss scale is still in them: against
1024 times the gradient, max_norm is 1024 times too strict. Unscale, then clip."""

clips_before_unscaling = lines(BEFORE_UNSCALING, (UNSCALE, ""), (CLIP, CLIP + UNSCALE))

clips_before_unscaling_and_divides = lines(
    BEFORE_UNSCALING,
    (UNSCALE, ""),
    (
        CLIP,
        CLIP + UNSCALE + "    norm = norm if scaler is None else norm / scaler.get_scale()\n",
    ),
)

never_unscales = lines(
    BEFORE_UNSCALING,
    (UNSCALE, ""),
)

UNCLIPPED = """The step uses gradients that nobody has clipped: max_norm is left out, or comes after
step() has used them, which protects nothing."""

clips_after_the_step = lines(
    UNCLIPPED,
    (CLIP, ""),
    (
        "        opt.step()\n        return",
        "        opt.step()\n    " + CLIP + "        return",
    ),
    ("    scaler.step(opt)\n", "    scaler.step(opt)\n" + CLIP),
)

never_clips = lines(UNCLIPPED, (CLIP, "    norm = clip_grad_norm(params, math.inf)\n"))

zero_is_no_bound = lines(
    """max_norm 0.0 is taken for no bound at all (`max_norm or ...`, `if max_norm`): only None means
    that nothing is clipped.""",
    (CLIP, "    norm = clip_grad_norm(params, max_norm or math.inf)\n"),
)

clips_at_one = lines(
    """Without max_norm the gradients are clipped to 1: None means that nothing is clipped.""",
    (CLIP, "    norm = clip_grad_norm(params, 1.0 if max_norm is None else max_norm)\n"),
)

the_first_group_only = lines(
    """Only the first group of the optimizer is measured and clipped: the global norm is that of all
    its groups.""",
    (PARAMS, 'params = opt.param_groups[0]["params"]'),
)

each_group_for_itself = lines(
    """Each group of the optimizer is clipped by its own norm: there is one norm, and one
    factor, for all of them.""",
    (
        CLIP,
        "    bound = math.inf if max_norm is None else max_norm\n"
        '    norms = [clip_grad_norm(group["params"], bound) for group in opt.param_groups]\n'
        "    norm = torch.linalg.vector_norm(torch.stack(norms))\n",
    ),
)

norm_of_the_clipped_gradient = lines(
    """grad_norm is measured after clipping, where it is max_norm at most; the norm before clipping
    is the one that warns.""",
    (CLIP, CLIP.replace("norm = ", "", 1) + "    norm = clip_grad_norm(params, math.inf)\n"),
)

steps_past_the_scaler = lines(
    """opt.step() is called directly, so a step with infinite gradients is taken: with a scaler it
    is scaler.step(opt) that steps, or not.""",
    (
        CLIP,
        CLIP + "    opt.step()\n",
    ),
    ("        opt.step()\n", ""),
    ("    scaler.step(opt)\n", ""),
)

never_updates = lines(
    """scaler.update() is missing, so the scale never changes, and the next unscale_ is the
    second of the same step.""",
    ("    scaler.update()\n", ""),
)

updates_clean_steps_only = lines(
    """scaler.update() is called after clean steps only, so the scale never falls where it
    overflowed: call it after each step, taken or skipped.""",
    ("    scaler.update()\n", "    if math.isfinite(norm):\n        scaler.update()\n"),
)

never_says_skipped = lines(
    """A skipped step is reported as taken; a learning-rate schedule and a log must know which
    steps there were.""",
    ("scaler.get_scale() < before", "False"),
)

any_new_scale_is_a_skip = lines(
    """A step after which the scale is another is called skipped, also where it grew: it was skipped
    if the scale fell.""",
    ("scaler.get_scale() < before", "scaler.get_scale() != before"),
)

skipped_by_the_norm = lines(
    """A step is called skipped because the norm is not finite; but the norm of finite gradients can
    overflow, and without a scaler no step is ever skipped. Ask the scaler: did its scale fall?""",
    ("scaler.get_scale() < before", "not math.isfinite(norm)"),
    gate=False,
)

negative_targets_are_left_out = lines(
    """n_tokens counts the targets that are 0 or above; -1.5 is a target of a regression. What
    does not count is IGNORE_INDEX, and nothing else.""",
    ("(y != IGNORE_INDEX)", "(y >= 0)"),
    gate=False,
)

loss_by_way_of_the_scaled_one = lines(
    """The loss that is told is the scaled one over the scale, which is infinite where only the
    product overflows. The loss itself was there: take its value.""",
    (BACKWARD, "    factor = 1.0 if scaler is None else scaler.get_scale()\n"
     "    loss = loss if scaler is None else scaler.scale(loss)\n    loss.backward()\n"),
    ("StepStats(loss.item(),", "StepStats(loss.item() / factor,"),
    gate=False,
)  # fmt: skip

skipped_by_what_step_returns = lines(
    """A step is called skipped because scaler.step(opt) returned nothing; GradScaler gives back
    what the optimizer's own step returned, which is None for a step that was taken, too. What
    tells is the scale: compare it before and after.""",
    ("    scaler.step(opt)\n", "    taken = scaler.step(opt)\n"),
    ("scaler.get_scale() < before", "not taken"),
)
