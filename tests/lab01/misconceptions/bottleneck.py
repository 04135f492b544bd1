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
    """`params` is a count, not bytes: it is not a term of the ledger. Ledger.terms() leaves it
    out."""
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
    """ZeRO shards parameters, gradients and optimizer states. Activations are each rank's own;
    they shrink by computing them again."""
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
    """Quantizing weights leaves the KV cache as it is: the cache shrinks with fewer key/value
    heads (GQA) or with no room reserved for tokens that never come (paging)."""
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
    ("if terms[name] <= 0:", "if not any(terms.values()):"),
)

bottleneck_training_needs_both = lines(
    """Gradients *or* optimizer states make a training run: before the first step there are no
    states, and between two steps perhaps no gradients.""",
    ("ledger.gradients > 0 or ledger", "ledger.gradients > 0 and ledger"),
)

bottleneck_always_shards_weights = lines(
    """A ledger without gradients and optimizer states is a serving one: its weights no longer
    change, so they can have fewer bits.""",
    (
        'raise ValueError("Every term of this ledger is 0: there is nothing to shrink.")\n'
        "    training = ledger.gradients > 0 or ledger.optimizer > 0",
        'raise ValueError("empty")',
    ),
    ('"weights": "ZeRO" if training else "quantization",', '"weights": "ZeRO",'),
)

bottleneck_without_a_cache_is_training = lines(
    """A ledger is a training run because of its gradients or optimizer states, not because it has
    no KV cache.""",
    ("ledger.gradients > 0 or ledger.optimizer > 0", "ledger.kv_cache == 0"),
)

bottleneck_quantizes_the_optimizer = lines(
    """Every data-parallel rank holds the same optimizer states: ZeRO shards them. Quantization is
    for weights that no longer change.""",
    ('"optimizer": "ZeRO"', '"optimizer": "quantization"'),
)

bottleneck_checkpoints_gradients = lines(
    """Checkpointing drops activations. Gradients are held alike by every rank after they are added
    up, so they are sharded.""",
    ('"gradients": "ZeRO"', '"gradients": "checkpointing"'),
)

bottleneck_checkpoints_the_logits = lines(
    """Checkpointing recomputes layers, and the logits come after the last one: they shrink when
    they are made in chunks.""",
    ('"other": "chunking"', '"other": "checkpointing"'),
)

bottleneck_chunks_activations = lines(
    """Chunks are for the logits. A layer's activations are dropped and computed again in
    backward.""",
    ('"activations": "checkpointing"', '"activations": "chunking"'),
)

bottleneck_checkpoints_the_cache = lines(
    """The cache is there so that keys and values are *not* computed again: it shrinks with fewer
    key/value heads, or when no room is reserved in vain.""",
    ('"kv_cache": "GQA"', '"kv_cache": "checkpointing"'),
)

bottleneck_shards_the_cache = lines(
    """ZeRO shards what every rank holds a copy of; a rank's cache is of its own sequences.""",
    ('"kv_cache": "GQA"', '"kv_cache": "ZeRO"'),
)

bottleneck_of_the_states_together = lines(
    """Terms are compared one by one: weights, gradients and optimizer states are three of them,
    not one sum.""",
    (
        "name = max(terms, key=terms.__getitem__)\n",
        'states = ("weights", "gradients", "optimizer")\n'
        "    together = sum(terms[term] for term in states)\n"
        "    rest = max(size for term, size in terms.items() if term not in states)\n"
        "    among = states if together >= rest else terms\n"
        "    name = max(among, key=terms.__getitem__)\n",
    ),
)

bottleneck_in_whole_gib = lines(
    """Terms are compared in whole GiB: two that are close count as equal, and the first wins.
    Compare bytes.""",
    ("key=terms.__getitem__", "key=lambda term: terms[term] // 2**30"),
    ("if terms[name] <= 0:", "if not any(terms.values()):"),
)

bottleneck_name_with_blanks = lines(
    """The name is the ledger's field as it is written there: kv_cache, with an underscore.""",
    ("return name, levers[name]", 'return name.replace("_", " "), levers[name]'),
)

bottleneck_lever_only = lines(
    """Two things are asked for, in this order: the name of the largest term and its lever.""",
    ("return name, levers[name]", "return levers[name], name"),
)

bottleneck_last_of_equals = lines(
    """Of equal terms the *first* in the order of Ledger.terms() counts; here the last one wins.""",
    (
        "max(terms, key=terms.__getitem__)",
        "max(reversed(list(terms)), key=terms.__getitem__)",
    ),
    gate=False,
)

bottleneck_of_an_empty_ledger = lines(
    """Where every term is 0 there is nothing to shrink: that ledger must be refused with a
    ValueError.""",
    (
        "    if terms[name] <= 0:\n"
        '        raise ValueError("Every term of this ledger is 0: there is nothing to shrink.")\n',
        "",
    ),
    gate=False,
)
