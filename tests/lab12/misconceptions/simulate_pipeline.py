from grader.suite import lines

the_two_bubbles_are_exchanged = lines(
    """(p - 1) / m is a share of the work and (p - 1) / (m + p - 1) one of the total; at p = m = 8
    one is 0.875 and the other 0.467, so say which you mean.""",
    (
        "total, (total - work) / work, (total - work) / total,",
        "total, (total - work) / total, (total - work) / work,",
    ),
)

one_f_one_b_waits_like_gpipe = lines(
    """1F1B warms up with p - s - 1 forwards and then alternates; backwards that wait for all
    forwards take the same time, and keep m instead of p - s micro-batches in memory.""",
    ('warm_up = m if schedule == "gpipe" else min(m, p - s - 1)', "warm_up = m"),
)

the_warm_up_is_one_forward_longer = lines(
    """The last stage can go backward as soon as it went forward, so its warm-up is 0 and that of
    stage s is p - s - 1; one more holds a micro-batch more on every stage.""",
    (
        'warm_up = m if schedule == "gpipe" else min(m, p - s - 1)',
        'warm_up = m if schedule == "gpipe" else min(m, p - s)',
    ),
)

all_micro_batches_go_through_a_chunk_first = lines(
    """Interleaving sends p micro-batches through all chunks before the next p start; with all m
    through the first chunk, the first backward is far away and memory grows with m.""",
    ("rounds = [range(first, first + p) for first in range(0, m, p)]", "rounds = [range(m)]"),
)

a_chunk_takes_as_long_as_a_stage = lines(
    """A rank's layers are divided among its v chunks, so one chunk takes tf / v or tb / v;
    otherwise interleaving makes the step v times as long.""",
    ('(tf if kind == "F" else tb) / v', '(tf if kind == "F" else tb)'),
)

a_backward_needs_its_own_forward_only = lines(
    """The gradient comes from the stage behind; a backward that starts without it computes from
    nothing, and the bubble of the way back vanishes.""",
    (
        'needed = ("B", i, stage + 1) if stage < p * v - 1 else ("F", i, stage)',
        'needed = ("F", i, stage)',
    ),
)

the_peak_is_looked_up_between_pairs = lines(
    """In the steady state a stage holds one more between its forward and its backward than after
    both; memory is allocated for the larger of the two.""",
    (
        "            peak = max(peak, held)\n",
        '            peak = max(peak, held) if slot.kind == "B" else peak\n',
    ),
)

slots_come_by_time = lines(
    """The slots are sorted by their time over all ranks. They come rank by rank: all of rank 0 in
    the order of its work, then all of rank 1, and so on.""",
    (
        "every = tuple(slot for row in slots for slot in row)",
        "every = tuple(sorted((slot for row in slots for slot in row), "
        "key=lambda one: one.start))",
    ),
)
