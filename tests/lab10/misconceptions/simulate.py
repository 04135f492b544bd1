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

SLOWER = "return max(compute_s, moved / cost.hbm_bytes_per_s) + cost.overhead_s"
MOVED = "moved = cost.weight_bytes + context_tokens * cost.kv_bytes_per_token"
TAKES = "        now += step_seconds(cost, sum(done.scheduled.values()), done.context_tokens)\n"
ENGINE = "    engine = scheduler(cfg)\n"
NOTES = "            times[number].append(now)\n"
RESULT = "results.append(Result(req.id, seen[0] - arrival, gaps, seen[-1] - arrival))"
GAPS = "[after - before for before, after in pairwise(seen)]"
IN_ORDER = "    for req in rows:\n        seen"
IDLE = "        if not unfinished:\n            now = max(now, coming[0].t_arrival_s)\n"
STANDS = "        if not done.scheduled:\n"
FIRST_COME = "deque(sorted(rows, key=lambda req: req.t_arrival_s))"

# -- step_seconds

the_faster_of_both = lines(
    """The faster of computing and reading decides; the step ends when both are done, so the slower
    one does.""",
    (SLOWER, SLOWER.replace("max(", "min(")),
)

only_flops_count = lines(
    """Only FLOPs count; a decoding step computes little and has to read all weights, which takes
    longer.""",
    (SLOWER, "return compute_s + cost.overhead_s"),
)

their_mean = lines(
    """Computing and reading are averaged; they run side by side, and the step ends with the slower
    one.""",
    (SLOWER, "return (compute_s + moved / cost.hbm_bytes_per_s) / 2 + cost.overhead_s"),
)

new_tokens_are_read_twice = lines(
    """The step's own tokens are added to its context; context_tokens holds them already, those just
    computed included.""",
    (MOVED, MOVED.replace("context_tokens *", "(context_tokens + num_tokens) *")),
)

two_flops_a_parameter_again = lines(
    """The factor 2 for multiply and add is there once more; flops_per_token has it already.""",
    ("compute_s = num_tokens *", "compute_s = 2 * num_tokens *"),
)

keys_and_values_once_more = lines(
    """The factor 2 for keys and values is there once more; kv_bytes_per_token has it already.""",
    (MOVED, MOVED.replace("+ context_tokens", "+ 2 * context_tokens")),
)

overhead_by_the_flops_only = lines(
    """The overhead is added to computing before the two are compared, so it vanishes behind
    reading; the host needs it for every step, beside whichever is slower.""",
    (SLOWER, "return max(compute_s + cost.overhead_s, moved / cost.hbm_bytes_per_s)"),
)

overhead_by_the_bytes_only = lines(
    """The overhead is added to reading before the two are compared, so it vanishes behind
    computing; the host needs it for every step, beside whichever is slower.""",
    (SLOWER, "return max(compute_s, moved / cost.hbm_bytes_per_s + cost.overhead_s)"),
)

a_step_in_milliseconds = lines(
    """A step's time is in milliseconds; it is in seconds, as its overhead and all arrivals are.""",
    (SLOWER, f"return 1000 * ({SLOWER.removeprefix('return ')})"),
)

# -- simulate

always_the_plain_scheduler = lines(
    """The scheduler that is handed over is not used; simulate makes it from cfg and lets it decide.
    PlainScheduler is the default only.""",
    (ENGINE, "    engine = PlainScheduler(cfg)\n"),
)

looks_into_the_scheduler = lines(
    """The loop asks for the scheduler's own lists, waiting and running; another scheduler has none.
    It has add, step and num_unfinished.""",
    (
        "    while coming or unfinished:\n",
        "    while coming or engine.waiting or engine.running:\n",
    ),
)

an_id_is_a_place = lines(
    """A request's id is used as its place in a list; an id is a name, and a trace may begin with 7
    or have them in any order. Keep the times in a dict.""",
    (
        "times: dict[int, list[float]] = {req.id: [] for req in rows}",
        "times: list[list[float]] = [[] for req in rows]",
    ),
)

no_context_is_handed_over = lines(
    """step_seconds is told of no context; the step reads the keys and values of context_tokens, as
    the scheduler says.""",
    (TAKES, TAKES.replace("done.context_tokens", "0")),
)

the_prompts_as_context = lines(
    """The context is added up from the requests' prompts; what the scheduled requests have in the
    cache the scheduler says, in context_tokens.""",
    (
        TAKES,
        "        held = sum(lengths[number] for number in done.scheduled)\n"
        + TAKES.replace("done.context_tokens", "held"),
    ),
    (
        ENGINE,
        ENGINE
        + "    lengths = {r.id: r.prompt_tokens if isinstance(r.prompt_tokens, int)"
        + " else len(r.prompt_tokens) for r in rows}\n",
    ),
)

gaps_are_the_steps_times = lines(
    """A gap is the time of the step that made the token; a request that was passed over or
    preempted in between has waited longer. It is the time from one token to the next.""",
    (
        TAKES,
        "        begin = now\n" + TAKES,
    ),
    (NOTES, NOTES + "            spans[number].append(now - begin)\n"),
    (ENGINE, ENGINE + "    spans: dict[int, list[float]] = {req.id: [] for req in rows}\n"),
    (GAPS, "spans[req.id][1:]"),
)

gaps_to_the_first_token = lines(
    """The gaps are counted from the first token on; each is the time from one token to the
    *next*.""",
    (GAPS, "[after - seen[0] for after in seen[1:]]"),
)

the_last_gap_is_lost = lines(
    """The last gap is missing; n tokens have n - 1 gaps.""",
    (GAPS, "[after - before for before, after in pairwise(seen[:-1])]"),
)

token_times_as_gaps = lines(
    """The gaps are the times at which the tokens came; each is the time from one token to the
    next.""",
    (GAPS, "seen[1:]"),
)

latency_ends_with_the_trace = lines(
    """Latency ends when the last request of all does; each request ends with its own last
    token.""",
    (RESULT, RESULT.replace("seen[-1] - arrival", "now - arrival")),
)

results_in_the_order_of_ids = lines(
    """The results are in the order of the ids; the trace's own order is asked for, and an id is a
    name.""",
    (IN_ORDER, "    for req in sorted(rows, key=lambda req: req.id):\n        seen"),
)

in_the_order_of_their_ends = lines(
    """The results are in the order in which the requests finish; the trace's own order is asked
    for, or a caller who pairs both up reads other people's times.""",
    (IN_ORDER, "    for req in sorted(rows, key=lambda req: times[req.id][-1]):\n        seen"),
)

waits_for_the_next_arrival = lines(
    """The clock goes to the next arrival before each step, also while requests run; it jumps only
    while there is nothing to do.""",
    (IDLE, "        if coming:\n            now = max(now, coming[0].t_arrival_s)\n"),
)

the_idle_time_is_added = lines(
    """The next arrival is *added* to the clock as if it were a pause; it is a time from the trace's
    zero. The clock goes to it.""",
    (
        "            now = max(now, coming[0].t_arrival_s)\n",
        "            now += max(0.0, coming[0].t_arrival_s)\n",
    ),
)

the_clock_does_not_jump = lines(
    """While there is nothing to do the clock stays, and the next request is added before it
    arrives: its TTFT is too short, or below zero. The clock goes on to the arrival.""",
    (
        "            now = max(now, coming[0].t_arrival_s)\n",
        "            engine.add(coming.popleft())\n            unfinished += 1\n",
    ),
)

the_clock_begins_with_the_first_arrival = lines(
    """Times count from the first arrival, as if the clock started there; it starts at 0, and a step
    is told that clock's time.""",
    (
        "done = engine.step(now)",
        "done = engine.step(now - min(req.t_arrival_s for req in rows))",
    ),
)

told_when_the_step_ends = lines(
    """A step is told the time at which the one before began, or its own end; it is told the clock's
    time, at which it begins.""",
    ("done = engine.step(now)", "done = engine.step(told)"),
    (ENGINE, ENGINE + "    told = 0.0\n"),
    (TAKES, "        told = now\n" + TAKES),
)

equal_arrivals_the_last_first = lines(
    """Requests that arrive at the same time are added the other way round; the trace's order is
    asked for. A stable sort by the arrival alone keeps it.""",
    (FIRST_COME, FIRST_COME.replace("sorted(rows,", "sorted(reversed(rows),")),
)

finished_ones_have_a_token_more = lines(
    """A request that finishes is given a token for that beside the one in Step.generated; its last
    token is among those already.""",
    (
        "        unfinished -= len(done.finished)\n",
        "        for number in done.finished:\n            times[number].append(now)\n"
        "        unfinished -= len(done.finished)\n",
    ),
)

a_trace_has_a_first_request = lines(
    """The first request is taken for granted, so an empty trace ends in an error; it has no
    results.""",
    (ENGINE, ENGINE + "    rows[0]\n"),
    gate=False,
)

a_standing_scheduler_is_asked_for_ever = lines(
    """A scheduler that schedules nothing is asked again and again; nothing changes between two such
    steps, so the loop never ends. Raise a RuntimeError.""",
    (STANDS, "        if False:\n"),
    gate=False,
)

a_standing_scheduler_is_a_value_error = lines(
    """A scheduler that stands still is told of with another error; a RuntimeError is asked for.""",
    ("raise RuntimeError(", "raise ValueError("),
    gate=False,
)

a_step_that_stands_still_ends_it = lines(
    """The simulation ends at a step that schedules nothing, and the requests that are left have no
    tokens; raise a RuntimeError, or their missing times look like results.""",
    (
        STANDS,
        "        if not done.scheduled:\n            break\n" + STANDS,
    ),
    (
        "        seen = times[req.id]\n",
        "        seen = times[req.id] or [req.t_arrival_s]\n",
    ),
    gate=False,
)
