from grader.suite import lines

an_exact_fit_is_refused = lines(
    """Where the blocks fill what is left to the last byte, one is missing; what just fits,
    fits.""",
    (
        "int(left // kv_bytes_per_block)",
        "-int(-left // kv_bytes_per_block) - 1",
    ),
)


LEFT = "left = budget - model.weight_bytes / tp - activation_bytes - other_bytes"

utilization_of_free_memory = lines(
    """The utilization is taken of what is free after the weights; it is a part of the *card*, a
    ceiling for everything the engine holds. With 80 GiB, 0.9, 16 of weights and 6 of the rest that
    makes 57.6 GiB less 6 instead of 50.""",
    (
        LEFT,
        "free = gpu_bytes - model.weight_bytes / tp\n"
        "    left = gpu_memory_utilization * free - activation_bytes - other_bytes",
    ),
)

utilization_after_everything = lines(
    """The utilization is taken of what is free after everything else; it is a part of the *card*,
    out of which weights, activations and the rest are paid.""",
    (
        LEFT,
        "free = gpu_bytes - model.weight_bytes / tp - activation_bytes - other_bytes\n"
        "    left = gpu_memory_utilization * free",
    ),
)

the_whole_card = lines(
    """The utilization is not applied: the engine may use a part of the card only.""",
    ("budget = gpu_memory_utilization * gpu_bytes", "budget = gpu_bytes"),
)

heads_below_one = lines(
    """8 key/value heads over 16 GPUs are half a head each; a head is not divided further, both
    GPUs hold the same one, so more GPUs than heads do not shrink the cache any more.""",
    ("heads_here = max(1, heads // tp)", "heads_here = heads / tp"),
    (
        "return Capacity(num_blocks, kv_bytes_per_block, concurrency)",
        "return Capacity(num_blocks, int(kv_bytes_per_block), concurrency)",
    ),
)

every_gpu_holds_all_heads = lines(
    """Each GPU is given all key/value heads; tensor parallelism splits them, so 8 GPUs hold one of
    8 heads each.""",
    ("heads_here = max(1, heads // tp)", "heads_here = heads"),
)

every_gpu_holds_all_weights = lines(
    """Each GPU is charged with all weights; tensor parallelism splits them, which is why a 70B
    model fits eight cards and not one.""",
    ("model.weight_bytes / tp", "model.weight_bytes"),
)

keys_without_values = lines(
    """A block holds keys *and* values; with one of both only, twice as many seem to fit (a public
    calculator has this mistake).""",
    ("2 * model.num_hidden_layers * vector", "model.num_hidden_layers * vector"),
)

decimal_gigabytes = lines(
    """The bytes of the card are taken for decimal ones and scaled: 1 GiB is 1.074 GB, and
    everything here is in bytes already.""",
    (
        "budget = gpu_memory_utilization * gpu_bytes",
        "budget = gpu_memory_utilization * gpu_bytes * 1e9 / 2**30",
    ),
)

negative_blocks = lines(
    """A budget below zero gives a negative number of blocks; the weights alone do not fit, so there
    are none.""",
    ("max(0, int(left // kv_bytes_per_block))", "int(left // kv_bytes_per_block)"),
)

the_amount_of_the_budget = lines(
    """A budget below zero is used as if it were above: the sign says that the weights do not
    fit.""",
    ("int(left // kv_bytes_per_block)", "int(abs(left) // kv_bytes_per_block)"),
)

rounded_up = lines(
    """The last block does not fit whole; half a block holds nothing.""",
    ("max(0, int(left // kv_bytes_per_block))", "max(0, int(left // kv_bytes_per_block) + 1)"),
)

the_cache_has_the_weights_dtype = lines(
    """The cache is taken to be in 16 bits whatever kv_dtype_bytes says; an 8-bit cache holds twice
    as many tokens.""",
    ("model.head_dim * kv_dtype_bytes", "model.head_dim * 2"),
)

fractions_of_a_block = lines(
    """Concurrency divides tokens by tokens; a request takes whole blocks, so its last one counts
    even if a single token is in it.""",
    (
        "num_blocks / blocks_for(max_model_len, block_size)",
        "num_blocks * block_size / max_model_len",
    ),
)

activations_cost_nothing = lines(
    """The activations of the largest step are forgotten; they are there in every step, and the
    first full one would end in an out-of-memory error.""",
    (" - activation_bytes - other_bytes", " - other_bytes"),
)

to_the_nearest_block = lines(
    """The number of blocks is rounded to the nearest; more than half a block is no block. Round
    down.""",
    ("int(left // kv_bytes_per_block)", "round(left / kv_bytes_per_block)"),
)

blocks_of_one_layer = lines(
    """A block is given the keys and values of one layer; every layer has its own, and a block holds
    its tokens in all of them.""",
    ("2 * model.num_hidden_layers * vector", "2 * vector"),
)

always_sixteen_tokens = lines(
    """A block is taken to have 16 tokens whatever block_size says; one of 32 has twice the
    bytes.""",
    ("* vector * block_size", "* vector * 16"),
)

without_the_null_block = lines(
    """One block is taken off for the null block; num_blocks is what the memory holds, the null
    block among them.""",
    (
        "num_blocks = max(0, int(left // kv_bytes_per_block))",
        "num_blocks = max(0, int(left // kv_bytes_per_block) - 1)",
    ),
)

a_block_more_for_each_request = lines(
    """A request is given one block more than it needs where its last block is full: n // block_size
    + 1. Round up instead.""",
    ("blocks_for(max_model_len, block_size)", "(max_model_len // block_size + 1)"),
)


other_bytes_are_split = lines(
    """What a GPU holds beside weights and blocks is divided by the number of GPUs; tensor
    parallelism splits the weights and the heads, and each GPU has a context of its own.""",
    ("- activation_bytes - other_bytes", "- activation_bytes - other_bytes / tp"),
)

activations_are_split = lines(
    """The activations are divided by the number of GPUs; the figure is of one GPU's largest step,
    and tensor parallelism splits the weights and the heads.""",
    ("- activation_bytes - other_bytes", "- activation_bytes / tp - other_bytes"),
)

whole_requests_only = lines(
    """max_concurrency is rounded down; it is a ratio, and a request of half the length fits into
    half.""",
    ("num_blocks / blocks_for(", "num_blocks // blocks_for("),
)

a_block_on_all_gpus = lines(
    """kv_bytes_per_block is that of all GPUs together; it is asked for one GPU, whose memory the
    blocks have to fit into.""",
    (
        "return Capacity(num_blocks, kv_bytes_per_block, concurrency)",
        "return Capacity(num_blocks, kv_bytes_per_block * tp, concurrency)",
    ),
)

more_gpus_than_heads_always_fit = lines(
    """Heads that do not divide are refused only where there are fewer GPUs than heads; with more
    of them each head is copied, and their number must be a multiple of the heads.""",
    ("    if heads % tp and tp % heads:", "    if tp < heads and heads % tp:"),
    gate=False,
)
