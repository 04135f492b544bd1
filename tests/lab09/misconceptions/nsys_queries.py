from grader.suite import lines

every_table_is_there = lines(
    """Every table is taken to be there; nsys creates one when its first row comes, so a program
    without a memset has no table of memsets, and the query ends in "no such table".""",
    (
        '            if f"CUPTI_ACTIVITY_KIND_{table}" not in tables:\n                return []\n',
        "",
    ),
)

inner_join_with_names = lines(
    """An inner join drops every kernel whose name is not in StringIds, with its time; a name that
    is missing is no reason to lose a row.""",
    (
        '    kernels = [KernelSum(names.get(key, f"<{key}>"), count, ns / 1000) '
        "for key, count, ns in sums]\n",
        "    kernels = [\n"
        "        KernelSum(names[key], count, ns / 1000) for key, count, ns in sums "
        "if key in names\n    ]\n",
    ),
)

text_alone = lines(
    """Only `text` is read; of a registered string NVTX stores the number, in `textId`, and `text`
    is NULL, so all such ranges fall into one without a name.""",
    ("\"COALESCE(text, value, '<unnamed>')\"", "\"COALESCE(text, '<unnamed>')\""),
)

nameless_ranges_are_dropped = lines(
    """A range whose text is NULL is left out as if it had not taken time; read textId, and keep
    what has neither as <unnamed>.""",
    ('"WHERE eventType = 59 AND end', '"WHERE eventType = 59 AND text IS NOT NULL AND end'),
)

nanoseconds_as_they_are = lines(
    """The file counts nanoseconds, and they are passed on as if they were microseconds: everything
    looks a thousand times slower.""",
    ("1000 for", "1 for"),
    ("(start - launched[number]) / 1000", "(start - launched[number]) / 1"),
    ("ns / 1000", "ns / 1"),
    ("1000, (start - covered_until) / 1000", "1, (start - covered_until) / 1"),
)

gaps_between_neighbours = lines(
    """A gap is taken between each piece of work and the one that began before it; a long kernel, or
    one on another stream, may still run, so remember how far the time is covered.""",
    (
        "covered_until = max(covered_until, end)\n    gaps.sort",
        "covered_until = end\n    gaps.sort",
    ),
)

gaps_between_kernels_only = lines(
    """The GPU is busy with a copy or a memset, too: gaps between kernels alone call that idle.""",
    ('for kind in ("KERNEL", "MEMCPY", "MEMSET")', 'for kind in ("KERNEL",)'),
)

copies_in_all_directions = lines(
    """All copies are summed; copyKind says which way they went, and 1 is host to device.""",
    ('"MEMCPY", "WHERE copyKind = 1"', '"MEMCPY"'),
)

latency_from_the_end_of_the_call = lines(
    """The latency is counted from the end of the launch call here; the host asked at its beginning,
    and a kernel may even start before the call returns.""",
    ('select("correlationId, start", "RUNTIME")', 'select("correlationId, end", "RUNTIME")'),
)

the_mean_latency = lines(
    """The mean is asked nothing here: one kernel that queued behind a long one moves it by as much
    as it likes; the contract says median.""",
    ("statistics.median(latencies)", "statistics.fmean(latencies)"),
)

idle_of_the_top = lines(
    """idle_us is all gaps together; `top` cuts the list of the longest, not the sum.""",
    (
        "idle_us=math.fsum(gap.length_us for gap in gaps)",
        "idle_us=math.fsum(gap.length_us for gap in gaps[:top])",
    ),
)

gaps_since_the_session = lines(
    """A gap's start is counted from the first GPU work on; these are the file's own times, which
    begin with the session.""",
    ("Gap((covered_until - first) / 1000", "Gap(covered_until / 1000"),
)

the_later_gap_first = lines(
    """Of gaps of the same length the earlier comes first.""",
    ("(-gap.length_us, gap.start_us)", "(-gap.length_us, -gap.start_us)"),
)

started_and_ended_too = lines(
    """Ranges that are started and ended (eventType 60) may lie anywhere on any thread; only those
    that are pushed and popped (59) are ranges here.""",
    ("WHERE eventType = 59", "WHERE eventType IN (59, 60)"),
)

an_empty_text_is_none = lines(
    """An empty text is a text: only where it is NULL does textId say the name.""",
    ("COALESCE(text, value, '<unnamed>')", "COALESCE(NULLIF(text, ''), value, '<unnamed>')"),
)

opening_makes_a_file = lines(
    """sqlite3.connect makes an empty file where there is none, so a misspelt path gives a report
    of nothing and leaves a file behind: look first, and open read-only.""",
    (
        "    if not path.is_file():\n"
        '        raise ValueError(f"{path.name} is not there: '
        'export the report with nsys first.")\n',
        "",
    ),
    ('sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)', "sqlite3.connect(path)"),
    gate=False,
)

gaps_since_the_first_kernel = lines(
    """A gap's start is counted from the first *kernel* on; a copy or a memset may have come before
    it, and is GPU work as well.""",
    (
        'copied = select("SUM(bytes)"',
        'own = [start for (start,) in select("start", "KERNEL")]\n'
        '        copied = select("SUM(bytes)"',
    ),
    ("    gaps = []\n", "    gaps, zero = [], min(own, default=0)\n"),
    ("Gap((covered_until - first) / 1000", "Gap((covered_until - zero) / 1000"),
)

inner_join_of_ranges = lines(
    """An inner join keeps only ranges whose textId is in StringIds; a range that has its name in
    `text` has no textId, and is lost with its time.""",
    ('"LEFT JOIN StringIds ON textId = id"', '"JOIN StringIds ON textId = id"'),
)

which_export_is_not_said = lines(
    """The error does not say which file is broken or absent; who reads the exports of many ranks
    needs its name. Put path.name into the sentence.""",
    ('f"{path.name} is not there: export', '"The file is not there: export'),
    ('f"{path.name} cannot be read as', 'f"The file cannot be read as'),
    gate=False,
)

half_a_nanosecond_is_lost = lines(
    """The median of two launches may lie between two nanoseconds, and rounding to three decimals
    loses the half. Round where a number is printed.""",
    (
        "launch_latency_us=statistics.median(latencies) if latencies else 0.0,",
        "launch_latency_us=round(statistics.median(latencies), 3) if latencies else 0.0,",
    ),
    gate=False,
)
