from grader.suite import lines

inference_active_weights = lines(
    """Memory follows total parameters, compute follows active ones: any token may be sent to any
    expert, so all of them are loaded.""",
    ("params = total_params(config)", "params = total_params(config, active=True)"),
)

inference_all_logits = lines(
    """Decoding needs logits of the last position only, one row of the vocabulary a sequence; it is
    training that has them for every position.""",
    ("* config", "* seq * config"),
)

inference_logits_in_bf16 = lines(
    """Sampling works on float32 logits: four bytes each, whatever the weights' dtype.""",
    ("4 * batch", "dtype_bytes * batch"),
)

inference_like_training = lines(
    """Nothing is trained here: gradients and optimizer states do not exist in inference.""",
    (
        "params = total_params(config)",
        'states = training_state_bytes(total_params(config), "bf16_mixed")',
    ),
    (
        "params=params,\n        weights=params * dtype_bytes,",
        "params=states.params,\n"
        "        weights=states.params * dtype_bytes,\n"
        "        gradients=states.gradients,\n"
        "        optimizer=states.optimizer,",
    ),
)

inference_without_overhead = lines(
    """overhead_bytes (CUDA context, workspaces) is in memory too: it belongs to `other`.""",
    ("vocab_size + overhead_bytes", "vocab_size"),
)

inference_batch_and_seq_exchanged = lines(
    """kv_cache_bytes takes the batch before the context. Without windows their order does not
    show; with a window it does.""",
    ("(config, batch, seq, dtype_bytes)", "(config, seq, batch, dtype_bytes)"),
)

inference_cache_always_in_16_bit = lines(
    """The cache has the ledger's dtype: dtype_bytes must reach kv_cache_bytes.""",
    ("(config, batch, seq, dtype_bytes)", "(config, batch, seq)"),
)

inference_logits_of_one_sequence = lines(
    """Every sequence of the batch has logits of its own.""",
    ("4 * batch", "4"),
)

inference_overhead_a_sequence = lines(
    """The CUDA context and the workspaces are there once, however many sequences there are.""",
    ("+ overhead_bytes", "+ batch * overhead_bytes"),
)

inference_cache_of_one_sequence = lines(
    """Every sequence of the batch has a cache of its own.""",
    ("(config, batch, seq, dtype_bytes)", "(config, 1, seq, dtype_bytes)"),
)

inference_logits_follow_the_dtype = lines(
    """The logits are priced by the weights' dtype; they are float32, 4 bytes each, whatever the
    weights have.""",
    ("other=4 * batch * config.vocab_size", "other=2 * dtype_bytes * batch * config.vocab_size"),
)

inference_without_windows = lines(
    """A sliding layer keeps its window only: kv_cache_bytes knows that, tokens times
    kv_bytes_per_token does not.""",
    (
        "kv_cache_bytes(config, batch, seq, dtype_bytes)",
        "batch * seq * kv_bytes_per_token(config, dtype_bytes)",
    ),
)

inference_without_the_count = lines(
    """The ledger says how many parameters it counts: its params is not left at 0.""",
    ("        params=params,\n", ""),
)

inference_weights_always_in_16_bit = lines(
    """The weights have the ledger's dtype: dtype_bytes a parameter, which need not be 2.""",
    ("params * dtype_bytes", "params * 2"),
)

inference_weights_of_every_sequence = lines(
    """All sequences of a batch share the weights: they are in memory once.""",
    ("params * dtype_bytes", "params * dtype_bytes * batch"),
)

inference_weights_are_a_count = lines(
    """A Ledger's weights are bytes: the number of parameters times dtype_bytes.""",
    ("params * dtype_bytes", "params"),
)

inference_logits_always_in_16_bit = lines(
    """Sampling works on float32 logits: four bytes each, not the two of the weights.""",
    ("4 * batch", "2 * batch"),
)

inference_logits_as_values = lines(
    """A logit is a float32 number: four bytes, so that their count alone is a quarter of it.""",
    ("4 * batch", "batch"),
)

inference_logits_as_wide_as_hidden = lines(
    """A row of logits has one number for every entry of the vocabulary, not for every channel of
    the model.""",
    ("* config.vocab_size", "* config.hidden_size"),
)

inference_without_logits = lines(
    """`other` has the logits too: each sequence needs a row of them to choose its next token.""",
    ("4 * batch * config.vocab_size + overhead", "overhead"),
)

inference_with_activations = lines(
    """Decoding keeps no activations: nothing waits for a backward that never comes.""",
    (
        "        other=4",
        "        activations=simple_activation_bytes(\n"
        "            batch, seq, config.num_hidden_layers, config.hidden_size\n"
        "        ),\n"
        "        other=4",
    ),
)

inference_in_gib = lines(
    """A Ledger is in bytes; GiB are for printing.""",
    ("weights=params * dtype_bytes", "weights=params * dtype_bytes / GIB"),
    (
        "kv_cache_bytes(config, batch, seq, dtype_bytes)",
        "kv_cache_bytes(config, batch, seq, dtype_bytes) / GIB",
    ),
    (
        "4 * batch * config.vocab_size + overhead_bytes",
        "(4 * batch * config.vocab_size + overhead_bytes) / GIB",
    ),
)
