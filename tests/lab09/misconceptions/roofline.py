from grader.suite import lines

fma_is_one = lines(
    """A fused multiply-add is counted as one operation; it multiplies and adds, and a GEMM, all
    fma, comes out at half of its FLOPs.""",
    ("2 * counters.get(fma, 0)", "counters.get(fma, 0)"),
)

a_half2_is_one = lines(
    """A packed half instruction works on two values at once, and these counters count
    instructions: with half_lanes of 2 the FLOPs are twice as many.""",
    ("                done *= row.half_lanes\n", "                done *= 1\n"),
)

every_half_is_packed = lines(
    """Twice as many for every half instruction is too much: code that is not packed leaves the
    second place empty; half_lanes says which it is.""",
    ("                done *= row.half_lanes\n", "                done *= 2\n"),
)

requested_bytes = lines(
    """These are the bytes that the kernel asked its caches for; the roofline's bandwidth is that of
    DRAM, and what a cache answers never gets there.""",
    ('moved = counters["dram__bytes.sum"]', 'moved = counters["l1tex__t_bytes.sum"]'),
)

one_peak_for_all = lines(
    """All FLOPs are held against the peak of floats; doubles have half of it or less, halves have
    more, so each precision needs its own.""",
    ("peaks.flops_per_s.get(precision, 0)", 'peaks.flops_per_s.get("f", 0)'),
)

only_floats_are_flops = lines(
    """Only single precision is counted; halves and doubles are FLOPs as well, with counters of
    their own.""",
    ("for precision in PRECISIONS:", 'for precision in ("f",):'),
)

the_bound_turned_round = lines(
    """Above the ridge arithmetic takes longer, below it memory does: the two are exchanged
    here.""",
    ("if seconds > moved /", "if seconds < moved /"),
)

intensity_upside_down = lines(
    """Intensity is FLOPs a byte; bytes a FLOP is its inverse, and falls where it should rise.""",
    ("intensity = flops / moved if moved", "intensity = moved / flops if flops and moved"),
)

the_largest_peak_for_all = lines(
    """Each precision's FLOPs take their time at their own peak; doubles at the peak of halves are
    eight times too fast.""",
    ("                seconds += done / peak\n",
     "                seconds += done / max(peaks.flops_per_s.values())\n"),
)  # fmt: skip

what_was_read_alone = lines(
    """Traffic goes both ways: what was written counts as what was read does.""",
    (
        'moved = counters["dram__bytes_read.sum"] + counters["dram__bytes_write.sum"]',
        'moved = counters["dram__bytes_read.sum"]',
    ),
)

precisions_side_by_side = lines(
    """Of several precisions only the one that takes longest counts, as if they ran side by side;
    one kernel's instructions take turns, so their times add up.""",
    ("seconds += done / peak", "seconds = max(seconds, done / peak)"),
)

as_long_is_compute = lines(
    """On the ridge both take as long as each other, and this says compute; compute is what takes
    *longer* than the bytes.""",
    ("if seconds > moved /", "if seconds >= moved /"),
)

which_row_is_not_said = lines(
    """The error says what is wrong, and not in which row; of a hundred launches one is to be found.
    Put the row's name into the sentence.""",
    ('f"{row.name}: half_lanes is', 'f"half_lanes is'),
    ('f"{row.name}: {peaks.name} has no', 'f"{peaks.name} has no'),
    ('f"{row.name} has none of', 'f"A row has none of'),
    ('f"{row.name} has no dram__bytes.sum."', '"A row has no dram__bytes.sum."'),
    gate=False,
)

one_direction_is_enough = lines(
    """Bytes that were read are taken for all traffic where those that were written are missing;
    nobody counted these, and that is not the same as 0. Refuse the row.""",
    (
        ' and "dram__bytes_write.sum" in counters:',
        ":",
    ),
    ('+ counters["dram__bytes_write.sum"]', '+ counters.get("dram__bytes_write.sum", 0)'),
    gate=False,
)
