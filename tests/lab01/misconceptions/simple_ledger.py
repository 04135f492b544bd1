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


simple_no_embedding = lines(
    """The embedding is a matrix of vocab * hidden, and its parameters count like any others.""",
    (" + vocab * hidden", ""),
)

simple_embedding_in_every_layer = lines(
    """The model has one embedding, before its first layer; a layer has none of its own.""",
    ("layers * (attention + ffn) + vocab * hidden", "layers * (attention + ffn + vocab * hidden)"),
)

simple_two_matrices_of_the_multiplier = lines(
    """ffn_multiplier counts all matrices of the MLP together: m d^2 in all. Two matrices of width
    4 d are a multiplier of 8, not of 4.""",
    ("ffn_multiplier * hidden**2", "2 * ffn_multiplier * hidden**2"),
)

simple_master_copy_twice = lines(
    """adam_bytes is all that the optimizer takes for a parameter: the 12 of mixed precision
    contain the master copy already.""",
    ("params * adam_bytes", "params * (adam_bytes + 4)"),
)

simple_gradients_in_float32 = lines(
    """This ledger keeps gradients at precision_bytes, like the weights; float32 gradients are a
    recipe of training_state_bytes.""",
    ("gradients=params * precision_bytes", "gradients=params * 4"),
)

simple_cache_as_wide_as_hidden = lines(
    """K and V are heads * head_dim wide, and that need not be hidden: the arguments say how
    wide.""",
    ("heads * head_dim", "hidden"),
)

simple_cache_head_as_wide_as_hidden = lines(
    """One head's key is head_dim wide, not hidden: heads times hidden counts the width of all
    heads once for each head.""",
    ("heads * head_dim", "heads * hidden"),
)

simple_cache_of_one_sequence = lines(
    """Each sequence of the batch has its own keys and values: the cache holds batch * seq
    tokens.""",
    ("batch * seq", "seq"),
)

simple_whole_multiplier = lines(
    """The multiplier need not be whole: Llama-2-7B's is 8.0625, and cutting off the rest takes 34
    M parameters away.""",
    ("ffn_multiplier * hidden**2", "int(ffn_multiplier) * hidden**2"),
)

simple_multiplier_of_the_width = lines(
    """The MLP's matrices have hidden rows as well as columns: the multiplier stands before
    hidden squared, not before hidden.""",
    ("ffn_multiplier * hidden**2", "ffn_multiplier * hidden"),
)

simple_three_matrices_of_the_multiplier = lines(
    """ffn_multiplier counts all matrices of the MLP together, a gate's too: it is not multiplied
    by their number again.""",
    ("ffn_multiplier * hidden**2", "3 * ffn_multiplier * hidden**2"),
)

simple_attention_of_the_heads = lines(
    """In this first script the projections are hidden x hidden; heads and head_dim count in the
    cache only. attention_params does better.""",
    ("4 * hidden**2", "4 * hidden * heads * head_dim"),
)

simple_layers_of_attention_only = lines(
    """Every layer has its own attention and its own MLP: both are multiplied by the number of
    layers.""",
    ("layers * (attention + ffn)", "layers * attention + ffn"),
)

simple_params_of_one_layer = lines(
    """The parameters are those of the whole model: one layer's count, times layers, and then the
    embedding.""",
    ("layers * (attention + ffn)", "(attention + ffn)"),
)

simple_with_norms = lines(
    """The first script leaves norms out: they are a hundred-thousandth of the parameters, and
    total_params counts them.""",
    ("+ vocab * hidden", "+ vocab * hidden + (2 * layers + 1) * hidden"),
)

simple_with_a_position_table = lines(
    """The first script has one table, the embedding of the vocabulary: seq is the length of a run
    and adds no parameters.""",
    ("+ vocab * hidden", "+ (vocab + seq) * hidden"),
)

simple_without_the_count = lines(
    """The ledger says how many parameters it counts: its params is not left at 0.""",
    ("params=params,", "params=0,"),
)

simple_weights_are_a_count = lines(
    """A Ledger's weights are bytes: the number of parameters times precision_bytes.""",
    ("weights=params * precision_bytes", "weights=params"),
)

simple_gradients_are_a_count = lines(
    """A Ledger's gradients are bytes: one for each parameter, of precision_bytes.""",
    ("gradients=params * precision_bytes", "gradients=params"),
)

simple_adam_always_12 = lines(
    """12 bytes a parameter is one recipe of Adam; adam_bytes says what the optimizer takes
    here.""",
    ("params * adam_bytes", "params * 12"),
)

simple_adam_bytes_a_moment = lines(
    """adam_bytes is all that the optimizer keeps for a parameter, both moments together.""",
    ("params * adam_bytes", "params * 2 * adam_bytes"),
)

simple_adam_bytes_of_values = lines(
    """adam_bytes are bytes a parameter already: they are not multiplied by precision_bytes.""",
    ("params * adam_bytes", "params * adam_bytes * precision_bytes"),
)

simple_weights_always_in_16_bit = lines(
    """Weights and gradients take precision_bytes a parameter, which need not be 2.""",
    ("weights=params * precision_bytes", "weights=params * 2"),
    ("gradients=params * precision_bytes", "gradients=params * 2"),
)

simple_cache_always_in_16_bit = lines(
    """The cache's values take precision_bytes each; the factor 2 beside it counts K and V.""",
    ("head_dim * 2 * precision_bytes", "head_dim * 2 * 2"),
)

simple_cache_of_one_token = lines(
    """Every token of a sequence keeps its K and V: the cache grows with seq.""",
    ("batch * seq", "batch"),
)

simple_cache_of_one_head = lines(
    """Every head has a key and a value of its own: K and V are heads * head_dim wide.""",
    ("heads * head_dim", "head_dim"),
)

simple_with_activations = lines(
    """The first script has no line for activations: in its ledger they stay 0.""",
    (
        "        kv_cache=batch",
        "        activations=simple_activation_bytes(batch, seq, layers, hidden),\n"
        "        kv_cache=batch",
    ),
)
