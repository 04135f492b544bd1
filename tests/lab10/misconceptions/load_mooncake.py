from grader.suite import lines

times_must_rise = lines(
    """A line with the time of the line above is refused; requests arrive in groups, and only a time
    *before* that is an error.""",
    ("if before is not None and time_ms < before:", "if before is not None and time_ms <= before:"),
)

other_keys_are_refused = lines(
    """A line with a key that nobody asked for is refused; traces get new columns, and what this
    reads is still there. Take the four keys and leave the rest.""",
    (
        "            if not all(type(n) is int",
        '            if len(row) != 4:\n                raise ValueError("other keys")\n'
        "            if not all(type(n) is int",
    ),
)

one_block_more_at_512 = lines(
    """A prompt of exactly 512 tokens is said to need two blocks, and its line is refused: n // 512
    + 1 is one too many where the last block is full. Round up instead.""",
    ("len(hashes) != blocks_for(prompt, 512)", "len(hashes) != prompt // 512 + 1"),
)

only_full_blocks_have_hashes = lines(
    """A line is refused because its hashes are more than its full blocks; the last, partly filled
    block has one, too.""",
    ("len(hashes) != blocks_for(prompt, 512)", "len(hashes) != prompt // 512"),
)


milliseconds_as_seconds = lines(
    """timestamp is in milliseconds; as seconds an hour of traffic becomes 41 days, and no queue
    ever forms.""",
    ("(time_ms - first) / 1000", "float(time_ms - first)"),
)

not_from_the_first_line = lines(
    """Times count from the first line's, as for every trace here; a slice of the file would start
    with an idle engine.""",
    ("(time_ms - first) / 1000", "time_ms / 1000"),
)

the_partial_block_is_dropped = lines(
    """The hash of the last block is dropped, because the block is not full; the file's hashes are
    to be kept as they stand, and it is the scheduler that uses full blocks only.""",
    (
        "prompt, out, hashes))\n    return requests",
        "prompt, out, hashes[: prompt // 512]))\n    return requests",
    ),
)

the_last_line_is_lost = lines(
    """A last line without an end is a request, too; a loop over what stands before each line end
    loses it.""",
    (
        'text.removesuffix("\\n").split("\\n") if text else []',
        'text.split("\\n")[:-1]',
    ),
)

hashes_are_numbered_anew = lines(
    """The hashes are replaced by the blocks' places in the prompt; then all requests share all
    their blocks, and the cache hits nearly always.""",
    (
        "prompt, out, hashes))\n    return requests",
        "prompt, out, list(range(len(hashes)))))\n    return requests",
    ),
)

whole_seconds_only = lines(
    """The milliseconds are cut off, so all requests of a second arrive together; divide by 1000,
    not in whole numbers.""",
    ("(time_ms - first) / 1000", "float((time_ms - first) // 1000)"),
)

hashes_as_a_set = lines(
    """The hashes come back sorted and each once; they are the prompt's blocks in their order, and
    without the order there is no prefix.""",
    (
        "prompt, out, hashes))\n    return requests",
        "prompt, out, sorted(set(hashes))))\n    return requests",
    ),
)

hashes_as_floats = lines(
    """The hashes go through floats, which hold 53 bits; two long hashes that differ in their last
    bits become one. Keep them as they stand.""",
    (
        "prompt, out, hashes))\n    return requests",
        "prompt, out, [int(float(one)) for one in hashes]))\n    return requests",
    ),
)

gaps_to_the_line_above = lines(
    """Each time is counted from the line above; that is the gap between two requests. Arrivals are
    counted from the first line.""",
    (
        "first = time_ms if first is None else first",
        "first = time_ms if before is None else before",
    ),
)

ids_are_line_numbers_of_the_file = lines(
    """The first request has the id 1; ids count from 0.""",
    ("Req(number - 1,", "Req(number,"),
)

input_and_output_exchanged = lines(
    """input_length is the prompt and output_length what was generated; exchanged, a prefill-heavy
    trace becomes a decode-heavy one.""",
    ("prompt, out, hashes))\n    return requests", "out, prompt, hashes))\n    return requests"),
)

unicode_ends_lines = lines(
    """str.splitlines() also ends a line at U+2028, U+0085 and others, which may stand within a text
    of JSON; a line of this file ends at a line feed.""",
    ('text.removesuffix("\\n").split("\\n") if text else []', "text.splitlines()"),
)

hashes_of_any_kind = lines(
    """The three numbers are looked at and the hashes are not: a text or true among hash_ids is
    taken for a hash.""",
    ("for n in (time_ms, prompt, out, *hashes))", "for n in (time_ms, prompt, out))"),
    gate=False,
)
