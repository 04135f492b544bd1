from grader.suite import lines, misconception

cache_of_one_sequence = lines(
    """Every sequence of the batch has a cache of its own.""",
    ("return batch * tokens", "return tokens"),
)


cache_without_factor_two = lines(
    """The cache holds K and V: without the factor 2, Llama-3-8B's 8.0 GiB for 8 x 8,192 tokens
    become 4.0.""",
    (
        "per_layer = kv_bytes_per_token(config, dtype_bytes) // layers",
        "per_layer = kv_bytes_per_token(config, dtype_bytes) // layers\n"
        "    per_layer //= 1 if config.is_mla else 2",
    ),
)


cache_of_query_heads = lines(
    """Only key/value heads are cached: with query heads Llama-3-8B's 8.0 GiB become 32.""",
    (
        "per_layer = kv_bytes_per_token(config, dtype_bytes) // layers",
        "per_layer = kv_bytes_per_token(config, dtype_bytes) // layers\n"
        "    if not config.is_mla:\n"
        "        per_layer = 2 * config.num_attention_heads * config.head_dim * dtype_bytes",
    ),
)


cache_of_one_layer = lines(
    """Every layer caches for itself: one layer of Llama-3-8B holds 0.25 of the 8.0 GiB.""",
    (
        "tokens = sum(seq if window is None else min(seq, window) for window in windows)",
        "tokens = next(seq if window is None else min(seq, window) for window in windows)",
    ),
)


@misconception()
def cache_without_window(config, batch, seq, dtype_bytes=2):
    """A sliding-window layer drops what it can no longer look back at: it never holds more than
    config.window(layer) tokens."""
    return batch * seq * kv_bytes_per_token(config, dtype_bytes)


@misconception()
def cache_all_layers_slide(config, batch, seq, dtype_bytes=2):
    """Sliding is a layer's property, not the model's: in Gemma-2 every other layer keeps all
    tokens. Ask config.window(layer) for each layer."""
    tokens = min(seq, config.sliding_window) if config.sliding_window else seq
    return batch * tokens * kv_bytes_per_token(config, dtype_bytes)


@misconception()
def cache_quadratic(config, batch, seq, dtype_bytes=2):
    """The cache grows linearly with the context: each token adds one K and one V. It is
    attention's *scores* that grow with the square, and they are not kept."""
    return batch * seq * seq * kv_bytes_per_token(config, dtype_bytes)


cache_window_without_the_token_itself = lines(
    """A layer with a window of w tokens keeps w of them, not w - 1.""",
    ("min(seq, window)", "min(seq, window - 1)"),
)


cache_reserves_the_window = lines(
    """A sequence shorter than the window keeps its own tokens only: the smaller of the two
    counts.""",
    ("min(seq, window)", "window"),
)


cache_one_window_for_the_batch = lines(
    """Each sequence has a window of its own: tokens are cut to it before they are multiplied by
    the batch.""",
    (
        "seq if window is None else min(seq, window)",
        "batch * seq if window is None else min(batch * seq, window)",
    ),
    ("return batch * tokens", "return tokens"),
)


cache_always_in_16_bit = lines(
    """The cache has the dtype that the caller asks for: dtype_bytes must reach
    kv_bytes_per_token.""",
    ("kv_bytes_per_token(config, dtype_bytes)", "kv_bytes_per_token(config)"),
)


cache_of_two_latents = lines(
    """With latent attention K and V are both made from the one vector of kv_lora_rank +
    qk_rope_head_dim: there is no factor 2.""",
    (
        "per_layer = kv_bytes_per_token(config, dtype_bytes) // layers",
        "per_layer = kv_bytes_per_token(config, dtype_bytes) // layers\n"
        "    per_layer *= 2 if config.is_mla else 1",
    ),
)


cache_of_heads_beside_the_latent = lines(
    """Where config.is_mla holds, one latent vector stands in place of all heads' keys and values:
    num_key_value_heads and head_dim say nothing there.""",
    (
        "per_layer = kv_bytes_per_token(config, dtype_bytes) // layers",
        "per_layer = kv_bytes_per_token(config, dtype_bytes) // layers\n"
        "    if config.is_mla:\n"
        "        per_layer = 2 * config.num_key_value_heads * config.head_dim * dtype_bytes",
    ),
)


cache_of_the_latent_alone = lines(
    """Beside the latent vector each token keeps the rotary part of its key, qk_rope_head_dim
    values.""",
    (
        "per_layer = kv_bytes_per_token(config, dtype_bytes) // layers",
        "per_layer = kv_bytes_per_token(config, dtype_bytes) // layers\n"
        "    if config.is_mla:\n"
        "        per_layer = config.kv_lora_rank * dtype_bytes",
    ),
)


cache_of_a_latent_a_head = lines(
    """All heads share the one latent vector of a token: it is cached once, not once a head.""",
    (
        "per_layer = kv_bytes_per_token(config, dtype_bytes) // layers",
        "per_layer = kv_bytes_per_token(config, dtype_bytes) // layers\n"
        "    per_layer *= config.num_attention_heads if config.is_mla else 1",
    ),
)


cache_times_layers_twice = lines(
    """kv_bytes_per_token is of all layers together: where tokens are added up layer by layer, each
    layer has its share of it only.""",
    (
        "kv_bytes_per_token(config, dtype_bytes) // layers",
        "kv_bytes_per_token(config, dtype_bytes)",
    ),
)


cache_times_dtype_twice = lines(
    """kv_bytes_per_token returns bytes: they are not multiplied by dtype_bytes once more.""",
    ("return batch * tokens * per_layer", "return batch * tokens * per_layer * dtype_bytes"),
)


cache_window_and_the_token_itself = lines(
    """A layer with a window of w tokens keeps at most w of them, the newest one among them.""",
    ("min(seq, window)", "min(seq, window + 1)"),
)


cache_of_full_layers_only = lines(
    """A sliding layer keeps its window: it has less in the cache than the others, not nothing.""",
    ("min(seq, window)", "0"),
)


cache_of_sliding_layers_only = lines(
    """A layer whose window is None keeps every token: None does not mean that it keeps none.""",
    ("seq if window is None", "0 if window is None"),
)


cache_every_other_layer_slides = lines(
    """Every other layer slides in Gemma-2; in Mistral all do, and elsewhere none. Ask
    config.window(layer) for each layer.""",
    (
        "(config.window(layer) for layer in range(layers))",
        "(None if layer % 2 else config.sliding_window for layer in range(layers))",
    ),
)


cache_one_layer_short = lines(
    """Layers are numbered from 0 to num_hidden_layers - 1, and all of them have a cache.""",
    ("(config.window(layer) for layer in range(layers))", "map(config.window, range(1, layers))"),
)


cache_latents_do_not_slide = lines(
    """A window limits how far a layer looks back, whatever it keeps of a token: latent vectors
    behind it are dropped as well.""",
    ("seq if window is None else", "seq if window is None or config.is_mla else"),
)


cache_without_the_newest_token = lines(
    """All `seq` tokens are in the cache, the newest too: the next step reads its K and V.""",
    (
        "seq if window is None else min(seq, window)",
        "seq - 1 if window is None else min(seq - 1, window)",
    ),
)


cache_in_blocks_of_16 = lines(
    """This is what the tokens take: an engine that hands memory out in blocks reserves a little
    more, and that is another count.""",
    (
        "seq if window is None else min(seq, window)",
        "-(-(seq if window is None else min(seq, window)) // 16) * 16",
    ),
)


cache_of_query_s_window = lines(
    """Only the part behind the window goes: what lies within it stays, also when the context is a
    multiple of it.""",
    ("min(seq, window)", "seq % window"),
)


cache_of_at_least_one_sequence = lines(
    """Without a sequence there is nothing to cache: a batch of 0 takes 0 bytes.""",
    ("return batch * tokens", "return max(1, batch) * tokens"),
    gate=False,
)
