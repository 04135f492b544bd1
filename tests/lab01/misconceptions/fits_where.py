from grader.suite import lines, misconception

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


@misconception()
def fsdp_shards_activations(ledger, gpu_bytes, at_least_bytes=0):
    """FSDP shards weights, gradients and optimizer states. Activations, cache and the rest stay
    whole on every rank, however many there are."""
    first = max(1, int(-(-ledger.total // gpu_bytes)))
    if not at_least_bytes:
        return first, None
    last = int(ledger.total // at_least_bytes)
    return (first, last) if first <= last else None


@misconception()
def fsdp_without_lower_end(ledger, gpu_bytes, at_least_bytes=0):
    """A rank's memory falls as N grows, so the lower end of the range sets the *largest* N: beyond
    it the claim is too high."""
    sharded = ledger.weights + ledger.gradients + ledger.optimizer
    whole = ledger.total - sharded
    if whole >= gpu_bytes:
        return None
    return max(1, int(-(-sharded // (gpu_bytes - whole)))), None


fsdp_rounds_down = lines(
    """Ranks come whole: when 14.3 of them would be enough, 14 are not. The smallest N is rounded
    up.""",
    (
        "    if sharded == 0:\n"
        "        return (1, None) if at_least_bytes <= whole <= gpu_bytes else None\n",
        "",
    ),
    ("-(-sharded // (gpu_bytes - whole))", "sharded // (gpu_bytes - whole)"),
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
