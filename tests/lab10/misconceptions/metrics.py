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
    """Goodput compares the averages with the SLO: all requests are good, or none. An average is no
    promise to anybody; ask each request.""",
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
    what was not served is no throughput.""",
    (
        "total_in = sum(out.prompt_tokens for out in done)",
        "total_in = sum(out.prompt_tokens for out in outputs)",
    ),
)

failed_outputs_count = lines(
    """The tokens of requests without success are counted in the totals; they count nowhere, and
    what was not served is no throughput.""",
    (
        "total_out = sum(out.output_tokens for out in done)",
        "total_out = sum(out.output_tokens for out in outputs)",
    ),
)

failed_tokens_count = lines(
    """The tokens of requests without success are counted in the totals; they count nowhere, and
    what was not served is no throughput.""",
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
