from grader.suite import lines

HEAD = (
    "    stream = iter(batches)\n    while micro := list(itertools.islice(stream, accumulate)):\n"
)
LOSS = "        loss = accumulate_gradients(model, opt, micro, scaler=scaler)\n"
TOKENS = "tokens = sum(int((y != IGNORE_INDEX).sum()) for _, y in micro)"

a_step_for_every_batch = lines(
    """Every batch is a step of its own and `accumulate` is not used: the effective batch is one
    micro-batch.""",
    (HEAD, "    for batch in batches:\n        micro = [batch]\n"),
)

drops_the_last_group = lines(
    """The batches behind the last full group are left out; a smaller group is a step, too.""",
    (HEAD, HEAD + "        if len(micro) < accumulate:\n            break\n"),
)

reads_everything_first = lines(
    """The whole stream is put into a list before the first step; a data set that does not fit in
    memory, or does not end, cannot be trained on like that.""",
    ("stream = iter(batches)", "stream = iter(list(batches))"),
)

reads_one_group_ahead = lines(
    """The next group is read before the step of this one: read as far as the next step needs and no
    further.""",
    (
        HEAD,
        "    stream = iter(batches)\n"
        "    ahead = list(itertools.islice(stream, accumulate))\n"
        "    while ahead:\n"
        "        micro, ahead = ahead, list(itertools.islice(stream, accumulate))\n",
    ),
)

keeps_the_batches = lines(
    """Batches that were used are kept in a list: a stream that does not fit in memory ends the
    run.""",
    (LOSS, "        kept = [*micro, *(kept if stats else [])]\n" + LOSS),
)

keeps_loss_tensors = lines(
    """The list of results holds tensors, so memory grows with the number of steps: keep numbers,
    not tensors.""",
    (
        "accumulate_gradients(model, opt, micro, scaler=scaler)",
        "torch.tensor(accumulate_gradients(model, opt, micro, scaler=scaler)) * 1.0",
    ),
)

tells_the_last_micro_batch = lines(
    """The loss that is told is that of the group's last micro-batch; a step's loss is the mean
    over all its targets.""",
    (
        LOSS,
        "        with torch.no_grad():\n"
        "            loss = token_loss(model(micro[-1][0]), micro[-1][1]).item()\n"
        + LOSS.replace("loss = ", ""),
    ),
)

tells_the_last_micro_batchs_tokens = lines(
    """n_tokens is that of the group's last micro-batch; a step's tokens are those of all of
    them.""",
    (TOKENS, "tokens = int((micro[-1][1] != IGNORE_INDEX).sum())"),
)

counts_padding = lines(
    """n_tokens counts padding as well; a throughput from it is too high by the share of masked
    targets.""",
    (TOKENS, "tokens = sum(y.numel() for _, y in micro)"),
)

means_of_means_in_the_loop = lines(
    """Each batch's mean loss is divided by the number of batches: ragged batches need one sum over
    all targets, divided once.""",
    (
        LOSS,
        "        opt.zero_grad(set_to_none=True)\n"
        "        loss = 0.0\n"
        "        for x, y in micro:\n"
        "            if (y == IGNORE_INDEX).all():\n"
        '                raise ValueError("no target")\n'
        "            part = token_loss(model(x), y) / len(micro)\n"
        "            (part if scaler is None else scaler.scale(part)).backward()\n"
        "            loss += part.item()\n"
        "        del part\n",
    ),
)

the_loop_does_not_clip = lines(
    """max_norm never reaches the end of the step: the loop trains unclipped.""",
    (", max_norm=max_norm", ""),
)

the_loop_forgets_the_scaler = lines(
    """The loss is not scaled but the gradients are unscaled: with a scaler, backward starts from
    scaler.scale(loss).""",
    ("micro, scaler=scaler", "micro"),
)

leaves_skipped_steps_out = lines(
    """Steps that the scaler skipped are missing in the list; a log needs a row for every step, and
    `skipped` says which were none.""",
    (
        "        stats.append(StepStats(",
        "        if not skipped:\n            stats.append(StepStats(",
    ),
)
