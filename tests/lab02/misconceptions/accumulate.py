from grader.suite import lines, misconception

IGNORE_INDEX = -100


@misconception()
def masked_batch_is_nan(model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None):
    """A micro-batch's mean times its number of targets is 0/0 x 0 = NaN when all of them are
    masked, and one NaN spoils every gradient: take the sum, which is 0."""
    opt.zero_grad(set_to_none=True)
    total, mean = sum(int((y != ignore_index).sum()) for _, y in micro), 0.0
    for x, y in micro:
        loss = token_loss(model(x), y, ignore_index) * (int((y != ignore_index).sum()) / total)
        (loss if scaler is None else scaler.scale(loss)).backward()
        mean += loss.item()
    return mean


@misconception()
def averages_averages(model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None):
    """Ragged micro-batches: you averaged averages, so short sequences weigh more. Add up sums and
    divide once, by the number of all targets."""
    opt.zero_grad(set_to_none=True)
    mean = 0.0
    for x, y in micro:
        loss = token_loss(model(x), y, ignore_index) / len(micro)
        (loss if scaler is None else scaler.scale(loss)).backward()
        mean += loss.item()
    return mean


sums_by_the_number_of_micro_batches = lines(
    """The summed losses are divided by the number of micro-batches; a mean over targets is divided
    by the number of targets.""",
    (
        "    total = sum(int((y != ignore_index).sum()) for _, y in micro)\n"
        "    if total == 0:\n"
        '        raise ValueError("These micro-batches hold no target: there is nothing to '
        'average over.")\n',
        "",
    ),
    (
        '(model(x), y, ignore_index, reduction="sum") / total',
        '(model(x), y, ignore_index, reduction="sum") / len(micro)',
    ),
)


@misconception()
def never_divides(model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None):
    """The micro-batches' mean losses are added and never divided: gradient and loss grow with
    their number, as if the learning rate did."""
    opt.zero_grad(set_to_none=True)
    mean = 0.0
    for x, y in micro:
        loss = token_loss(model(x), y, ignore_index)
        (loss if scaler is None else scaler.scale(loss)).backward()
        mean += loss.item()
    return mean


@misconception()
def weighs_padding(model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None):
    """The weights count every position, padding too: a micro-batch's weight is its number of
    targets that are not masked."""
    opt.zero_grad(set_to_none=True)
    total, mean = sum(y.numel() for _, y in micro), 0.0
    for x, y in micro:
        loss = token_loss(model(x), y, ignore_index) * (y.numel() / total)
        (loss if scaler is None else scaler.scale(loss)).backward()
        mean += loss.item()
    return mean


@misconception()
def zeroes_between(model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None):
    """zero_grad runs for every micro-batch, so only the last one's gradient is left: the effective
    batch is one micro-batch."""
    total, mean = sum(int((y != ignore_index).sum()) for _, y in micro), 0.0
    for x, y in micro:
        opt.zero_grad(set_to_none=True)
        loss = token_loss(model(x), y, ignore_index, reduction="sum") / total
        (loss if scaler is None else scaler.scale(loss)).backward()
        mean += loss.item()
    return mean


@misconception()
def does_not_zero_first(model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None):
    """The gradients of the step before are still there when the first micro-batch adds its own."""
    total, mean = sum(int((y != ignore_index).sum()) for _, y in micro), 0.0
    for x, y in micro:
        loss = token_loss(model(x), y, ignore_index, reduction="sum") / total
        (loss if scaler is None else scaler.scale(loss)).backward()
        mean += loss.item()
    return mean


@misconception()
def one_backward_at_the_end(
    model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None
):  # fmt: skip
    """The losses are added first and one backward runs at the end, so all graphs are in memory at
    once: that is the big batch again, with its activations."""
    opt.zero_grad(set_to_none=True)
    total = sum(int((y != ignore_index).sum()) for _, y in micro)
    loss = sum(token_loss(model(x), y, ignore_index, reduction="sum") for x, y in micro) / total
    (loss if scaler is None else scaler.scale(loss)).backward()
    return loss.item()


@misconception()
def steps_too(model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None):
    """accumulate takes the step as well; it leaves the gradients, so that the caller can unscale
    and clip them first."""
    opt.zero_grad(set_to_none=True)
    total, mean = sum(int((y != ignore_index).sum()) for _, y in micro), 0.0
    for x, y in micro:
        loss = token_loss(model(x), y, ignore_index, reduction="sum") / total
        (loss if scaler is None else scaler.scale(loss)).backward()
        mean += loss.item()
    opt.step()
    return mean
