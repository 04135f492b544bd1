from grader.suite import lines

fsdp_searched_up_to_1024 = lines(
    """The numbers set the end of the search: a GPU that is all but full of activations needs a
    hundred thousand ranks.""",
    (
        "    if at_least_bytes <= whole:\n",
        "    if first > 1024:\n        return None\n    if at_least_bytes <= whole:\n",
    ),
)


fsdp_knows_states_and_activations = lines(
    """Everything that is not sharded stays whole: the KV cache and `other` beside the
    activations.""",
    ("whole = ledger.total - sharded", "whole = ledger.activations"),
)


fsdp_shards_activations = lines(
    """FSDP shards weights, gradients and optimizer states. Activations, cache and the rest stay
    whole on every rank, however many there are.""",
    (
        "ledger.gradients + ledger.optimizer",
        "ledger.gradients + ledger.optimizer + ledger.activations",
    ),
)


fsdp_shards_everything = lines(
    """FSDP shards weights, gradients and optimizer states. Activations, cache and the rest stay
    whole on every rank, however many there are.""",
    (
        "sharded = ledger.weights + ledger.gradients + ledger.optimizer",
        "sharded = ledger.total",
    ),
)


fsdp_without_lower_end = lines(
    """A rank's memory falls as N grows, so the lower end of the range sets the *largest* N: beyond
    it the claim is too high.""",
    (
        "if at_least_bytes <= whole:\n        return first, None",
        "if first >= 1:\n        return first, None",
    ),
)


fsdp_rounds_down = lines(
    """Ranks come whole: when 14.3 of them would be enough, 14 are not. The smallest N is rounded
    up.""",
    ("-(-sharded // (gpu_bytes - whole))", "sharded // (gpu_bytes - whole)"),
)


fsdp_rounds_to_the_nearest = lines(
    """Ranks come whole: when 14.3 of them would be enough, 14 are not. The smallest N is rounded
    up.""",
    (
        "int(-(-sharded // (gpu_bytes - whole)))",
        "max(1, round(sharded / (gpu_bytes - whole)))",
    ),
)


fsdp_rounds_down_to_one_at_least = lines(
    """Ranks come whole: when 14.3 of them would be enough, 14 are not. The smallest N is rounded
    up.""",
    (
        "int(-(-sharded // (gpu_bytes - whole)))",
        "max(1, int(sharded // (gpu_bytes - whole)))",
    ),
)


fsdp_shards_the_optimizer_only = lines(
    """Sharding the optimizer alone is ZeRO-1: FSDP divides weights and gradients too.""",
    ("sharded = ledger.weights + ledger.gradients + ledger", "sharded = ledger"),
)


fsdp_keeps_weights_whole = lines(
    """With weights whole on every rank it is ZeRO-2: FSDP divides them as well.""",
    ("sharded = ledger.weights + ledger", "sharded = ledger"),
)


fsdp_shards_the_cache = lines(
    """A rank's KV cache is of its own sequences: FSDP does not divide it.""",
    (
        "ledger.gradients + ledger.optimizer",
        "ledger.gradients + ledger.optimizer + ledger.kv_cache",
    ),
)


fsdp_largest_rounded_up = lines(
    """One rank more would hold less than the lower end: the largest N is rounded down.""",
    ("int(sharded // (at_least_bytes - whole))", "int(-(-sharded // (at_least_bytes - whole)))"),
)


fsdp_powers_of_two = lines(
    """Any whole number of ranks counts, not only powers of two.""",
    (
        "    if at_least_bytes <= whole:\n",
        "    first = 1 << (first - 1).bit_length()\n    if at_least_bytes <= whole:\n",
    ),
)


fsdp_range_the_wrong_way_round = lines(
    """The smallest N can come out above the largest: then no whole number of ranks lies between
    the two bounds, and the answer is None.""",
    ("return (first, last) if first <= last else None", "return first, last"),
)


fsdp_range_turned_round = lines(
    """The smallest N can come out above the largest: then no whole number of ranks lies between
    the two bounds, and the answer is None.""",
    (
        "return (first, last) if first <= last else None",
        "return min(first, last), max(first, last)",
    ),
)


fsdp_range_of_one_is_none = lines(
    """One number of ranks alone can be in the range: smallest and largest are the same then, and
    that is no empty range.""",
    ("first <= last else", "first < last else"),
)


fsdp_always_a_largest = lines(
    """Where the lower end is at or below what stays whole, more ranks never leave the range: the
    largest N is None then.""",
    ("        return first, None\n    last", "        return first, first\n    last"),
)

fsdp_lower_bound_needs_shards = lines(
    """With nothing to shard only gpu_bytes is asked; at_least_bytes holds then as well.""",
    (
        "(1, None) if at_least_bytes <= whole <= gpu_bytes else None",
        "(1, None) if whole <= gpu_bytes else None",
    ),
    gate=False,
)
