"""Known wrong answers of lab 09, as code. Each docstring is what the learner who gave it reads."""

import re

# Executed among the reference's names: `Ev`, `busy_time`, `kernel_class`, ... are the reference's.
from grader.skeleton import changed
from grader.suite import misconception

TRACE = "trace_analysis.py"


# --- busy_time -----------------------------------------------------------------------------------


@misconception("busy_time")
def sums_durations(intervals):
    """GPU time above 100 % of wall: you summed concurrent streams. Two kernels that run at once
    keep the GPU busy for one time, so each microsecond counts once."""
    return float(sum(end - start for start, end in intervals))


@misconception("busy_time")
def a_nested_one_shortens(intervals):
    """Each interval is compared with the one before only; a long one may reach beyond many that
    follow, so remember how far the time is covered: the largest end so far."""
    busy, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        busy += max(0.0, end - max(start, until))
        until = end
    return busy


@misconception("busy_time")
def first_to_last(intervals):
    """From the first start to the last end is the span; the gaps in it, in which nothing ran, are
    idle time, not busy time."""
    intervals = list(intervals)
    if not intervals:
        return 0.0
    return float(max(end for _start, end in intervals) - min(start for start, _end in intervals))


@misconception("busy_time")
def in_the_order_given(intervals):
    """The intervals are taken in the order of the list; a trace is written stream by stream, so
    sort them by their start first."""
    busy, until = 0.0, float("-inf")
    for start, end in intervals:
        if end > until:
            busy += end - max(start, until)
            until = end
    return busy


@misconception("busy_time")
def both_ends_count(intervals):
    """Each stretch is one microsecond too long: [3, 8) lasts 8 - 3 = 5, the end does not belong to
    it. Times are points on a line, not numbers of boxes."""
    busy, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > until:
            busy += end - max(start, until) + (start > until)
            until = end
    return busy


@misconception("busy_time")
def one_interval_a_start(intervals):
    """Of intervals that begin together only one is left, as in a dict by start; the longest of
    them decides, so keep them all."""
    busy, until = 0.0, float("-inf")
    for start, end in sorted(dict(intervals).items()):
        if end > until:
            busy += end - max(start, until)
            until = end
    return busy


@misconception("busy_time")
def the_last_stretch_is_lost(intervals):
    """A stretch is added when the next gap begins, and after the last one no gap comes: add what
    is still open once the loop has ended."""
    busy, left, right = 0.0, None, None
    for start, end in sorted(intervals):
        if left is None:
            left, right = start, end
        elif start > right:
            busy += right - left
            left, right = start, end
        else:
            right = max(right, end)
    return busy


@misconception("busy_time")
def short_gaps_are_busy(intervals):
    """Gaps of up to a microsecond are closed here; many short gaps are just what a launch-bound
    program looks like, so every gap is idle."""
    busy, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > until:
            busy += end - (until if start - until <= 1 else start)
            until = end
    return busy


@misconception("busy_time")
def alone_only(intervals):
    """Time in which two or more intervals are open is left out; the GPU is busy there as well.
    Count where at least one is open, not where exactly one is."""
    changes = sorted([(s, 1) for s, _e in intervals] + [(e, -1) for _s, e in intervals])
    busy, depth, since = 0.0, 0, 0.0
    for time, step in changes:
        if depth == 1:
            busy += time - since
        depth, since = depth + step, time
    return busy


# --- load_trace ----------------------------------------------------------------------------------

ONLY_X = 'if raw.get("ph") != "X":'
LENGTH = "dur_us=0.0 if dur is None or math.isnan(dur) else float(dur),"
START = 'ts_us=float(raw["ts"]),'


@misconception("load_trace", file=TRACE)
def flows_are_events(text):
    """Flows (ph s and f) are the arrows from a launch to its kernel: they end where they begin and
    take no time. Only ph X has a duration."""
    return changed(text, (ONLY_X, 'if raw.get("ph") not in ("X", "s", "f"):'))


@misconception("load_trace", file=TRACE)
def instants_are_events(text):
    """An instant (ph i) is a mark on the time axis, like "Iteration Start": nothing ran there.
    Only ph X has a duration."""
    return changed(text, (ONLY_X, 'if raw.get("ph") not in ("X", "i"):'))


@misconception("load_trace", file=TRACE)
def whatever_has_a_time_is_an_event(text):
    """Metadata (ph M: names of processes and threads) has a ts, too, and so have flows and marks;
    an event is what has ph X."""
    return changed(text, (ONLY_X, 'if "ts" not in raw:'))


@misconception("load_trace", file=TRACE)
def no_dur_no_event(text):
    """Events are told by their dur here; an X event may lack one, and is an event all the same, of
    0.0 us. Look at ph."""
    return changed(text, (ONLY_X, 'if raw.get("dur") is None:'))


@misconception("load_trace", file=TRACE)
def no_cat_no_event(text):
    """Events without a category are dropped; they ran as the others did, so their cat is ""."""
    return changed(text, (ONLY_X, 'if raw.get("ph") != "X" or "cat" not in raw:'))


@misconception("load_trace", file=TRACE)
def no_args_no_event(text):
    """Events without args are dropped; they ran as the others did, so their args are {}."""
    return changed(text, (ONLY_X, 'if raw.get("ph") != "X" or "args" not in raw:'))


@misconception("load_trace", file=TRACE)
def a_missing_dur_is_none(text):
    """A missing dur stays None, and the first sum over the trace ends in a TypeError; nobody
    measured any time there, so it is 0.0."""
    return changed(text, (LENGTH, "dur_us=dur,"))


@misconception("load_trace", file=TRACE)
def nan_is_a_duration(text):
    """A dur of NaN is kept, and makes every sum over the trace NaN; it is 0.0, as a missing
    one."""
    return changed(text, (LENGTH, "dur_us=0.0 if dur is None else float(dur),"))


@misconception("load_trace", file=TRACE)
def nanoseconds_for_microseconds(text):
    """Times with decimals are taken as nanoseconds and divided by 1,000: ts and dur are
    microseconds in old files and in new ones, and the three decimals are the nanoseconds."""
    return changed(
        text,
        (START, 'ts_us=raw["ts"] / 1000 if isinstance(raw["ts"], float) else float(raw["ts"]),'),
        (LENGTH, "dur_us=(dur / 1000 if isinstance(raw['ts'], float) else dur) if dur else 0.0,"),
    )


@misconception("load_trace", file=TRACE)
def the_unit_of_the_display(text):
    """displayTimeUnit says in which unit a viewer shows the trace; the numbers in the file are
    microseconds whatever it says."""
    unit = '(1000 if header.get("displayTimeUnit") == "ms" else 1)'
    return changed(
        text,
        (START, f'ts_us=float(raw["ts"]) * {unit},'),
        (LENGTH, f"dur_us=0.0 if dur is None or math.isnan(dur) else float(dur) * {unit},"),
    )


@misconception("load_trace", file=TRACE)
def the_base_is_added(text):
    """With baseTimeNanoseconds added, ts_us is 1.7e15, where floats are 0.25 us apart: events that
    began 100 ns apart begin together. Keep the base apart, as an int."""
    base = 'header.get("baseTimeNanoseconds", 0) / 1000'
    return changed(text, (START, f'ts_us=float(raw["ts"]) + {base},'))


@misconception("load_trace", file=TRACE)
def the_base_is_lost(text):
    """base_ns is 0 though the file has a baseTimeNanoseconds; without it two ranks' traces cannot
    be laid side by side."""
    return changed(text, ('base_ns = int(header.get("baseTimeNanoseconds", 0))', "base_ns = 0"))


@misconception("load_trace", file=TRACE)
def whole_microseconds(text):
    """Decimals are cut off; a kernel of 2 us loses up to half of its time by that. New traces have
    nanoseconds: keep floats."""
    return changed(
        text,
        (START, 'ts_us=int(raw["ts"]),'),
        (LENGTH, "dur_us=0.0 if dur is None or math.isnan(dur) else int(dur),"),
    )


@misconception("load_trace", file=TRACE)
def counted_from_the_first_event(text):
    """The first event's time is taken off all of them; then base_ns + 1000 * ts_us is no longer
    the time since 1970, and two ranks cannot be compared. ts stays as the file has it."""
    first = 'min(row["ts"] for row in header["traceEvents"])'
    return changed(
        text,
        ("    events = []\n    for number", f"    events = []\n    zero = {first}\n    for number"),
        (START, 'ts_us=float(raw["ts"] - zero),'),
    )


@misconception("load_trace", file=TRACE)
def ids_as_they_stand(text):
    """Ids are kept as the file has them; "57541" and 57541 do not compare equal, so a launch would
    not find its kernel. Make them ints."""
    return changed(
        text,
        ('corr=whole(args.get("correlation")) or None,', 'corr=args.get("correlation") or None,'),
        ('stream=whole(args.get("stream")),', 'stream=args.get("stream"),'),
    )


@misconception("load_trace", file=TRACE)
def threads_as_they_stand(text):
    """A tid or pid that is written as "7" stays text; threads are compared later, and "7" is not
    7. A whole number becomes an int, only a name stays text."""
    return changed(text, ("str(value) if number is None else number", "value"))


@misconception("load_trace", file=TRACE)
def correlation_zero_joins(text):
    """A correlation of 0 is kept; it means that there is none, and all events that have it would
    seem to belong together. It is None here."""
    return changed(
        text,
        ('corr=whole(args.get("correlation")) or None,', 'corr=whole(args.get("correlation")),'),
    )


@misconception("load_trace", file=TRACE)
def stream_zero_is_none(text):
    """Stream 0 became None (`or None`, `if stream`); it is a stream, CUDA's default one, and only
    a missing one is None."""
    return changed(
        text, ('stream=whole(args.get("stream")),', 'stream=whole(args.get("stream")) or None,')
    )


@misconception("load_trace", file=TRACE)
def the_suffix_decides(text):
    """Whether a file is gzipped is taken from its name; names lie (trace.json may be gzipped), the
    first two bytes, 1f 8b, do not."""
    return changed(text, (r'content.startswith(b"\x1f\x8b")', 'path.suffix == ".gz"'))


@misconception("load_trace", file=TRACE)
def in_the_order_of_the_file(text):
    """A file has its events thread by thread; a Trace has them by time, and later steps go by
    that. Sort them."""
    return changed(text, ("events.sort(key=lambda event: (event.ts_us, -event.dur_us))", "pass"))


@misconception("load_trace", file=TRACE)
def inner_before_outer(text):
    """Of two events that begin together the inner one may come first here, as if it were the
    caller; sort by ts_us, then the longer first."""
    return changed(
        text,
        ("key=lambda event: (event.ts_us, -event.dur_us)", "key=lambda event: event.ts_us"),
    )


@misconception("load_trace", file=TRACE)
def the_end_of_a_file_falls_through(text):
    """A gzipped file that is cut off raises EOFError (or zlib.error), a plain one JSONDecodeError,
    and none of them names the file: who reads 128 ranks needs one ValueError with the name."""
    caught = "except (EOFError, OSError, zlib.error, ValueError, RecursionError)"
    return changed(text, (caught, "except ZeroDivisionError"))


@misconception("load_trace", file=TRACE)
def a_broken_file_is_an_empty_trace(text):
    """A file that is cut off becomes an empty trace, which reads like a GPU that idles: wrong
    figures are worse than none. Raise ValueError with the file's name."""
    refusal = "        raise ValueError(\n"
    old = refusal + '            f"{path.name} is cut off'
    return changed(text, (old, f"        return Trace([])\n{old}"))


@misconception("load_trace", file=TRACE)
def which_file_is_not_said(text):
    """The error does not say which file is broken; among the traces of 128 ranks that is what one
    needs to know. Put path.name into the sentence."""
    return changed(text, ('f"{path.name} is cut off or', 'f"The trace is cut off or'))


@misconception("load_trace", file=TRACE)
def the_gpu_only(text):
    """Only the GPU's side is kept; who launched a kernel stands on the host's side, so every ph X
    is an event, of whatever category."""
    return changed(
        text, (ONLY_X, 'if raw.get("ph") != "X" or raw.get("cat") not in GPU_CATEGORIES:')
    )


# --- temporal_breakdown --------------------------------------------------------------------------

COMMUNICATION = 'if "nccl" in name.lower():'
IS_WORK = "    work = [event for event in trace.events if event.cat in GPU_CATEGORIES]\n"
KEYS = ("idle", "compute", "non_compute")
ANSWER = 'return {"idle": span - busy, "compute": compute, "non_compute": busy - compute}'
BUSY = "    busy = busy_time((event.ts_us, event.end_us) for event in work)\n"
EARLY = "work = [event for event in work if event.corr is not None and event.corr in early]"
LAST = "last = max(step.ts_us for step in steps)"
MIDDLE = "    span = max(event.end_us for event in work) - min(event.ts_us for event in work)\n"


@misconception("temporal_breakdown", file=TRACE)
def communication_comes_first(text):
    """Where communication and computation run at once, you counted communication; the GPU computes
    there, so it is compute. non_compute is what runs without any computation."""
    other = (
        "other = busy_time((e.ts_us, e.end_us) for e in work "
        'if kernel_class(e.name) != "computation")'
    )
    wrong = 'return {"idle": span - busy, "compute": busy - other, "non_compute": other}'
    return changed(text, (ANSWER, f"{other}\n    {wrong}"))


@misconception("temporal_breakdown", file=TRACE)
def copies_compute(text):
    """Copies and memsets are counted as computation; they move bytes and compute nothing, so they
    are non_compute where they run alone."""
    return changed(text, ('        return "memory"', '        return "computation"'))


@misconception("temporal_breakdown", file=TRACE)
def nccl_computes(text):
    """NCCL's kernels are counted as computation because they are kernels; while they wait for
    other ranks they keep the GPU busy with nothing. A name with nccl in it is communication."""
    return changed(text, (COMMUNICATION, "if False:"))


@misconception("temporal_breakdown", file=TRACE)
def nccl_in_small_letters_only(text):
    """NCCL's kernels are found in small letters only; the rule is "nccl anywhere in the name, in
    capitals or not"."""
    return changed(text, (COMMUNICATION, 'if "nccl" in name:'))


@misconception("temporal_breakdown", file=TRACE)
def the_old_name_of_nccl(text):
    """You look for ncclKernel; newer versions of NCCL call their kernels ncclDevKernel_..., and
    others have nccl somewhere in the name. The rule is "nccl anywhere in the name"."""
    return changed(text, (COMMUNICATION, 'if "ncclkernel" in name.lower():'))


@misconception("temporal_breakdown", file=TRACE)
def nccl_at_the_beginning(text):
    """You look at the beginning of the name; a C++ name may begin with void and a namespace. The
    rule is "nccl anywhere in the name"."""
    return changed(text, (COMMUNICATION, 'if name.lower().startswith("nccl"):'))


@misconception("temporal_breakdown", file=TRACE)
def kernels_alone_are_work(text):
    """Copies and memsets are left out; they keep the GPU busy as kernels do. GPU work is what has
    one of GPU_CATEGORIES."""
    return changed(text, (IS_WORK, IS_WORK.replace("in GPU_CATEGORIES", '== "kernel"')))


@misconception("temporal_breakdown", file=TRACE)
def whatever_has_a_stream_is_work(text):
    """Everything with a stream is counted as work; cuda_sync events have one, too, and are the
    host waiting. GPU work is what has one of GPU_CATEGORIES."""
    return changed(
        text, (IS_WORK, IS_WORK.replace("event.cat in GPU_CATEGORIES", "event.stream is not None"))
    )


@misconception("temporal_breakdown", file=TRACE)
def the_gpu_rows_of_annotations_are_work(text):
    """Annotations as the GPU shows them (gpu_user_annotation) are counted as work; they are drawn
    around kernels, gaps included, and nothing runs but the kernels."""
    wrong = 'event.cat in GPU_CATEGORIES or event.cat == "gpu_user_annotation"'
    return changed(text, (IS_WORK, IS_WORK.replace("event.cat in GPU_CATEGORIES", wrong)))


@misconception("temporal_breakdown", file=TRACE)
def parts_are_sums_of_durations(text):
    """Busy and compute are sums of durations; streams run at once, so idle comes out too small, or
    below 0. Take the union: busy_time."""
    return changed(
        text,
        (BUSY, "    busy = sum(event.dur_us for event in work)\n"),
        (
            "    compute = busy_time(\n        (event.ts_us, event.end_us) for event in work if",
            "    compute = sum(\n        event.dur_us for event in work if",
        ),
    )


@misconception("temporal_breakdown", file=TRACE)
def idle_is_not_computing(text):
    """idle is what the span has beyond the computation; while a copy or a collective runs, the GPU
    is not idle but non_compute. The three parts must add up to the span."""
    wrong = 'return {"idle": span - compute, "compute": compute, "non_compute": busy - compute}'
    return changed(text, (ANSWER, wrong))


@misconception("temporal_breakdown", file=TRACE)
def not_computing_is_non_compute(text):
    """non_compute is what the span has beyond the computation, so idle time is counted in it as
    well: the three parts must add up to the span."""
    wrong = 'return {"idle": span - busy, "compute": compute, "non_compute": span - compute}'
    return changed(text, (ANSWER, wrong))


@misconception("temporal_breakdown", file=TRACE)
def parts_as_fractions(text):
    """The answer is in fractions of the span; microseconds are asked for, since a share of an
    unknown time cannot be compared with another trace's."""
    parts = "(span - busy, compute, busy - compute)"
    return changed(text, (ANSWER, f"return dict(zip({KEYS}, (p / span for p in {parts})))"))


@misconception("temporal_breakdown", file=TRACE)
def parts_in_percent(text):
    """The answer is in percent of the span; microseconds are asked for, since a share of an
    unknown time cannot be compared with another trace's."""
    parts = "(span - busy, compute, busy - compute)"
    return changed(text, (ANSWER, f"return dict(zip({KEYS}, (100 * p / span for p in {parts})))"))


@misconception("temporal_breakdown", file=TRACE)
def the_whole_trace_is_the_span(text):
    """The span runs from the first event of the trace to its last; before its first work and after
    its last the GPU is not idle within a step, it is not measured. Take GPU work only."""
    wrong = MIDDLE.replace("in work", "in trace.events")
    return changed(text, (MIDDLE, wrong))


@misconception("temporal_breakdown", file=TRACE)
def the_last_step_is_always_dropped(text):
    """The last step is left out though it was asked for: this is what Holistic Trace Analysis does
    by default, and why its figures differ from others'. Here include_last_step decides."""
    return changed(text, ("not include_last_step and len(steps) > 1", "len(steps) > 1"))


@misconception("temporal_breakdown", file=TRACE)
def the_last_step_is_never_dropped(text):
    """include_last_step=False changes nothing here; without the last step its work counts nowhere,
    and the span ends with the work of the step before."""
    return changed(text, ("not include_last_step and len(steps) > 1", "False"))


@misconception("temporal_breakdown", file=TRACE)
def the_first_step_is_dropped(text):
    """The first step is left out instead of the last; the last is the one that the end of the
    profiling may have cut off."""
    return changed(
        text,
        (LAST, "last = sorted(step.ts_us for step in steps)[1]"),
        ("event.cat in LAUNCH_CATEGORIES and event.ts_us < last", EARLY_FROM),
    )


EARLY_FROM = "event.cat in LAUNCH_CATEGORIES and event.ts_us >= last"


@misconception("temporal_breakdown", file=TRACE)
def steps_end_when_the_gpu_runs_them(text):
    """Work is left out by when it ran; the GPU is behind the host, so work of the step before runs
    after the last step has begun, and belongs to the step that launched it."""
    return changed(text, (EARLY, "work = [event for event in work if event.ts_us < last]"))


@misconception("temporal_breakdown", file=TRACE)
def the_last_by_name(text):
    """The last step is the one whose name sorts last, and "ProfilerStep#9" sorts after
    "ProfilerStep#11"; take the one that begins last."""
    return changed(text, (LAST, "last = max(steps, key=lambda step: step.name).ts_us"))


@misconception("temporal_breakdown", file=TRACE)
def steps_of_both_sides(text):
    """ProfilerStep# stands in the trace twice, on the host and, later, where the GPU ran it
    (gpu_user_annotation); a launch is compared with the host's."""
    return changed(text, ("if event.cat == ANNOTATION and event.name.st", "if event.name.st"))


@misconception("temporal_breakdown", file=TRACE)
def the_span_stays(text):
    """The last step's work is left out, but the span still ends where that work ended, so all of
    its time turns into idle time; the span shrinks with the work."""
    return changed(
        text,
        (MIDDLE, MIDDLE.replace("in work", "in everything")),
        (IS_WORK, IS_WORK + "    everything = work\n"),
    )


@misconception("temporal_breakdown", file=TRACE)
def launched_by_the_runtime_only(text):
    """Work that the driver launched (cuLaunchKernel, category cuda_driver: Triton's kernels) is
    dropped with the last step; look for launches in both LAUNCH_CATEGORIES."""
    return changed(
        text,
        ("if event.cat in LAUNCH_CATEGORIES and event.ts_us < last", RUNTIME),
    )


RUNTIME = 'if event.cat == "cuda_runtime" and event.ts_us < last'


# --- overlap -------------------------------------------------------------------------------------

BOTH = "return both / communication, communication - both"
SIDES = "if event.cat in GPU_CATEGORIES and kernel_class(event.name) in spans:"
COUNTED = '    communication = busy_time(spans["communication"])\n'


@misconception("overlap", file=TRACE)
def divided_by_the_step(text):
    """The overlap is divided by the whole time of the trace; a step with little communication
    would look badly overlapped. Divide by the time with communication."""
    span = (
        "work = [e for e in trace.events if e.cat in GPU_CATEGORIES]\n"
        "    span = max(e.end_us for e in work) - min(e.ts_us for e in work)\n    "
    )
    return changed(text, (BOTH, span + "return both / span, communication - both"))


@misconception("overlap", file=TRACE)
def divided_by_the_computation(text):
    """The overlap is divided by the time with computation; the question is how much of the
    communication is hidden, so divide by that."""
    return changed(text, (BOTH, "return both / (computation or 1), communication - both"))


@misconception("overlap", file=TRACE)
def divided_by_all_work(text):
    """The overlap is divided by the time in which either ran; divide by the time with
    communication, of which it is a part."""
    return changed(text, (BOTH, "return both / either, communication - both"))


@misconception("overlap", file=TRACE)
def copies_hide_communication(text):
    """Copies and memsets are counted as computation; a collective beside a copy is not hidden, the
    step still waits for both."""
    return changed(text, ('        return "memory"', '        return "computation"'))


@misconception("overlap", file=TRACE)
def communication_hides_communication(text):
    """Two collectives that run at once are counted as overlap; one does not hide the other, only
    computation does."""
    return changed(
        text,
        (
            BOTH,
            'at = sorted(t for span in spans["communication"] for t in span)\n'
            '    comm, comp = spans["communication"], spans["computation"]\n'
            "    both = sum(\n"
            "        b - a for a, b in zip(at, at[1:])\n"
            "        if sum(s <= a and b <= e for s, e in comm) > 1)\n"
            "    both += communication + computation - either\n"
            "    return both / communication, communication - both",
        ),
    )


@misconception("overlap", file=TRACE)
def everything_hides_communication(text):
    """The communication is compared with all GPU work, itself included, and everything overlaps
    with itself; compare it with computation."""
    return changed(
        text,
        (
            BOTH,
            "return 1.0, 0.0",
        ),
    )


@misconception("overlap", file=TRACE)
def pairs_are_summed(text):
    """The overlaps of all pairs of a collective and a kernel are added up; where two kernels run
    beside one collective the same time counts twice, and the ratio may pass 1. Merge each side
    first."""
    return changed(
        text,
        (
            BOTH,
            "both = sum(\n"
            "        max(0.0, min(b, d) - max(a, c))\n"
            '        for a, b in spans["communication"] for c, d in spans["computation"])\n'
            "    return both / communication, communication - both",
        ),
    )


@misconception("overlap", file=TRACE)
def communication_is_summed(text):
    """The durations of the collectives are added up; two that run at once on two streams are one
    time. Take the union of the communication, too."""
    return changed(
        text,
        (
            BOTH,
            'total = sum(b - a for a, b in spans["communication"])\n'
            "    return both / total, total - both",
        ),
    )


@misconception("overlap", file=TRACE)
def touched_is_hidden(text):
    """A collective that meets any computation is counted as hidden as a whole; only the part of it
    during which computation runs is."""
    return changed(
        text,
        (
            BOTH,
            "met = [\n"
            '        (a, b) for a, b in spans["communication"]\n'
            '        if any(c < b and a < d for c, d in spans["computation"])]\n'
            "    both = busy_time(met)\n"
            "    return both / communication, communication - both",
        ),
    )


@misconception("overlap", file=TRACE)
def hidden_for_exposed(text):
    """The second number is the hidden time; asked for is the exposed one, for which the step
    waits: the communication less what is hidden."""
    return changed(text, (BOTH, "return both / communication, both"))


@misconception("overlap", file=TRACE)
def the_exposed_ratio(text):
    """The ratio is that of the exposed part; asked for is the hidden one: 1 is all communication
    behind computation, 0 none."""
    return changed(text, (BOTH, "return 1 - both / communication, communication - both"))


@misconception("overlap", file=TRACE)
def a_ratio_in_percent(text):
    """The ratio is in percent; it is asked for as a number from 0 to 1."""
    return changed(text, (BOTH, "return 100 * both / communication, communication - both"))


@misconception("overlap", file=TRACE)
def exposed_comes_first(text):
    """The order is (ratio, exposed_us); it is the other way round here."""
    return changed(text, (BOTH, "return communication - both, both / communication"))


@misconception("overlap", file=TRACE)
def exposed_by_stretch_of_the_gpu(text):
    """Exposed is counted where communication runs alone, and a copy beside it takes it off; only
    computation hides communication."""
    return changed(
        text,
        (
            BOTH,
            "memory = [(e.ts_us, e.end_us) for e in trace.events\n"
            '              if e.cat in GPU_CATEGORIES and kernel_class(e.name) == "memory"]\n'
            '    rest = spans["computation"] + memory\n'
            '    alone = busy_time(spans["communication"] + rest) - busy_time(rest)\n'
            "    return both / communication, alone",
        ),
    )


@misconception("overlap", file=TRACE)
def collectives_in_small_letters(text):
    """Some collectives were not found: their names have nccl in capitals, or not at the beginning.
    The rule is "nccl anywhere in the name, in capitals or not"."""
    return changed(text, (COMMUNICATION, 'if name.startswith("nccl"):'))


@misconception("overlap", file=TRACE)
def annotations_of_nccl_run(text):
    """Every event with nccl in its name is taken; "nccl:all_reduce" is an annotation of the host,
    and nothing that the GPU runs. Only GPU_CATEGORIES count."""
    return changed(
        text,
        (
            SIDES + "\n            spans[",
            'if event.cat in GPU_CATEGORIES or "nccl" in event.name:\n'
            "            if kernel_class(event.name) not in spans:\n"
            "                continue\n"
            "            spans[",
        ),
    )


# --- attribute -----------------------------------------------------------------------------------

JOIN = "        if event.cat in LAUNCH_CATEGORIES and event.corr is not None\n"
OWN = "        own = [span for span in around if span.tid == launch.tid]\n"
INNER = "inner = max(own or around, key=lambda s: (s.ts_us, -s.dur_us), default=None)"
AROUND = "if span.ts_us <= launch.ts_us < span.end_us]"
WANTED = "if event.cat == ANNOTATION and event.name in ranges]"
ADD = "            total[owner(launches.get(event.corr))] += event.dur_us\n"


@misconception("attribute", file=TRACE)
def by_when_the_gpu_ran_it(text):
    """Work is given to the range that is open when the GPU runs it; the GPU runs behind the host,
    and by then the host is somewhere else. Go by the launch."""
    return changed(text, (ADD, ADD.replace("launches.get(event.corr)", "event")))


@misconception("attribute", file=TRACE)
def by_the_launching_thread_only(text):
    """Only ranges of the launching thread count: backward launches come from the autograd thread,
    which has no annotations of yours, so backward would own next to nothing."""
    return changed(text, (INNER, INNER.replace("own or around", "own")))


@misconception("attribute", file=TRACE)
def any_thread_alike(text):
    """All threads' ranges are treated alike; a loader thread that launches a copy has a range of
    its own open, and owns the copy though the main thread entered forward later."""
    return changed(text, (INNER, INNER.replace("own or around", "around")))


@misconception("attribute", file=TRACE)
def the_outermost_owns(text):
    """The outermost range gets the work; asked for is the innermost, the one that began last, so
    that embedding is not swallowed by forward."""
    return changed(text, (INNER, INNER.replace("max(", "min(")))


@misconception("attribute", file=TRACE)
def the_shortest_owns(text):
    """The shortest range around the launch gets the work; the innermost is the one that began
    last, and with several threads that need not be the shortest."""
    return changed(text, (INNER, INNER.replace("(s.ts_us, -s.dur_us)", "-s.dur_us")))


@misconception("attribute", file=TRACE)
def every_range_around_owns(text):
    """Every range around the launch gets the work, so it is counted several times and the sum is
    more than the GPU ran; each piece has one owner, the innermost."""
    return changed(
        text,
        (
            ADD,
            "            call = launches.get(event.corr)\n"
            "            around = {s.name for s in wanted if call and "
            "s.ts_us <= call.ts_us < s.end_us}\n"
            "            for name in around or {UNATTRIBUTED}:\n"
            "                total[name] += event.dur_us\n",
        ),
    )


@misconception("attribute", file=TRACE)
def work_without_an_owner_is_lost(text):
    """Work that no range owns is dropped; then nobody sees how much the ranges leave out. It
    belongs to "<unattributed>", and all values add up to all GPU work."""
    return changed(text, ("return total\n    # END SOLUTION\n\n\n# -- counters", LOST))


LOST = "total[UNATTRIBUTED] = 0.0\n    return total\n    # END SOLUTION\n\n\n# -- counters"


@misconception("attribute", file=TRACE)
def no_key_for_the_rest(text):
    """The key "<unattributed>" is missing; without it the sum of the answer says nothing about how
    much was not found."""
    wrong = "del total[UNATTRIBUTED]\n    return total\n    # END SOLUTION\n\n\n# -- counters"
    return changed(text, ("return total\n    # END SOLUTION\n\n\n# -- counters", wrong))


@misconception("attribute", file=TRACE)
def work_without_a_launch_is_lost(text):
    """Work whose launch is not in the trace is dropped; it ran all the same, and belongs to
    "<unattributed>"."""
    return changed(
        text,
        (
            "        if event.cat in GPU_CATEGORIES:\n            total[owner(",
            "        if event.cat in GPU_CATEGORIES and event.corr in launches:\n"
            "            total[owner(",
        ),
    )


@misconception("attribute", file=TRACE)
def nothing_joins_nothing(text):
    """Work without a correlation id is joined to a call without one: None equals None in a dict.
    No id joins nothing."""
    return changed(text, (JOIN, "        if event.cat in LAUNCH_CATEGORIES\n"))


@misconception("attribute", file=TRACE)
def one_kernel_a_launch(text):
    """Of the kernels of one launch only the last is counted; cudaGraphLaunch launches many with
    the same correlation id. Go from each kernel to its launch, not the other way."""
    return changed(
        text,
        (
            "    for event in trace.events:\n        if event.cat in GPU_CATEGORIES:\n"
            "            total[owner(",
            "    one = {e.corr: e for e in trace.events if e.cat in GPU_CATEGORIES and e.corr}\n"
            "    alone = [e for e in trace.events if e.cat in GPU_CATEGORIES and not e.corr]\n"
            "    for event in [*one.values(), *alone]:\n        if event.cat in GPU_CATEGORIES:\n"
            "            total[owner(",
        ),
    )


@misconception("attribute", file=TRACE)
def joined_by_external_id(text):
    """Work is joined to its launch by "External id", which is the operator's number in new traces;
    args["correlation"], here Ev.corr, is what both sides share."""
    return changed(
        text,
        (ADD, ADD.replace("event.corr", 'event.args.get("External id", event.corr)')),
    )


@misconception("attribute", file=TRACE)
def the_runtime_launches_all(text):
    """Calls of the driver (cuLaunchKernel, category cuda_driver: Triton's kernels) are not looked
    at; look for launches in both LAUNCH_CATEGORIES."""
    return changed(text, (JOIN, JOIN.replace("in LAUNCH_CATEGORIES", '== "cuda_runtime"')))


@misconception("attribute", file=TRACE)
def waits_launch(text):
    """Any event with the correlation id is taken for the launch, and cuda_sync events have one,
    too; a launch is a call of LAUNCH_CATEGORIES."""
    return changed(text, (JOIN, JOIN.replace("in LAUNCH_CATEGORIES", "not in GPU_CATEGORIES")))


@misconception("attribute", file=TRACE)
def waits_are_work(text):
    """Everything with a stream is counted as work; cuda_sync events have one, too, and are the
    host waiting. GPU work is what has one of GPU_CATEGORIES."""
    return changed(
        text,
        (
            "        if event.cat in GPU_CATEGORIES:\n            total[owner(",
            "        if event.stream is not None:\n            total[owner(",
        ),
    )


@misconception("attribute", file=TRACE)
def kernels_alone_are_owned(text):
    """Copies and memsets are left out; they are launched and run as kernels are. GPU work is what
    has one of GPU_CATEGORIES."""
    return changed(
        text,
        (
            "        if event.cat in GPU_CATEGORIES:\n            total[owner(",
            '        if event.cat == "kernel":\n            total[owner(',
        ),
    )


@misconception("attribute", file=TRACE)
def one_range_a_name(text):
    """Of the ranges with one name only one is looked at, as in a dict by name; forward occurs in
    every step, and each occurrence owns what was launched in it."""
    return changed(
        text,
        (
            "    def owner(",
            "    wanted = list({s.name: s for s in wanted}.values())\n\n    def owner(",
        ),
    )


@misconception("attribute", file=TRACE)
def ranges_of_the_gpu(text):
    """The GPU's rows of the annotations (gpu_user_annotation) are taken as ranges, too; they lie
    where the work ran, and a launch is compared with the host's."""
    return changed(
        text,
        (WANTED, 'if event.cat in (ANNOTATION, "gpu_user_annotation") and event.name in ranges]'),
    )


@misconception("attribute", file=TRACE)
def operators_are_ranges(text):
    """Any event of that name is taken as a range; an operator (cpu_op) may have the same name.
    Ranges are events of the category ANNOTATION."""
    return changed(text, (WANTED, "if not event.cat.startswith('gpu') and event.name in ranges]"))


@misconception("attribute", file=TRACE)
def the_call_must_end_inside(text):
    """A launch counts only if the call ends inside of the range as well; where it begins decides,
    and a call may return after the next range has begun."""
    return changed(
        text, (AROUND, "if span.ts_us <= launch.ts_us and launch.end_us <= span.end_us]")
    )


@misconception("attribute", file=TRACE)
def ranges_never_end(text):
    """The range that began last owns the work even after it has ended; what is launched between
    two ranges belongs to neither."""
    return changed(text, (AROUND, "if span.ts_us <= launch.ts_us]"))


@misconception("attribute", file=TRACE)
def busy_time_of_each_range(text):
    """Each range gets the busy time of its work, in which kernels that run at once count once;
    asked for is the sum of the durations, so that the ranges add up to all GPU work."""
    return changed(
        text,
        (
            "    for event in trace.events:\n        if event.cat in GPU_CATEGORIES:\n" + ADD,
            "    spans = {}\n    for event in trace.events:\n"
            "        if event.cat in GPU_CATEGORIES:\n"
            "            name = owner(launches.get(event.corr))\n"
            "            spans.setdefault(name, []).append((event.ts_us, event.end_us))\n"
            "    total.update({name: busy_time(rows) for name, rows in spans.items()})\n",
        ),
    )


@misconception("attribute", file=TRACE)
def the_host_time_of_a_range(text):
    """The ranges' own durations are summed: that is how long the host took to launch, which says
    nothing about the GPU's time."""
    return changed(
        text,
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


# === nsys_queries, roofline, diagnose, commands ==================================================
# --- commands ------------------------------------------------------------------------------------


@misconception("commands", file="profile_commands.sh")
def profiles_start_up(text):
    """Recording begins with the process here: contexts, allocations, autotuning and 20 steps of
    warm-up fill the timeline, and the longest bar is one that production pays once."""
    return text.replace("    --capture-range=cudaProfilerApi --capture-range-end=stop \\\n", "")


@misconception("commands", file="profile_commands.sh")
def ends_the_program_with_the_range(text):
    """When a capture range ends, nsys closes its session and ends the program with it, unless told
    `stop`: the run that you watched for five steps dies after them, without its checkpoint."""
    return text.replace(
        "cudaProfilerApi --capture-range-end=stop \\\n    --pytorch",
        "cudaProfilerApi \\\n    --pytorch",
    )


@misconception("commands", file="profile_commands.sh")
def no_nvtx(text):
    """Without NVTX the timeline has kernels and calls but no names for parts of the step, so
    nothing can be said about forward, backward or optimizer."""
    return text.replace("--trace=cuda,nvtx,osrt,cudnn,cublas", "--trace=cuda,osrt,cudnn,cublas")


@misconception("commands", file="profile_commands.sh")
def a_range_nobody_registered(text):
    """nsys looks for --nvtx-capture among registered strings, and PyTorch pushes plain ones: the
    range never begins, and the report is empty."""
    return text.replace(
        "--capture-range=cudaProfilerApi", "--capture-range=nvtx --nvtx-capture=measure"
    )


@misconception("commands", file="profile_commands.sh")
def all_ranks_into_one_file(text):
    """nsys in front of torchrun follows every process: eight ranks share one file and one disk, and
    what you see is a job that is slow because it is watched."""
    first, last = text.index("torchrun --standalone"), text.index("fi'") + 3
    whole = (
        "nsys profile -t cuda,nvtx,osrt -c cudaProfilerApi --capture-range-end=stop -o ranks \\\n"
        "    torchrun --standalone --nproc-per-node=8 train.py"
    )
    return text[:first] + whole + text[last:]


@misconception("commands", file="profile_commands.sh")
def each_rank_its_own_file(text):
    """A file for each rank keeps the files apart, not the ranks: all eight are slowed down, and
    collectives wait for the slowest; one watched rank shows the others as waiting."""
    return text.replace('if [ "$LOCAL_RANK" = 0 ]', 'if [ "$LOCAL_RANK" -ge 0 ]').replace(
        "-o timeline_rank0", "-o timeline_rank%q{RANK}"
    )


@misconception("commands", file="profile_commands.sh")
def only_the_watched_rank_runs(text):
    """Rank 0 alone starts the program here, so its first collective waits for seven ranks that
    never come: the others must run it as well, without nsys."""
    return text.replace("    else\n        exec python train.py\n", "")


@misconception("commands", file="profile_commands.sh")
def ncu_on_every_launch(text):
    """Without a filter ncu replays all 36,000 launches of the run, each several times: hours for a
    question about three kernels."""
    return text.replace("--kernel-name 'regex:gemm|conv' --launch-skip 60 --launch-count 12", "")


@misconception("commands", file="profile_commands.sh")
def ncu_without_a_count(text):
    """A name alone is no limit: 540 launches match after warm-up, and each is replayed for every
    group of counters; a dozen tell the same."""
    return text.replace(" --launch-count 12", "")


@misconception("commands", file="profile_commands.sh")
def skips_all_launches(text):
    """--launch-skip counts the launches that match, not all of them: 20 steps are 60 launches here,
    and after 3,600 the run is long over; --launch-skip-before-match counts all."""
    return text.replace("--launch-skip 60", "--launch-skip 3600")


@misconception("commands", file="profile_commands.sh")
def ncu_in_the_warm_up(text):
    """The first matching launches are those of autotuning and warm-up, other kernels with cold
    caches; --launch-skip 60 leaves these 20 steps out."""
    return text.replace("--launch-skip 60 ", "")


@misconception("commands", file="profile_commands.sh")
def a_pipe_in_the_expression(text):
    """An unquoted | is a pipe: the shell runs ncu with half of the expression and sends what it
    prints to a program called conv."""
    return text.replace("'regex:gemm|conv'", "regex:gemm|conv")


@misconception("commands", file="profile_commands.sh")
def brackets_in_the_expression(text):
    """An unquoted parenthesis is an operator of the shell, which stops there with a syntax error;
    expressions belong into single quotes."""
    return text.replace("'regex:gemm|conv'", "regex:(gemm|conv)")


@misconception("commands", file="profile_commands.sh")
def a_name_instead_of_an_expression(text):
    """Without `regex:` the name must be that of the kernel, whole and exact: nothing is called
    gemm, so nothing is profiled."""
    return text.replace("'regex:gemm|conv'", "gemm")


@misconception("commands", file="profile_commands.sh")
def a_blank_in_the_metrics(text):
    """A blank after a comma ends the list: the second metric becomes the program that ncu is to
    run."""
    return text.replace('--metrics "$METRICS"', "--metrics dram__bytes.sum, $METRICS")


@misconception("commands", file="profile_commands.sh")
def an_old_spelling(text):
    """--kernel-regex is what older versions of ncu called it; now a name begins with `regex:`."""
    return text.replace("--kernel-name 'regex:gemm|conv'", "--kernel-regex 'gemm|conv'")


@misconception("commands", file="profile_commands.sh")
def old_report_names(text):
    """gpukernsum is what older versions of nsys stats called this report; it is cuda_gpu_kern_sum
    now, and the old name finds no report."""
    return text.replace("cuda_gpu_kern_sum,cuda_api_sum", "gpukernsum,cudaapisum")


@misconception("commands", file="profile_commands.sh")
def locked_clocks(text):
    """ncu locks the clocks to their base by default, so its durations are longer than those of your
    run: good for comparing two kernels, wrong as a time of production."""
    return text.replace(" --clock-control none", "")


@misconception("commands", file="profile_commands.sh")
def clocks_without_a_word(text):
    """Free clocks make durations real and measurements wander; whoever reads the numbers must be
    told, so say it in a comment."""
    return text.replace(
        "# Clocks are left alone: durations are then", "# Durations are then"
    ).replace(
        "temperature and power; locked to their base they", "temperature and power; locked they"
    )


@misconception("commands", file="profile_commands.sh")
def exports_another_report(text):
    """The file that is exported is one that no command writes: --output gives a report its name,
    and .nsys-rep is added to it."""
    return text.replace("timeline.sqlite timeline.nsys-rep", "timeline.sqlite report1.nsys-rep")


@misconception("commands", file="profile_commands.sh")
def a_comment_between_lines(text):
    """A comment after a backslash ends the command: the options below it become commands of their
    own, and the profiler runs without them."""
    return text.replace(
        "    --pytorch=autograd-nvtx", "    # names for autograd\n    --pytorch=autograd-nvtx"
    )


@misconception("commands", file="profile_commands.sh")
def no_schedule(text):
    """Without a schedule torch.profiler records from the first step to the last: warm-up is in the
    averages, and a long run fills the memory with events."""
    return re.sub(r"    schedule=schedule\(.*\),\n", "", text)


@misconception("commands", file="profile_commands.sh")
def the_first_step_is_recorded_cold(text):
    """warmup=0 lets the profiler's own start fall into the first recorded step, which then looks
    slower than it is."""
    return text.replace("warmup=1", "warmup=0")


@misconception("commands", file="profile_commands.sh")
def the_optimizer_steps_instead(text):
    """The schedule moves when the *profiler's* step() is called; without it, everything stays in
    its first phase and no trace is written."""
    return text.replace("        prof.step()\n", "")


@misconception("commands", file="profile_commands.sh")
def counters_first(text):
    """Counters come before the timeline here; of a kernel that the timeline shows to be no part of
    the problem, no counter is worth an hour."""
    lines = text.split("\n")
    at = next(i for i, line in enumerate(lines) if "[ ] only then ncu" in line)
    first = next(i for i, line in enumerate(lines) if "[ ] the symptom" in line)
    row = lines.pop(at)
    return "\n".join([*lines[:first], row, *lines[first:]])


# --- nsys_queries --------------------------------------------------------------------------------


@misconception("nsys_queries", file=TRACE)
def every_table_is_there(text):
    """Every table is taken to be there; nsys creates one when its first row comes, so a program
    without a memset has no table of memsets, and the query ends in "no such table"."""
    return changed(
        text,
        (
            '            if f"CUPTI_ACTIVITY_KIND_{table}" not in tables:\n'
            "                return []\n",
            "",
        ),
    )


@misconception("nsys_queries", file=TRACE)
def inner_join_with_names(text):
    """An inner join drops every kernel whose name is not in StringIds, with its time; a name that
    is missing is no reason to lose a row."""
    return changed(
        text,
        (
            '    kernels = [KernelSum(names.get(key, f"<{key}>"), count, ns / 1000) '
            "for key, count, ns in sums]\n",
            "    kernels = [\n"
            "        KernelSum(names[key], count, ns / 1000) for key, count, ns in sums "
            "if key in names\n    ]\n",
        ),
    )


@misconception("nsys_queries", file=TRACE)
def text_alone(text):
    """Only `text` is read; of a registered string NVTX stores the number, in `textId`, and `text`
    is NULL, so all such ranges fall into one without a name."""
    return changed(
        text, ("\"COALESCE(text, value, '<unnamed>')\"", "\"COALESCE(text, '<unnamed>')\"")
    )


@misconception("nsys_queries", file=TRACE)
def nameless_ranges_are_dropped(text):
    """A range whose text is NULL is left out as if it had not taken time; read textId, and keep
    what has neither as <unnamed>."""
    return changed(
        text,
        ('"WHERE eventType = 59 AND end', '"WHERE eventType = 59 AND text IS NOT NULL AND end'),
    )


@misconception("nsys_queries", file=TRACE)
def nanoseconds_as_they_are(text):
    """The file counts nanoseconds, and they are passed on as if they were microseconds: everything
    looks a thousand times slower."""
    return (
        text.replace("ns / 1000", "ns / 1")
        .replace("(start - launched[number]) / 1000", "(start - launched[number]) / 1")
        .replace(
            "(covered_until - first) / 1000, (start - covered_until) / 1000",
            "(covered_until - first) / 1, (start - covered_until) / 1",
        )
    )


@misconception("nsys_queries", file=TRACE)
def gaps_between_neighbours(text):
    """A gap is taken between each piece of work and the one that began before it; a long kernel, or
    one on another stream, may still run, so remember how far the time is covered."""
    return changed(
        text,
        (
            "covered_until = max(covered_until, end)\n    gaps.sort",
            "covered_until = end\n    gaps.sort",
        ),
    )


@misconception("nsys_queries", file=TRACE)
def gaps_between_kernels_only(text):
    """The GPU is busy with a copy or a memset, too: gaps between kernels alone call that idle."""
    return changed(text, ('for kind in ("KERNEL", "MEMCPY", "MEMSET")', 'for kind in ("KERNEL",)'))


@misconception("nsys_queries", file=TRACE)
def copies_in_all_directions(text):
    """All copies are summed; copyKind says which way they went, and 1 is host to device."""
    return changed(text, ('"MEMCPY", "WHERE copyKind = 1"', '"MEMCPY"'))


@misconception("nsys_queries", file=TRACE)
def latency_from_the_end_of_the_call(text):
    """The latency is counted from the end of the launch call here; the host asked at its beginning,
    and a kernel may even start before the call returns."""
    return changed(
        text,
        ('select("correlationId, start", "RUNTIME")', 'select("correlationId, end", "RUNTIME")'),
    )


@misconception("nsys_queries", file=TRACE)
def the_mean_latency(text):
    """The mean is asked nothing here: one kernel that queued behind a long one moves it by as much
    as it likes; the contract says median."""
    return changed(text, ("statistics.median(latencies)", "statistics.fmean(latencies)"))


# --- roofline ------------------------------------------------------------------------------------


@misconception("roofline", file=TRACE)
def fma_is_one(text):
    """A fused multiply-add is counted as one operation; it multiplies and adds, and a GEMM, all
    fma, comes out at half of its FLOPs."""
    return changed(text, ("2 * counters.get(fma, 0)", "counters.get(fma, 0)"))


@misconception("roofline", file=TRACE)
def a_half2_is_one(text):
    """A packed half instruction works on two values at once, and these counters count
    instructions: with half_lanes of 2 the FLOPs are twice as many."""
    return changed(
        text, ("                done *= row.half_lanes\n", "                done *= 1\n")
    )


@misconception("roofline", file=TRACE)
def every_half_is_packed(text):
    """Twice as many for every half instruction is too much: code that is not packed leaves the
    second place empty; half_lanes says which it is."""
    return changed(
        text, ("                done *= row.half_lanes\n", "                done *= 2\n")
    )


@misconception("roofline", file=TRACE)
def requested_bytes(text):
    """These are the bytes that the kernel asked its caches for; the roofline's bandwidth is that of
    DRAM, and what a cache answers never gets there."""
    return changed(
        text, ('moved = counters["dram__bytes.sum"]', 'moved = counters["l1tex__t_bytes.sum"]')
    )


@misconception("roofline", file=TRACE)
def one_peak_for_all(text):
    """All FLOPs are held against the peak of floats; doubles have half of it or less, halves have
    more, so each precision needs its own."""
    return changed(text, ("peaks.flops_per_s.get(precision, 0)", 'peaks.flops_per_s.get("f", 0)'))


@misconception("roofline", file=TRACE)
def only_floats_are_flops(text):
    """Only single precision is counted; halves and doubles are FLOPs as well, with counters of
    their own."""
    return changed(text, ("for precision in PRECISIONS:", 'for precision in ("f",):'))


@misconception("roofline", file=TRACE)
def the_bound_turned_round(text):
    """Above the ridge arithmetic takes longer, below it memory does: the two are exchanged here."""
    return changed(text, ("if seconds > moved /", "if seconds < moved /"))


@misconception("roofline", file=TRACE)
def intensity_upside_down(text):
    """Intensity is FLOPs a byte; bytes a FLOP is its inverse, and falls where it should rise."""
    return changed(
        text, ("intensity = flops / moved if moved", "intensity = moved / flops if flops and moved")
    )


# --- diagnose ------------------------------------------------------------------------------------


@misconception("diagnose", file=TRACE)
def names_without_evidence(text):
    """A copy called Pageable is in nearly every trace, and so is a sync; a name is a hint, and
    without a share of the time it is no finding."""
    return changed(
        text,
        ("if us >= SHARE_AT_LEAST * whole:", "if us > 0 and us >= SHARE_AT_LEAST * 0 * whole:"),
    )


@misconception("diagnose", file=TRACE)
def the_first_cause_wins(text):
    """The first cause that fits ends the search; there may be several, and the one that costs most
    is the one to begin with."""
    return changed(
        text,
        (
            "    return sorted(findings, key=lambda finding: -finding.share)\n",
            "    return findings[:1]\n",
        ),
    )


@misconception("diagnose", file=TRACE)
def in_order_of_looking(text):
    """The findings come in the order of looking for them; whoever reads them begins with the first,
    so the largest share belongs there."""
    return changed(
        text,
        (
            "    return sorted(findings, key=lambda finding: -finding.share)\n",
            "    return findings\n",
        ),
    )


@misconception("diagnose", file=TRACE)
def copies_summed(text):
    """All pageable copies are summed, also those that run beside computation and cost nothing:
    evidence is the exposed part."""
    return changed(
        text,
        (
            "busy_time(_without(_union(_intervals(pageable)), compute))",
            "sum(event.dur_us for event in pageable)",
        ),
    )


@misconception("diagnose", file=TRACE)
def communication_summed(text):
    """All communication is summed, hidden or not; the step waits only for what has no computation
    beside it."""
    return changed(
        text,
        (
            "    exposed_us = overlap(trace)[1]\n",
            "    exposed_us = sum(\n"
            "        e.dur_us for e in work if kernel_class(e.name) == 'communication'\n    )\n",
        ),
    )


@misconception("diagnose", file=TRACE)
def the_loaders_own_time(text):
    """This is the time that the loader took, not what the GPU lost by it: while the queue is full
    the host may load as long as it likes."""
    return changed(
        text, ("(busy_time(_common(idle, loading)), span_us)", "(busy_time(loading), span_us)")
    )


@misconception("diagnose", file=TRACE)
def syncs_cost_what_they_last(text):
    """While the host waits in a sync the GPU works: that is no loss. It is lost afterwards, when
    the queue is empty until the next launch arrives."""
    return changed(
        text,
        (
            "busy_time(_common(_without(idle, loading), waiting))",
            "busy_time(e for e in _intervals(trace.events and [\n"
            "            e for e in trace.events if e.name in SYNC_CALLS\n        ]))",
        ),
    )


@misconception("diagnose", file=TRACE)
def syncs_end_with_the_call(text):
    """Only the idle time inside of the call is counted; the queue is still empty after it, until
    the first launch of that thread reaches the GPU."""
    return changed(
        text,
        (
            "yield sync.ts_us, max(sync.end_us, next(later, sync.end_us))",
            "yield sync.ts_us, sync.end_us",
        ),
    )


@misconception("diagnose", file=TRACE)
def every_gap_is_launch_bound(text):
    """All idle time is put down to slow launches; first ask what the host did meanwhile: loading,
    waiting in a sync, or launching kernels too small to matter."""
    return changed(
        text,
        ("(busy_time(_without(other, tiny)), span_us)", "(busy_time(idle), span_us)"),
        ("(busy_time(_common(idle, loading)), span_us)", "(0.0, span_us)"),
        ("(busy_time(_common(_without(idle, loading), waiting)), span_us)", "(0.0, span_us)"),
        ("(busy_time(_common(other, tiny)), span_us)", "(0.0, span_us)"),
    )


@misconception("diagnose", file=TRACE)
def idle_time_counted_twice(text):
    """The same idle time is evidence for the loader and for launches here; each microsecond has one
    owner, or the shares add up to more than there is."""
    return changed(
        text,
        (
            "(busy_time(_without(other, tiny)), span_us)",
            "(busy_time(_without(idle, tiny)), span_us)",
        ),
    )


@misconception("diagnose", file=TRACE)
def tiny_kernels_time(text):
    """The durations of tiny kernels are summed; they are tiny. What costs is the idle time before
    each of them, in which the host launches."""
    return changed(
        text,
        (
            "(busy_time(_common(other, tiny)), span_us)",
            "(sum(e.dur_us for e in work if e.ts_us in tiny_starts), span_us)",
        ),
    )


@misconception("diagnose", file=TRACE)
def no_look_across_ranks(text):
    """One rank cannot tell waiting from traffic: the time in its communication kernels is both.
    Compare with the peers: what they do not show is waiting for a straggler."""
    return changed(
        text,
        ("min([exposed_us, *(overlap(peer)[1] for peer in peers)])", "exposed_us"),
    )


@misconception("diagnose", file=TRACE)
def the_busiest_rank_is_accused(text):
    """The slow rank is accused of waiting: it is the one that comes last and communicates least;
    those that wait have the longer communication."""
    return changed(
        text,
        ("min([exposed_us, *(overlap(peer)[1] for peer in peers)])", "exposed_us"),
        (
            '"straggler": (exposed_us - least_us, busy_us)',
            '"straggler": (max([overlap(p)[1] for p in peers], default=0) - exposed_us, busy_us)',
        ),
    )


@misconception("diagnose", file=TRACE)
def gaps_of_one_stream(text):
    """Idle time is measured on the stream of computation alone; while that one waits, the GPU
    copies and communicates, which is another cause with another cure."""
    return changed(
        text,
        (
            "    idle = [(end, start) for (_, end), (start, _) in itertools.pairwise(busy)]\n",
            "    idle = [(end, start) for (_, end), (start, _) in itertools.pairwise(compute)]\n",
        ),
    )
