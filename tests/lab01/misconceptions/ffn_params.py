from grader.suite import lines, misconception


@misconception()
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


@misconception()
def ffn_three_times_4d(config, layer=0, active=False):
    """SwiGLU's three matrices do not have the GPT's width 4 d: Llama's intermediate_size is about
    8/3 d, so that three matrices cost as much as two of 4 d did. Three of 4 d would make 8.85 B."""
    return 12 * config.hidden_size**2


@misconception()
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


@misconception()
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


@misconception()
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


@misconception()
def ffn_one_expert(config, layer=0, active=False):
    """A mixture-of-experts layer has num_experts MLPs in memory, not one."""

    def mlp(width):
        into = 2 if config.gated_mlp else 1
        bias = into * width + config.hidden_size if config.mlp_bias else 0
        return (into + 1) * config.hidden_size * width + bias

    if not config.is_moe_layer(layer):
        return mlp(config.intermediate_size)
    return mlp(config.moe_intermediate_size) + config.hidden_size * config.num_experts


@misconception()
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


@misconception()
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


ffn_biases_of_hidden = lines(
    """A bias is as long as its matrix's output: up and gate write the MLP's width, only down writes
    hidden_size.""",
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
