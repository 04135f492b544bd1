from grader.suite import lines, misconception


@misconception()
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


@misconception()
def states_weights_only(n_params, recipe):
    """ "7B needs 14 GB" is inference: training also holds gradients and Adam's states, eight times
    the 13.5 GB of weights in all."""
    return Ledger(params=n_params, weights=n_params * (4 if recipe == "fp32" else 2))


@misconception()
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


@misconception()
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


@misconception()
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


@misconception()
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


states_master_among_the_weights = lines(
    """The float32 master copy belongs to the optimizer, which alone reads it: sharding the
    optimizer shards it too. The weights that compute are the bf16 ones.""",
    ('"bf16_mixed": (2, 2, 4 + 4 + 4)', '"bf16_mixed": (2 + 4, 2, 4 + 4)'),
    ('"bf16_fp32grads": (2, 4, 4 + 4 + 4)', '"bf16_fp32grads": (2 + 4, 4, 4 + 4)'),
)

states_master_of_float32_weights = lines(
    """Weights in float32 are their own master copy: fp32 has two moments beside them, 8 bytes.""",
    ('"fp32": (4, 4, 4 + 4)', '"fp32": (4, 4, 4 + 4 + 4)'),
)

states_both_gradients = lines(
    """bf16 gradients are added to the float32 buffer and not kept beside it: 4 bytes a parameter,
    18 in all, not 20.""",
    ('"bf16_fp32grads": (2, 4, 4 + 4 + 4)', '"bf16_fp32grads": (2, 2 + 4, 4 + 4 + 4)'),
)

states_pure_with_a_master = lines(
    """torch.optim.AdamW keeps two moments of the parameters' dtype and no master copy: bf16_pure is
    not mixed precision.""",
    ('"bf16_pure": (2, 2, 2 + 2)', '"bf16_pure": (2, 2, 4 + 4 + 4)'),
)

states_in_gib = lines(
    """A Ledger is in bytes; GiB are for printing.""",
    ("(size * n_params for size in", "(size * n_params / GIB for size in"),
)

states_without_the_count = lines(
    """The ledger says how many parameters it counts: its params is n_params.""",
    ("params=n_params, weights", "weights"),
)
