from grader.suite import lines

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
        '(path.read_text(encoding="utf-8").splitlines(), start=1):',
        '(path.read_text(encoding="utf-8").split("\\n")[:-1], start=1):',
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
