from grader.suite import lines, misconception

bottleneck_optimizer_only = lines(
    """A ledger with gradients is a training run, before its first optimizer step as well.""",
    ("ledger.gradients > 0 or ledger", "ledger"),
)


bottleneck_gradients_only = lines(
    """A ledger with optimizer states is a training run, also between two steps, when its gradients
    are freed.""",
    ("ledger.gradients > 0 or ledger.optimizer > 0", "ledger.gradients > 0"),
)


@misconception()
def bottleneck_counts_params(ledger):
    """`params` is a count, not bytes: it is no term of the ledger. Ledger.terms() leaves it out."""
    terms = {"params": ledger.params, **ledger.terms()}
    name = max(terms, key=terms.__getitem__)
    if not any(ledger.terms().values()):
        raise ValueError("empty")
    return name, "ZeRO"


bottleneck_quantizes_training = lines(
    """Weights that are being trained cannot be quantized away: every rank holds the same copy, and
    ZeRO shards it. Quantization is for weights that no longer change.""",
    (
        'raise ValueError("Every term of this ledger is 0: there is nothing to shrink.")\n'
        "    training = ledger.gradients > 0 or ledger.optimizer > 0",
        'raise ValueError("empty")',
    ),
    ('"weights": "ZeRO" if training else "quantization",', '"weights": "quantization",'),
)


@misconception()
def bottleneck_shards_activations(ledger):
    """ZeRO shards parameters, gradients and optimizer states. Activations are each rank's own; they
    shrink by computing them again."""
    terms = ledger.terms()
    name = max(terms, key=terms.__getitem__)
    if terms[name] <= 0:
        raise ValueError("empty")
    if name in ("kv_cache", "other"):
        return name, {"kv_cache": "GQA", "other": "chunking"}[name]
    if name == "weights" and not ledger.gradients and not ledger.optimizer:
        return name, "quantization"
    return name, "ZeRO"


@misconception()
def bottleneck_quantizes_the_cache_with_the_weights(ledger):
    """Quantizing weights leaves the KV cache as it is: the cache shrinks with fewer key/value heads
    (GQA) or with no room reserved for tokens that never come (paging)."""
    terms = ledger.terms()
    name = max(terms, key=terms.__getitem__)
    if terms[name] <= 0:
        raise ValueError("empty")
    training = ledger.gradients > 0 or ledger.optimizer > 0
    levers = {"activations": "checkpointing", "kv_cache": "quantization", "other": "chunking"}
    if name in levers:
        return name, levers[name]
    return name, "ZeRO" if training else "quantization"


bottleneck_activations_are_training = lines(
    """Activations alone do not make a training run: a ledger with gradients or optimizer states is
    one. Weights that are only served can be quantized.""",
    ("ledger.gradients > 0 or", "ledger.activations > 0 or ledger.gradients > 0 or"),
)


bottleneck_pages_the_logits = lines(
    """Paging is for the KV cache. `other` is mostly logits, and these shrink when they are made in
    chunks.""",
    ('"other": "chunking"', '"other": "paging"'),
)


bottleneck_without_other = lines(
    """`other` is a term like the rest: logits of a large vocabulary can be the largest of all.""",
    (
        "name = max(terms, key=terms.__getitem__)\n    if terms[name] <= 0:",
        'name = max((term for term in terms if term != "other"), key=terms.__getitem__)\n'
        "    if not any(terms.values()):",
    ),
)

bottleneck_of_rounded_terms = lines(
    """Terms are compared as they are printed, in GiB with one decimal: two that are close count as
    equal, and the first wins. Compare bytes.""",
    (
        "max(terms, key=terms.__getitem__)",
        "max(terms, key=lambda term: round(terms[term] / 2**30, 1))",
    ),
)
