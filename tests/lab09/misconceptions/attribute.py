from grader.suite import lines

ADD = "            total[owner(launches.get(event.corr))] += event.dur_us\n"

by_when_the_gpu_ran_it = lines(
    """Work is given to the range that is open when the GPU runs it; the GPU runs behind the host,
    and by then the host is somewhere else. Go by the launch.""",
    (ADD, ADD.replace("launches.get(event.corr)", "event")),
)

INNER = "inner = max(own or around, key=lambda s: (s.ts_us, -s.dur_us), default=None)"

by_the_launching_thread_only = lines(
    """Only ranges of the launching thread count: backward launches come from the autograd thread,
    which has no annotations of yours, so backward would own next to nothing.""",
    (INNER, INNER.replace("own or around", "own")),
)

any_thread_alike = lines(
    """All threads' ranges are treated alike; a loader thread that launches a copy has a range of
    its own open, and owns the copy though the main thread entered forward later.""",
    (INNER, INNER.replace("own or around", "around")),
)

the_outermost_owns = lines(
    """The outermost range gets the work; asked for is the innermost, the one that began last, so
    that embedding is not swallowed by forward.""",
    (INNER, INNER.replace("max(", "min(")),
)

the_shortest_owns = lines(
    """The shortest range around the launch gets the work; the innermost is the one that began
    last, and with several threads that need not be the shortest.""",
    (INNER, INNER.replace("(s.ts_us, -s.dur_us)", "-s.dur_us")),
)

every_range_around_owns = lines(
    """Every range around the launch gets the work, so it is counted several times and the sum is
    more than the GPU ran; each piece has one owner, the innermost.""",
    (
        ADD,
        "            call = launches.get(event.corr)\n"
        "            around = {s.name for s in wanted if call and "
        "s.ts_us <= call.ts_us < s.end_us}\n"
        "            for name in around or {UNATTRIBUTED}:\n"
        "                total[name] += event.dur_us\n",
    ),
)

work_without_an_owner_is_lost = lines(
    """Work that no range owns is dropped; then nobody sees how much the ranges leave out. It
    belongs to "<unattributed>", and all values add up to all GPU work.""",
    (
        "total[owner(launches.get(event.corr))] += event.dur_us",
        "total[owner(launches.get(event.corr))] += event.dur_us\n    total[UNATTRIBUTED] = 0.0",
    ),
)

no_key_for_the_rest = lines(
    """The key "<unattributed>" is missing; without it the sum of the answer says nothing about how
    much was not found.""",
    (
        "total[owner(launches.get(event.corr))] += event.dur_us",
        "total[owner(launches.get(event.corr))] += event.dur_us\n    del total[UNATTRIBUTED]",
    ),
)

work_without_a_launch_is_lost = lines(
    """Work whose launch is not in the trace is dropped; it ran all the same, and belongs to
    "<unattributed>".""",
    (
        "        if event.cat in GPU_CATEGORIES:\n            total[owner(",
        "        if event.cat in GPU_CATEGORIES and event.corr in launches:\n"
        "            total[owner(",
    ),
)

JOIN = "        if event.cat in LAUNCH_CATEGORIES and event.corr is not None\n"

nothing_joins_nothing = lines(
    """Work without a correlation id is joined to a call without one: None equals None in a dict.
    No id joins nothing.""",
    (JOIN, "        if event.cat in LAUNCH_CATEGORIES\n"),
)

one_kernel_a_launch = lines(
    """Of the kernels of one launch only the last is counted; cudaGraphLaunch launches many with
    the same correlation id. Go from each kernel to its launch, not the other way.""",
    (
        "    for event in trace.events:\n        if event.cat in GPU_CATEGORIES:\n"
        "            total[owner(",
        "    one = {e.corr: e for e in trace.events if e.cat in GPU_CATEGORIES and e.corr}\n"
        "    alone = [e for e in trace.events if e.cat in GPU_CATEGORIES and not e.corr]\n"
        "    for event in [*one.values(), *alone]:\n        if event.cat in GPU_CATEGORIES:\n"
        "            total[owner(",
    ),
)

joined_by_external_id = lines(
    """Work is joined to its launch by "External id", which is the operator's number in new traces;
    args["correlation"], here Ev.corr, is what both sides share.""",
    (ADD, ADD.replace("event.corr", 'event.args.get("External id", event.corr)')),
)

the_runtime_launches_all = lines(
    """Calls of the driver (cuLaunchKernel, category cuda_driver: Triton's kernels) are not looked
    at; look for launches in both LAUNCH_CATEGORIES.""",
    (JOIN, JOIN.replace("in LAUNCH_CATEGORIES", '== "cuda_runtime"')),
)

waits_launch = lines(
    """Any event with the correlation id is taken for the launch, and cuda_sync events have one,
    too; a launch is a call of LAUNCH_CATEGORIES.""",
    (JOIN, JOIN.replace("in LAUNCH_CATEGORIES", "not in GPU_CATEGORIES")),
)

waits_are_work = lines(
    """Everything with a stream is counted as work; cuda_sync events have one, too, and are the
    host waiting. GPU work is what has one of GPU_CATEGORIES.""",
    (
        "        if event.cat in GPU_CATEGORIES:\n            total[owner(",
        "        if event.stream is not None:\n            total[owner(",
    ),
)

kernels_alone_are_owned = lines(
    """Copies and memsets are left out; they are launched and run as kernels are. GPU work is what
    has one of GPU_CATEGORIES.""",
    (
        "        if event.cat in GPU_CATEGORIES:\n            total[owner(",
        '        if event.cat == "kernel":\n            total[owner(',
    ),
)

one_range_a_name = lines(
    """Of the ranges with one name only one is looked at, as in a dict by name; forward occurs in
    every step, and each occurrence owns what was launched in it.""",
    (
        "    def owner(",
        "    wanted = list({s.name: s for s in wanted}.values())\n\n    def owner(",
    ),
)

WANTED = "if event.cat == ANNOTATION and event.name in ranges]"

ranges_of_the_gpu = lines(
    """The GPU's rows of the annotations (gpu_user_annotation) are taken as ranges, too; they lie
    where the work ran, and a launch is compared with the host's.""",
    (WANTED, 'if event.cat in (ANNOTATION, "gpu_user_annotation") and event.name in ranges]'),
)

operators_are_ranges = lines(
    """Any event of that name is taken as a range; an operator (cpu_op) may have the same name.
    Ranges are events of the category ANNOTATION.""",
    (WANTED, "if not event.cat.startswith('gpu') and event.name in ranges]"),
)

AROUND = "if span.ts_us <= launch.ts_us < span.end_us]"

the_call_must_end_inside = lines(
    """A launch counts only if the call ends inside of the range as well; where it begins decides,
    and a call may return after the next range has begun.""",
    (AROUND, "if span.ts_us <= launch.ts_us and launch.end_us <= span.end_us]"),
)

ranges_never_end = lines(
    """The range that began last owns the work even after it has ended; what is launched between
    two ranges belongs to neither.""",
    (AROUND, "if span.ts_us <= launch.ts_us]"),
)

busy_time_of_each_range = lines(
    """Each range gets the busy time of its work, in which kernels that run at once count once;
    asked for is the sum of the durations, so that the ranges add up to all GPU work.""",
    (
        "    for event in trace.events:\n        if event.cat in GPU_CATEGORIES:\n" + ADD,
        "    spans = {}\n    for event in trace.events:\n"
        "        if event.cat in GPU_CATEGORIES:\n"
        "            name = owner(launches.get(event.corr))\n"
        "            spans.setdefault(name, []).append((event.ts_us, event.end_us))\n"
        "    total.update({name: busy_time(rows) for name, rows in spans.items()})\n",
    ),
)

the_host_time_of_a_range = lines(
    """The ranges' own durations are summed: that is how long the host took to launch, which says
    nothing about the GPU's time.""",
    (
        "            total[owner(launches.get(event.corr))] += event.dur_us\n",
        "            pass\n",
    ),
    (
        "    total = dict.fromkeys([*ranges, UNATTRIBUTED], 0.0)\n",
        "    total = dict.fromkeys([*ranges, UNATTRIBUTED], 0.0)\n"
        "    for span in wanted:\n        total[span.name] += span.dur_us\n",
    ),
)

open_at_its_very_end = lines(
    """A range is not open any more at the moment at which it ends: start <= t < end.""",
    ("span.ts_us <= launch.ts_us < span.end_us", "span.ts_us <= launch.ts_us <= span.end_us"),
)

the_longer_of_two = lines(
    """Of two ranges that began together the *shorter* one is the inner one.""",
    ("key=lambda s: (s.ts_us, -s.dur_us)", "key=lambda s: (s.ts_us, s.dur_us)"),
)

annotations_not_asked_for_hide = lines(
    """The innermost annotation of *any* name is taken, and if nobody asked for it the work has no
    owner; only those in `ranges` count, so what lies inside of one of them does not hide it.""",
    (WANTED, "if event.cat == ANNOTATION]"),
    (
        "return UNATTRIBUTED if inner is None else inner.name",
        "return inner.name if inner is not None and inner.name in ranges else UNATTRIBUTED",
    ),
)

a_launch_is_used_up = lines(
    """A launch is forgotten with the first kernel that has found it; a CUDA graph launches many
    with one correlation id, and the others end up unattributed.""",
    (ADD, ADD.replace("launches.get(event.corr)", "launches.pop(event.corr, None)")),
)

rounded_to_three_decimals = lines(
    """Times may be finer than a nanosecond, and the answer is rounded to three decimals here;
    of kernels that short nothing is left. Round where a number is printed.""",
    ("    return total", "    return {name: round(us, 3) for name, us in total.items()}"),
    gate=False,
)
