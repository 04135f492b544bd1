from grader.suite import lines, misconception


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
