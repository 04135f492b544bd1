from grader.suite import lines, misconception


@misconception()
def a_step_for_every_batch(model, opt, batches, *, scaler=None, accumulate=1, max_norm=None):
    """Every batch is a step of its own and `accumulate` is not used: the effective batch is one
    micro-batch."""
    stats = []
    for x, y in batches:
        loss = accumulate_gradients(model, opt, [(x, y)], scaler=scaler)
        norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
        stats.append(StepStats(loss, norm, skipped, int((y != IGNORE_INDEX).sum())))
    return stats


drops_the_last_group = lines(
    """The batches behind the last full group are left out; a smaller group is a step, too.""",
    (
        "stats = []\n"
        "    stream = iter(batches)\n"
        "    while micro := list(itertools.islice(stream, accumulate)):",
        "stats, stream = [], iter(batches)\n"
        "    while len(micro := list(itertools.islice(stream, accumulate))) == accumulate:",
    ),
)

reads_everything_first = lines(
    """The whole stream is put into a list before the first step; a data set that does not fit in
    memory, or does not end, cannot be trained on like that.""",
    (
        "stats = []\n"
        "    stream = iter(batches)\n"
        "    while micro := list(itertools.islice(stream, accumulate)):",
        "stats, batches = [], list(batches)\n"
        "    for i in range(0, len(batches), accumulate):\n"
        "        micro = batches[i : i + accumulate]",
    ),
)

keeps_loss_tensors = lines(
    """The list of results holds tensors, so memory grows with the number of steps: keep numbers,
    not tensors.""",
    (
        "stats = []\n    stream = iter(batches)",
        "stats, stream = [], iter(batches)",
    ),
    (
        "accumulate_gradients(model, opt, micro, scaler=scaler)",
        "torch.tensor(accumulate_gradients(model, opt, micro, scaler=scaler)) * 1.0",
    ),
)


@misconception()
def tells_the_last_micro_batch(model, opt, batches, *, scaler=None, accumulate=1, max_norm=None):
    """The loss that is told is that of the group's last micro-batch; a step's loss is the mean
    over all its targets."""
    stats, stream = [], iter(batches)
    while micro := list(itertools.islice(stream, accumulate)):
        with torch.no_grad():
            loss = token_loss(model(micro[-1][0]), micro[-1][1]).item()
        accumulate_gradients(model, opt, micro, scaler=scaler)
        norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
        tokens = sum(int((y != IGNORE_INDEX).sum()) for _, y in micro)
        stats.append(StepStats(loss, norm, skipped, tokens))
    return stats


@misconception()
def tells_the_last_micro_batchs_tokens(
    model, opt, batches, *, scaler=None, accumulate=1, max_norm=None
):
    """n_tokens is that of the group's last micro-batch; a step's tokens are those of all of
    them."""
    stats, stream = [], iter(batches)
    while micro := list(itertools.islice(stream, accumulate)):
        loss = accumulate_gradients(model, opt, micro, scaler=scaler)
        norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
        stats.append(StepStats(loss, norm, skipped, int((micro[-1][1] != IGNORE_INDEX).sum())))
    return stats


@misconception()
def means_of_means_in_the_loop(model, opt, batches, *, scaler=None, accumulate=1, max_norm=None):
    """Each batch's mean loss is divided by the number of batches: ragged batches need one sum over
    all targets, divided once."""
    stats, stream = [], iter(batches)
    while micro := list(itertools.islice(stream, accumulate)):
        opt.zero_grad(set_to_none=True)
        mean = 0.0
        for x, y in micro:
            loss = token_loss(model(x), y) / len(micro)
            (loss if scaler is None else scaler.scale(loss)).backward()
            mean += loss.item()
        norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
        tokens = sum(int((y != IGNORE_INDEX).sum()) for _, y in micro)
        stats.append(StepStats(mean, norm, skipped, tokens))
    return stats


the_loop_does_not_clip = lines(
    """max_norm never reaches the end of the step: the loop trains unclipped.""",
    (
        "stats = []\n    stream = iter(batches)",
        "stats, stream = [], iter(batches)",
    ),
    (", max_norm=max_norm", ""),
)

the_loop_forgets_the_scaler = lines(
    """The loss is not scaled but the gradients are unscaled: with a scaler, backward starts from
    scaler.scale(loss).""",
    (
        "stats = []\n    stream = iter(batches)",
        "stats, stream = [], iter(batches)",
    ),
    ("micro, scaler=scaler", "micro"),
)
