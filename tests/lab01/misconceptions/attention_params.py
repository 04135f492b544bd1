from grader.suite import lines, misconception


@misconception()
def attention_times_heads(config):
    """Heads share the projections' channels, they do not each have 4 d^2: multiplied by its heads,
    Llama-2-7B would have 73.3 B parameters."""
    return 4 * config.hidden_size**2 * config.num_attention_heads


@misconception()
def attention_ignores_gqa(config):
    """Keys and values have num_key_value_heads heads, not num_attention_heads: counted as
    multi-head attention, Llama-3-8B would have 8,835,567,616 parameters."""
    if config.is_mla:
        return _mla_params(config)
    d, channels = config.hidden_size, config.num_attention_heads * config.head_dim
    params = 4 * d * channels
    if config.qkv_bias:
        params += 3 * channels
    if config.o_bias:
        params += d
    if config.qk_norm:
        params += 2 * config.head_dim
    return params


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


@misconception()
def attention_without_output(config):
    """Attention ends with an output projection back to hidden_size: q, k and v are three matrices
    of four."""
    if config.is_mla:
        return _mla_params(config)
    d = config.hidden_size
    q = config.num_attention_heads * config.head_dim
    kv = config.num_key_value_heads * config.head_dim
    params = d * q + 2 * d * kv
    if config.qkv_bias:
        params += q + 2 * kv
    if config.o_bias:
        params += d
    if config.qk_norm:
        params += 2 * config.head_dim
    return params


@misconception()
def attention_one_kv_matrix(config):
    """K and V are two projections: grouped-query attention shares heads among queries, not one
    matrix between keys and values."""
    if config.is_mla:
        return _mla_params(config)
    d = config.hidden_size
    q = config.num_attention_heads * config.head_dim
    kv = config.num_key_value_heads * config.head_dim
    params = 2 * d * q + d * kv
    if config.qkv_bias:
        params += q + kv
    if config.o_bias:
        params += d
    if config.qk_norm:
        params += 2 * config.head_dim
    return params


@misconception()
def attention_without_biases(config):
    """qkv_bias and o_bias add one number for every output channel of their projections; Qwen2.5 has
    the first without the second."""
    if config.is_mla:
        return _mla_params(config)
    d = config.hidden_size
    q = config.num_attention_heads * config.head_dim
    kv = config.num_key_value_heads * config.head_dim
    return 2 * d * q + 2 * d * kv + (2 * config.head_dim if config.qk_norm else 0)


@misconception()
def attention_bias_everywhere(config):
    """A bias on q, k and v says nothing about the output projection: o_bias is a switch of its
    own (Qwen2.5 has none)."""
    if config.is_mla:
        return _mla_params(config)
    d = config.hidden_size
    q = config.num_attention_heads * config.head_dim
    kv = config.num_key_value_heads * config.head_dim
    params = 2 * d * q + 2 * d * kv + (2 * config.head_dim if config.qk_norm else 0)
    return params + (q + 2 * kv + d if config.qkv_bias or config.o_bias else 0)


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
