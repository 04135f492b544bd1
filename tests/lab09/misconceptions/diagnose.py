from grader.suite import lines

names_without_evidence = lines(
    """A copy called Pageable is in nearly every trace, and so is a sync; a name is a hint, and
    without a share of the time it is no finding.""",
    ("if us >= SHARE_AT_LEAST * whole:", "if us > 0 and us >= SHARE_AT_LEAST * 0 * whole:"),
)

the_first_cause_wins = lines(
    """The first cause that fits ends the search; there may be several, and the one that costs most
    is the one to begin with.""",
    (
        "    return sorted(findings, key=lambda finding: -finding.share)\n",
        "    return findings[:1]\n",
    ),
)

in_order_of_looking = lines(
    """The findings come in the order of looking for them; whoever reads them begins with the first,
    so the largest share belongs there.""",
    (
        "    return sorted(findings, key=lambda finding: -finding.share)\n",
        "    return findings\n",
    ),
)

copies_summed = lines(
    """All pageable copies are summed, also those that run beside computation and cost nothing:
    evidence is the exposed part.""",
    (
        "busy_time(_without(_union(_intervals(pageable)), compute))",
        "sum(event.dur_us for event in pageable)",
    ),
)

communication_summed = lines(
    """All communication is summed, hidden or not; the step waits only for what has no computation
    beside it.""",
    (
        "    exposed_us = overlap(trace)[1]\n",
        "    exposed_us = sum(\n"
        "        e.dur_us for e in work if kernel_class(e.name) == 'communication'\n    )\n",
    ),
)

the_loaders_own_time = lines(
    """This is the time that the loader took, not what the GPU lost by it: while the queue is full
    the host may load as long as it likes.""",
    ("(busy_time(_common(idle, loading)), span_us)", "(busy_time(loading), span_us)"),
)

syncs_cost_what_they_last = lines(
    """While the host waits in a sync the GPU works: that is no loss. It is lost afterwards, when
    the queue is empty until the next launch arrives.""",
    (
        "busy_time(_common(_without(idle, loading), waiting))",
        "busy_time(e for e in _intervals(trace.events and [\n"
        "            e for e in trace.events if e.name in SYNC_CALLS\n        ]))",
    ),
)

syncs_end_with_the_call = lines(
    """Only the idle time inside of the call is counted; the queue is still empty after it, until
    the first launch of that thread reaches the GPU.""",
    (
        "yield sync.ts_us, max(sync.end_us, next(later, sync.end_us))",
        "yield sync.ts_us, sync.end_us",
    ),
)

every_gap_is_launch_bound = lines(
    """All idle time is put down to slow launches; first ask what the host did meanwhile: loading,
    waiting in a sync, or launching kernels too small to matter.""",
    ("(busy_time(_without(other, tiny)), span_us)", "(busy_time(idle), span_us)"),
    ("(busy_time(_common(idle, loading)), span_us)", "(0.0, span_us)"),
    ("(busy_time(_common(_without(idle, loading), waiting)), span_us)", "(0.0, span_us)"),
    ("(busy_time(_common(other, tiny)), span_us)", "(0.0, span_us)"),
)

idle_time_counted_twice = lines(
    """The same idle time is evidence for the loader and for launches here; each microsecond has one
    owner, or the shares add up to more than there is.""",
    (
        "(busy_time(_without(other, tiny)), span_us)",
        "(busy_time(_without(idle, tiny)), span_us)",
    ),
)

tiny_kernels_time = lines(
    """The durations of tiny kernels are summed; they are tiny. What costs is the idle time before
    each of them, in which the host launches.""",
    (
        "(busy_time(_common(other, tiny)), span_us)",
        "(sum(e.dur_us for e in work if e.ts_us in tiny_starts), span_us)",
    ),
)

no_look_across_ranks = lines(
    """One rank cannot tell waiting from traffic: the time in its communication kernels is both.
    Compare with the peers: what they do not show is waiting for a straggler.""",
    ("min([exposed_us, *(overlap(peer)[1] for peer in peers)])", "exposed_us"),
)

the_busiest_rank_is_accused = lines(
    """The slow rank is accused of waiting: it is the one that comes last and communicates least;
    those that wait have the longer communication.""",
    ("min([exposed_us, *(overlap(peer)[1] for peer in peers)])", "exposed_us"),
    (
        '"straggler": (exposed_us - least_us, busy_us)',
        '"straggler": (max([overlap(p)[1] for p in peers], default=0) - exposed_us, busy_us)',
    ),
)

gaps_of_one_stream = lines(
    """Idle time is measured on the stream of computation alone; while that one waits, the GPU
    copies and communicates, which is another cause with another cure.""",
    (
        "    idle = [(end, start) for (_, end), (start, _) in itertools.pairwise(busy)]\n",
        "    idle = [(end, start) for (_, end), (start, _) in itertools.pairwise(compute)]\n",
    ),
)
