from grader.suite import lines, misconception

token_only_k = lines(
    """The cache holds K and V: two vectors a key/value head. Without the factor 2, Llama-3-8B's
    8.0 GiB for 8 x 8,192 tokens become 4.0; a public calculator has this very bug.""",
    ("2 * config", "config"),
)

token_query_heads = lines(
    """The cache stores one K and one V per *key/value* head; with query heads, grouped-query
    attention saves nothing and Llama-3-8B's 8.0 GiB become 32.""",
    ("num_key_value_heads", "num_attention_heads"),
)


@misconception()
def token_one_layer(config, dtype_bytes=2):
    """Every layer caches keys and values of its own: one layer of Llama-3-8B holds 0.25 of the
    8.0 GiB."""
    if config.is_mla:
        return (config.kv_lora_rank + config.qk_rope_head_dim) * dtype_bytes
    return 2 * config.num_key_value_heads * config.head_dim * dtype_bytes


token_heads_times_hidden = lines(
    """A head is head_dim wide, not hidden_size: key/value heads times hidden would make
    Llama-3-8B's 8.0 GiB 256.""",
    (".head_dim", ".hidden_size"),
)

token_in_float32 = lines(
    """The cache has its own dtype, two bytes a value unless dtype_bytes says otherwise; in float32
    Llama-3-8B's 8.0 GiB would be 16.""",
    ("dtype_bytes", "4"),
)

token_mla_as_mha = lines(
    """Latent attention caches one compressed vector a layer, not keys and values of every head:
    DeepSeek-V3 keeps 70,272 bytes a token, where 128 heads with keys of 192 and values of 128
    would make it 5.0 MB.""",
    (
        "config.kv_lora_rank + config.qk_rope_head_dim",
        "config.num_attention_heads\n"
        "        values *= config.qk_nope_head_dim + config.qk_rope_head_dim + config.v_head_dim",
    ),
)

token_mla_without_its_branch = lines(
    """Where config.is_mla holds, num_key_value_heads and head_dim say nothing about the cache: one
    latent vector stands there in place of all heads' keys and values.""",
    (
        "config.kv_lora_rank + config.qk_rope_head_dim",
        "2 * config.num_key_value_heads * config.head_dim",
    ),
)

token_mla_twice = lines(
    """K and V are both made from the one latent vector, so there is no factor 2: 70,272 bytes a
    token, not 140,544.""",
    (
        "config.kv_lora_rank + config.qk_rope_head_dim",
        "2 * (config.kv_lora_rank + config.qk_rope_head_dim)",
    ),
)

token_mla_without_rope = lines(
    """Beside the latent vector each token keeps the rotary part of its key, qk_rope_head_dim
    values that cannot be made from the latent.""",
    ("values = config.kv_lora_rank + config.qk_rope_head_dim", "values = config.kv_lora_rank"),
)


@misconception()
def token_mla_in_fp8(config, dtype_bytes=2):
    """35,136 bytes a token is DeepSeek-V3's cache in FP8, with dtype_bytes=1: in bf16 it is
    70,272."""
    if config.is_mla:
        values = config.kv_lora_rank + config.qk_rope_head_dim
        return config.num_hidden_layers * values
    return config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim * dtype_bytes


token_mla_for_every_head = lines(
    """All heads share the one latent vector: it is not cached once for each of them.""",
    (
        "config.kv_lora_rank + config.qk_rope_head_dim",
        "config.num_attention_heads * (config.kv_lora_rank + config.qk_rope_head_dim)",
    ),
)

token_mla_with_the_other_part = lines(
    """What stands beside the latent vector is the rotary part of the key, qk_rope_head_dim; the
    part without rotation is made from the latent.""",
    ("config.qk_rope_head_dim", "config.qk_nope_head_dim"),
)

token_head_dim_from_hidden = lines(
    """head_dim is a field of its own: hidden_size / heads is often the same number and sometimes
    not.""",
    ("config.head_dim", "(config.hidden_size // config.num_attention_heads)"),
)

token_counts_values = lines(
    """A cached value takes dtype_bytes bytes: this is the number of values.""",
    ("values * dtype_bytes", "values"),
)

token_in_full_layers_only = lines(
    """A sliding layer keeps one more token too, until its window is full; what happens then is
    kv_cache_bytes' business.""",
    (
        "return config.num_hidden_layers * values",
        "full = [i for i in range(config.num_hidden_layers) if config.window(i) is None]\n"
        "    return len(full) * values",
    ),
)

kv_rotary_part_in_16_bits = lines(
    """The rotary part of a latent cache is taken to stay in 16 bits; all of the latent vector has
    dtype_bytes a value.""",
    (
        "        values = config.kv_lora_rank + config.qk_rope_head_dim\n",
        "        values = config.kv_lora_rank + config.qk_rope_head_dim * 2 / dtype_bytes\n",
    ),
)

token_with_queries = lines(
    """A query is used once, by its own token, so it is not cached: two vectors a key/value head,
    not three.""",
    ("2 * config", "3 * config"),
)

token_of_one_head = lines(
    """Every key/value head has a key and a value of its own; one head for all is multi-query
    attention.""",
    ("2 * config.num_key_value_heads * config.head_dim", "2 * config.head_dim"),
)

token_as_wide_as_hidden = lines(
    """K and V have num_key_value_heads * head_dim channels, and that need not be hidden_size:
    Llama-3-8B's 8.0 GiB would become 32.""",
    ("config.num_key_value_heads * config.head_dim", "config.hidden_size"),
)

token_of_the_group_size = lines(
    """num_key_value_heads is already the number of heads that are cached; query heads divided by
    it says how many queries share one.""",
    (
        "2 * config.num_key_value_heads",
        "2 * (config.num_attention_heads // config.num_key_value_heads)",
    ),
)

token_always_in_16_bit = lines(
    """The cache may have another dtype than 16 bits: dtype_bytes says what a value takes.""",
    ("values * dtype_bytes", "values * 2"),
)

token_heads_without_their_width = lines(
    """A key is a vector: each head has head_dim values of K and as many of V.""",
    (".num_key_value_heads * config.head_dim", ".num_key_value_heads"),
)

token_mla_of_one_layer = lines(
    """Every layer has a latent vector of its own: the bytes of one are multiplied by the
    layers.""",
    (
        "return config.num_hidden_layers * values",
        "return (1 if config.is_mla else config.num_hidden_layers) * values",
    ),
)

token_mla_latent_for_k_and_v = lines(
    """K and V are both made from one latent: kv_lora_rank counts once, and so does the rotary part
    of the key.""",
    ("values = config.kv_lora_rank", "values = 2 * config.kv_lora_rank"),
)

token_mla_rotary_key_of_every_head = lines(
    """All heads share one rotary key: qk_rope_head_dim values a token and layer, not as many for
    each head.""",
    ("+ config.qk_rope_head_dim", "+ config.num_attention_heads * config.qk_rope_head_dim"),
)

token_mla_with_values = lines(
    """Values are made from the latent like keys: v_head_dim is not cached beside it.""",
    ("+ config.qk_rope_head_dim", "+ config.qk_rope_head_dim + config.v_head_dim"),
)

token_mla_with_compressed_queries = lines(
    """Queries are not cached, compressed ones neither: q_lora_rank does not belong to the
    cache.""",
    ("+ config.qk_rope_head_dim", "+ config.qk_rope_head_dim + (config.q_lora_rank or 0)"),
)

token_mla_for_key_value_heads = lines(
    """All heads share the one latent vector: it is not cached once for each key/value head.""",
    (
        "config.kv_lora_rank + config.qk_rope_head_dim",
        "config.num_key_value_heads * (config.kv_lora_rank + config.qk_rope_head_dim)",
    ),
)
