from grader.suite import lines

compared_in_milliseconds = lines(
    """The value is multiplied by 1000 before it is compared, which can lift it above its limit by
    the last bit of a float: a request at exactly its limit is then not good. Divide the limit.""",
    ("value <= limit / 1000", "value * 1000 <= limit"),
)

a_limit_of_zero_is_none = lines(
    """A limit of 0 ms counts as no limit, because 0 is false; None is what asks for nothing.""",
    ("for limit, value in pairs if limit is not None]", "for limit, value in pairs if limit]"),
)

just_reached_is_missed = lines(
    """A value that just reaches its limit counts as a miss; the SLO is a limit that may be reached,
    as in vLLM.""",
    ("value <= limit / 1000", "value < limit / 1000"),
)

latency_has_no_limit = lines(
    """The limit on the latency is not looked at; an SLO has three parts, and each one that is asked
    for counts.""",
    ("(slo.tpot_ms, tpot), (slo.e2el_ms, out.latency_s))", "(slo.tpot_ms, tpot))"),
)


TPOT_SERIES = (
    '"tpot": [tpot for out, tpot in zip(done, tpots, strict=True) if out.output_tokens > 1]'
)

mean_itl_as_tpot = lines(
    """The gaps of all requests stand under TPOT: TPOT weights requests, ITL weights tokens. One
    long answer would outvote a hundred short ones.""",
    (TPOT_SERIES, '"tpot": [gap for out in done for gap in out.itl_s]'),
)

one_token_has_a_tpot_of_zero = lines(
    """Requests of one token stand with 0 in TPOT's series and pull its mean down; they have no time
    per further token, so they are left out of it (and count as 0 for goodput only).""",
    (TPOT_SERIES, '"tpot": tpots'),
)

one_token_is_never_good = lines(
    """Requests of one token are left out of goodput; they have no TPOT to miss, so 0 is what they
    are compared with.""",
    (
        "good += bool(asked) and all(asked)",
        "good += bool(asked) and all(asked) and out.output_tokens > 1",
    ),
)

goodput_pairs_different_requests = lines(
    """Goodput goes over the lists of TTFT, TPOT and latency side by side. Requests of one token
    have no entry among the TPOTs, so from the first of them on values of different requests are
    paired, and the last ones are dropped.""",
    (
        "    for out, tpot in zip(done, tpots, strict=True):\n",
        "    several = [t for out, t in zip(done, tpots, strict=True) if out.output_tokens > 1]\n"
        "    for out, tpot in zip(done, several, strict=False):\n",
    ),
)

TPOT = "(out.latency_s - out.ttft_s) / (out.output_tokens - 1) if out.output_tokens > 1 else 0.0"

divided_by_all_tokens = lines(
    """TPOT is divided by the number of tokens; the first token belongs to TTFT, so n tokens have
    n - 1 gaps.""",
    ("/ (out.output_tokens - 1) if out", "/ out.output_tokens if out"),
)

single_tokens_divided_as_well = lines(
    """TPOT is divided by the number of tokens; the first token belongs to TTFT, so n tokens have
    n - 1 gaps.""",
    (TPOT, "(out.latency_s - out.ttft_s) / out.output_tokens"),
)

latency_over_all_tokens = lines(
    """TPOT is taken from the whole latency, TTFT included: a long prompt would look like slow
    decoding.""",
    (TPOT, "out.latency_s / out.output_tokens if out.output_tokens > 1 else 0.0"),
)

latency_over_tokens = lines(
    """TPOT is taken from the whole latency, TTFT included: a long prompt would look like slow
    decoding.""",
    ("(out.latency_s - out.ttft_s) / (out", "out.latency_s / (out"),
)

itl_averaged_by_request = lines(
    """Each request's mean gap is one value of ITL here; ITL has one value for every gap, which is
    how a single stall of a long answer shows in its p99.""",
    (
        "[gap for out in done for gap in out.itl_s]",
        "[sum(out.itl_s) / len(out.itl_s) for out in done if out.itl_s]",
    ),
)

tpot_from_the_gaps = lines(
    """TPOT is the mean of the gaps that were seen; where two tokens arrive at once there are fewer
    gaps than tokens, and (latency - TTFT) / (tokens - 1) is smaller.""",
    (TPOT, "sum(out.itl_s) / len(out.itl_s) if out.itl_s else 0.0"),
)

the_nearest_rank = lines(
    """p99 is the value at the nearest rank; numpy's percentile, and so vLLM's, lies between two
    ranks, linearly: of three TTFTs 100, 100 and 500 ms it is 492.""",
    ("np.percentile(array, 99)", "np.percentile(array, 99, method='nearest')"),
)

the_rank_below = lines(
    """p99 is the value at the nearest rank; numpy's percentile, and so vLLM's, lies between two
    ranks, linearly: of three TTFTs 100, 100 and 500 ms it is 492.""",
    ("np.percentile(array, 99)", "np.percentile(array, 99, method='lower')"),
)

the_rank_of_all_values = lines(
    """p99 is the value at the nearest rank; numpy's percentile, and so vLLM's, lies between two
    ranks, linearly: of three TTFTs 100, 100 and 500 ms it is 492.""",
    ("np.percentile(array, 99)", "np.percentile(array, 99, method='inverted_cdf')"),
)

the_sample_deviation = lines(
    """std divides by n - 1; vLLM's is that of the population, by n.""",
    ("float(array.std())", "float(array.std(ddof=min(1, len(array) - 1)))"),
)

goodput_of_averages = lines(
    """Goodput compares the averages with the SLO: all requests are good, or none. An average
    promises nothing to anybody; ask each request.""",
    (
        "((slo.ttft_ms, out.ttft_s), (slo.tpot_ms, tpot), (slo.e2el_ms, out.latency_s))",
        "[(slo.ttft_ms, np.mean([o.ttft_s for o in done])),"
        " (slo.tpot_ms, np.mean(tpots)), (slo.e2el_ms, np.mean([o.latency_s for o in done]))]",
    ),
)

one_part_is_enough = lines(
    """A request counts as good if it keeps any part of the SLO; it has to keep each: a fast first
    token does not pay for a stalled answer.""",
    ("bool(asked) and all(asked)", "any(asked)"),
)

failures_count = lines(
    """Requests without success are counted as if they had been served: a server that refuses
    everything at once would have the best TTFT.""",
    ("done = [out for out in outputs if out.success]", "done = list(outputs)"),
)

goodput_is_a_share = lines(
    """Goodput is given as a share of the requests; it is a rate, requests a second, so that it can
    be compared with the throughput.""",
    ("good / duration_s", "good / max(1, len(done))"),
)

seconds_for_milliseconds = lines(
    """The figures are in seconds, under names that end in _ms.""",
    ("1000 * np.array(values or [0.0])", "np.array(values or [0.0])"),
)

output_only = lines(
    """total_token_throughput counts generated tokens only; it is input and output together.""",
    ("(total_in + total_out) / duration_s", "total_out / duration_s"),
)


an_upper_median = lines(
    """Of an even number of values the upper middle one is taken; the median is the mean of the two
    in the middle.""",
    ("float(np.median(array))", "float(np.sort(array)[len(array) // 2])"),
)

everything_sent_counts = lines(
    """request_throughput counts every request that was sent; those without success were not
    served.""",
    (
        '"request_throughput": len(done) / duration_s',
        '"request_throughput": len(outputs) / duration_s',
    ),
)

failed_prompts_count = lines(
    """The tokens of requests without success are counted in the totals; they count nowhere, and
    what was not served is not throughput.""",
    (
        "total_in = sum(out.prompt_tokens for out in done)",
        "total_in = sum(out.prompt_tokens for out in outputs)",
    ),
)

failed_outputs_count = lines(
    """The tokens of requests without success are counted in the totals; they count nowhere, and
    what was not served is not throughput.""",
    (
        "total_out = sum(out.output_tokens for out in done)",
        "total_out = sum(out.output_tokens for out in outputs)",
    ),
)

failed_tokens_count = lines(
    """The tokens of requests without success are counted in the totals; they count nowhere, and
    what was not served is not throughput.""",
    (
        "total_in = sum(out.prompt_tokens for out in done)",
        "total_in = sum(out.prompt_tokens for out in outputs)",
    ),
    (
        "total_out = sum(out.output_tokens for out in done)",
        "total_out = sum(out.output_tokens for out in outputs)",
    ),
)

tokens_counted_by_gaps = lines(
    """Tokens are counted by their gaps; where two arrive at once there are fewer gaps than tokens,
    and output_tokens says how many there are.""",
    (
        "total_out = sum(out.output_tokens for out in done)",
        "total_out = sum(len(out.itl_s) + 1 for out in done)",
    ),
)

the_first_token_is_a_gap = lines(
    """TTFT stands among the gaps; ITL is the time from one token to the next, and before the first
    there is none.""",
    (
        "[gap for out in done for gap in out.itl_s]",
        "[gap for out in done for gap in (out.ttft_s, *out.itl_s)]",
    ),
)

latency_without_ttft = lines(
    """E2EL begins with the first token; it is the whole latency, with the wait for it.""",
    (
        '"e2el": [out.latency_s for out in done]',
        '"e2el": [out.latency_s - out.ttft_s for out in done]',
    ),
)

every_gap_keeps_the_limit = lines(
    """The limit on TPOT is asked of each gap; it is one of a request's mean, so that one late token
    among many does not cost the request.""",
    ("(slo.tpot_ms, tpot)", "(slo.tpot_ms, max(out.itl_s, default=0.0))"),
)

limits_in_seconds = lines(
    """The limits are in milliseconds and are compared with seconds as they stand, so nearly
    everything is good. Divide them by 1000.""",
    ("value <= limit / 1000", "value <= limit"),
)

rates_of_the_busy_time = lines(
    """Rates are divided by the requests' latencies, added up; requests run side by side, and a rate
    is for the duration of the benchmark.""",
    (
        "    report: dict[str, float] = {\n",
        "    duration_s = sum(out.latency_s for out in done) or 1.0\n"
        "    report: dict[str, float] = {\n",
    ),
)

P99 = "np.percentile(array, 99)"
DURATION = "    if not duration_s > 0:\n"
ASKED = "good += bool(asked) and all(asked)"
EMPTY = "        array = 1000 * np.array(values or [0.0])\n"
PAIRS = "((slo.ttft_ms, out.ttft_s), (slo.tpot_ms, tpot), (slo.e2el_ms, out.latency_s))"

the_rank_above = lines(
    """p99 is the value at the nearest rank; numpy's percentile, and so vLLM's, lies between two
    ranks, linearly: of three TTFTs 100, 100 and 500 ms it is 492.""",
    (P99, "np.percentile(array, 99, method='higher')"),
)

a_share_for_a_percentage = lines(
    """np.percentile takes a percentage: 0.99 is below one per cent, nearly the smallest value. Ask
    for 99.""",
    (P99, "np.percentile(array, 0.99)"),
)

another_percentile = lines(
    """p99 is the 95th percentile here; 99 of 100 values lie below p99.""",
    (P99, "np.percentile(array, 95)"),
)

a_lower_median = lines(
    """Of an even number of values one of the two middle ones is taken; the median is their
    mean.""",
    ("float(np.median(array))", "float(np.sort(array)[(len(array) - 1) // 2])"),
)

the_mean_as_median = lines(
    """The median is the mean here; a few very late requests move the mean, and the value in the
    middle stays.""",
    ("float(np.median(array))", "float(array.mean())"),
)

the_variance = lines(
    """std is the variance; the standard deviation is its square root, in milliseconds like the
    values themselves.""",
    ("float(array.std())", "float(array.var())"),
)

the_sample_deviation_of_one_value = lines(
    """std divides by n - 1; vLLM's is that of the population, by n.""",
    ("float(array.std())", "float(array.std(ddof=1)) if len(array) > 1 else float('nan')"),
)

a_tpot_of_zero_is_left_out = lines(
    """A TPOT of 0 is left out of its series, because 0 is false; two tokens that come at once have
    it. Ask for the number of tokens.""",
    (TPOT_SERIES, '"tpot": [tpot for tpot in tpots if tpot]'),
)

gaps_of_zero_are_left_out = lines(
    """Gaps of 0 are left out of ITL; two tokens that come at once have such a gap, and it
    counts.""",
    (
        "[gap for out in done for gap in out.itl_s]",
        "[gap for out in done for gap in out.itl_s if gap > 0]",
    ),
)

one_token_has_a_gap_of_zero = lines(
    """Requests of one token stand with a gap of 0 in ITL and pull its mean down; they have no gap,
    so nothing of them is in the pool.""",
    (
        "[gap for out in done for gap in out.itl_s]",
        "[gap for out in done for gap in out.itl_s or [0.0]]",
    ),
)

itl_is_pooled_tpot = lines(
    """ITL has each request's TPOT once; it has one value for every gap, of all requests in one
    pool, which is how a single stall shows in its p99.""",
    (
        "[gap for out in done for gap in out.itl_s]",
        "[tpot for out, tpot in zip(done, tpots, strict=True) if out.output_tokens > 1]",
    ),
)

tpot_for_each_token = lines(
    """A request's TPOT stands in the series once for each of its gaps; that weights tokens, which
    is ITL's part. TPOT has one value a request.""",
    (
        TPOT_SERIES,
        '"tpot": [tpot for out, tpot in zip(done, tpots, strict=True)'
        " for _ in range(out.output_tokens - 1)]",
    ),
)

failed_gaps_count = lines(
    """The gaps of requests without success are in ITL's pool; such a request counts nowhere.""",
    (
        "[gap for out in done for gap in out.itl_s]",
        "[gap for out in outputs for gap in out.itl_s]",
    ),
)

failed_ttfts_count = lines(
    """Times of requests without success are in the series; such a request counts nowhere.""",
    ('"ttft": [out.ttft_s for out in done]', '"ttft": [out.ttft_s for out in outputs]'),
)

failed_latencies_count = lines(
    """Times of requests without success are in the series; such a request counts nowhere.""",
    ('"e2el": [out.latency_s for out in done]', '"e2el": [out.latency_s for out in outputs]'),
)

completed_counts_all = lines(
    """completed counts every request that was sent; those without success were not served.""",
    ('"completed": len(done)', '"completed": len(outputs)'),
)

failed_requests_keep_the_slo = lines(
    """Requests without success are counted as good where their times keep the SLO; a refusal is
    quick, and nobody was served.""",
    (
        "    total_in = sum(",
        "    for out in outputs:\n"
        "        if out.success:\n"
        "            continue\n"
        "        several = max(1, out.output_tokens - 1)\n"
        "        tpot = (out.latency_s - out.ttft_s) / several\n"
        f"        pairs = {PAIRS}\n"
        "        asked = [value <= limit / 1000 for limit, value in pairs if limit is not None]\n"
        "        good += bool(asked) and all(asked)\n"
        "    total_in = sum(",
    ),
)

the_totals_are_exchanged = lines(
    """total_input_tokens counts the generated tokens and total_output_tokens the prompts'; input is
    what was sent.""",
    ('"total_input_tokens": total_in', '"total_input_tokens": total_out'),
    ('"total_output_tokens": total_out', '"total_output_tokens": total_in'),
)

throughput_of_requests_is_of_tokens = lines(
    """output_throughput counts requests, or request_throughput tokens; each is what its name says,
    a second.""",
    ('"output_throughput": total_out / duration_s', '"output_throughput": len(done) / duration_s'),
)

output_throughput_is_of_all_tokens = lines(
    """output_throughput counts prompt tokens as well; it is the generated ones a second, and the
    total has both.""",
    (
        '"output_throughput": total_out / duration_s',
        '"output_throughput": (total_in + total_out) / duration_s',
    ),
)

prompts_only = lines(
    """total_token_throughput counts prompt tokens only; it is input and output together.""",
    ("(total_in + total_out) / duration_s", "total_in / duration_s"),
)

the_first_token_is_not_counted = lines(
    """The first token of each request is not counted as generated, because it belongs to the
    prefill; it is a token of the answer.""",
    (
        "total_out = sum(out.output_tokens for out in done)",
        "total_out = sum(out.output_tokens - 1 for out in done)",
    ),
)

seconds_a_request = lines(
    """request_throughput is seconds a request; it is requests a second, the other way round.""",
    (
        '"request_throughput": len(done) / duration_s',
        '"request_throughput": duration_s / max(1, len(done))',
    ),
)

the_longest_latency_as_duration = lines(
    """Rates are divided by the longest latency; requests begin at different times, and a rate is
    for the duration of the benchmark.""",
    (
        "    report: dict[str, float] = {\n",
        "    duration_s = max((out.latency_s for out in done), default=1.0)\n"
        "    report: dict[str, float] = {\n",
    ),
)

goodput_is_a_number = lines(
    """Goodput is the number of good requests; it is a rate, so divide it by the duration.""",
    ("good / duration_s", "float(good)"),
)

goodput_of_tokens = lines(
    """Goodput counts the tokens of good requests; it is requests a second.""",
    (ASKED, "good += out.output_tokens * (bool(asked) and all(asked))"),
)

goodput_of_completed = lines(
    """Goodput is the throughput of all requests with success; one that misses a part of the SLO was
    served too late, and does not count.""",
    (ASKED, "good += 1"),
)

ttft_has_no_limit = lines(
    """The limit on TTFT is not looked at; an SLO has three parts, and each one that is asked for
    counts.""",
    ("((slo.ttft_ms, out.ttft_s), (slo.tpot_ms", "((slo.tpot_ms"),
)

tpot_has_no_limit = lines(
    """The limit on TPOT is not looked at; an SLO has three parts, and each one that is asked for
    counts.""",
    (" (slo.tpot_ms, tpot),", ""),
)

the_first_part_decides = lines(
    """Only the first part of the SLO that is asked for is looked at; every one counts, each on its
    own.""",
    (ASKED, "good += bool(asked) and asked[0]"),
)

the_last_part_decides = lines(
    """Only the last part of the SLO that is asked for is looked at; every one counts, each on its
    own.""",
    (ASKED, "good += bool(asked) and asked[-1]"),
)

each_kept_part_counts = lines(
    """Goodput counts each part of the SLO that is kept, so one request counts several times; it is
    one good request, if it keeps them all.""",
    (ASKED, "good += sum(asked)"),
)

nothing_asked_is_always_kept = lines(
    """An SLO that asks for nothing makes every request good, because all() of nothing is true;
    without a promise there is no goodput: 0.0.""",
    (ASKED, "good += all(asked)"),
    gate=False,
)

every_part_must_be_asked = lines(
    """An SLO with a part left out is kept by nobody; what is None is not asked for, and the other
    parts count.""",
    (
        "        good += bool(asked)",
        "        asked += [False] * (3 - len(asked))\n        good += bool(asked)",
    ),
)

the_limit_of_tpot_is_of_latency = lines(
    """For goodput TPOT is taken from the whole latency, TTFT included; it is the same TPOT as in
    its series, (latency - TTFT) / (tokens - 1).""",
    ("(slo.tpot_ms, tpot)", "(slo.tpot_ms, out.latency_s / max(1, out.output_tokens))"),
)

rounded_as_it_is_printed = lines(
    """The figures are rounded to two decimals, as the benchmark prints them; what it computes is
    not.""",
    (
        "    return report",
        "    return {name: round(value, 2) for name, value in report.items()}",
    ),
)

no_value_is_nan = lines(
    """Where there is no value the figures are NaN; nothing to report is 0.0 here.""",
    (EMPTY, "        array = 1000 * np.array(values or [np.nan])\n"),
    gate=False,
)

no_value_has_no_name = lines(
    """Where there is no value the names are missing; nothing to report is 0.0 here, under every
    name.""",
    (EMPTY, "        if not values:\n            continue\n" + EMPTY),
    gate=False,
)

p99_of_nothing_is_an_error = lines(
    """With no value at all the figures are asked for all the same and raise an error; nothing to
    report is 0.0 here.""",
    (
        EMPTY,
        EMPTY + "        values[0]\n",
    ),
    gate=False,
)

nan_is_a_duration = lines(
    """A duration of NaN is taken, because NaN <= 0 is false; ask whether it *is* above 0, and
    refuse if it is not.""",
    (DURATION, "    if duration_s <= 0:\n"),
    gate=False,
)

a_duration_below_zero = lines(
    """A duration that is not above 0 is taken; nothing can have been measured in it, so it is a
    mistake: a ValueError, before anything is divided.""",
    (DURATION, "    if not duration_s:\n"),
    gate=False,
)

a_division_by_no_duration = lines(
    """A duration of 0 ends in a ZeroDivisionError; a ValueError is asked for, before anything is
    divided.""",
    (DURATION, "    len(outputs) / duration_s\n    if not duration_s > 0:\n"),
    gate=False,
)

rates_of_no_duration_are_zero = lines(
    """A duration that is not above 0 is taken; nothing can have been measured in it, so it is a
    mistake: a ValueError, before anything is divided.""",
    (
        DURATION,
        "    if not duration_s > 0:\n        duration_s = float('inf')\n"
        "    if not duration_s > 0:\n",
    ),
    gate=False,
)

a_short_duration_is_refused = lines(
    """A duration below a second is refused; every one above 0 is a duration.""",
    (DURATION, "    if not duration_s >= 1:\n"),
    gate=False,
)
