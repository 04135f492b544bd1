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

attention_of_four_squares = lines(
    """Four matrices of hidden x hidden are the special case of as many key/value heads as query
    heads, with heads * head_dim = hidden. Llama-3-8B has 41.9 M a layer, not 67.1 M.""",
    (
        "params = d * q_channels + 2 * d * kv_channels + q_channels * d",
        "params = 4 * d * d",
    ),
)

attention_queries_and_output_of_hidden = lines(
    """The query projection writes heads * head_dim channels and the output projection reads them:
    neither is hidden_size x hidden_size. Gemma-7B's have 3,072 and 4,096.""",
    (
        "params = d * q_channels + 2 * d * kv_channels + q_channels * d",
        "params = 2 * d * d + 2 * d * kv_channels",
    ),
)

attention_queries_of_hidden = lines(
    """The query projection writes heads * head_dim channels and the output projection reads them:
    neither is hidden_size x hidden_size. Gemma-7B's have 3,072 and 4,096.""",
    ("params = d * q_channels", "params = d * d"),
)

attention_keys_of_hidden_over_heads = lines(
    """A key/value head is head_dim wide as well, a field of its own: hidden_size / heads is often
    the same and sometimes not.""",
    (
        "config.num_key_value_heads * config.head_dim",
        "config.num_key_value_heads * (d // heads)",
    ),
)

attention_output_of_the_values = lines(
    """Each query head writes an output, also where several share a value: the output projection
    reads num_attention_heads * head_dim channels.""",
    ("+ q_channels * d", "+ kv_channels * d"),
)

attention_kv_channels_of_a_group = lines(
    """num_key_value_heads is how many key/value heads there are, not how many queries share one:
    do not divide by it.""",
    ("config.num_key_value_heads * config.head_dim", "q_channels // config.num_key_value_heads"),
)

attention_o_bias_only_beside_the_others = lines(
    """o_bias is a switch of its own: a model may have a bias on the output projection and none on
    q, k and v.""",
    ("if config.o_bias:", "if config.qkv_bias and config.o_bias:"),
)

attention_biases_always = lines(
    """Most models have no biases: they count only where qkv_bias and o_bias say so.""",
    ("if config.qkv_bias:", "if True:"),
    ("if config.o_bias:", "if True:"),
)

attention_norms_always = lines(
    """Norms on queries and keys are a family's peculiarity: only with qk_norm do they count.""",
    ("if config.qk_norm:", "if True:"),
)

attention_of_all_layers = lines(
    """This is the count of one layer: total_params adds the layers up.""",
    ("    return params\n", "    return config.num_hidden_layers * params\n"),
)

attention_with_one_layer_norm = lines(
    """The norm before attention belongs to the layer: total_params counts it, and here it would
    count twice.""",
    ("    return params\n", "    return params + d\n"),
)

attention_norms_with_biases = lines(
    """A norm on queries or keys has a weight and nothing else: norm_bias speaks of the layer's
    norms.""",
    (
        "params += 2 * config.head_dim",
        "params += (4 if config.norm_bias else 2) * config.head_dim",
    ),
    gate=False,
)

attention_latent_as_grouped = lines(
    """Latent attention has other matrices than grouped-query attention: where config.is_mla holds,
    num_key_value_heads and head_dim say nothing.""",
    ("    if config.is_mla:\n        return _mla_params(config)\n", ""),
    gate=False,
)

attention_latent_with_biases = lines(
    """Latent attention has no biases here, whatever qkv_bias and o_bias say.""",
    (
        "        return _mla_params(config)\n",
        "        kv = config.num_key_value_heads * config.head_dim\n"
        "        biases = heads * config.head_dim + 2 * kv if config.qkv_bias else 0\n"
        "        return _mla_params(config) + biases + (d if config.o_bias else 0)\n",
    ),
    gate=False,
)

attention_latent_queries_always_compressed = lines(
    """q_lora_rank may be None: then queries take one matrix from hidden_size up to all heads, and
    no norm.""",
    ("    if q_rank is not None:\n        queries", "    if True:\n        queries"),
    gate=False,
)

attention_latent_queries_never_compressed = lines(
    """With q_lora_rank queries take two matrices, down to that rank and up to all heads, and an
    RMSNorm between them.""",
    ("if q_rank is not None:", "if False:"),
    gate=False,
)

attention_latent_without_norms = lines(
    """Each compressed vector goes through an RMSNorm as long as its rank before it is brought up:
    these weights count.""",
    ("d * q_rank + q_rank + q_rank * q_channels", "d * q_rank + q_rank * q_channels"),
    ("config.qk_rope_head_dim) + kv_rank", "config.qk_rope_head_dim)"),
    gate=False,
)

attention_latent_without_the_query_norm = lines(
    """The compressed queries go through an RMSNorm of q_lora_rank, as the latent goes through one
    of kv_lora_rank.""",
    ("d * q_rank + q_rank + q_rank * q_channels", "d * q_rank + q_rank * q_channels"),
    gate=False,
)

attention_latent_without_the_latent_norm = lines(
    """The latent vector goes through an RMSNorm of kv_lora_rank before keys and values are made of
    it.""",
    ("config.qk_rope_head_dim) + kv_rank", "config.qk_rope_head_dim)"),
    gate=False,
)

attention_latent_norm_with_the_rotary_part = lines(
    """Only the latent is normalised, not the rotary part beside it: the RMSNorm has kv_lora_rank
    weights.""",
    (
        "config.qk_rope_head_dim) + kv_rank",
        "config.qk_rope_head_dim) + kv_rank + config.qk_rope_head_dim",
    ),
    gate=False,
)

attention_latent_without_the_rotary_key = lines(
    """The matrix down makes the rotary part of the key beside the latent: it has kv_lora_rank +
    qk_rope_head_dim outputs.""",
    ("d * (kv_rank + config.qk_rope_head_dim)", "d * kv_rank"),
    gate=False,
)

attention_latent_rotary_key_of_every_head = lines(
    """All heads share one rotary key: the matrix down makes qk_rope_head_dim numbers once, not for
    each head.""",
    ("(kv_rank + config.qk_rope_head_dim)", "(kv_rank + heads * config.qk_rope_head_dim)"),
    gate=False,
)

attention_latent_keys_come_up_with_rotation = lines(
    """The rotary part of a key comes from the matrix down and is shared; the matrix up makes
    qk_nope_head_dim of a key and v_head_dim of a value for each head.""",
    (
        "up = kv_rank * heads * (config.qk_nope_head_dim + config.v_head_dim)",
        "keys = config.qk_nope_head_dim + config.qk_rope_head_dim\n"
        "    up = kv_rank * heads * (keys + config.v_head_dim)",
    ),
    gate=False,
)

attention_latent_up_for_keys_only = lines(
    """Both are made of the one latent: the matrix up has qk_nope_head_dim + v_head_dim outputs for
    each head, a key and a value.""",
    (
        "heads * (config.qk_nope_head_dim + config.v_head_dim)",
        "heads * config.qk_nope_head_dim",
    ),
    gate=False,
)

attention_latent_up_for_key_value_heads = lines(
    """The matrix up makes keys and values for every query head: latent attention has no key/value
    heads to share.""",
    (
        "up = kv_rank * heads * (",
        "up = kv_rank * config.num_key_value_heads * (",
    ),
    gate=False,
)

attention_latent_queries_without_rotation = lines(
    """A query head has a plain and a rotary part, qk_nope_head_dim + qk_rope_head_dim channels.""",
    (
        "heads * (config.qk_nope_head_dim + config.qk_rope_head_dim)",
        "heads * config.qk_nope_head_dim",
    ),
    gate=False,
)

attention_latent_queries_of_head_dim = lines(
    """A latent query head is qk_nope_head_dim + qk_rope_head_dim wide: head_dim belongs to the
    other kind of attention.""",
    (
        "heads * (config.qk_nope_head_dim + config.qk_rope_head_dim)",
        "heads * config.head_dim",
    ),
    gate=False,
)

attention_latent_output_of_the_query_width = lines(
    """What attention puts out are values: the output projection reads v_head_dim channels a head,
    not as many as a query has.""",
    ("output = heads * config.v_head_dim * d", "output = q_channels * d"),
    gate=False,
)

attention_latent_output_of_head_dim = lines(
    """What attention puts out are values: the output projection reads v_head_dim channels a head,
    not head_dim.""",
    ("output = heads * config.v_head_dim * d", "output = heads * config.head_dim * d"),
    gate=False,
)

attention_latent_for_k_and_for_v = lines(
    """Keys and values are made of one latent: there is one matrix down, not one for each.""",
    ("down = d * (kv_rank", "down = d * (2 * kv_rank"),
    gate=False,
)
