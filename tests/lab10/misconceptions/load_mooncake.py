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

SPLIT = 'text.removesuffix("\\n").split("\\n") if text else []'
SECONDS = "(time_ms - first) / 1000"
REQUEST = "prompt, out, hashes))\n    return requests"
EARLIER = "if before is not None and time_ms < before:"
CAUGHT = "except (ValueError, KeyError, TypeError) as error:"
INTEGERS = "if not all(type(n) is int for n in (time_ms, prompt, out, *hashes)):  # true is an int"
TOKENS = "if prompt < 1 or out < 1:"
RIGHT_NUMBER = "if len(hashes) != blocks_for(prompt, 512):"

microseconds_as_milliseconds = lines(
    """timestamp is in milliseconds and is divided by a million; a second has a thousand of
    them.""",
    (SECONDS, "(time_ms - first) / 1_000_000"),
)

the_hashes_are_left_out = lines(
    """The requests have no hashes; without them nobody knows which blocks two prompts share. Keep
    hash_ids as block_hashes.""",
    (REQUEST, "prompt, out))\n    return requests"),
)

the_hashes_are_texts = lines(
    """The hashes are made texts; they are integers, and they are to be kept as they stand.""",
    (REQUEST, "prompt, out, [str(one) for one in hashes]))\n    return requests"),
)

the_hashes_are_a_prompt = lines(
    """The hashes stand in the place of the prompt's tokens; input_length is the prompt, a number of
    tokens, and each hash stands for 512 of them.""",
    (REQUEST, "hashes, out, hashes))\n    return requests"),
)

the_prompt_in_whole_blocks = lines(
    """The prompt's length is taken from the number of its hashes, 512 tokens each; the last block
    may be partly filled. input_length says how many tokens there are.""",
    (REQUEST, "512 * len(hashes), out, hashes))\n    return requests"),
)

a_line_end_makes_a_line = lines(
    """The text is split at its line ends, and behind the last one an empty line is left, which is
    refused; a file may end in a line end or not. Cut one end off first.""",
    (SPLIT, 'text.split("\\n") if text else []'),
)

the_keys_in_their_order = lines(
    """The values are taken in the order in which they stand, as if a line were a row; a JSON object
    has keys, and they may come in any order.""",
    (
        '(row[k] for k in ("timestamp", "input_length", "output_length"))',
        '(n for n in [*row.values()][:3] if row["timestamp"] is not None)',
    ),
)

an_empty_file_is_refused = lines(
    """An empty file is refused, because splitting an empty text leaves one empty line; it has no
    request.""",
    (SPLIT, 'text.removesuffix("\\n").split("\\n")'),
    gate=False,
)

empty_lines_are_skipped = lines(
    """Empty lines are skipped; an empty line is not a JSON object, and a hole in a file is to
    be told.""",
    (
        "        try:\n            row = json",
        "        if not line.strip():\n            continue\n        try:\n            row = json",
    ),
    gate=False,
)

times_of_lines_may_go_back = lines(
    """A time before that of the line above is not refused; a replay would go back in time. Compare
    each with the one before it.""",
    (EARLIER, "if False:"),
    gate=False,
)

only_before_the_first_line = lines(
    """A time is compared with the first line's only; the third line may not come before the second
    either. Compare each with the line above.""",
    (EARLIER, "if first is not None and time_ms < first:"),
    gate=False,
)

the_number_of_hashes_is_not_counted = lines(
    """A line with too few or too many hashes is taken; each 512 tokens of the prompt have one, and
    a last, partly filled block has one as well.""",
    (RIGHT_NUMBER, "if False:"),
    gate=False,
)

at_least_so_many_hashes = lines(
    """A line with too few or too many hashes is taken; each 512 tokens of the prompt have one, and
    a last, partly filled block has one as well.""",
    (RIGHT_NUMBER, "if len(hashes) < blocks_for(prompt, 512):"),
    gate=False,
)

a_line_of_no_token_is_taken = lines(
    """A line with no prompt token or none that is generated is taken; one is the least of both.""",
    (TOKENS, "if False:"),
    gate=False,
)

nothing_generated_is_taken = lines(
    """A line with no prompt token or none that is generated is taken; one is the least of both.""",
    (TOKENS, "if prompt < 1:"),
    gate=False,
)

true_is_an_integer = lines(
    """true passes as a number, because isinstance(True, int) holds in Python; JSON has a type of
    its own for it. Compare the type itself.""",
    (INTEGERS, "if not all(isinstance(n, int) for n in (time_ms, prompt, out, *hashes)):"),
    gate=False,
)

int_takes_texts_and_fractions = lines(
    """The numbers go through int(), which takes "3000", 3000.5 and true without a word; they are
    JSON integers, so ask for their type.""",
    (
        "            if not all(type(n) is int",
        "            time_ms, prompt, out = (int(n) for n in (time_ms, prompt, out))\n"
        "            if not all(type(n) is int",
    ),
    gate=False,
)

what_json_says_is_passed_on = lines(
    """What the JSON module says of a broken line is passed on as it is; its "line 1" is that of the
    text that it was given. Whoever has the file needs its name and the line.""",
    (CAUGHT, CAUGHT.replace("ValueError, ", "")),
    ('raise ValueError("a value is not an integer")', 'raise TypeError("no integer")'),
    gate=False,
)

a_missing_key_is_a_key_error = lines(
    """A line without one of the keys ends in a KeyError; a ValueError with the file's name and the
    line is asked for.""",
    (CAUGHT, CAUGHT.replace("KeyError, ", "")),
    gate=False,
)

another_type_is_a_type_error = lines(
    """A line that is a list, a number or null ends in a TypeError, because it is asked for a key; a
    ValueError with the file's name and the line is asked for.""",
    (CAUGHT, CAUGHT.replace(", TypeError", "")),
    gate=False,
)
