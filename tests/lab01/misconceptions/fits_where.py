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
    that range is not empty.""",
    ("first <= last else", "first < last else"),
)


fsdp_always_a_largest = lines(
    """Where the lower end is at or below what stays whole, more ranks never leave the range: the
    largest N is None then.""",
    ("        return first, None\n    last", "        return first, first\n    last"),
)

fsdp_lower_bound_needs_shards = lines(
    """Without anything to shard every N needs the same, and that has to lie between both ends of
    the range: gpu_bytes and at_least_bytes hold then as well.""",
    (
        "(1, None) if at_least_bytes <= whole <= gpu_bytes else None",
        "(1, None) if whole <= gpu_bytes else None",
    ),
    gate=False,
)


fsdp_full_rank_does_not_fit = lines(
    """A rank that is full to the last byte fits: gpu_bytes belongs to the range.""",
    (
        "int(-(-sharded // (gpu_bytes - whole)))",
        "int(sharded // (gpu_bytes - whole)) + 1",
    ),
)


fsdp_lower_end_does_not_belong = lines(
    """A rank that holds exactly at_least_bytes is in the range: the lower end belongs to it.""",
    (
        "int(sharded // (at_least_bytes - whole))",
        "int(-(-sharded // (at_least_bytes - whole))) - 1",
    ),
)


fsdp_keeps_gradients_whole = lines(
    """FSDP divides the gradients with the weights and the optimizer states: each rank reduces its
    own shard.""",
    ("ledger.weights + ledger.gradients + ledger", "ledger.weights + ledger"),
)


fsdp_shards_gradients_and_weights = lines(
    """The optimizer works on a rank's own shard of the weights, so its states are divided too:
    they are the largest part.""",
    ("ledger.gradients + ledger.optimizer", "ledger.gradients"),
)


fsdp_shards_the_rest = lines(
    """`other` (logits, overhead) stays whole on every rank: FSDP divides what belongs to
    parameters.""",
    ("ledger.gradients + ledger.optimizer", "ledger.gradients + ledger.optimizer + ledger.other"),
)


fsdp_forgets_the_rest = lines(
    """Everything that is not sharded stays whole on a rank: `other` counts as well.""",
    ("whole = ledger.total - sharded", "whole = ledger.activations + ledger.kv_cache"),
)


fsdp_forgets_the_cache = lines(
    """Everything that is not sharded stays whole: the KV cache and `other` beside the
    activations.""",
    ("whole = ledger.total - sharded", "whole = ledger.activations + ledger.other"),
)


fsdp_forgets_what_stays_whole = lines(
    """Ranks divide the states only: what stays whole takes its room on every GPU first, and the
    states share what is left.""",
    ("whole = ledger.total - sharded", "whole = 0"),
)


fsdp_divides_by_no_room = lines(
    """Where what stays whole fills the GPU, exactly or more than that, no number of ranks helps:
    the answer is None, before anything is divided by the room that is left.""",
    ("if whole >= gpu_bytes:", "if whole > gpu_bytes:"),
)


fsdp_does_not_see_a_full_gpu = lines(
    """Where what stays whole fills the GPU, exactly or more than that, no number of ranks helps:
    the answer is None, before anything is divided by the room that is left.""",
    ("    if whole >= gpu_bytes:\n        return None\n", ""),
)


fsdp_no_end_without_a_lower_end = lines(
    """A lower end above 0 need not set an end: as long as it is at or below what stays whole,
    every larger N is in the range.""",
    ("if at_least_bytes <= whole:\n", "if at_least_bytes == 0:\n"),
)


fsdp_no_largest_is_none_at_all = lines(
    """None alone says that no N fits. Without a largest N the answer is a pair whose second part
    is None.""",
    ("        return first, None\n    last", "        return None\n    last"),
)


fsdp_largest_without_what_stays_whole = lines(
    """What stays whole counts at the lower end as well: the shard alone need not reach
    at_least_bytes.""",
    (
        "int(sharded // (at_least_bytes - whole))",
        "int(sharded // at_least_bytes)",
    ),
)


fsdp_smallest_from_the_lower_end = lines(
    """A rank holds most where N is smallest: gpu_bytes sets the smallest N and the lower end the
    largest.""",
    (
        "return (first, last) if first <= last else None",
        "return (last, first) if first <= last else None",
    ),
)


fsdp_largest_one_too_many = lines(
    """The largest N is the last that is in the range; the first that has left it is one more.""",
    (
        "int(sharded // (at_least_bytes - whole))",
        "int(sharded // (at_least_bytes - whole)) + 1",
    ),
)


fsdp_whole_nodes = lines(
    """Any whole number of ranks counts, not only whole nodes of eight.""",
    (
        "    if at_least_bytes <= whole:\n",
        "    first = -(-first // 8) * 8\n    if at_least_bytes <= whole:\n",
    ),
)


fsdp_first_that_fits_is_both = lines(
    """Two numbers are asked for: the smallest N and the largest, and between them every N is in
    the range.""",
    (
        "return (first, last) if first <= last else None",
        "return (first, first) if first <= last else None",
    ),
)

fsdp_lower_end_at_what_stays_whole = lines(
    """A lower end that equals what stays whole is reached by no finite N: every larger N is in the
    range, and there is nothing to divide by.""",
    ("if at_least_bytes <= whole:\n", "if at_least_bytes < whole:\n"),
    gate=False,
)

fsdp_nothing_to_shard_needs_no_rank = lines(
    """Without anything to shard every N needs the same, so the smallest is 1: there are no 0
    ranks.""",
    (
        "    if sharded == 0:\n"
        "        return (1, None) if at_least_bytes <= whole <= gpu_bytes else None\n",
        "",
    ),
    gate=False,
)

fsdp_nothing_to_shard_is_none = lines(
    """Without anything to shard every N needs the same: where that is in the range, all of them
    are, from 1 on.""",
    (
        "return (1, None) if at_least_bytes <= whole <= gpu_bytes else None",
        "return None",
    ),
    gate=False,
)

fsdp_nothing_to_shard_is_one_rank = lines(
    """Without anything to shard every N needs the same: where 1 is in the range, every larger N is
    too, so there is no largest.""",
    ("return (1, None) if at_least", "return (1, 1) if at_least"),
    gate=False,
)

fsdp_nothing_to_shard_fits_always = lines(
    """Without anything to shard every N needs the same, and that has to lie between both ends of
    the range: gpu_bytes and at_least_bytes hold then as well.""",
    (
        "return (1, None) if at_least_bytes <= whole <= gpu_bytes else None",
        "return (1, None)",
    ),
    gate=False,
)
