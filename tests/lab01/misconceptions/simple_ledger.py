from grader.suite import lines, misconception

simple_times_heads = lines(
    """Heads divide the d channels among themselves, they do not multiply the projections: 4 d^2 a
    layer, not 4 d^2 times heads. Llama-2-7B would have 73 B parameters.""",
    (
        "attention = 4 * hidden**2\n"
        "    ffn = ffn_multiplier * hidden**2\n"
        "    params = layers * (attention + ffn) + vocab * hidden",
        "params = layers * (4 * hidden**2 * heads + ffn_multiplier * hidden**2) + vocab * hidden",
    ),
)

simple_two_embeddings = lines(
    """The simple ledger has one embedding of vocab * hidden; the separate head comes later, in
    total_params, and only for untied models.""",
    (
        "attention = 4 * hidden**2\n"
        "    ffn = ffn_multiplier * hidden**2\n"
        "    params = layers * (attention + ffn) + vocab * hidden",
        "params = layers * (4 + ffn_multiplier) * hidden**2 + 2 * vocab * hidden",
    ),
)

simple_three_projections = lines(
    """Attention has four projections: Q, K, V and the output projection, which is easily
    forgotten.""",
    (
        "attention = 4 * hidden**2\n"
        "    ffn = ffn_multiplier * hidden**2\n"
        "    params = layers * (attention + ffn) + vocab * hidden",
        "params = layers * (3 + ffn_multiplier) * hidden**2 + vocab * hidden",
    ),
)

simple_no_gradients = lines(
    """Training holds a gradient for every parameter, as large as the parameter itself.""",
    (
        "attention = 4 * hidden**2\n"
        "    ffn = ffn_multiplier * hidden**2\n"
        "    params = layers * (attention + ffn) + vocab * hidden",
        "params = layers * (4 + ffn_multiplier) * hidden**2 + vocab * hidden",
    ),
    ("        gradients=params * precision_bytes,\n", ""),
)

simple_adam_at_precision = lines(
    """Adam's states do not have the precision of the weights: adam_bytes says what they take for
    each parameter.""",
    (
        "attention = 4 * hidden**2\n"
        "    ffn = ffn_multiplier * hidden**2\n"
        "    params = layers * (attention + ffn) + vocab * hidden",
        "params = layers * (4 + ffn_multiplier) * hidden**2 + vocab * hidden",
    ),
    ("optimizer=params * adam_bytes,", "optimizer=params * 2 * precision_bytes,"),
)

simple_only_k = lines(
    """The cache holds K and V, two tensors: without the factor 2 the notebook's 8.0 GiB become
    4.0.""",
    (
        "attention = 4 * hidden**2\n"
        "    ffn = ffn_multiplier * hidden**2\n"
        "    params = layers * (attention + ffn) + vocab * hidden",
        "params = layers * (4 + ffn_multiplier) * hidden**2 + vocab * hidden",
    ),
    ("2 * precision_bytes", "precision_bytes"),
)

simple_one_layer_s_cache = lines(
    """Every layer has keys and values of its own: the cache is that of one layer times layers. One
    layer of the notebook's model keeps 0.25 GiB.""",
    (
        "attention = 4 * hidden**2\n"
        "    ffn = ffn_multiplier * hidden**2\n"
        "    params = layers * (attention + ffn) + vocab * hidden",
        "params = layers * (4 + ffn_multiplier) * hidden**2 + vocab * hidden",
    ),
    ("layers * heads", "heads"),
)


@misconception()
def simple_in_gib(
    layers, hidden, ffn_multiplier, vocab, batch, seq, heads, head_dim, precision_bytes, adam_bytes
):
    """A Ledger is in bytes; GiB are for printing. Dividing by 1024**3 here makes every later sum
    wrong by a factor of a billion."""
    params = layers * (4 + ffn_multiplier) * hidden**2 + vocab * hidden
    return Ledger(
        params=params,
        weights=params * precision_bytes / GIB,
        gradients=params * precision_bytes / GIB,
        optimizer=params * adam_bytes / GIB,
        kv_cache=batch * seq * layers * heads * head_dim * 2 * precision_bytes / GIB,
    )
