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
    """torch.optim.AdamW keeps two moments of the parameters' dtype and no master copy: bf16_pure
    is not mixed precision.""",
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
    """Gradients are not a copy of the weights, however wide they are: bf16_fp32grads keeps its
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


states_master_in_16_bit = lines(
    """The master copy is float32: a second copy in 16 bits would lose the same small updates.""",
    ('"bf16_mixed": (2, 2, 4 + 4 + 4)', '"bf16_mixed": (2, 2, 2 + 4 + 4)'),
)


states_sixteen_in_the_optimizer = lines(
    """16 bytes a parameter is the sum of weights, gradients and optimizer: the optimizer's part of
    it is 12.""",
    ('"bf16_mixed": (2, 2, 4 + 4 + 4)', '"bf16_mixed": (2, 2, 16)'),
)


states_mixed_weights_in_float32 = lines(
    """The weights of mixed precision are bf16, two bytes: their float32 copy is the optimizer's
    and counted there.""",
    ('"bf16_mixed": (2, 2, 4 + 4 + 4)', '"bf16_mixed": (4, 2, 4 + 4 + 4)'),
)


states_megatron_of_float32_weights = lines(
    """bf16_fp32grads differs from bf16_mixed in its gradients only: its weights are bf16, two
    bytes a parameter.""",
    ('"bf16_fp32grads": (2, 4, 4 + 4 + 4)', '"bf16_fp32grads": (4, 4, 4 + 4 + 4)'),
)


states_pure_with_float32_gradients = lines(
    """Nothing of bf16_pure is float32: torch gives a gradient the dtype of its parameter, two
    bytes.""",
    ('"bf16_pure": (2, 2, 2 + 2)', '"bf16_pure": (2, 4, 2 + 2)'),
)


states_pure_with_a_bf16_master = lines(
    """bf16_pure has no copy of its weights: AdamW updates them where they are and keeps two
    moments.""",
    ('"bf16_pure": (2, 2, 2 + 2)', '"bf16_pure": (2, 2, 2 + 2 + 2)'),
)


states_fp32_with_16_bit_gradients = lines(
    """fp32 means everything in float32, gradients too: four bytes each.""",
    ('"fp32": (4, 4, 4 + 4)', '"fp32": (4, 2, 4 + 4)'),
)


states_fp32_without_gradients = lines(
    """Gradients are a term of their own, also in float32: four bytes beside the weights' four and
    the moments' eight.""",
    ('"fp32": (4, 4, 4 + 4)', '"fp32": (4, 0, 4 + 4)'),
)

state_moments_without_scales = lines(
    """A byte says a moment's value only together with its block's scale: each block of 256 keeps a
    float32 for each moment.""",
    ("optimizer += 2 * 4 * blocks", "optimizer += 0"),
    gate=False,
)

state_scales_of_one_moment = lines(
    """Each of the two moments has scales of its own: two float32 numbers a block.""",
    ("optimizer += 2 * 4 * blocks", "optimizer += 4 * blocks"),
    gate=False,
)

state_scales_of_one_byte = lines(
    """The moments have one byte a value, their scales are float32: four bytes a block and
    moment.""",
    ("optimizer += 2 * 4 * blocks", "optimizer += 2 * blocks"),
    gate=False,
)

state_full_blocks_only = lines(
    """The last block needs its scale too when it is not full: the number of blocks is rounded
    up.""",
    ("blocks = -(-n_params // 256)", "blocks = n_params // 256"),
    gate=False,
)

state_fractions_of_a_block = lines(
    """Part of a block has a whole scale: blocks are counted, so their number is rounded up to a
    whole one.""",
    ("blocks = -(-n_params // 256)", "blocks = n_params / 256"),
    gate=False,
)

state_a_block_more = lines(
    """A multiple of 256 ends with a full block: no empty one follows it that would need a
    scale.""",
    ("blocks = -(-n_params // 256)", "blocks = n_params // 256 + 1"),
    gate=False,
)

state_blocks_of_2048 = lines(
    """A block here has 256 values, not the 2,048 of the first paper.""",
    ("blocks = -(-n_params // 256)", "blocks = -(-n_params // 2048)"),
    gate=False,
)

state_blocks_of_64 = lines(
    """A block here has 256 values, not the 64 of 4-bit weights.""",
    ("blocks = -(-n_params // 256)", "blocks = -(-n_params // 64)"),
    gate=False,
)

state_a_scale_a_parameter = lines(
    """A scale is shared by a block of 256 values: one for every value would take more than it
    saves.""",
    ("blocks = -(-n_params // 256)", "blocks = n_params"),
    gate=False,
)

state_eight_bit_with_a_master = lines(
    """adam8bit keeps no float32 master copy: its optimizer has two one-byte moments and their
    scales.""",
    ('"adam8bit": (2, 2, 1 + 1)', '"adam8bit": (2, 2, 4 + 1 + 1)'),
    gate=False,
)

state_eight_bit_one_moment = lines(
    """8-bit Adam is Adam: it keeps two moments, one byte each.""",
    ('"adam8bit": (2, 2, 1 + 1)', '"adam8bit": (2, 2, 1)'),
    gate=False,
)

state_eight_bit_weights = lines(
    """Only the optimizer's moments have 8 bits: weights and gradients are bf16, two bytes each.""",
    ('"adam8bit": (2, 2, 1 + 1)', '"adam8bit": (1, 1, 1 + 1)'),
    gate=False,
)

state_eight_bit_gradients = lines(
    """Only the optimizer's moments have 8 bits: the gradients are bf16, two bytes each.""",
    ('"adam8bit": (2, 2, 1 + 1)', '"adam8bit": (2, 1, 1 + 1)'),
    gate=False,
)

state_unknown_recipe_is_a_key_error = lines(
    """A recipe that is not there is looked up before it is checked: the dictionary's KeyError
    comes out in place of the ValueError.""",
    (
        "    if recipe not in per_param:\n"
        '        raise ValueError(f"recipe is {recipe!r}; it must be one of'
        " {', '.join(per_param)}.\")\n",
        "",
    ),
    gate=False,
)

state_unknown_recipe_is_mixed = lines(
    """A recipe that is not there is taken for mixed precision; who has misspelt one gets a wrong
    ledger in silence.""",
    (
        '        raise ValueError(f"recipe is {recipe!r}; it must be one of'
        " {', '.join(per_param)}.\")\n",
        '        recipe = "bf16_mixed"\n',
    ),
    gate=False,
)

state_refusal_names_no_recipes = lines(
    """The error's text names only the recipe that was asked for; it must also list those that
    there are.""",
    (
        "f\"recipe is {recipe!r}; it must be one of {', '.join(per_param)}.\"",
        'f"unknown recipe {recipe!r}"',
    ),
    gate=False,
)

state_recipe_in_any_letters = lines(
    """A recipe is made lower case, or stripped of blanks, before it is checked: names are taken
    exactly as they are listed, and other ones refused.""",
    (
        "    if recipe not in per_param:\n",
        "    recipe = recipe.strip().lower()\n    if recipe not in per_param:\n",
    ),
    gate=False,
)
