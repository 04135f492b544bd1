from grader.suite import misconception


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
