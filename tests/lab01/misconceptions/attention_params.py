from grader.suite import lines, misconception

attention_times_heads = lines(
    """Heads share the projections' channels, they do not each have 4 d^2: multiplied by its heads,
    Llama-2-7B would have 73.3 B parameters.""",
    (
        "params = d * q_channels + 2 * d * kv_channels + q_channels * d",
        "params = 4 * d * d * heads",
    ),
)


attention_channels_times_heads = lines(
    """Heads share the projections' channels, they do not each have 4 d^2: multiplied by its heads,
    Llama-2-7B would have 73.3 B parameters.""",
    (
        "params = d * q_channels + 2 * d * kv_channels + q_channels * d",
        "params = heads * (2 * d * q_channels + 2 * d * kv_channels)",
    ),
)


attention_ignores_gqa = lines(
    """Keys and values have num_key_value_heads heads, not num_attention_heads: counted as
    multi-head attention, Llama-3-8B would have 8,835,567,616 parameters.""",
    (
        "kv_channels = config.num_key_value_heads * config.head_dim",
        "kv_channels = q_channels",
    ),
)


attention_ignores_gqa_in_the_matrices = lines(
    """Keys and values have num_key_value_heads heads, not num_attention_heads: counted as
    multi-head attention, Llama-3-8B would have 8,835,567,616 parameters.""",
    ("2 * d * kv_channels", "2 * d * q_channels"),
)


@misconception()
def attention_head_dim_from_hidden(config):
    """head_dim is a field of its own, not hidden_size / heads: Gemma-7B has 16 heads of 256 on a
    width of 3072, and d / H would make it 8,185,359,360 parameters."""
    if config.is_mla:
        return _mla_params(config)
    d, heads = config.hidden_size, config.num_attention_heads
    q = d // heads * heads
    kv = d // heads * config.num_key_value_heads
    params = 2 * d * q + 2 * d * kv
    if config.qkv_bias:
        params += q + 2 * kv
    if config.o_bias:
        params += d
    if config.qk_norm:
        params += 2 * (d // heads)
    return params


attention_without_output = lines(
    """Attention ends with an output projection back to hidden_size: q, k and v are three matrices
    of four.""",
    (" + q_channels * d", ""),
)


attention_one_kv_matrix = lines(
    """K and V are two projections: grouped-query attention shares heads among queries, not one
    matrix between keys and values.""",
    ("2 * d * kv_channels", "d * kv_channels"),
    ("params += q_channels + 2 * kv_channels", "params += q_channels + kv_channels"),
)


attention_one_kv_matrix_and_two_biases = lines(
    """K and V are two projections: grouped-query attention shares heads among queries, not one
    matrix between keys and values.""",
    ("2 * d * kv_channels", "d * kv_channels"),
)


attention_without_biases = lines(
    """qkv_bias and o_bias add one number for every output channel of their projections; Qwen2.5
    has the first without the second.""",
    ("params += q_channels + 2 * kv_channels", "params += 0"),
    ("params += d\n", "params += 0\n"),
)


attention_bias_everywhere = lines(
    """A bias on q, k and v says nothing about the output projection: o_bias is a switch of its own
    (Qwen2.5 has none).""",
    ("if config.qkv_bias:", "if config.qkv_bias or config.o_bias:"),
    ("if config.o_bias:", "if config.qkv_bias or config.o_bias:"),
)


attention_bias_of_o_with_the_others = lines(
    """A bias on q, k and v says nothing about the output projection: o_bias is a switch of its own
    (Qwen2.5 has none).""",
    ("params += q_channels + 2 * kv_channels", "params += q_channels + 2 * kv_channels + d"),
    ("params += d\n", "params += 0\n"),
)


attention_output_from_hidden = lines(
    """The query projection writes heads * head_dim channels and the output projection reads them:
    neither is hidden_size x hidden_size. Gemma-7B's have 3,072 and 4,096.""",
    ("q_channels * d", "d * d"),
)


attention_one_kv_head = lines(
    """One key/value head for all queries is multi-query attention; a grouped model has
    num_key_value_heads of them.""",
    ("config.num_key_value_heads * config.head_dim", "config.head_dim"),
)


attention_biases_of_hidden = lines(
    """A bias is as long as its projection's output: k and v have kv_heads * head_dim numbers each,
    not hidden_size.""",
    ("params += q_channels + 2 * kv_channels", "params += 3 * d"),
)


attention_bias_of_q_only = lines(
    """qkv_bias gives a bias to each of q, k and v.""",
    ("params += q_channels + 2 * kv_channels", "params += q_channels"),
)


attention_o_bias_of_the_heads = lines(
    """The output projection's bias is added to its output, which is hidden_size long.""",
    ("params += d\n", "params += q_channels\n"),
)


attention_with_the_layer_s_norms = lines(
    """The norms before and after attention belong to the layer: total_params counts them, and here
    they would count twice.""",
    ("    return params\n", "    return params + 2 * d\n"),
)


attention_without_o_bias = lines(
    """With o_bias the output projection adds one number to each of its hidden_size channels;
    GPT-2's does.""",
    ("params += d\n", "params += 0\n"),
)


attention_biases_as_long_as_q = lines(
    """k and v write num_key_value_heads * head_dim channels, fewer than q where heads are grouped:
    their biases are as short.""",
    ("params += q_channels + 2 * kv_channels", "params += 3 * q_channels"),
)


attention_one_bias_for_k_and_v = lines(
    """k and v are two projections, and each has a bias of its own.""",
    ("params += q_channels + 2 * kv_channels", "params += q_channels + kv_channels"),
)


attention_norm_weights_of_every_head = lines(
    """qk_norm normalises each head by itself with one weight of head_dim that the heads share:
    Qwen3-8B has 128 + 128 such numbers a layer, not one for each channel.""",
    ("params += 2 * config.head_dim", "params += q_channels + kv_channels"),
)


attention_norm_of_hidden = lines(
    """qk_norm acts on heads after they are projected and split: its weight is head_dim long, not
    hidden_size.""",
    ("params += 2 * config.head_dim", "params += 2 * d"),
)


attention_one_norm_for_q_and_k = lines(
    """Queries and keys are normalised with a weight each: qk_norm adds two head_dims.""",
    ("params += 2 * config.head_dim", "params += config.head_dim"),
)


attention_norms_of_q_k_and_v = lines(
    """qk_norm normalises queries and keys, whose product is the score; values have no norm.""",
    ("params += 2 * config.head_dim", "params += 3 * config.head_dim"),
)


attention_without_qk_norm = lines(
    """The norms on queries and keys are inside attention and have weights: with qk_norm two
    head_dims more.""",
    ("params += 2 * config.head_dim", "params += 0"),
)

attention_mla_keys_as_wide_as_values = lines(
    """The matrix up from the latent makes keys as wide as values; a head has qk_nope_head_dim
    channels of a key and v_head_dim of a value.""",
    (
        "kv_rank * heads * (config.qk_nope_head_dim + config.v_head_dim)",
        "kv_rank * heads * 2 * config.v_head_dim",
    ),
    gate=False,
)
