"""Known wrong answers of lab 01, as code. Each docstring is what the learner who gave it reads."""

# Executed among the reference's names: `Ledger`, `GIB`, `total_params`, ... are the reference's.
from grader.suite import misconception

# --- simple_ledger --------------------------------------------------------------------------------


@misconception("simple_ledger")
def simple_times_heads(
    layers, hidden, ffn_multiplier, vocab, batch, seq, heads, head_dim, precision_bytes, adam_bytes
):
    """Heads divide the d channels among themselves, they do not multiply the projections: 4 d^2 a
    layer, not 4 d^2 times heads. Llama-2-7B would have 73 B parameters."""
    params = layers * (4 * hidden**2 * heads + ffn_multiplier * hidden**2) + vocab * hidden
    return Ledger(
        params=params,
        weights=params * precision_bytes,
        gradients=params * precision_bytes,
        optimizer=params * adam_bytes,
        kv_cache=batch * seq * layers * heads * head_dim * 2 * precision_bytes,
    )


@misconception("simple_ledger")
def simple_two_embeddings(
    layers, hidden, ffn_multiplier, vocab, batch, seq, heads, head_dim, precision_bytes, adam_bytes
):
    """The simple ledger has one embedding of vocab * hidden; the separate head comes later, in
    total_params, and only for untied models."""
    params = layers * (4 + ffn_multiplier) * hidden**2 + 2 * vocab * hidden
    return Ledger(
        params=params,
        weights=params * precision_bytes,
        gradients=params * precision_bytes,
        optimizer=params * adam_bytes,
        kv_cache=batch * seq * layers * heads * head_dim * 2 * precision_bytes,
    )


@misconception("simple_ledger")
def simple_three_projections(
    layers, hidden, ffn_multiplier, vocab, batch, seq, heads, head_dim, precision_bytes, adam_bytes
):
    """Attention has four projections: Q, K, V and the output projection, which is easily
    forgotten."""
    params = layers * (3 + ffn_multiplier) * hidden**2 + vocab * hidden
    return Ledger(
        params=params,
        weights=params * precision_bytes,
        gradients=params * precision_bytes,
        optimizer=params * adam_bytes,
        kv_cache=batch * seq * layers * heads * head_dim * 2 * precision_bytes,
    )


@misconception("simple_ledger")
def simple_no_gradients(
    layers, hidden, ffn_multiplier, vocab, batch, seq, heads, head_dim, precision_bytes, adam_bytes
):
    """Training holds a gradient for every parameter, as large as the parameter itself."""
    params = layers * (4 + ffn_multiplier) * hidden**2 + vocab * hidden
    return Ledger(
        params=params,
        weights=params * precision_bytes,
        optimizer=params * adam_bytes,
        kv_cache=batch * seq * layers * heads * head_dim * 2 * precision_bytes,
    )


@misconception("simple_ledger")
def simple_adam_at_precision(
    layers, hidden, ffn_multiplier, vocab, batch, seq, heads, head_dim, precision_bytes, adam_bytes
):
    """Adam's states do not have the precision of the weights: adam_bytes says what they take for
    each parameter."""
    params = layers * (4 + ffn_multiplier) * hidden**2 + vocab * hidden
    return Ledger(
        params=params,
        weights=params * precision_bytes,
        gradients=params * precision_bytes,
        optimizer=params * 2 * precision_bytes,
        kv_cache=batch * seq * layers * heads * head_dim * 2 * precision_bytes,
    )


@misconception("simple_ledger")
def simple_only_k(
    layers, hidden, ffn_multiplier, vocab, batch, seq, heads, head_dim, precision_bytes, adam_bytes
):
    """The cache holds K and V, two tensors: without the factor 2 the notebook's 8.0 GiB become
    4.0."""
    params = layers * (4 + ffn_multiplier) * hidden**2 + vocab * hidden
    return Ledger(
        params=params,
        weights=params * precision_bytes,
        gradients=params * precision_bytes,
        optimizer=params * adam_bytes,
        kv_cache=batch * seq * layers * heads * head_dim * precision_bytes,
    )


@misconception("simple_ledger")
def simple_one_layer_s_cache(
    layers, hidden, ffn_multiplier, vocab, batch, seq, heads, head_dim, precision_bytes, adam_bytes
):
    """Every layer has keys and values of its own: the cache is that of one layer times layers. One
    layer of the notebook's model keeps 0.25 GiB."""
    params = layers * (4 + ffn_multiplier) * hidden**2 + vocab * hidden
    return Ledger(
        params=params,
        weights=params * precision_bytes,
        gradients=params * precision_bytes,
        optimizer=params * adam_bytes,
        kv_cache=batch * seq * heads * head_dim * 2 * precision_bytes,
    )


@misconception("simple_ledger")
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


# --- simple_activation_bytes ----------------------------------------------------------------------


@misconception("simple_activation_bytes")
def scale_is_bytes(batch, seq, layers, hidden, precision_bytes=2, scale=7.0):
    """The scale counts values, not bytes: seven values of two bytes are 14 bytes. Without
    precision_bytes the notebook's 28.0 GiB become 14.0."""
    return batch * seq * layers * hidden * scale


@misconception("simple_activation_bytes")
def one_layer_of_activations(batch, seq, layers, hidden, precision_bytes=2, scale=7.0):
    """Without checkpointing every layer's activations wait for backward, not one layer's."""
    return batch * seq * hidden * precision_bytes * scale


@misconception("simple_activation_bytes")
def scale_is_always_seven(batch, seq, layers, hidden, precision_bytes=2, scale=7.0):
    """The scale is an argument: 7.0 is the notebook's choice, ZeRO's is 12, a GPT layer's 17 and
    more."""
    return batch * seq * layers * hidden * precision_bytes * 7.0


@misconception("simple_activation_bytes")
def one_sequence_of_activations(batch, seq, layers, hidden, precision_bytes=2, scale=7.0):
    """Activations scale with tokens, and a batch has batch * seq of them."""
    return seq * layers * hidden * precision_bytes * scale


# --- attention_params -----------------------------------------------------------------------------


@misconception("attention_params")
def attention_times_heads(config):
    """Heads share the projections' channels, they do not each have 4 d^2: multiplied by its heads,
    Llama-2-7B would have 73.3 B parameters."""
    return 4 * config.hidden_size**2 * config.num_attention_heads


@misconception("attention_params")
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


@misconception("attention_params")
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


@misconception("attention_params")
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


@misconception("attention_params")
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


@misconception("attention_params")
def attention_without_biases(config):
    """qkv_bias and o_bias add one number for every output channel of their projections; Qwen2.5 has
    the first without the second."""
    if config.is_mla:
        return _mla_params(config)
    d = config.hidden_size
    q = config.num_attention_heads * config.head_dim
    kv = config.num_key_value_heads * config.head_dim
    return 2 * d * q + 2 * d * kv + (2 * config.head_dim if config.qk_norm else 0)


@misconception("attention_params")
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


# --- ffn_params -----------------------------------------------------------------------------------


@misconception("ffn_params")
def ffn_two_matrices(config, layer=0, active=False):
    """A gated MLP (SwiGLU, GeGLU) has three matrices: gate, up and down. With two, Llama-2-7B would
    have 5.30 B parameters."""

    def mlp(width):
        return 2 * config.hidden_size * width + (
            width + config.hidden_size if config.mlp_bias else 0
        )

    if not config.is_moe_layer(layer):
        return mlp(config.intermediate_size)
    experts = config.num_experts_per_tok if active else config.num_experts
    router = config.hidden_size * config.num_experts + config.router_bias * config.num_experts
    return (experts + config.n_shared_experts) * mlp(config.moe_intermediate_size) + router


@misconception("ffn_params")
def ffn_three_times_4d(config, layer=0, active=False):
    """SwiGLU's three matrices do not have the GPT's width 4 d: Llama's intermediate_size is about
    8/3 d, so that three matrices cost as much as two of 4 d did. Three of 4 d would make 8.85 B."""
    return 12 * config.hidden_size**2


@misconception("ffn_params")
def ffn_always_gated(config, layer=0, active=False):
    """A GPT's MLP is plain: up and down. Only families with gated_mlp have a third matrix."""

    def mlp(width):
        bias = 2 * width + config.hidden_size if config.mlp_bias else 0
        return 3 * config.hidden_size * width + bias

    if not config.is_moe_layer(layer):
        return mlp(config.intermediate_size)
    experts = config.num_experts_per_tok if active else config.num_experts
    router = config.hidden_size * config.num_experts + config.router_bias * config.num_experts
    return (experts + config.n_shared_experts) * mlp(config.moe_intermediate_size) + router


@misconception("ffn_params")
def ffn_without_biases(config, layer=0, active=False):
    """With mlp_bias every matrix has a bias as long as its output: intermediate_size for up (and
    gate), hidden_size for down."""

    def mlp(width):
        return (3 if config.gated_mlp else 2) * config.hidden_size * width

    if not config.is_moe_layer(layer):
        return mlp(config.intermediate_size)
    experts = config.num_experts_per_tok if active else config.num_experts
    router = config.hidden_size * config.num_experts + config.router_bias * config.num_experts
    return (experts + config.n_shared_experts) * mlp(config.moe_intermediate_size) + router


@misconception("ffn_params")
def ffn_without_router(config, layer=0, active=False):
    """A mixture of experts has a router: one row of hidden_size for every expert."""

    def mlp(width):
        into = 2 if config.gated_mlp else 1
        bias = into * width + config.hidden_size if config.mlp_bias else 0
        return (into + 1) * config.hidden_size * width + bias

    if not config.is_moe_layer(layer):
        return mlp(config.intermediate_size)
    experts = config.num_experts_per_tok if active else config.num_experts
    return (experts + config.n_shared_experts) * mlp(config.moe_intermediate_size)


@misconception("ffn_params")
def ffn_one_expert(config, layer=0, active=False):
    """A mixture-of-experts layer has num_experts MLPs in memory, not one."""

    def mlp(width):
        into = 2 if config.gated_mlp else 1
        bias = into * width + config.hidden_size if config.mlp_bias else 0
        return (into + 1) * config.hidden_size * width + bias

    if not config.is_moe_layer(layer):
        return mlp(config.intermediate_size)
    return mlp(config.moe_intermediate_size) + config.hidden_size * config.num_experts


@misconception("ffn_params")
def ffn_only_active_experts(config, layer=0, active=False):
    """Memory follows all experts, compute follows the ones a token uses: without active=True every
    expert counts."""

    def mlp(width):
        into = 2 if config.gated_mlp else 1
        bias = into * width + config.hidden_size if config.mlp_bias else 0
        return (into + 1) * config.hidden_size * width + bias

    if not config.is_moe_layer(layer):
        return mlp(config.intermediate_size)
    router = config.hidden_size * config.num_experts + config.router_bias * config.num_experts
    experts = config.num_experts_per_tok + config.n_shared_experts
    return experts * mlp(config.moe_intermediate_size) + router


@misconception("ffn_params")
def ffn_experts_as_wide_as_dense(config, layer=0, active=False):
    """An expert is moe_intermediate_size wide, not intermediate_size: Qwen3-30B-A3B has 6144 in
    its config and experts of 768."""

    def mlp(width):
        into = 2 if config.gated_mlp else 1
        bias = into * width + config.hidden_size if config.mlp_bias else 0
        return (into + 1) * config.hidden_size * width + bias

    if not config.is_moe_layer(layer):
        return mlp(config.intermediate_size)
    experts = config.num_experts_per_tok if active else config.num_experts
    router = config.hidden_size * config.num_experts + config.router_bias * config.num_experts
    return (experts + config.n_shared_experts) * mlp(config.intermediate_size) + router


# --- total_params ---------------------------------------------------------------------------------


@misconception("total_params")
def total_one_embedding(config, active=False):
    """An untied model has two matrices of vocab x hidden, embedding and head. With one, Llama-2-7B
    would have 6,607,343,616 parameters."""
    d = config.hidden_size
    norm = 2 * d if config.norm_bias else d
    layers = sum(
        attention_params(config) + ffn_params(config, layer, active) + config.norms_per_layer * norm
        for layer in range(config.num_hidden_layers)
    )
    return config.vocab_size * d + config.position_rows * d + layers + norm


@misconception("total_params")
def total_tied_twice(config, active=False):
    """A tied head is the embedding itself and counts once. Counted twice, GPT-2 has 163,037,184
    parameters and Llama-3.2-1B 1,498,482,688: what tools print when they lose the tie."""
    d = config.hidden_size
    norm = 2 * d if config.norm_bias else d
    layers = sum(
        attention_params(config) + ffn_params(config, layer, active) + config.norms_per_layer * norm
        for layer in range(config.num_hidden_layers)
    )
    return 2 * config.vocab_size * d + config.position_rows * d + layers + norm


@misconception("total_params")
def total_eight_whole_models(config, active=False):
    """Eight times 7 B is not what "8x7B" means: experts replace the MLP only, attention and
    embeddings are shared. Mixtral-8x7B has 46.70 B parameters, eight Mistral-7B would be 57.9 B."""
    d = config.hidden_size
    norm = 2 * d if config.norm_bias else d
    width = config.moe_intermediate_size or config.intermediate_size
    mlp = (3 if config.gated_mlp else 2) * d * width
    if config.mlp_bias:
        mlp += (2 if config.gated_mlp else 1) * width + d
    layer = attention_params(config) + mlp + config.norms_per_layer * norm
    tables = (1 if config.tie_word_embeddings else 2) * config.vocab_size + config.position_rows
    return max(1, config.num_experts) * (config.num_hidden_layers * layer + tables * d + norm)


@misconception("total_params")
def total_without_last_norm(config, active=False):
    """One more norm follows the last layer, before the head: hidden_size parameters that no
    layer's count contains."""
    d = config.hidden_size
    norm = 2 * d if config.norm_bias else d
    layers = sum(
        attention_params(config) + ffn_params(config, layer, active) + config.norms_per_layer * norm
        for layer in range(config.num_hidden_layers)
    )
    tables = (1 if config.tie_word_embeddings else 2) * config.vocab_size + config.position_rows
    return tables * d + layers


@misconception("total_params")
def total_without_norms(config, active=False):
    """Norms are parameters too: norms_per_layer in every layer and one after the last."""
    d = config.hidden_size
    layers = sum(
        attention_params(config) + ffn_params(config, layer, active)
        for layer in range(config.num_hidden_layers)
    )
    tables = (1 if config.tie_word_embeddings else 2) * config.vocab_size + config.position_rows
    return tables * d + layers


@misconception("total_params")
def total_norms_without_bias(config, active=False):
    """LayerNorm has a weight and a bias (norm_bias); only RMSNorm has a weight alone."""
    d = config.hidden_size
    layers = sum(
        attention_params(config) + ffn_params(config, layer, active) + config.norms_per_layer * d
        for layer in range(config.num_hidden_layers)
    )
    tables = (1 if config.tie_word_embeddings else 2) * config.vocab_size + config.position_rows
    return tables * d + layers + d


@misconception("total_params")
def total_without_positions(config, active=False):
    """GPT-2 and OPT learn a table of positions: position_rows rows of hidden_size. GPT-2's is
    786,432 parameters."""
    d = config.hidden_size
    norm = 2 * d if config.norm_bias else d
    layers = sum(
        attention_params(config) + ffn_params(config, layer, active) + config.norms_per_layer * norm
        for layer in range(config.num_hidden_layers)
    )
    embeddings = (1 if config.tie_word_embeddings else 2) * config.vocab_size * d
    return embeddings + layers + norm


@misconception("total_params")
def total_two_norms_a_layer(config, active=False):
    """norms_per_layer is not always 2: Gemma-2 normalises before and after both blocks, four times
    a layer."""
    d = config.hidden_size
    norm = 2 * d if config.norm_bias else d
    layers = sum(
        attention_params(config) + ffn_params(config, layer, active) + 2 * norm
        for layer in range(config.num_hidden_layers)
    )
    tables = (1 if config.tie_word_embeddings else 2) * config.vocab_size + config.position_rows
    return tables * d + layers + norm


# --- training_state_bytes -------------------------------------------------------------------------


@misconception("training_state_bytes")
def states_without_master(n_params, recipe):
    """Mixed precision keeps a float32 master copy of the weights beside Adam's two moments: 12
    bytes of optimizer, not 8. Without it a 7 B model would need 80.9 GB and not 107.8."""
    sizes = {
        "fp32": (4, 4, 8),
        "bf16_mixed": (2, 2, 8),
        "bf16_fp32grads": (2, 4, 8),
        "bf16_pure": (2, 2, 4),
        "adam8bit": (2, 2, 2 + 8 * -(-n_params // 256) / n_params),
    }
    if recipe not in sizes:
        raise ValueError(recipe)
    weights, gradients, optimizer = (size * n_params for size in sizes[recipe])
    return Ledger(params=n_params, weights=weights, gradients=gradients, optimizer=optimizer)


@misconception("training_state_bytes")
def states_weights_only(n_params, recipe):
    """ "7B needs 14 GB" is inference: training also holds gradients and Adam's states, eight times
    the 13.5 GB of weights in all."""
    return Ledger(params=n_params, weights=n_params * (4 if recipe == "fp32" else 2))


@misconception("training_state_bytes")
def states_always_18(n_params, recipe):
    """18 bytes a parameter (121.3 GB for 7 B) is Megatron's recipe, with float32 gradients:
    bf16_fp32grads. Plain bf16_mixed keeps gradients in bf16, 16 in all."""
    weights = 4 if recipe == "fp32" else 2
    optimizer = {"fp32": 8, "bf16_pure": 4}.get(recipe, 12)
    return Ledger(
        params=n_params,
        weights=weights * n_params,
        gradients=4 * n_params,
        optimizer=optimizer * n_params,
    )


@misconception("training_state_bytes")
def states_pure_bf16_keeps_float32(n_params, recipe):
    """torch's AdamW makes its moments in the parameters' dtype: on bf16 parameters they take 4
    bytes together, and nobody keeps a float32 copy."""
    sizes = {
        "fp32": (4, 4, 8),
        "bf16_mixed": (2, 2, 12),
        "bf16_fp32grads": (2, 4, 12),
        "bf16_pure": (2, 2, 8),
        "adam8bit": (2, 2, 2 + 8 * -(-n_params // 256) / n_params),
    }
    if recipe not in sizes:
        raise ValueError(recipe)
    weights, gradients, optimizer = (size * n_params for size in sizes[recipe])
    return Ledger(params=n_params, weights=weights, gradients=gradients, optimizer=optimizer)


@misconception("training_state_bytes")
def states_one_moment(n_params, recipe):
    """Adam keeps two moments of every gradient, its mean and its mean square."""
    sizes = {
        "fp32": (4, 4, 4),
        "bf16_mixed": (2, 2, 4 + 4),
        "bf16_fp32grads": (2, 4, 4 + 4),
        "bf16_pure": (2, 2, 2),
        "adam8bit": (2, 2, 1 + 4 * -(-n_params // 256) / n_params),
    }
    if recipe not in sizes:
        raise ValueError(recipe)
    weights, gradients, optimizer = (size * n_params for size in sizes[recipe])
    return Ledger(params=n_params, weights=weights, gradients=gradients, optimizer=optimizer)


@misconception("training_state_bytes")
def states_gb_for_gib(n_params, recipe):
    """10**9 bytes are a GB, 2**30 a GiB, 7.4 % more: two bytes for each of 6.74e9 parameters print
    as 12.55 GiB, and 13.48 is the same size in GB. Return bytes and convert once, when printing."""
    sizes = {
        "fp32": (4, 4, 8),
        "bf16_mixed": (2, 2, 12),
        "bf16_fp32grads": (2, 4, 12),
        "bf16_pure": (2, 2, 4),
        "adam8bit": (2, 2, 2 + 8 * -(-n_params // 256) / n_params),
    }
    if recipe not in sizes:
        raise ValueError(recipe)
    gigabytes = [size * n_params / 1e9 for size in sizes[recipe]]
    weights, gradients, optimizer = (size * GIB for size in gigabytes)
    return Ledger(params=n_params, weights=weights, gradients=gradients, optimizer=optimizer)


# --- kv_bytes_per_token ---------------------------------------------------------------------------


@misconception("kv_bytes_per_token")
def token_only_k(config, dtype_bytes=2):
    """The cache holds K and V: two vectors a key/value head. Without the factor 2, Llama-3-8B's
    8.0 GiB for 8 x 8,192 tokens become 4.0; a public calculator has this very bug."""
    if config.is_mla:
        values = config.kv_lora_rank + config.qk_rope_head_dim
    else:
        values = config.num_key_value_heads * config.head_dim
    return config.num_hidden_layers * values * dtype_bytes


@misconception("kv_bytes_per_token")
def token_query_heads(config, dtype_bytes=2):
    """The cache stores one K and one V per *key/value* head; with query heads, grouped-query
    attention saves nothing and Llama-3-8B's 8.0 GiB become 32."""
    if config.is_mla:
        values = config.kv_lora_rank + config.qk_rope_head_dim
    else:
        values = 2 * config.num_attention_heads * config.head_dim
    return config.num_hidden_layers * values * dtype_bytes


@misconception("kv_bytes_per_token")
def token_one_layer(config, dtype_bytes=2):
    """Every layer caches keys and values of its own: one layer of Llama-3-8B holds 0.25 of the
    8.0 GiB."""
    if config.is_mla:
        return (config.kv_lora_rank + config.qk_rope_head_dim) * dtype_bytes
    return 2 * config.num_key_value_heads * config.head_dim * dtype_bytes


@misconception("kv_bytes_per_token")
def token_heads_times_hidden(config, dtype_bytes=2):
    """A head is head_dim wide, not hidden_size: key/value heads times hidden would make
    Llama-3-8B's 8.0 GiB 256."""
    if config.is_mla:
        values = config.kv_lora_rank + config.qk_rope_head_dim
    else:
        values = 2 * config.num_key_value_heads * config.hidden_size
    return config.num_hidden_layers * values * dtype_bytes


@misconception("kv_bytes_per_token")
def token_in_float32(config, dtype_bytes=2):
    """The cache has its own dtype, two bytes a value unless dtype_bytes says otherwise; in float32
    Llama-3-8B's 8.0 GiB would be 16."""
    if config.is_mla:
        values = config.kv_lora_rank + config.qk_rope_head_dim
    else:
        values = 2 * config.num_key_value_heads * config.head_dim
    return config.num_hidden_layers * values * 4


@misconception("kv_bytes_per_token")
def token_mla_as_mha(config, dtype_bytes=2):
    """Latent attention caches one compressed vector a layer, not keys and values of every head:
    DeepSeek-V3 keeps 70,272 bytes a token, where heads would make it 4.0 MB."""
    if config.is_mla:
        values = 2 * config.num_attention_heads * config.v_head_dim
    else:
        values = 2 * config.num_key_value_heads * config.head_dim
    return config.num_hidden_layers * values * dtype_bytes


@misconception("kv_bytes_per_token")
def token_mla_twice(config, dtype_bytes=2):
    """K and V are both made from the one latent vector, so there is no factor 2: 70,272 bytes a
    token, not 140,544."""
    if config.is_mla:
        values = 2 * (config.kv_lora_rank + config.qk_rope_head_dim)
    else:
        values = 2 * config.num_key_value_heads * config.head_dim
    return config.num_hidden_layers * values * dtype_bytes


@misconception("kv_bytes_per_token")
def token_mla_without_rope(config, dtype_bytes=2):
    """Beside the latent vector each token keeps the rotary part of its key, qk_rope_head_dim values
    that cannot be made from the latent."""
    if config.is_mla:
        values = config.kv_lora_rank
    else:
        values = 2 * config.num_key_value_heads * config.head_dim
    return config.num_hidden_layers * values * dtype_bytes


@misconception("kv_bytes_per_token")
def token_mla_in_fp8(config, dtype_bytes=2):
    """35,136 bytes a token is DeepSeek-V3's cache in FP8, with dtype_bytes=1: in bf16 it is
    70,272."""
    if config.is_mla:
        values = config.kv_lora_rank + config.qk_rope_head_dim
        return config.num_hidden_layers * values
    return config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim * dtype_bytes


# --- kv_cache_bytes -------------------------------------------------------------------------------


@misconception("kv_cache_bytes")
def cache_of_one_sequence(config, batch, seq, dtype_bytes=2):
    """Every sequence of the batch has a cache of its own."""
    per_layer = kv_bytes_per_token(config, dtype_bytes) // config.num_hidden_layers
    windows = [config.window(layer) for layer in range(config.num_hidden_layers)]
    return per_layer * sum(seq if window is None else min(seq, window) for window in windows)


@misconception("kv_cache_bytes")
def cache_without_factor_two(config, batch, seq, dtype_bytes=2):
    """The cache holds K and V: without the factor 2, Llama-3-8B's 8.0 GiB for 8 x 8,192 tokens
    become 4.0."""
    per_layer = kv_bytes_per_token(config, dtype_bytes) // config.num_hidden_layers // 2
    windows = [config.window(layer) for layer in range(config.num_hidden_layers)]
    tokens = sum(seq if window is None else min(seq, window) for window in windows)
    return batch * per_layer * tokens


@misconception("kv_cache_bytes")
def cache_of_query_heads(config, batch, seq, dtype_bytes=2):
    """Only key/value heads are cached: with query heads Llama-3-8B's 8.0 GiB become 32."""
    per_layer = 2 * config.num_attention_heads * config.head_dim * dtype_bytes
    windows = [config.window(layer) for layer in range(config.num_hidden_layers)]
    tokens = sum(seq if window is None else min(seq, window) for window in windows)
    return batch * per_layer * tokens


@misconception("kv_cache_bytes")
def cache_of_one_layer(config, batch, seq, dtype_bytes=2):
    """Every layer caches for itself: one layer of Llama-3-8B holds 0.25 of the 8.0 GiB."""
    per_layer = kv_bytes_per_token(config, dtype_bytes) // config.num_hidden_layers
    window = config.window(0)
    return batch * per_layer * (seq if window is None else min(seq, window))


@misconception("kv_cache_bytes")
def cache_without_window(config, batch, seq, dtype_bytes=2):
    """A sliding-window layer drops what it can no longer look back at: it never holds more than
    config.window(layer) tokens."""
    return batch * seq * kv_bytes_per_token(config, dtype_bytes)


@misconception("kv_cache_bytes")
def cache_all_layers_slide(config, batch, seq, dtype_bytes=2):
    """Sliding is a layer's property, not the model's: in Gemma-2 every other layer keeps all
    tokens. Ask config.window(layer) for each layer."""
    tokens = min(seq, config.sliding_window) if config.sliding_window else seq
    return batch * tokens * kv_bytes_per_token(config, dtype_bytes)


@misconception("kv_cache_bytes")
def cache_quadratic(config, batch, seq, dtype_bytes=2):
    """The cache grows linearly with the context: each token adds one K and one V. It is attention's
    *scores* that grow with the square, and they are not kept."""
    return batch * seq * seq * kv_bytes_per_token(config, dtype_bytes)


# --- activation_bytes -----------------------------------------------------------------------------


@misconception("activation_bytes")
def activations_without_square(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """Eager attention keeps the probabilities, one for each query, key and head: 5 a s^2 b bytes
    that 34 s b h leaves out. At long context they are the larger part."""
    sbh, outside = seq * batch * config.hidden_size, tp if sp else 1
    if recompute == "full":
        layer = 2 * sbh / outside
    else:
        layer = (10 if dropout else 8) * sbh / outside + 24 * sbh / tp
        if attention == "sdpa" and recompute == "none":
            layer += 4 * config.num_attention_heads * batch * seq / tp
    end = 4 * batch * seq * config.vocab_size / tp if logits else 0
    return config.num_hidden_layers * layer + end


@misconception("activation_bytes")
def checkpointing_frees_the_logits(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """Checkpointing recomputes *layers*; the logits come after the last one and stay (Llama-2-7B,
    batch 4, 4,096 tokens: 2.0 GiB in float32, 2.9 with a bf16 copy)."""
    sbh, outside = seq * batch * config.hidden_size, tp if sp else 1
    heads = config.num_attention_heads
    if recompute == "full":
        return config.num_hidden_layers * 2 * sbh / outside
    split = 24 * sbh
    if recompute == "none" and attention == "eager":
        split += (5 if dropout else 2) * heads * seq * seq * batch
    if recompute == "none" and attention == "sdpa":
        split += 4 * heads * batch * seq
    layer = (10 if dropout else 8) * sbh / outside + split / tp
    end = 4 * batch * seq * config.vocab_size / tp if logits and recompute == "none" else 0
    return config.num_hidden_layers * layer + end


@misconception("activation_bytes")
def activations_two_byte_masks(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """A dropout mask is one byte a value. (Two bytes is what torch's *CPU* dropout keeps: 60 s b h
    where the formula says 54.)"""
    sbh, outside = seq * batch * config.hidden_size, tp if sp else 1
    heads = config.num_attention_heads
    if recompute == "full":
        layer = 2 * sbh / outside
    else:
        split = 24 * sbh
        if recompute == "none" and attention == "eager":
            split += (6 if dropout else 2) * heads * seq * seq * batch
        if recompute == "none" and attention == "sdpa":
            split += 4 * heads * batch * seq
        layer = (12 if dropout else 8) * sbh / outside + split / tp
    end = 4 * batch * seq * config.vocab_size / tp if logits else 0
    return config.num_hidden_layers * layer + end


@misconception("activation_bytes")
def dropout_off_frees_masks_only(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """Without dropout the masks go, and so does the second copy of the probabilities: dropout's
    output is softmax's output, one tensor. 2 a s / h is left of the 5."""
    sbh, outside = seq * batch * config.hidden_size, tp if sp else 1
    heads = config.num_attention_heads
    if recompute == "full":
        layer = 2 * sbh / outside
    else:
        split = 24 * sbh
        if recompute == "none" and attention == "eager":
            split += (5 if dropout else 4) * heads * seq * seq * batch
        if recompute == "none" and attention == "sdpa":
            split += 4 * heads * batch * seq
        layer = (10 if dropout else 8) * sbh / outside + split / tp
    end = 4 * batch * seq * config.vocab_size / tp if logits else 0
    return config.num_hidden_layers * layer + end


@misconception("activation_bytes")
def dropout_does_not_matter(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """34 + 5as/h counts three dropout masks and dropout's own output; with dropout=False they are
    not there."""
    sbh, outside = seq * batch * config.hidden_size, tp if sp else 1
    heads = config.num_attention_heads
    if recompute == "full":
        layer = 2 * sbh / outside
    else:
        split = 24 * sbh
        if recompute == "none" and attention == "eager":
            split += 5 * heads * seq * seq * batch
        if recompute == "none" and attention == "sdpa":
            split += 4 * heads * batch * seq
        layer = 10 * sbh / outside + split / tp
    end = 4 * batch * seq * config.vocab_size / tp if logits else 0
    return config.num_hidden_layers * layer + end


@misconception("activation_bytes")
def fused_kernel_keeps_nothing(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """A fused kernel recomputes the probabilities in backward, and for that it keeps one float32
    log-sum-exp a query and head: 4 a b s bytes."""
    sbh, outside = seq * batch * config.hidden_size, tp if sp else 1
    heads = config.num_attention_heads
    if recompute == "full":
        layer = 2 * sbh / outside
    else:
        split = 24 * sbh
        if recompute == "none" and attention == "eager":
            split += (5 if dropout else 2) * heads * seq * seq * batch
        layer = (10 if dropout else 8) * sbh / outside + split / tp
    end = 4 * batch * seq * config.vocab_size / tp if logits else 0
    return config.num_hidden_layers * layer + end


@misconception("activation_bytes")
def tensor_parallelism_divides_everything(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """Tensor parallelism alone leaves 10 s b h whole on every rank: norms', blocks' inputs and
    masks. Only sequence parallelism splits those: 0.539 GiB a layer of GPT-3 on 8 ranks without
    it, 0.334 with it."""
    sbh, heads = seq * batch * config.hidden_size, config.num_attention_heads
    if recompute == "full":
        layer = 2 * sbh
    else:
        layer = (34 if dropout else 32) * sbh
        if recompute == "none" and attention == "eager":
            layer += (5 if dropout else 2) * heads * seq * seq * batch
        if recompute == "none" and attention == "sdpa":
            layer += 4 * heads * batch * seq
    end = 4 * batch * seq * config.vocab_size if logits else 0
    return (config.num_hidden_layers * layer + end) / tp


@misconception("activation_bytes")
def activations_of_one_layer(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """The formula is for one layer, and all num_hidden_layers wait for backward. Even with full
    recomputation each of them keeps its input."""
    sbh, outside = seq * batch * config.hidden_size, tp if sp else 1
    heads = config.num_attention_heads
    if recompute == "full":
        layer = 2 * sbh / outside
    else:
        split = 24 * sbh
        if recompute == "none" and attention == "eager":
            split += (5 if dropout else 2) * heads * seq * seq * batch
        if recompute == "none" and attention == "sdpa":
            split += 4 * heads * batch * seq
        layer = (10 if dropout else 8) * sbh / outside + split / tp
    return layer + (4 * batch * seq * config.vocab_size / tp if logits else 0)


@misconception("activation_bytes")
def full_recompute_keeps_nothing(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """A checkpointed layer keeps its 16-bit input, 2 s b h bytes: backward has to start the
    recomputation from something."""
    sbh, outside = seq * batch * config.hidden_size, tp if sp else 1
    heads = config.num_attention_heads
    if recompute == "full":
        layer = 0
    else:
        split = 24 * sbh
        if recompute == "none" and attention == "eager":
            split += (5 if dropout else 2) * heads * seq * seq * batch
        if recompute == "none" and attention == "sdpa":
            split += 4 * heads * batch * seq
        layer = (10 if dropout else 8) * sbh / outside + split / tp
    end = 4 * batch * seq * config.vocab_size / tp if logits else 0
    return config.num_hidden_layers * layer + end


# --- inference_ledger and max_batch ---------------------------------------------------------------


@misconception("inference_ledger")
def inference_active_weights(config, batch, seq, dtype_bytes=2, overhead_bytes=0):
    """Memory follows total parameters, compute follows active ones: any token may be sent to any
    expert, so all of them are loaded."""
    params = total_params(config, active=True)
    return Ledger(
        params=params,
        weights=params * dtype_bytes,
        kv_cache=kv_cache_bytes(config, batch, seq, dtype_bytes),
        other=4 * batch * config.vocab_size + overhead_bytes,
    )


@misconception("inference_ledger")
def inference_all_logits(config, batch, seq, dtype_bytes=2, overhead_bytes=0):
    """Decoding needs logits of the last position only, one row of the vocabulary a sequence; it is
    training that has them for every position."""
    params = total_params(config)
    return Ledger(
        params=params,
        weights=params * dtype_bytes,
        kv_cache=kv_cache_bytes(config, batch, seq, dtype_bytes),
        other=4 * batch * seq * config.vocab_size + overhead_bytes,
    )


@misconception("inference_ledger")
def inference_logits_in_bf16(config, batch, seq, dtype_bytes=2, overhead_bytes=0):
    """Sampling works on float32 logits: four bytes each, whatever the weights' dtype."""
    params = total_params(config)
    return Ledger(
        params=params,
        weights=params * dtype_bytes,
        kv_cache=kv_cache_bytes(config, batch, seq, dtype_bytes),
        other=dtype_bytes * batch * config.vocab_size + overhead_bytes,
    )


@misconception("inference_ledger")
def inference_like_training(config, batch, seq, dtype_bytes=2, overhead_bytes=0):
    """Nothing is trained here: gradients and optimizer states do not exist in inference."""
    states = training_state_bytes(total_params(config), "bf16_mixed")
    return Ledger(
        params=states.params,
        weights=states.params * dtype_bytes,
        gradients=states.gradients,
        optimizer=states.optimizer,
        kv_cache=kv_cache_bytes(config, batch, seq, dtype_bytes),
        other=4 * batch * config.vocab_size + overhead_bytes,
    )


@misconception("inference_ledger")
def inference_without_overhead(config, batch, seq, dtype_bytes=2, overhead_bytes=0):
    """overhead_bytes (CUDA context, workspaces) is in memory too: it belongs to `other`."""
    params = total_params(config)
    return Ledger(
        params=params,
        weights=params * dtype_bytes,
        kv_cache=kv_cache_bytes(config, batch, seq, dtype_bytes),
        other=4 * batch * config.vocab_size,
    )


@misconception("max_batch")
def batch_of_util_times_free(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    """gpu_bytes is what may be used already: taking nine tenths of what the weights leave free
    gives room away twice. A utilisation multiplies the whole GPU, before weights are subtracted."""
    empty = inference_ledger(config, 0, seq, dtype_bytes, overhead_bytes).total
    one = inference_ledger(config, 1, seq, dtype_bytes, overhead_bytes).total
    return max(0, int(0.9 * (gpu_bytes - empty) // (one - empty)))


@misconception("max_batch")
def batch_of_absolute_room(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    """When the weights do not fit, the room left is negative, and its absolute value is not room:
    the answer is 0."""
    empty = inference_ledger(config, 0, seq, dtype_bytes, overhead_bytes).total
    one = inference_ledger(config, 1, seq, dtype_bytes, overhead_bytes).total
    return int(abs(gpu_bytes - empty) // (one - empty))


@misconception("max_batch")
def batch_below_zero(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    """When the weights do not fit, the room left is negative: no sequence fits, so the answer is 0
    and never a negative batch."""
    empty = inference_ledger(config, 0, seq, dtype_bytes, overhead_bytes).total
    one = inference_ledger(config, 1, seq, dtype_bytes, overhead_bytes).total
    return int((gpu_bytes - empty) // (one - empty))


@misconception("max_batch")
def batch_rounded(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    """Nine tenths of a sequence do not fit: round down, never to the nearest."""
    empty = inference_ledger(config, 0, seq, dtype_bytes, overhead_bytes).total
    one = inference_ledger(config, 1, seq, dtype_bytes, overhead_bytes).total
    return max(0, round((gpu_bytes - empty) / (one - empty)))


@misconception("max_batch")
def batch_without_weights(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    """The weights are in memory before the first sequence: they are subtracted from the GPU."""
    empty = inference_ledger(config, 0, seq, dtype_bytes, overhead_bytes).total
    one = inference_ledger(config, 1, seq, dtype_bytes, overhead_bytes).total
    return int(gpu_bytes // (one - empty))


@misconception("max_batch")
def batch_of_whole_ledgers(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    """Sequences share the weights: dividing the GPU by a whole ledger of one sequence gives each of
    them a model of its own."""
    return int(gpu_bytes // inference_ledger(config, 1, seq, dtype_bytes, overhead_bytes).total)


@misconception("max_batch")
def batch_without_logits(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    """Each sequence costs its cache *and* its row of logits: at the edge the cache alone promises
    one sequence too many."""
    empty = inference_ledger(config, 0, seq, dtype_bytes, overhead_bytes).total
    return max(0, int((gpu_bytes - empty) // kv_cache_bytes(config, 1, seq, dtype_bytes)))


# --- SavedBytes -----------------------------------------------------------------------------------


@misconception("SavedBytes", replaces="SavedBytes._pack")
def saved_views_twice(self, tensor):
    """Two views of one tensor are one piece of memory: count storages, each once, not tensors."""
    storage = tensor.untyped_storage()
    if storage.data_ptr() not in self._excluded:
        self.bytes += storage.nbytes()
    return tensor


@misconception("SavedBytes", replaces="SavedBytes._pack")
def saved_parameters_too(self, tensor):
    """Weights that autograd refers to are in memory anyway: what shares a storage with `exclude`
    does not count."""
    storage = tensor.untyped_storage()
    if storage.data_ptr() not in self._storages:
        self._storages[storage.data_ptr()] = storage
        self.bytes += storage.nbytes()
    return tensor


@misconception("SavedBytes", replaces="SavedBytes._pack")
def saved_size_of_the_view(self, tensor):
    """A view keeps its whole storage alive: half a tensor saved is a whole tensor in memory, so add
    untyped_storage().nbytes(), not the view's own size."""
    address = tensor.untyped_storage().data_ptr()
    if address not in self._excluded and address not in self._storages:
        self._storages[address] = tensor.untyped_storage()
        self.bytes += tensor.numel() * tensor.element_size()
    return tensor


@misconception("SavedBytes", replaces="SavedBytes._pack")
def saved_elements(self, tensor):
    """A count of elements is not a count of bytes: float32 has four bytes an element, bf16 two."""
    storage = tensor.untyped_storage()
    if storage.data_ptr() not in self._excluded and storage.data_ptr() not in self._storages:
        self._storages[storage.data_ptr()] = storage
        self.bytes += storage.nbytes() // tensor.element_size()
    return tensor


@misconception("SavedBytes", replaces="SavedBytes._pack")
def saved_by_first_address(self, tensor):
    """tensor.data_ptr() is where a *view* begins: two views of one storage begin at two addresses.
    untyped_storage().data_ptr() is the storage's."""
    storage, address = tensor.untyped_storage(), tensor.data_ptr()
    if storage.data_ptr() not in self._excluded and address not in self._storages:
        self._storages[address] = storage
        self.bytes += tensor.numel() * tensor.element_size()
    return tensor


@misconception("SavedBytes", replaces="SavedBytes._pack")
def saved_always_four_bytes(self, tensor):
    """Not every element has four bytes: bf16 has two. Ask the storage for its nbytes()."""
    storage = tensor.untyped_storage()
    if storage.data_ptr() not in self._excluded and storage.data_ptr() not in self._storages:
        self._storages[storage.data_ptr()] = storage
        self.bytes += 4 * (storage.nbytes() // tensor.element_size())
    return tensor


@misconception("SavedBytes", replaces="SavedBytes.__exit__")
def saved_hooks_stay(self, *error):
    """Hooks that were pushed must be popped: without leaving saved_tensors_hooks in __exit__, every
    later graph is still counted."""
    self._storages.clear()


@misconception("SavedBytes", replaces="SavedBytes.__enter__")
def saved_counts_backward(self):
    """The pack hook is called when forward saves a tensor, the unpack hook when backward reads it:
    counting in unpack sees nothing before backward has run."""
    import torch

    self._hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, self._pack)
    self._hooks.__enter__()
    return self


# --- bottleneck, audit, fits_where ----------------------------------------------------------------


@misconception("bottleneck")
def bottleneck_counts_params(ledger):
    """`params` is a count, not bytes: it is no term of the ledger. Ledger.terms() leaves it out."""
    terms = {"params": ledger.params, **ledger.terms()}
    name = max(terms, key=terms.__getitem__)
    if not any(ledger.terms().values()):
        raise ValueError("empty")
    return name, "ZeRO"


@misconception("bottleneck")
def bottleneck_quantizes_training(ledger):
    """Weights that are being trained cannot be quantized away: every rank holds the same copy, and
    ZeRO shards it. Quantization is for weights that no longer change."""
    terms = ledger.terms()
    name = max(terms, key=terms.__getitem__)
    if terms[name] <= 0:
        raise ValueError("empty")
    levers = {
        "weights": "quantization",
        "gradients": "ZeRO",
        "optimizer": "ZeRO",
        "activations": "checkpointing",
        "kv_cache": "GQA",
        "other": "chunking",
    }
    return name, levers[name]


@misconception("bottleneck")
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


@misconception("bottleneck")
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


@misconception("audit")
def audit_doubles_everything(notebook):
    """Doubling the context doubles the cache only; the weights stay. 20.6 GiB become 28.6, 39 %
    more, not 100."""
    n, tokens = notebook, notebook.batch * notebook.seq
    weights = n.params * n.precision_bytes
    kv = tokens * n.layers * n.heads * n.head_dim * 2 * n.precision_bytes
    activations = tokens * n.layers * n.hidden * n.precision_bytes * n.activation_scale
    actual = {
        "training_gib": (n.params * n.state_bytes + activations) / GIB,
        "inference_gib": (weights + kv) / GIB,
        "context_doubling": 2.0,
        "int4_weight_fraction": 0.5 / n.precision_bytes,
    }
    return [
        Finding(c.quantity, c.low, c.high, actual[c.quantity])
        for c in n.claims
        if not c.low <= actual[c.quantity] <= c.high
    ]


@misconception("audit")
def audit_reduces_by_a_quarter(notebook):
    """4-bit weights shrink *to* a quarter of 16-bit ones, not *by* a quarter: half a byte over two
    bytes is 0.25, not 0.75."""
    n, tokens = notebook, notebook.batch * notebook.seq
    weights = n.params * n.precision_bytes
    kv = tokens * n.layers * n.heads * n.head_dim * 2 * n.precision_bytes
    activations = tokens * n.layers * n.hidden * n.precision_bytes * n.activation_scale
    actual = {
        "training_gib": (n.params * n.state_bytes + activations) / GIB,
        "inference_gib": (weights + kv) / GIB,
        "context_doubling": (weights + 2 * kv) / (weights + kv),
        "int4_weight_fraction": 1 - 0.5 / n.precision_bytes,
    }
    return [
        Finding(c.quantity, c.low, c.high, actual[c.quantity])
        for c in n.claims
        if not c.low <= actual[c.quantity] <= c.high
    ]


@misconception("audit")
def audit_in_gb(notebook):
    """The notebook speaks of GiB, 2**30 bytes: divided by 10**9 its 128.4 become 137.9."""
    n, tokens = notebook, notebook.batch * notebook.seq
    weights = n.params * n.precision_bytes
    kv = tokens * n.layers * n.heads * n.head_dim * 2 * n.precision_bytes
    activations = tokens * n.layers * n.hidden * n.precision_bytes * n.activation_scale
    actual = {
        "training_gib": (n.params * n.state_bytes + activations) / 1e9,
        "inference_gib": (weights + kv) / 1e9,
        "context_doubling": (weights + 2 * kv) / (weights + kv),
        "int4_weight_fraction": 0.5 / n.precision_bytes,
    }
    return [
        Finding(c.quantity, c.low, c.high, actual[c.quantity])
        for c in n.claims
        if not c.low <= actual[c.quantity] <= c.high
    ]


@misconception("audit")
def audit_states_only(notebook):
    """Training memory is states *and* activations: 100.4 GiB are the states alone, 128.4 are
    both."""
    n, tokens = notebook, notebook.batch * notebook.seq
    weights = n.params * n.precision_bytes
    kv = tokens * n.layers * n.heads * n.head_dim * 2 * n.precision_bytes
    actual = {
        "training_gib": n.params * n.state_bytes / GIB,
        "inference_gib": (weights + kv) / GIB,
        "context_doubling": (weights + 2 * kv) / (weights + kv),
        "int4_weight_fraction": 0.5 / n.precision_bytes,
    }
    return [
        Finding(c.quantity, c.low, c.high, actual[c.quantity])
        for c in n.claims
        if not c.low <= actual[c.quantity] <= c.high
    ]


@misconception("audit")
def audit_finds_every_claim(notebook):
    """A claim inside its range is no contradiction: only claims that the inputs contradict are
    findings."""
    n, tokens = notebook, notebook.batch * notebook.seq
    weights = n.params * n.precision_bytes
    kv = tokens * n.layers * n.heads * n.head_dim * 2 * n.precision_bytes
    activations = tokens * n.layers * n.hidden * n.precision_bytes * n.activation_scale
    actual = {
        "training_gib": (n.params * n.state_bytes + activations) / GIB,
        "inference_gib": (weights + kv) / GIB,
        "context_doubling": (weights + 2 * kv) / (weights + kv),
        "int4_weight_fraction": 0.5 / n.precision_bytes,
    }
    return [Finding(c.quantity, c.low, c.high, actual[c.quantity]) for c in n.claims]


@misconception("fits_where")
def fsdp_shards_activations(ledger, gpu_bytes, at_least_bytes=0):
    """FSDP shards weights, gradients and optimizer states. Activations, cache and the rest stay
    whole on every rank, however many there are."""
    first = max(1, int(-(-ledger.total // gpu_bytes)))
    if not at_least_bytes:
        return first, None
    last = int(ledger.total // at_least_bytes)
    return (first, last) if first <= last else None


@misconception("fits_where")
def fsdp_without_lower_end(ledger, gpu_bytes, at_least_bytes=0):
    """A rank's memory falls as N grows, so the lower end of the range sets the *largest* N: beyond
    it the claim is too high."""
    sharded = ledger.weights + ledger.gradients + ledger.optimizer
    whole = ledger.total - sharded
    if whole >= gpu_bytes:
        return None
    return max(1, int(-(-sharded // (gpu_bytes - whole)))), None


@misconception("fits_where")
def fsdp_rounds_down(ledger, gpu_bytes, at_least_bytes=0):
    """Ranks come whole: when 14.3 of them would be enough, 14 are not. The smallest N is rounded
    up."""
    sharded = ledger.weights + ledger.gradients + ledger.optimizer
    whole = ledger.total - sharded
    if whole >= gpu_bytes:
        return None
    first = max(1, int(sharded // (gpu_bytes - whole)))
    if at_least_bytes <= whole:
        return first, None
    last = int(sharded // (at_least_bytes - whole))
    return (first, last) if first <= last else None
