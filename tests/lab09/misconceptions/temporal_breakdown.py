from grader.suite import lines

from ._passages import COMMUNICATION

communication_comes_first = lines(
    """Where communication and computation run at once, you counted communication; the GPU computes
    there, so it is compute. non_compute is what runs without any computation.""",
    (
        'return {"idle": span - busy, "compute": compute, "non_compute": busy - compute}',
        "other = busy_time((e.ts_us, e.end_us) for e in work if kernel_class(e.name) != "
        '"computation")\n'
        '    return {"idle": span - busy, "compute": busy - other, "non_compute": other}',
    ),
)

copies_compute = lines(
    """Copies and memsets are counted as computation; they move bytes and compute nothing, so they
    are non_compute where they run alone.""",
    ('        return "memory"', '        return "computation"'),
)

nccl_computes = lines(
    """NCCL's kernels are counted as computation because they are kernels; while they wait for
    other ranks they keep the GPU busy with nothing. A name with nccl in it is communication.""",
    (COMMUNICATION, "if False:"),
)

nccl_in_small_letters_only = lines(
    """NCCL's kernels are found in small letters only; the rule is "nccl anywhere in the name, in
    capitals or not".""",
    (COMMUNICATION, 'if "nccl" in name:'),
)

the_old_name_of_nccl = lines(
    """You look for ncclKernel; newer versions of NCCL call their kernels ncclDevKernel_..., and
    others have nccl somewhere in the name. The rule is "nccl anywhere in the name".""",
    (COMMUNICATION, 'if "ncclkernel" in name.lower():'),
)

nccl_at_the_beginning = lines(
    """You look at the beginning of the name; a C++ name may begin with void and a namespace. The
    rule is "nccl anywhere in the name".""",
    (COMMUNICATION, 'if name.lower().startswith("nccl"):'),
)

IS_WORK = "    work = [event for event in trace.events if event.cat in GPU_CATEGORIES]\n"

kernels_alone_are_work = lines(
    """Copies and memsets are left out; they keep the GPU busy as kernels do. GPU work is what has
    one of GPU_CATEGORIES.""",
    (IS_WORK, IS_WORK.replace("in GPU_CATEGORIES", '== "kernel"')),
)

whatever_has_a_stream_is_work = lines(
    """Everything with a stream is counted as work; cuda_sync events have one, too, and are the
    host waiting. GPU work is what has one of GPU_CATEGORIES.""",
    (IS_WORK, IS_WORK.replace("event.cat in GPU_CATEGORIES", "event.stream is not None")),
)

the_gpu_rows_of_annotations_are_work = lines(
    """Annotations as the GPU shows them (gpu_user_annotation) are counted as work; they are drawn
    around kernels, gaps included, and nothing runs but the kernels.""",
    ("GPU_CATEGORIES", 'GPU_CATEGORIES or event.cat == "gpu_user_annotation"'),
)

BUSY = "    busy = busy_time((event.ts_us, event.end_us) for event in work)\n"

parts_are_sums_of_durations = lines(
    """Busy and compute are sums of durations; streams run at once, so idle comes out too small, or
    below 0. Take the union: busy_time.""",
    (BUSY, "    busy = sum(event.dur_us for event in work)\n"),
    (
        "    compute = busy_time(\n        (event.ts_us, event.end_us) for event in work if",
        "    compute = sum(\n        event.dur_us for event in work if",
    ),
)

idle_is_not_computing = lines(
    """idle is what the span has beyond the computation; while a copy or a collective runs, the GPU
    is not idle but non_compute. The three parts must add up to the span.""",
    ("span - busy", "span - compute"),
)

not_computing_is_non_compute = lines(
    """non_compute is what the span has beyond the computation, so idle time is counted in it as
    well: the three parts must add up to the span.""",
    (": busy -", ": span -"),
)

parts_as_fractions = lines(
    """The answer is in fractions of the span; microseconds are asked for, since a share of an
    unknown time cannot be compared with another trace's.""",
    (
        '{"idle": span - busy, "compute": compute, "non_compute": busy - compute}',
        "dict(zip(('idle', 'compute', 'non_compute'), (p / span for p in (span - busy, "
        "compute, busy - compute))))",
    ),
)

parts_in_percent = lines(
    """The answer is in percent of the span; microseconds are asked for, since a share of an
    unknown time cannot be compared with another trace's.""",
    (
        '{"idle": span - busy, "compute": compute, "non_compute": busy - compute}',
        "dict(zip(('idle', 'compute', 'non_compute'), (100 * p / span for p in (span - "
        "busy, compute, busy - compute))))",
    ),
)

the_whole_trace_is_the_span = lines(
    """The span runs from the first event of the trace to its last; before its first work and after
    its last the GPU is not idle within a step, it is not measured. Take GPU work only.""",
    (
        "(event.end_us for event in work) - min(event.ts_us for event in work)",
        "(event.end_us for event in trace.events) - min(event.ts_us for event in trace.events)",
    ),
)

the_last_step_is_always_dropped = lines(
    """The last step is left out though it was asked for: this is what Holistic Trace Analysis does
    by default, and why its figures differ from others'. Here include_last_step decides.""",
    ("not include_last_step and len(steps) > 1", "len(steps) > 1"),
)

the_last_step_is_never_dropped = lines(
    """include_last_step=False changes nothing here; without the last step its work counts nowhere,
    and the span ends with the work of the step before.""",
    ("not include_last_step and len(steps) > 1", "False"),
)

LAST = "last = max(step.ts_us for step in steps)"

EARLY_FROM = "event.cat in LAUNCH_CATEGORIES and event.ts_us >= last"

the_first_step_is_dropped = lines(
    """The first step is left out instead of the last; the last is the one that the end of the
    profiling may have cut off.""",
    (LAST, "last = sorted(step.ts_us for step in steps)[1]"),
    ("event.cat in LAUNCH_CATEGORIES and event.ts_us < last", EARLY_FROM),
)

EARLY = "work = [event for event in work if event.corr is not None and event.corr in early]"

steps_end_when_the_gpu_runs_them = lines(
    """Work is left out by when it ran; the GPU is behind the host, so work of the step before runs
    after the last step has begun, and belongs to the step that launched it.""",
    (EARLY, "work = [event for event in work if event.ts_us < last]"),
)

the_last_by_name = lines(
    """The last step is the one whose name sorts last, and "ProfilerStep#9" sorts after
    "ProfilerStep#11"; take the one that begins last.""",
    (LAST, "last = max(steps, key=lambda step: step.name).ts_us"),
)

steps_of_both_sides = lines(
    """ProfilerStep# stands in the trace twice, on the host and, later, where the GPU ran it
    (gpu_user_annotation); a launch is compared with the host's.""",
    ("if event.cat == ANNOTATION and event.name.st", "if event.name.st"),
)

MIDDLE = "    span = max(event.end_us for event in work) - min(event.ts_us for event in work)\n"

the_span_stays = lines(
    """The last step's work is left out, but the span still ends where that work ended, so all of
    its time turns into idle time; the span shrinks with the work.""",
    (MIDDLE, MIDDLE.replace("in work", "in everything")),
    (IS_WORK, IS_WORK + "    everything = work\n"),
)

RUNTIME = 'if event.cat == "cuda_runtime" and event.ts_us < last'

launched_by_the_runtime_only = lines(
    """Work that the driver launched (cuLaunchKernel, category cuda_driver: Triton's kernels) is
    dropped with the last step; look for launches in both LAUNCH_CATEGORIES.""",
    ("if event.cat in LAUNCH_CATEGORIES and event.ts_us < last", RUNTIME),
)

at_the_very_beginning = lines(
    """What is launched at the moment at which the last step begins belongs to that step.""",
    ("event.ts_us < last", "event.ts_us <= last"),
)

without_a_launch_it_stays = lines(
    """Work whose launch is not in the trace belongs to no step that anyone knows; with the last
    step left out, it is left out, too.""",
    (
        "if event.corr is not None and event.corr in early]",
        "if event.corr in early or event.corr not in {\n"
        "            e.corr for e in trace.events\n"
        "            if e.cat in LAUNCH_CATEGORIES and e.corr is not None\n"
        "        }]",
    ),
)

memory_in_any_letters = lines(
    """Memcpy and Memset are the profiler's own names, with a capital; a kernel called memcpy_like
    is a kernel, and computes.""",
    (
        'if "Memcpy" in name or "Memset" in name:',
        'if "memcpy" in name.lower() or "memset" in name.lower():',
    ),
)

the_last_to_begin_ends_last = lines(
    """The span ends with the work that *began* last; on another stream a longer piece that began
    before it may still run. Its end is the latest of all ends.""",
    ("max(event.end_us for event in work)", "work[-1].end_us"),
)

parts_to_two_decimals = lines(
    """Times may be finer than a nanosecond, and the answer is rounded to two decimals here; of
    kernels that short nothing is left. Round where a number is printed.""",
    (
        'return {"idle": span - busy, "compute": compute, "non_compute": busy - compute}',
        'return {"idle": round(span - busy, 2), "compute": round(compute, 2), '
        '"non_compute": round(busy - compute, 2)}',
    ),
    gate=False,
)
