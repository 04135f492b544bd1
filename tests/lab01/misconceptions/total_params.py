from grader.suite import lines, misconception

total_one_embedding = lines(
    """An untied model has two matrices of vocab x hidden, embedding and head. With one, Llama-2-7B
    would have 6,607,343,616 parameters.""",
    (
        "    embeddings = (1 if config.tie_word_embeddings else 2) * config.vocab_size * d\n"
        "    positions = config.position_rows * d\n",
        "",
    ),
    ("embeddings + positions", "config.vocab_size * d + config.position_rows * d"),
)

total_tied_twice = lines(
    """A tied head is the embedding itself and counts once. Counted twice, GPT-2 has 163,037,184
    parameters and Llama-3.2-1B 1,498,482,688: what tools print when they lose the tie.""",
    (
        "    embeddings = (1 if config.tie_word_embeddings else 2) * config.vocab_size * d\n"
        "    positions = config.position_rows * d\n",
        "",
    ),
    ("embeddings + positions", "2 * config.vocab_size * d + config.position_rows * d"),
)


@misconception()
def total_eight_whole_models(config, active=False):
    """Eight times 7 B is not what "8x7B" means: experts replace the MLP only, attention and
    embeddings are shared. Mixtral-8x7B has 46.70 B parameters, eight Mistral-7B would be 57.9
    B."""
    d = config.hidden_size
    norm = 2 * d if config.norm_bias else d
    width = config.moe_intermediate_size or config.intermediate_size
    mlp = (3 if config.gated_mlp else 2) * d * width
    if config.mlp_bias:
        mlp += (2 if config.gated_mlp else 1) * width + d
    layer = attention_params(config) + mlp + config.norms_per_layer * norm
    tables = (1 if config.tie_word_embeddings else 2) * config.vocab_size + config.position_rows
    return max(1, config.num_experts) * (config.num_hidden_layers * layer + tables * d + norm)


@misconception()
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


@misconception()
def total_without_norms(config, active=False):
    """Norms are parameters too: norms_per_layer in every layer and one after the last."""
    d = config.hidden_size
    layers = sum(
        attention_params(config) + ffn_params(config, layer, active)
        for layer in range(config.num_hidden_layers)
    )
    tables = (1 if config.tie_word_embeddings else 2) * config.vocab_size + config.position_rows
    return tables * d + layers


@misconception()
def total_norms_without_bias(config, active=False):
    """LayerNorm has a weight and a bias (norm_bias); only RMSNorm has a weight alone."""
    d = config.hidden_size
    layers = sum(
        attention_params(config) + ffn_params(config, layer, active) + config.norms_per_layer * d
        for layer in range(config.num_hidden_layers)
    )
    tables = (1 if config.tie_word_embeddings else 2) * config.vocab_size + config.position_rows
    return tables * d + layers + d


@misconception()
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


@misconception()
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


total_one_norm_a_layer = lines(
    """A layer has a norm before attention and another before the MLP, two at least:
    norms_per_layer says how many.""",
    ("config.norms_per_layer * norm", "norm"),
)

total_without_embeddings = lines(
    """The embedding and the head are parameters too. Without them the model that is called
    Pythia-6.9B has 6.4 B.""",
    ("return embeddings + positions", "return positions"),
)

total_active_only = lines(
    """Memory holds every expert; only active=True leaves out those that a token does not use.""",
    ("ffn_params(config, layer, active)", "ffn_params(config, layer, True)"),
)

total_head_with_a_bias = lines(
    """The head is one matrix of vocab_size x hidden_size; in these families it has no bias.""",
    (
        "    positions = config.position_rows * d\n",
        "    positions = config.position_rows * d\n"
        "    positions += 0 if config.tie_word_embeddings else config.vocab_size\n",
    ),
)

total_a_norm_after_the_embedding = lines(
    """One norm follows the last layer; none stands before the first.""",
    ("layers + norm", "layers + 2 * norm"),
)

total_active_without_the_embedding = lines(
    """With active=True the embedding of an untied model is left out as a mere look-up; embedding
    and head both count.""",
    (
        "(1 if config.tie_word_embeddings else 2)",
        "(1 if config.tie_word_embeddings or active else 2)",
    ),
    gate=False,
)

total_norm_biases_of_two_norms = lines(
    """norm_bias is counted for two norms a layer; a layer has norms_per_layer of them, one or four
    as well.""",
    ("config.norms_per_layer * norm\n", "config.norms_per_layer * d + 2 * (norm - d)\n"),
)

total_tie_the_wrong_way_round = lines(
    """tie_word_embeddings means that the head *is* the embedding: a tied model has one such
    matrix, an untied one has two.""",
    ("(1 if config.tie_word_embeddings else 2)", "(2 if config.tie_word_embeddings else 1)"),
)

total_last_norm_without_bias = lines(
    """The last norm is of the same kind as the others: with norm_bias it has a weight and a
    bias.""",
    ("layers + norm", "layers + d"),
)

total_layer_norms_without_bias = lines(
    """With norm_bias every norm has a bias beside its weight, those inside the layers too.""",
    ("config.norms_per_layer * norm\n", "config.norms_per_layer * d\n"),
)

total_norms_always_with_bias = lines(
    """An RMSNorm has a weight only: a norm's bias counts where norm_bias says so.""",
    ("norm = 2 * d if config.norm_bias else d", "norm = 2 * d"),
)

total_positions_are_rows = lines(
    """position_rows is the number of rows: each of them is a vector of hidden_size.""",
    ("positions = config.position_rows * d", "positions = config.position_rows"),
)

total_a_last_norm_in_every_layer = lines(
    """The last norm stands once, after all layers: it is not one more in each of them.""",
    ("config.norms_per_layer * norm\n", "(config.norms_per_layer + 1) * norm\n"),
)

total_four_norms_always = lines(
    """Four norms a layer are Gemma-2's; norms_per_layer says how many a layer has.""",
    ("config.norms_per_layer * norm\n", "4 * norm\n"),
)

total_with_qk_norms_twice = lines(
    """Norms on queries and keys are inside attention: attention_params has counted them
    already.""",
    (
        "config.norms_per_layer * norm\n",
        "config.norms_per_layer * norm\n        + 2 * config.head_dim * config.qk_norm\n",
    ),
)

total_with_routers_twice = lines(
    """The router belongs to the layer's MLP: ffn_params has counted it already.""",
    (
        "config.norms_per_layer * norm\n",
        "config.norms_per_layer * norm\n"
        "        + config.is_moe_layer(layer) * d * config.num_experts\n",
    ),
)

total_with_biases_of_attention_twice = lines(
    """Biases belong to their projections: attention_params and ffn_params have counted them
    already.""",
    (
        "config.norms_per_layer * norm\n",
        "config.norms_per_layer * norm\n        + (4 * d if config.qkv_bias else 0)\n",
    ),
)

total_attention_once = lines(
    """Every layer has attention of its own: only the embedding and the last norm stand once.""",
    (
        "attention_params(config) + ffn_params",
        "(layer == 0) * attention_params(config) + ffn_params",
    ),
)

total_one_mlp = lines(
    """Every layer has an MLP of its own: only the embedding and the last norm stand once.""",
    (
        "ffn_params(config, layer, active) +",
        "(layer == 0) * ffn_params(config, layer, active) +",
    ),
)

total_one_layer = lines(
    """All num_hidden_layers layers have parameters of their own, not one of them for all.""",
    ("range(config.num_hidden_layers)", "range(1)"),
)

total_one_layer_short = lines(
    """Layers are numbered from 0 to num_hidden_layers - 1: all of these count, the first and the
    last too.""",
    ("range(config.num_hidden_layers)", "range(config.num_hidden_layers - 1)"),
)

total_one_layer_too_many = lines(
    """There are num_hidden_layers layers: the embedding and the head are none of them.""",
    ("range(config.num_hidden_layers)", "range(config.num_hidden_layers + 1)"),
)

total_every_layer_like_the_first = lines(
    """Layers differ: DeepSeek-V3's first three are dense and the other 58 have experts. Ask
    ffn_params for each layer's number.""",
    ("ffn_params(config, layer, active)", "ffn_params(config, 0, active)"),
    gate=False,
)

total_every_layer_like_the_last = lines(
    """Layers differ: DeepSeek-V3's first three are dense and the other 58 have experts. Ask
    ffn_params for each layer's number.""",
    (
        "ffn_params(config, layer, active)",
        "ffn_params(config, config.num_hidden_layers - 1, active)",
    ),
    gate=False,
)

total_layers_counted_from_one = lines(
    """The first layer is number 0: counted from 1, one dense layer too few is found.""",
    ("ffn_params(config, layer, active)", "ffn_params(config, layer + 1, active)"),
    gate=False,
)

total_active_makes_no_difference = lines(
    """`active` has to reach ffn_params: with active=True the experts that a token does not use are
    left out.""",
    ("ffn_params(config, layer, active)", "ffn_params(config, layer)"),
    gate=False,
)

total_active_without_embeddings = lines(
    """active=True leaves out unused experts and nothing else: embedding and head both count.""",
    ("return embeddings +", "return (0 if active else embeddings) +"),
    gate=False,
)
