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
    """The cache grows linearly with the context: each token adds one K and one V. It is attention's
    *scores* that grow with the square, and they are not kept."""
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
    """Each sequence has a window of its own: tokens are cut to it before they are multiplied by the
    batch.""",
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
