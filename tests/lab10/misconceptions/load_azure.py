from grader.suite import lines

one_token_is_refused = lines(
    """A request of one token is refused; one is the least that is allowed, and code completion has
    many that generate just one.""",
    ("if prompt_tokens < 1 or out_tokens < 1:", "if prompt_tokens < 1 or out_tokens <= 1:"),
)


years_have_365_days = lines(
    """Days are counted as if no year had a 29th of February, so a trace over it loses a day. Let
    datetime subtract.""",
    (
        "return int(moment.timestamp()) * 10**9",
        "leap = 86_400 * ((moment.month, moment.day) > (2, 29)) * (moment.year % 4 == 0)\n"
        "    return (int(moment.timestamp()) - leap) * 10**9",
    ),
)


# === traces, metrics, capacity, simulate ===
six_digits = lines(
    """strptime's %f reads at most six digits of a second, and this trace has seven: cutting the
    last one off moves requests by up to 900 ns, and not cutting it is an error.""",
    ('int(fraction.ljust(9, "0"))', 'int(fraction[:6].ljust(6, "0")) * 1000'),
)

strptime_reads_the_fraction = lines(
    """%f of strptime takes one to six digits; the trace's times have seven, so every row is refused
    as malformed. Read the fraction yourself.""",
    (
        '    whole, point, fraction = stamp.partition(".")\n'
        '    moment = datetime.strptime(whole, "%Y-%m-%d %H:%M:%S")',
        '    fraction = point = ""\n    moment = datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S.%f")',
    ),
    (
        'return int(moment.timestamp()) * 10**9 + int(fraction.ljust(9, "0"))',
        "return round(moment.timestamp() * 10**6) * 1000",
    ),
)

a_float_since_1970 = lines(
    """Seconds since 1970 are 1.7e9, where floats lie 2.4e-7 apart: the last digits of each time are
    noise, and two requests 100 ns apart arrive together or in the wrong order. Subtract whole
    numbers, then divide.""",
    ("(time_ns - first) / 1e9", "time_ns / 1e9 - first / 1e9"),
)

the_last_row_is_lost = lines(
    """The file does not end in a line end, and its last row is a request all the same: a loop over
    what stands before each line end loses it.""",
    (
        ".splitlines()\n    if not lines or lines[0] !=",
        '.split("\\n")[:-1]\n    lines = [line.rstrip("\\r") for line in lines]\n'
        "    if not lines or lines[0] !=",
    ),
)

the_clock_starts_at_midnight = lines(
    """Times are counted from midnight, not from the first request: a simulated engine would idle
    for 18 hours first.""",
    (
        "first = time_ns if first is None else first",
        "first = time_ns - time_ns % (86_400 * 10**9) if first is None else first",
    ),
)

only_the_time_of_day = lines(
    """The date is ignored, and after midnight every request comes before those of the evening.""",
    (
        "return int(moment.timestamp()) * 10**9",
        "return (int(moment.timestamp()) % 86_400) * 10**9",
    ),
    ("if before is not None and time_ns < before:", "if before is None and first is not None:"),
)

before_the_evening = lines(
    """The date is ignored, and after midnight every request comes before those of the evening.""",
    (
        "return int(moment.timestamp()) * 10**9",
        "return (int(moment.timestamp()) % 86_400) * 10**9",
    ),
)

prompt_and_output_swapped = lines(
    """The second column is the context (the prompt), the third what was generated; exchanged, a
    prefill-heavy trace becomes a decode-heavy one.""",
    (
        "for count in counts)",
        "for count in reversed(counts))",
    ),
)

whole_seconds = lines(
    """The fraction is dropped, so all requests of a second arrive at once: a burst that the trace
    does not have.""",
    ('int(fraction.ljust(9, "0"))', "0"),
)

the_machines_time_zone = lines(
    """The times are read as local ones: in the night in which the clock changes an hour is lost or
    comes twice, on some machines and not on others. They are UTC; say so before you subtract.""",
    (".replace(tzinfo=UTC)", ""),
)

days_are_dropped = lines(
    """Whole days between two rows are dropped, as timedelta.seconds does; a trace of a week would
    wrap around each night. Take the whole difference.""",
    ("(time_ns - first) / 1e9", "(time_ns - first) % (86_400 * 10**9) / 1e9"),
)

always_seven_digits = lines(
    """The digits behind the point are multiplied by 100 ns whatever their number; .5 is half a
    second and not 500 ns. Fill them up on the right.""",
    ('int(fraction.ljust(9, "0"))', "int(fraction or 0) * 100"),
)

always_microseconds = lines(
    """The digits behind the point are taken for microseconds whatever their number; the trace has
    seven of them, so a tenth of a microsecond counts as one. Fill them up on the right.""",
    ('int(fraction.ljust(9, "0"))', "int(fraction or 0) * 1000"),
)

gaps_for_arrivals = lines(
    """Each time is counted from the row above; that is the gap between two requests. Arrivals are
    counted from the first row.""",
    (
        "first = time_ns if first is None else first",
        "first = time_ns if before is None else before",
    ),
)

ids_count_from_one = lines(
    """The first request has the id 1, or the number of its line; ids count from 0.""",
    ("Req(number - 2,", "Req(number - 1,"),
)

ids_are_line_numbers = lines(
    """The first request has the id 1, or the number of its line; ids count from 0.""",
    ("Req(number - 2,", "Req(number,"),
)

in_milliseconds = lines(
    """The arrivals are in milliseconds; `t_arrival_s` is in seconds.""",
    ("(time_ns - first) / 1e9", "(time_ns - first) / 1e6"),
)

each_row_must_be_later = lines(
    """A row with the time of the row above is refused; two requests may come at the same time, and
    only a time *before* that is an error.""",
    ("if before is not None and time_ns < before:", "if before is not None and time_ns <= before:"),
)

empty_rows_at_the_end = lines(
    """Blank space is stripped from the file's end, so that empty rows there are accepted; an empty
    row is a row of another form.""",
    (
        '    lines = path.read_text(encoding="utf-8").splitlines()\n    if not lines or',
        '    lines = path.read_text(encoding="utf-8").rstrip().splitlines()\n    if not lines or',
    ),
    gate=False,
)

READ = 'path.read_text(encoding="utf-8").splitlines()'
SECONDS = "(time_ns - first) / 1e9"
FRACTION = 'int(fraction.ljust(9, "0"))'
ROW = "        try:\n            stamp, *counts"
HEADER = 'if not lines or lines[0] != "TIMESTAMP,ContextTokens,GeneratedTokens":'
EARLIER = "if before is not None and time_ns < before:"
TOKENS = "if prompt_tokens < 1 or out_tokens < 1:"
DIGITS_ONLY = "if not (text.isascii() and text.isdigit()):"

the_last_line_end_makes_a_row = lines(
    """The text is split at its line ends, and behind the last one an empty row is left, which is
    refused; a file may end in a line end or not. Take splitlines, or cut one end off first.""",
    (READ, 'path.read_text(encoding="utf-8").split("\\n")'),
)

carriage_returns_stay = lines(
    """Lines end in CRLF, and the CR stays at the end of each, so header and numbers are not what
    they should be. Take it off, or read the file as text, whose line ends are made LF.""",
    (READ, 'path.read_bytes().decode().split("\\n")'),
)

lines_end_in_crlf_only = lines(
    """The file is split at CRLF only, so one with LF is a single line; lines end in either.""",
    (READ, 'path.read_bytes().decode().removesuffix("\\r\\n").split("\\r\\n")'),
)

cut_to_seven_digits = lines(
    """Only seven digits of the fraction are read; up to nine may stand there, and times are exact
    to a nanosecond.""",
    (FRACTION, 'int(fraction[:7].ljust(7, "0")) * 100'),
)

always_nanoseconds = lines(
    """The digits behind the point are taken for nanoseconds whatever their number; .5 is half a
    second and not 5 ns. Fill them up on the right.""",
    (FRACTION, "int(fraction or 0)"),
)

a_fraction_is_expected = lines(
    """A time without a fraction is refused, or its point is missed; a whole second is written
    without one.""",
    (
        "    if point and len(",
        '    if not point:\n        raise ValueError("no fraction")\n    if point and len(',
    ),
)

seven_digits_are_expected = lines(
    """A time with another number of digits than seven is refused; up to nine are read, and none as
    well.""",
    (
        "    if point and len(_digits(fraction)) > 9:",
        "    if len(_digits(fraction)) != 7:",
    ),
)

rounded_to_microseconds = lines(
    """The arrivals are rounded to microseconds; they are exact to a nanosecond, and requests come
    100 ns apart.""",
    (SECONDS, "round((time_ns - first) / 1e9, 6)"),
)

rounded_to_milliseconds = lines(
    """The arrivals are rounded to milliseconds; they are exact to a nanosecond, and requests come
    100 ns apart.""",
    (SECONDS, "round((time_ns - first) / 1e9, 3)"),
)

whole_seconds_of_the_difference = lines(
    """The fraction is dropped, so all requests of a second arrive at once: a burst that the trace
    does not have.""",
    (SECONDS, "float((time_ns - first) // 10**9)"),
)

seconds_since_1970 = lines(
    """The arrivals are seconds since 1970 or another day; they count from the first row, so that
    the first request arrives at 0.""",
    (SECONDS, "time_ns / 1e9"),
)

one_prompt_token_is_refused = lines(
    """A request of one token is refused; one is the least that is allowed, and code completion has
    many that generate just one.""",
    (TOKENS, "if prompt_tokens <= 1 or out_tokens < 1:"),
)

a_file_of_the_header_alone = lines(
    """A file of the header alone is refused; it is a trace without a request, an empty list.""",
    (HEADER, HEADER.replace("not lines or", "len(lines) < 2 or")),
)

the_first_row_is_taken_for_granted = lines(
    """The first row is read before it is known that there is one, so a file of the header alone
    ends in an IndexError; it has no request.""",
    ("    first = before = None\n", "    lines[1]\n    first = before = None\n"),
)

the_header_is_skipped_twice = lines(
    """The header has been skipped once already, and one row more is skipped with it; each row
    behind the header is a request.""",
    ("enumerate(lines[1:], start=2)", "enumerate(lines[2:], start=2)"),
)

times_may_go_back = lines(
    """A time before that of the row above is not refused; a replay would go back in time. Compare
    each with the one before it.""",
    (EARLIER, "if False:"),
    gate=False,
)

only_before_the_first_row = lines(
    """A time is compared with the first row's only; the third row may not come before the second
    either. Compare each with the row above.""",
    (EARLIER, "if first is not None and time_ns < first:"),
    gate=False,
)

empty_rows_are_skipped = lines(
    """Empty rows are skipped; an empty row is a row of another form, and a hole in a file is to be
    told.""",
    (ROW, "        if not line.strip():\n            continue\n" + ROW),
    gate=False,
)

any_header_will_do = lines(
    """The first line is skipped without being looked at, so a file without a header loses a
    request, and columns in another order are exchanged. Compare it with the header.""",
    (HEADER, "if not lines:"),
    gate=False,
)

too_few_fields_are_an_index_error = lines(
    """A row with too few fields ends in an IndexError, and one with too many is read as if nothing
    were wrong. Count the fields: a ValueError with the line.""",
    (
        "            prompt_tokens, out_tokens = (int(_digits(count)) for count in counts)\n",
        "            prompt_tokens, out_tokens = (int(_digits(counts[n])) for n in (0, 1))\n",
    ),
    gate=False,
)

the_row_is_not_named = lines(
    """What int or strptime says of a broken row is passed on as it is; whoever has the file needs
    its name and the line in front of that.""",
    (
        'raise ValueError(f"{path.name}:{number}: {line!r} is no request: {error}.") from None',
        "raise error",
    ),
    gate=False,
)

int_takes_more_than_digits = lines(
    """int() takes signs, blanks, underscores and the digits of other scripts, so such a row is
    read; a number of tokens is written in the digits 0 to 9 alone.""",
    (DIGITS_ONLY, "if not text.strip().lstrip('+-').replace('_', '').isdigit():"),
    gate=False,
)

no_token_is_taken = lines(
    """A row with no prompt token or none that is generated is taken; one is the least of both.""",
    (TOKENS, "if prompt_tokens < 0 or out_tokens < 0:"),
    gate=False,
)

no_generated_token_is_taken = lines(
    """A row in which nothing is generated is taken; such a request has no first token to wait for,
    and one is the least of both numbers.""",
    (TOKENS, "if prompt_tokens < 1 or out_tokens < 0:"),
    gate=False,
)
