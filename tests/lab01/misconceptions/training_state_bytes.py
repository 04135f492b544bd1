from grader.suite import lines

states_without_master = lines(
    """Mixed precision keeps a float32 master copy of the weights beside Adam's two moments: 12
    bytes of optimizer, not 8. Without it a 7 B model would need 80.9 GB and not 107.8.""",
    ('"bf16_mixed": (2, 2, 4 + 4 + 4)', '"bf16_mixed": (2, 2, 4 + 4)'),
    ('"bf16_fp32grads": (2, 4, 4 + 4 + 4)', '"bf16_fp32grads": (2, 4, 4 + 4)'),
)


states_mixed_without_master = lines(
    """Mixed precision keeps a float32 master copy of the weights beside Adam's two moments: 12
    bytes of optimizer, not 8. Without it a 7 B model would need 80.9 GB and not 107.8.""",
    ('"bf16_mixed": (2, 2, 4 + 4 + 4)', '"bf16_mixed": (2, 2, 4 + 4)'),
)


states_weights_only = lines(
    """"7B needs 14 GB" is inference: training also holds gradients and Adam's states, eight times
    the 13.5 GB of weights in all.""",
    (", gradients=gradients, optimizer=optimizer", ""),
)


states_always_18 = lines(
    """18 bytes a parameter (121.3 GB for 7 B) is Megatron's recipe, with float32 gradients:
    bf16_fp32grads. Plain bf16_mixed keeps gradients in bf16, 16 in all.""",
    ('"bf16_mixed": (2, 2, 4 + 4 + 4)', '"bf16_mixed": (2, 4, 4 + 4 + 4)'),
)


states_all_gradients_in_float32 = lines(
    """18 bytes a parameter (121.3 GB for 7 B) is Megatron's recipe, with float32 gradients:
    bf16_fp32grads. Plain bf16_mixed keeps gradients in bf16, 16 in all.""",
    ('"bf16_mixed": (2, 2, 4 + 4 + 4)', '"bf16_mixed": (2, 4, 4 + 4 + 4)'),
    ('"bf16_pure": (2, 2, 2 + 2)', '"bf16_pure": (2, 4, 2 + 2)'),
    ('"adam8bit": (2, 2, 1 + 1)', '"adam8bit": (2, 4, 1 + 1)'),
)


states_pure_bf16_keeps_float32 = lines(
    """torch's AdamW makes its moments in the parameters' dtype: on bf16 parameters they take 4
    bytes together, and nobody keeps a float32 copy.""",
    ('"bf16_pure": (2, 2, 2 + 2)', '"bf16_pure": (2, 2, 4 + 4)'),
)


states_one_moment = lines(
    """Adam keeps two moments of every gradient, its mean and its mean square.""",
    ('"fp32": (4, 4, 4 + 4)', '"fp32": (4, 4, 4)'),
    ('"bf16_mixed": (2, 2, 4 + 4 + 4)', '"bf16_mixed": (2, 2, 4 + 4)'),
    ('"bf16_fp32grads": (2, 4, 4 + 4 + 4)', '"bf16_fp32grads": (2, 4, 4 + 4)'),
    ('"bf16_pure": (2, 2, 2 + 2)', '"bf16_pure": (2, 2, 2)'),
    ('"adam8bit": (2, 2, 1 + 1)', '"adam8bit": (2, 2, 1)'),
    ("optimizer += 2 * 4 * blocks", "optimizer += 4 * blocks"),
)


states_one_moment_without_a_master = lines(
    """Adam keeps two moments of every gradient, its mean and its mean square.""",
    ('"fp32": (4, 4, 4 + 4)', '"fp32": (4, 4, 4)'),
    ('"bf16_pure": (2, 2, 2 + 2)', '"bf16_pure": (2, 2, 2)'),
)


states_one_moment_of_bf16_weights = lines(
    """Adam keeps two moments of every gradient, its mean and its mean square.""",
    ('"bf16_pure": (2, 2, 2 + 2)', '"bf16_pure": (2, 2, 2)'),
)


states_one_moment_of_float32_weights = lines(
    """Adam keeps two moments of every gradient, its mean and its mean square.""",
    ('"fp32": (4, 4, 4 + 4)', '"fp32": (4, 4, 4)'),
)


states_gb_for_gib = lines(
    """10**9 bytes are a GB, 2**30 a GiB, 7.4 % more: two bytes for each of 6.74e9 parameters print
    as 12.55 GiB, and 13.48 is the same size in GB. Return bytes and convert once, when
    printing.""",
    (
        "return Ledger(",
        "gigabytes = [size / 1e9 for size in (weights, gradients, optimizer)]\n"
        "    weights, gradients, optimizer = (size * GIB for size in gigabytes)\n"
        "    return Ledger(",
    ),
)


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


states_float32_gradients_for_the_master = lines(
    """Gradients are no copy of the weights, however wide they are: bf16_fp32grads keeps its
    float32 master and two moments as bf16_mixed does, 12 bytes beside the 6.""",
    ('"bf16_fp32grads": (2, 4, 4 + 4 + 4)', '"bf16_fp32grads": (2, 4, 4 + 4)'),
)


states_of_autocast = lines(
    """torch.autocast computes with casts of float32 weights; bf16_mixed has bf16 weights and bf16
    gradients, and its float32 copy is the optimizer's: 2 + 2 + 12.""",
    ('"bf16_mixed": (2, 2, 4 + 4 + 4)', '"bf16_mixed": (4, 4, 4 + 4)'),
)


states_float32_gradients_of_bf16 = lines(
    """bf16_fp32grads is named after its gradients: Megatron-LM adds them up in float32, four bytes
    a parameter.""",
    ('"bf16_fp32grads": (2, 4, 4 + 4 + 4)', '"bf16_fp32grads": (2, 2, 4 + 4 + 4)'),
)

state_blocks_across_both_moments = lines(
    """Both moments are cut into blocks together; each moment has blocks of its own, and each a
    last one that may not be full.""",
    (
        "        blocks = -(-n_params // 256)\n        optimizer += 2 * 4 * blocks\n",
        "        blocks = -(-2 * n_params // 256)\n        optimizer += 4 * blocks\n",
    ),
    gate=False,
)
