from grader.suite import lines

requests_for_tokens = lines(
    """A step is charged for its requests and not for its tokens; a chunk of 512 prompt tokens
    computes 512 times what one token does.""",
    ("sum(done.scheduled.values())", "len(done.scheduled)"),
)


compute_plus_memory = lines(
    """FLOPs and bytes are added; a GPU reads while it computes, so the slower of the two decides
    and the other is hidden behind it.""",
    (
        "return max(compute_s, moved / cost.hbm_bytes_per_s) + cost.overhead_s",
        "return compute_s + moved / cost.hbm_bytes_per_s + cost.overhead_s",
    ),
)

overhead_for_each_token = lines(
    """The overhead is paid for each token; it is what the host needs to launch a step, however many
    tokens are in it, and sharing it is what batches are for.""",
    ("+ cost.overhead_s", "+ cost.overhead_s * num_tokens"),
)

weights_for_each_token = lines(
    """The weights are read once for each token; a step reads them once for all of its tokens, which
    is why decoding many requests together costs little more than decoding one.""",
    ("moved = cost.weight_bytes + context", "moved = cost.weight_bytes * num_tokens + context"),
)

no_cache_is_read = lines(
    """The keys and values of the context are not read; with long contexts they are more than the
    weights.""",
    (
        "moved = cost.weight_bytes + context_tokens * cost.kv_bytes_per_token",
        "moved = cost.weight_bytes",
    ),
)

decoding_is_free_of_flops = lines(
    """Only bytes count; a step of 512 prompt tokens is bound by compute, and that is what a large
    step costs everybody.""",
    (
        "return max(compute_s, moved / cost.hbm_bytes_per_s) +",
        "return moved / cost.hbm_bytes_per_s +",
    ),
)

ttft_from_the_schedule = lines(
    """TTFT is counted from the step that first scheduled the request; its user has waited since it
    *arrived*, and under load the queue is the longer part.""",
    (
        "        now += step_seconds(cost,",
        "        for number in done.scheduled:\n"
        "            begun.setdefault(number, now)\n"
        "        now += step_seconds(cost,",
    ),
    (
        "    engine = scheduler(cfg)\n",
        "    engine = scheduler(cfg)\n    begun: dict[int, float] = {}\n",
    ),
    ("Result(req.id, seen[0] - arrival,", "Result(req.id, seen[0] - begun[req.id],"),
)

latency_from_the_schedule_too = lines(
    """TTFT is counted from the step that first scheduled the request; its user has waited since it
    *arrived*, and under load the queue is the longer part.""",
    (
        "        now += step_seconds(cost,",
        "        for number in done.scheduled:\n"
        "            begun.setdefault(number, now)\n"
        "        now += step_seconds(cost,",
    ),
    (
        "    engine = scheduler(cfg)\n",
        "    engine = scheduler(cfg)\n    begun: dict[int, float] = {}\n",
    ),
    ("        arrival = req.t_arrival_s\n", "        arrival = begun[req.id]\n"),
)

FROM_THE_ADDITION = (
    (
        "            engine.add(coming.popleft())\n",
        "            begun[coming[0].id] = now\n            engine.add(coming.popleft())\n",
    ),
    (
        "    engine = scheduler(cfg)\n",
        "    engine = scheduler(cfg)\n    begun: dict[int, float] = {}\n",
    ),
)

times_from_the_addition = lines(
    """Times are counted from the step before which the request was added; it arrived while the one
    before was running, and its user has waited since then.""",
    *FROM_THE_ADDITION,
    ("        arrival = req.t_arrival_s\n", "        arrival = begun[req.id]\n"),
)

ttft_from_the_addition = lines(
    """Times are counted from the step before which the request was added; it arrived while the one
    before was running, and its user has waited since then.""",
    *FROM_THE_ADDITION,
    ("Result(req.id, seen[0] - arrival,", "Result(req.id, seen[0] - begun[req.id],"),
)

tokens_at_the_steps_begin = lines(
    """Tokens are noted with the time at which their step begins; they are there when it ends, so
    every time is one step early.""",
    ("            times[number].append(now)\n", "            times[number].append(begin)\n"),
    (
        "        now += step_seconds(cost,",
        "        begin = now\n        now += step_seconds(cost,",
    ),
)

everybody_is_there_at_once = lines(
    """All requests are added at the beginning; a request cannot be scheduled before it arrives,
    which here gives it a TTFT below zero.""",
    ("while coming and coming[0].t_arrival_s <= now:", "while coming:"),
)

an_idle_engine_stands = lines(
    """While there is nothing to do the clock goes on as if steps were taken; it jumps to the next
    arrival, or every request after a pause is served late.""",
    (
        "            now = max(now, coming[0].t_arrival_s)\n",
        "            while now < coming[0].t_arrival_s:\n"
        "                now += max(step_seconds(cost, 1, 0), 1e-3)\n",
    ),
)

latency_without_the_wait = lines(
    """Latency is counted from the first token; it begins with the arrival, as TTFT does.""",
    ("seen[-1] - arrival))", "seen[-1] - seen[0]))"),
)

in_the_order_of_arrival = lines(
    """The results are in the order of arrival; the trace's own order is asked for, or a caller who
    pairs both up reads other people's times.""",
    (
        "    for req in rows:\n        seen",
        "    for req in sorted(rows, key=lambda req: req.t_arrival_s):\n        seen",
    ),
)

one_arrival_a_step = lines(
    """One request is added before each step; all that have arrived are, or a burst waits in front
    of the engine instead of in its batch.""",
    (
        "while coming and coming[0].t_arrival_s <= now:",
        "if coming and coming[0].t_arrival_s <= now:",
    ),
)

whoever_is_scheduled_has_a_token = lines(
    """Every scheduled request is given a token; a chunk that leaves prompt tokens to compute
    generates none, see Step.generated.""",
    ("for number in done.generated:", "for number in done.scheduled:"),
)

back_in_time = lines(
    """An idle engine takes the next arrival's time although its own clock is later: who arrived
    during the last step is served before that step has ended. The clock never goes back.""",
    ("now = max(now, coming[0].t_arrival_s)", "now = coming[0].t_arrival_s"),
)

at_the_begin_is_too_late = lines(
    """A request that arrives exactly when a step begins waits for the next one, if others are
    running; it is there, so it is added: <= and not <.""",
    (
        "while coming and coming[0].t_arrival_s <= now:",
        "while coming and (coming[0].t_arrival_s < now or not unfinished):",
    ),
)

the_trace_is_a_list = lines(
    """The trace is gone through more than once; a generator is empty the second time, and its
    requests have no result. Make a list of it first.""",
    ("    rows = list(trace)\n", "    rows = trace\n"),
    (
        "    times: dict[int, list[float]] = {req.id: [] for req in rows}",
        "    times = {req.id: [] for req in list(coming)}",
    ),
)

equal_arrivals_by_id = lines(
    """Requests that arrive at the same time are added in the order of their ids; the trace's order
    is asked for, and an id is a name.""",
    (
        "deque(sorted(rows, key=lambda req: req.t_arrival_s))",
        "deque(sorted(rows, key=lambda req: (req.t_arrival_s, req.id)))",
    ),
)

the_scheduler_has_no_clock = lines(
    """The scheduler is always told that it is 0; a step is told the clock's time, which a scheduler
    with deadlines or priorities needs.""",
    ("done = engine.step(now)", "done = engine.step(0.0)"),
)


only_new_tokens_are_read = lines(
    """A step is charged for reading the keys and values of its own tokens only; each of them
    attends to all tokens before it, so context_tokens are read.""",
    (
        "step_seconds(cost, sum(done.scheduled.values()), done.context_tokens)",
        "step_seconds(cost, *[sum(done.scheduled.values())] * 2)",
    ),
)

the_trace_is_in_order = lines(
    """The trace is taken to be in the order of arrival; it comes in any order, and a request behind
    a later one would wait for it. Sort it first.""",
    ("deque(sorted(rows, key=lambda req: req.t_arrival_s))", "deque(rows)"),
)

times_since_the_start = lines(
    """TTFT and latency are the clock's times; each is counted from the request's own arrival.""",
    ("        arrival = req.t_arrival_s\n", "        arrival = 0.0\n"),
)

gaps_from_the_arrival = lines(
    """The gaps begin with the one from the arrival to the first token; that is TTFT, and n tokens
    have n - 1 gaps.""",
    ("in pairwise(seen)]", "in pairwise([req.t_arrival_s, *seen])]"),
)

overhead_is_hidden = lines(
    """The overhead is hidden behind computing and reading like the one behind the other; the GPU
    waits for the host, so it is added to whichever is slower.""",
    (
        "return max(compute_s, moved / cost.hbm_bytes_per_s) + cost.overhead_s",
        "return max(compute_s, moved / cost.hbm_bytes_per_s, cost.overhead_s)",
    ),
)

no_overhead = lines(
    """A step has no overhead here; whatever it holds, the host needs overhead_s for it, and with
    small steps that is most of the time.""",
    (" + cost.overhead_s", ""),
)

the_weights_stay_in_the_chip = lines(
    """The weights are not read; they do not fit into the chip's caches, so each step reads all of
    them, and at small batches nothing else counts.""",
    (
        "moved = cost.weight_bytes + context_tokens * cost.kv_bytes_per_token",
        "moved = context_tokens * cost.kv_bytes_per_token",
    ),
)

computes_the_context_again = lines(
    """A step is charged with the FLOPs of its whole context; the keys and values of earlier tokens
    are in the cache, and only num_tokens are computed.""",
    (
        "compute_s = num_tokens * cost.flops_per_token",
        "compute_s = max(num_tokens, context_tokens) * cost.flops_per_token",
    ),
)

an_idle_step_waits_for_the_next_arrival = lines(
    """A step that schedules nothing lets the clock go on to the next arrival; requests that wait
    and are never scheduled are an error at once.""",
    (
        "        if not done.scheduled:\n",
        "        if not done.scheduled and coming:\n"
        "            now = max(now, coming[0].t_arrival_s)\n"
        "            continue\n"
        "        if not done.scheduled:\n",
    ),
    gate=False,
)
