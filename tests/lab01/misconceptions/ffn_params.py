from grader.suite import lines

ffn_two_matrices = lines(
    """A gated MLP (SwiGLU, GeGLU) has three matrices: gate, up and down. With two, Llama-2-7B
    would have 5.30 B parameters.""",
    ("into = 2 if config.gated_mlp else 1", "into = 1"),
)


ffn_three_times_4d = lines(
    """SwiGLU's three matrices do not have the GPT's width 4 d: Llama's intermediate_size is about
    8/3 d, so that three matrices cost as much as two of 4 d did. Three of 4 d would make 8.85
    B.""",
    (
        "_mlp_params(config, config.intermediate_size)",
        "_mlp_params(config, 4 * config.hidden_size)",
    ),
)


ffn_always_gated = lines(
    """A GPT's MLP is plain: up and down. Only families with gated_mlp have a third matrix.""",
    ("into = 2 if config.gated_mlp else 1", "into = 2"),
)


ffn_without_biases = lines(
    """With mlp_bias every matrix has a bias as long as its output: intermediate_size for up (and
    gate), hidden_size for down.""",
    ("params += into * width + config.hidden_size", "params += 0"),
)


ffn_without_router = lines(
    """A mixture of experts has a router: one row of hidden_size for every expert.""",
    (" + router\n", "\n"),
)


ffn_one_expert = lines(
    """A mixture-of-experts layer has num_experts MLPs in memory, not one.""",
    ("if active else config.num_experts", "if active else 1"),
)


ffn_one_expert_for_all = lines(
    """A mixture-of-experts layer has num_experts MLPs in memory, not one.""",
    ("experts = routed + config.n_shared_experts", "experts = 1"),
)


ffn_only_active_experts = lines(
    """Memory follows all experts, compute follows the ones a token uses: without active=True every
    expert counts.""",
    (
        "routed = config.num_experts_per_tok if active else config.num_experts",
        "routed = config.num_experts_per_tok",
    ),
)


ffn_experts_as_wide_as_dense = lines(
    """An expert is moe_intermediate_size wide, not intermediate_size: Qwen3-30B-A3B has 6144 in
    its config and experts of 768.""",
    (
        "_mlp_params(config, config.moe_intermediate_size)",
        "_mlp_params(config, config.intermediate_size)",
    ),
)


ffn_biases_of_hidden = lines(
    """A bias is as long as its matrix's output: up and gate write the MLP's width, only down
    writes hidden_size.""",
    ("params += into * width + config", "params += into * config.hidden_size + config"),
)


ffn_bias_of_down_only = lines(
    """mlp_bias gives every matrix a bias, up and gate too.""",
    ("params += into * width + config", "params += config"),
)


ffn_router_of_chosen_experts = lines(
    """The router scores every expert to choose a few: its matrix has num_experts rows, not
    num_experts_per_tok.""",
    (
        "router = config.hidden_size * config.num_experts\n",
        "router = config.hidden_size * config.num_experts_per_tok\n",
    ),
)


ffn_router_in_every_expert = lines(
    """A layer has one router in front of all its experts, not one in each of them.""",
    (
        "experts * _mlp_params(config, config.moe_intermediate_size) + router",
        "experts * (_mlp_params(config, config.moe_intermediate_size) + router)",
    ),
)


ffn_dense_beside_the_experts = lines(
    """Experts take the place of the dense MLP: a layer that routes has none of intermediate_size
    beside them.""",
    (
        "config.moe_intermediate_size) + router",
        "config.moe_intermediate_size) + router + _mlp_params(config, config.intermediate_size)",
    ),
)


ffn_biases_of_the_inputs = lines(
    """A bias is added to what its matrix writes: up and gate read hidden_size and write the MLP's
    width, down the other way round.""",
    (
        "params += into * width + config.hidden_size",
        "params += into * config.hidden_size + width",
    ),
)


ffn_biases_of_the_width = lines(
    """Down writes hidden_size numbers, so its bias is as long; only up and gate write the MLP's
    width.""",
    ("params += into * width + config.hidden_size", "params += (into + 1) * width"),
)


ffn_gate_without_a_bias = lines(
    """mlp_bias gives a bias to every matrix, the gate's too: two biases of the MLP's width in a
    gated one.""",
    ("params += into * width + config.hidden_size", "params += width + config.hidden_size"),
)


ffn_down_without_a_bias = lines(
    """mlp_bias gives a bias to every matrix, also to down, whose output is hidden_size long.""",
    ("params += into * width + config.hidden_size", "params += into * width"),
)


ffn_first_layer_always_dense = lines(
    """first_k_dense_replace says how many first layers are dense, and it may be none: Mixtral
    routes in layer 0 already. Ask config.is_moe_layer(layer).""",
    (
        "if not config.is_moe_layer(layer):",
        "if layer == 0 or not config.is_moe_layer(layer):",
    ),
)


ffn_every_layer_dense = lines(
    """A layer with experts has an MLP of moe_intermediate_size for each of them and a router:
    config.is_moe_layer(layer) says which layers these are.""",
    (
        "if not config.is_moe_layer(layer):",
        "if not config.is_moe_layer(layer) or config.num_experts:",
    ),
)


ffn_experts_always_gated = lines(
    """Experts have the kind of MLP that a dense layer has: without gated_mlp two matrices, not
    three.""",
    (
        "experts = routed + config.n_shared_experts\n",
        "experts = routed + config.n_shared_experts\n"
        "    from dataclasses import replace\n"
        "\n"
        "    config = replace(config, gated_mlp=True)\n",
    ),
)


ffn_experts_never_gated = lines(
    """Experts have the kind of MLP that a dense layer has: with gated_mlp gate, up and down.""",
    (
        "experts = routed + config.n_shared_experts\n",
        "experts = routed + config.n_shared_experts\n"
        "    from dataclasses import replace\n"
        "\n"
        "    config = replace(config, gated_mlp=False)\n",
    ),
)


ffn_one_router_number_an_expert = lines(
    """The router multiplies a token's hidden_size values by one column for each expert: it is a
    matrix, not one number an expert.""",
    ("router = config.hidden_size * config.num_experts\n", "router = config.num_experts\n"),
)

ffn_shared_experts_as_one = lines(
    """The shared experts are counted as one MLP of their widths together, so their output biases
    exist once; each of them is an MLP of its own.""",
    (
        "    return experts * _mlp_params(config, config.moe_intermediate_size) + router\n",
        "    width = config.moe_intermediate_size\n"
        "    shared = _mlp_params(config, config.n_shared_experts * width)\n"
        "    return routed * _mlp_params(config, width) + shared + router\n",
    ),
    gate=False,
)

ffn_router_bias_of_the_chosen = lines(
    """With active=True the router's bias is counted for the chosen experts only; the router asks
    about all of them, and all of it counts.""",
    ("        router += config.num_experts\n", "        router += routed\n"),
    gate=False,
)

ffn_plain_of_one_matrix = lines(
    """A plain MLP goes up to its width and down again: two matrices.""",
    ("params = (into + 1) *", "params = (3 if config.gated_mlp else 1) *"),
)

ffn_plain_four_times_as_wide = lines(
    """Four times hidden_size is the GPT's usual width, not a rule: intermediate_size says how wide
    the MLP is, also without a gate.""",
    (
        "_mlp_params(config, config.intermediate_size)",
        "_mlp_params(\n"
        "            config,\n"
        "            config.intermediate_size if config.gated_mlp else 4 * config.hidden_size,\n"
        "        )",
    ),
)

ffn_biases_always = lines(
    """Most MLPs have no biases: they count only with mlp_bias.""",
    ("if config.mlp_bias:", "if True:"),
)

ffn_of_all_layers = lines(
    """This is the MLP of one layer: total_params adds the layers up.""",
    (
        "return _mlp_params(config, config.intermediate_size)",
        "return config.num_hidden_layers * _mlp_params(config, config.intermediate_size)",
    ),
    (
        "return experts * _mlp_params(config, config.moe_intermediate_size) + router",
        "layer = experts * _mlp_params(config, config.moe_intermediate_size) + router\n"
        "    return config.num_hidden_layers * layer",
    ),
)

ffn_layers_counted_from_one = lines(
    """Layers are numbered from 0: with first_k_dense_replace = k the layers 0 to k - 1 are dense,
    and layer k routes.""",
    ("config.is_moe_layer(layer)", "config.is_moe_layer(layer - 1)"),
)

ffn_first_layer_for_all = lines(
    """Layers differ: whether this one has experts depends on the argument `layer`.""",
    ("config.is_moe_layer(layer)", "config.is_moe_layer(0)"),
    gate=False,
)

ffn_every_layer_routes = lines(
    """A model with experts may have dense first layers (DeepSeek-V3 three): config.is_moe_layer
    says which layers route.""",
    ("if not config.is_moe_layer(layer):", "if not config.num_experts:"),
    gate=False,
)

ffn_dense_as_wide_as_experts = lines(
    """The dense first layers of a model with experts are intermediate_size wide; an expert's width
    is another field.""",
    (
        "_mlp_params(config, config.intermediate_size)",
        "_mlp_params(config, config.moe_intermediate_size or config.intermediate_size)",
    ),
    gate=False,
)

ffn_without_shared_experts = lines(
    """Shared experts are MLPs too, beside the routed ones: n_shared_experts of them count.""",
    ("routed + config.n_shared_experts", "routed"),
    gate=False,
)

ffn_one_shared_expert = lines(
    """n_shared_experts says how many shared experts there are; it is not a switch for one.""",
    ("routed + config.n_shared_experts", "routed + bool(config.n_shared_experts)"),
    gate=False,
)

ffn_shared_experts_as_wide_as_dense = lines(
    """A shared expert is as wide as a routed one, moe_intermediate_size: it is not a dense MLP.""",
    (
        "    return experts * _mlp_params(config, config.moe_intermediate_size) + router\n",
        "    shared = config.n_shared_experts * _mlp_params(config, config.intermediate_size)\n"
        "    return routed * _mlp_params(config, config.moe_intermediate_size) + shared + router\n",
    ),
    gate=False,
)

ffn_router_for_shared_experts = lines(
    """Shared experts are always on, so nobody scores them: the router has a row for each routed
    expert only.""",
    (
        "router = config.hidden_size * config.num_experts\n",
        "router = config.hidden_size * (config.num_experts + config.n_shared_experts)\n",
    ),
    gate=False,
)

ffn_without_router_bias = lines(
    """With router_bias the router has one number more for each expert.""",
    ("router += config.num_experts\n", "router += 0\n"),
    gate=False,
)

ffn_router_bias_of_hidden = lines(
    """A bias is as long as its output: the router scores num_experts experts, so its bias has as
    many numbers.""",
    ("router += config.num_experts\n", "router += config.hidden_size\n"),
    gate=False,
)

ffn_router_bias_always = lines(
    """Most routers have no bias: it counts only with router_bias.""",
    ("if config.router_bias:", "if True:"),
)

ffn_experts_without_biases = lines(
    """Experts are the same kind of MLP as a dense layer: with mlp_bias their matrices have biases
    too.""",
    (
        "experts = routed + config.n_shared_experts\n",
        "experts = routed + config.n_shared_experts\n"
        "    from dataclasses import replace\n"
        "\n"
        "    config = replace(config, mlp_bias=False)\n",
    ),
    gate=False,
)

ffn_active_counts_all_experts = lines(
    """active=True counts what one token uses: num_experts_per_tok routed experts in place of
    all.""",
    ("if active else config.num_experts", "if False else config.num_experts"),
    gate=False,
)

ffn_active_without_shared_experts = lines(
    """Every token goes through the shared experts, so they count with active=True as well.""",
    (
        "experts = routed + config.n_shared_experts",
        "experts = routed if active else routed + config.n_shared_experts",
    ),
    gate=False,
)

ffn_active_router_of_the_chosen = lines(
    """The router scores all experts to choose a few: with active=True its whole matrix counts.""",
    (
        "router = config.hidden_size * config.num_experts\n",
        "router = config.hidden_size * routed\n",
    ),
    gate=False,
)

ffn_active_without_router = lines(
    """Every token meets the router before it meets an expert: with active=True it counts too.""",
    (
        "config.moe_intermediate_size) + router",
        "config.moe_intermediate_size) + router * (not active)",
    ),
    gate=False,
)

ffn_active_one_expert = lines(
    """A token goes to num_experts_per_tok experts, which may be more than one.""",
    ("config.num_experts_per_tok if active", "1 if active"),
    gate=False,
)
