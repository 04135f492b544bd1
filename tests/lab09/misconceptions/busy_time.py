from grader.suite import lines, misconception


@misconception()
def sums_durations(intervals):
    """GPU time above 100 % of wall: you summed concurrent streams. Two kernels that run at once
    keep the GPU busy for one time, so each microsecond counts once."""
    return float(sum(end - start for start, end in intervals))


@misconception()
def a_nested_one_shortens(intervals):
    """Each interval is compared with the one before only; a long one may reach beyond many that
    follow, so remember how far the time is covered: the largest end so far."""
    busy, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        busy += max(0.0, end - max(start, until))
        until = end
    return busy


@misconception()
def first_to_last(intervals):
    """From the first start to the last end is the span; the gaps in it, in which nothing ran, are
    idle time, not busy time."""
    intervals = list(intervals)
    if not intervals:
        return 0.0
    return float(max(end for _start, end in intervals) - min(start for start, _end in intervals))


@misconception()
def in_the_order_given(intervals):
    """The intervals are taken in the order of the list; a trace is written stream by stream, so
    sort them by their start first."""
    busy, until = 0.0, float("-inf")
    for start, end in intervals:
        if end > until:
            busy += end - max(start, until)
            until = end
    return busy


@misconception()
def both_ends_count(intervals):
    """Each stretch is one microsecond too long: [3, 8) lasts 8 - 3 = 5, the end does not belong to
    it. Times are points on a line, not numbers of boxes."""
    busy, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > until:
            busy += end - max(start, until) + (start > until)
            until = end
    return busy


@misconception()
def one_interval_a_start(intervals):
    """Of intervals that begin together only one is left, as in a dict by start; the longest of
    them decides, so keep them all."""
    busy, until = 0.0, float("-inf")
    for start, end in sorted(dict(intervals).items()):
        if end > until:
            busy += end - max(start, until)
            until = end
    return busy


@misconception()
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


@misconception()
def short_gaps_are_busy(intervals):
    """Gaps of up to a microsecond are closed here; many short gaps are just what a launch-bound
    program looks like, so every gap is idle."""
    busy, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > until:
            busy += end - (until if start - until <= 1 else start)
            until = end
    return busy


@misconception()
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


sorted_by_their_ends = lines(
    """The intervals are gone through by their *ends* here, so of a long one the part before a short
    one's end is lost; sort them by their starts.""",
    ("in sorted(intervals):", "in sorted(intervals, key=lambda pair: pair[1]):"),
)

gaps_below_a_nanosecond_are_busy = lines(
    """Gaps of less than a nanosecond are closed here, as if they were noise of the clock; a gap is
    idle however short, and a thousand of them add up.""",
    ("end - max(start, covered_until)",
     "end - (covered_until if start - covered_until < 1e-3 else start)"),
    gate=False,
)  # fmt: skip

only_what_extends_is_checked = lines(
    """Whether an interval is turned round is asked only where it reaches beyond what is covered;
    one inside of covered time passes unseen. Ask it of every interval.""",
    ("        if end < start:\n", "        if end < start and end > covered_until:\n"),
    gate=False,
)

gone_through_twice = lines(
    """The intervals are gone through twice, and a generator has nothing left the second time: keep
    them in a list first.""",
    ("    busy = 0.0\n", "    if all(end == start for start, end in intervals):\n"
     "        return 0.0\n    busy = 0.0\n"),
    gate=False,
)  # fmt: skip

time_begins_at_zero = lines(
    """Covered time begins at 0 here, so what lies before 0 is not counted; a clock may have its
    zero anywhere, and before the first interval nothing is covered.""",
    ("covered_until = -math.inf", "covered_until = 0.0"),
    gate=False,
)

rounded_to_nanoseconds = lines(
    """The sum is rounded to three decimals, and what is shorter than a nanosecond is gone;
    times may be finer, and a caller may add up thousands of such sums. Round where a number is
    printed.""",
    ("return busy", "return round(busy, 3)"),
    gate=False,
)

rounded_to_picoseconds = lines(
    """The sum is rounded to six decimals, and what is shorter than a picosecond is gone; times
    may be finer than that, so return the sum as it is.""",
    ("return busy", "return round(busy, 6)"),
    gate=False,
)

rounded_to_two_decimals = lines(
    """The sum is rounded to two decimals, so a kernel of 2 us may be off by a quarter of a per
    cent; round where a number is printed, and nowhere else.""",
    ("return busy", "return round(busy, 2)"),
    gate=False,
)
