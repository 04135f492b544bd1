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

the_kernel_before_the_gap = lines(
    """A gap is put down to tiny kernels here because the work *before* it was tiny. What the GPU
    waited for is the kernel that ends the gap.""",
    ("tiny_starts = {e.ts_us for", "tiny_starts = {e.end_us for"),
    ("if gap[1] in tiny_starts", "if gap[0] in tiny_starts"),
)

tiny_up_to_ten = lines(
    """A kernel is tiny up to TINY_US, 5 us; up to 10 it is short, and not the reason.""",
    ("e.dur_us <= TINY_US", "e.dur_us <= 2 * TINY_US"),
)

below_tiny = lines(
    """A kernel of exactly TINY_US is tiny, too: at most, not below.""",
    ("e.dur_us <= TINY_US", "e.dur_us < TINY_US"),
)

tiny_if_it_computes = lines(
    """A gap that ends with a tiny kernel is one of tiny kernels whatever that kernel does, also if
    it communicates.""",
    (
        'if e.cat == "kernel" and e.dur_us',
        'if e.cat == "kernel" and kernel_class(e.name) == "computation" and e.dur_us',
    ),
)

tiny_copies_too = lines(
    """A copy or a memset that ends a gap is no kernel, however short it is.""",
    ('if e.cat == "kernel" and e.dur_us', "if e.dur_us"),
)

all_shares_of_the_span = lines(
    """Copies, communication and stragglers are shares of the *busy* time here; only what is lost
    while the GPU idles is a share of the span.""",
    ("compute)), busy_us)", "compute)), span_us)"),
    (
        '"straggler": (exposed_us - least_us, busy_us)',
        '"straggler": (exposed_us - least_us, span_us)',
    ),
    ('"exposed_comm": (least_us, busy_us)', '"exposed_comm": (least_us, span_us)'),
)

waiting_counts_twice = lines(
    """What is a straggler's is taken off exposed_comm: the same microseconds are no evidence for
    both.""",
    ('"exposed_comm": (least_us, busy_us)', '"exposed_comm": (exposed_us, busy_us)'),
)

the_mean_of_the_peers = lines(
    """The peers' mean says little: what no rank can avoid is what the rank with the *least* exposed
    communication shows.""",
    (
        "least_us = min([exposed_us, *(overlap(peer)[1] for peer in peers)])",
        "shown = [overlap(peer)[1] for peer in peers]\n"
        "    least_us = min(exposed_us, statistics.mean(shown)) if shown else exposed_us",
    ),
)

the_first_peer_alone = lines(
    """Only the first of the peers is looked at; any of them may be the one with the least exposed
    communication.""",
    ("*(overlap(peer)[1] for peer in peers)", "*(overlap(peer)[1] for peer in peers[:1])"),
)

the_loaders_time_again = lines(
    """Idle time in the loader is looked at again for syncs, tiny kernels and launches here: input
    comes first in the list, and what is its own is nobody else's.""",
    ("busy_time(_common(_without(idle, loading), waiting))", "busy_time(_common(idle, waiting))"),
    ("other = _without(_without(idle, loading), waiting)", "other = _without(idle, waiting)"),
)

syncs_before_the_loader = lines(
    """Where a thread loads and another one waits, the time is the loader's: input comes before
    host_sync in the list.""",
    ("(busy_time(_common(idle, loading)), span_us)",
     "(busy_time(_common(_without(idle, waiting), loading)), span_us)"),
    ("busy_time(_common(_without(idle, loading), waiting))", "busy_time(_common(idle, waiting))"),
)  # fmt: skip

whatever_says_dataloader = lines(
    """Any event with DataLoader in its name is taken for the wait for a batch; that is an
    annotation of the host which *begins* with LOADER_PREFIX.""",
    (
        "if event.cat == ANNOTATION and event.name.startswith(LOADER_PREFIX)",
        'if "DataLoader" in event.name',
    ),
)

any_thread_ends_the_wait = lines(
    """Another thread's launch does not end this one's wait: the host's next step is the next launch
    of the thread that waited.""",
    ("if call.tid == sync.tid and call.ts_us", "if call.ts_us"),
)

the_next_work_ends_the_wait = lines(
    """Whatever the GPU ran next is not what the host did next: such work may have been launched
    before the sync, or by another thread.""",
    (
        "                started[call.corr]\n"
        "                for call in calls\n"
        "                if call.tid == sync.tid and call.ts_us >= sync.end_us"
        " and call.corr in started",
        "                event.ts_us for event in work if event.ts_us >= sync.end_us",
    ),
)

no_launch_no_sync = lines(
    """A thread that waits and launches nothing afterwards has waited all the same: its sync counts
    to the call's end.""",
    (
        "            yield sync.ts_us, max(sync.end_us, next(later, sync.end_us))",
        "            at = next(later, None)\n"
        "            if at is not None:\n"
        "                yield sync.ts_us, max(sync.end_us, at)",
    ),
)

copies_hide_communication_too = lines(
    """Copies beside it do not hide communication: only computation is what the step is waiting
    for.""",
    (
        "    exposed_us = overlap(trace)[1]\n",
        "    kinds = {True: [], False: []}\n"
        "    for e in work:\n"
        '        kinds[kernel_class(e.name) == "communication"].append(e)\n'
        "    exposed_us = busy_time(\n"
        "        _without(_union(_intervals(kinds[True])), _union(_intervals(kinds[False])))\n"
        "    )\n",
    ),
)

pinned_copies_too = lines(
    """Copies from pinned memory are no finding here: pageable_copy is about those that the driver
    must stage, and their names say Pageable.""",
    ('if "HtoD" in e.name and "Pageable" in e.name', 'if "HtoD" in e.name'),
)

a_graph_begins_with_its_last_kernel = lines(
    """The wait after a sync lasts until the *first* work of the next launch; a graph's launch has
    many kernels, and the last of them is taken here.""",
    ("started.setdefault(event.corr, event.ts_us)", "started[event.corr] = event.ts_us"),
)

evidence_to_three_decimals = lines(
    """Times may be finer than a nanosecond, and the answer is rounded to three decimals here;
    of work that short nothing is left. Round where a number is printed.""",
    ("Finding(cause, us, us / whole, FIX", "Finding(cause, round(us, 3), us / whole, FIX"),
    gate=False,
)
