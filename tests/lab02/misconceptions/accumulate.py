from grader.suite import lines

ZERO = "    opt.zero_grad(set_to_none=True)\n"
LOSS = 'loss = token_loss(model(x), y, ignore_index, reduction="sum") / total'
BACKWARD = "        (loss if scaler is None else scaler.scale(loss)).backward()\n"
LOOP = f"    for x, y in micro:\n        {LOSS}\n{BACKWARD}        mean += loss.item()\n"

masked_batch_is_nan = lines(
    """A micro-batch's mean times its number of targets is 0/0 x 0 = NaN when all of them are
    masked, and one NaN spoils every gradient: take the sum, which is 0.""",
    (
        LOSS,
        "loss = token_loss(model(x), y, ignore_index) * int((y != ignore_index).sum()) / total",
    ),
)

averages_averages = lines(
    """Ragged micro-batches: you averaged averages, so short sequences weigh more. Add up sums and
    divide once, by the number of all targets.""",
    (LOSS, "loss = token_loss(model(x), y, ignore_index) / len(micro)"),
)

sums_by_the_number_of_micro_batches = lines(
    """The summed losses are divided by the number of micro-batches; a mean over targets is divided
    by the number of targets.""",
    (LOSS, 'loss = token_loss(model(x), y, ignore_index, reduction="sum") / len(micro)'),
)

never_divides = lines(
    """The micro-batches' mean losses are added and never divided: gradient and loss grow with
    their number, as if the learning rate did.""",
    (LOSS, "loss = token_loss(model(x), y, ignore_index)"),
)

sums_only = lines(
    """The losses are added up and never divided by the number of targets: gradient and loss grow
    with the size of the batch.""",
    (LOSS, 'loss = token_loss(model(x), y, ignore_index, reduction="sum")'),
)

PADDING = """The weights count every position, padding too: a micro-batch's weight is its number of
targets that are not masked."""

weighs_padding = lines(
    PADDING,
    (
        ZERO,
        ZERO + "    total = sum(y.numel() for _, y in micro)\n",
    ),
    (LOSS, "loss = token_loss(model(x), y, ignore_index) * (y.numel() / total)"),
)

divides_by_all_positions = lines(
    PADDING, (ZERO, ZERO + "    total = sum(y.numel() for _, y in micro)\n")
)

counts_with_the_constant = lines(
    """Targets are counted with the constant -100 and not with the argument ignore_index: with
    another one, masked targets count.""",
    ("int((y != ignore_index).sum())", "int((y != IGNORE_INDEX).sum())"),
)

ignores_the_argument = lines(
    """The loss masks the constant -100 and not the argument ignore_index: with another one, masked
    targets are learnt.""",
    ('y, ignore_index, reduction="sum"', 'y, reduction="sum"'),
)

zeroes_between = lines(
    """zero_grad runs for every micro-batch, so only the last one's gradient is left: the effective
    batch is one micro-batch.""",
    (
        "    for x, y in micro:\n",
        "    for x, y in micro:\n        opt.zero_grad(set_to_none=True)\n",
    ),
)

does_not_zero_first = lines(
    """The gradients of the step before are still there when the first micro-batch adds its own.""",
    (ZERO, ""),
)

AT_THE_END = """The losses are added first and one backward runs at the end, so all graphs are
in memory at once: that is the big batch again, with its activations."""

one_backward_at_the_end = lines(
    AT_THE_END,
    (
        LOOP,
        "    loss = 0.0\n    for x, y in micro:\n"
        f"        {LOSS.replace('loss =', 'loss = loss +')}\n"
        "    (loss if scaler is None else scaler.scale(loss)).backward()\n"
        "    mean = loss.item()\n",
    ),
)

forgets_the_scale = lines(
    """The loss scale is not used: with a scaler, backward starts from scaler.scale(loss), or the
    gradients are unscaled without ever having been scaled.""",
    ("(loss if scaler is None else scaler.scale(loss)).backward()", "loss.backward()"),
)

tells_the_scaled_loss = lines(
    """The loss that comes back has the loss scale in it; the scale is for the gradients' sake.""",
    (
        BACKWARD,
        "        loss = loss if scaler is None else scaler.scale(loss)\n        loss.backward()\n",
    ),
)

tells_the_last_part = lines(
    """Only the last micro-batch's share of the loss comes back; the mean over all targets is
    the sum of the shares.""",
    ("mean += loss.item()", "mean = loss.item()"),
)

adds_up_tensors = lines(
    """The losses are added up as tensors, so the graphs of all micro-batches are kept to the
    end: add up numbers, loss.item().""",
    ("mean += loss.item()\n    return mean", "mean = mean + loss\n    return mean.item()"),
)

logits_outlive_backward = lines(
    """The logits of a micro-batch have a name that keeps them alive through the next forward, where
    they stand beside the next ones: pass them on without a name, or delete them.""",
    (LOSS, f"logits = model(x)\n        {LOSS.replace('model(x)', 'logits')}"),
)

steps_too = lines(
    """accumulate takes the step as well; it leaves the gradients, so that the caller can unscale
    and clip them first.""",
    ("    return mean", "    opt.step()\n    return mean"),
)
