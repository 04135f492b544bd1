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
    """The number of blocks is rounded to the nearest; more than half a block is not a block. Round
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

FITTING = "num_blocks = max(0, int(left // kv_bytes_per_block))"
BUDGET = "budget = gpu_memory_utilization * gpu_bytes"
ITS_HEADS = "heads_here = max(1, heads // tp)"
BLOCK = "kv_bytes_per_block = 2 * model.num_hidden_layers * vector * block_size"
AT_ONCE = "concurrency = num_blocks / blocks_for(max_model_len, block_size)"
RANGE = "    if not 0 < gpu_memory_utilization <= 1:\n"
DIVIDES = "    if heads % tp and tp % heads:\n"
FOUND = "return Capacity(num_blocks, kv_bytes_per_block, concurrency)"

weights_cost_nothing = lines(
    """The weights are not taken off; they are most of what the engine holds, and blocks get what
    they leave.""",
    (LEFT, "left = budget - activation_bytes - other_bytes"),
)

the_rest_costs_nothing = lines(
    """other_bytes is not taken off: the context, captured graphs and the like lie in the same part
    of the card.""",
    (LEFT, LEFT.replace(" - other_bytes", "")),
)

utilization_of_what_the_rest_leaves = lines(
    """The utilization is taken of the card less other_bytes; it is a part of the *card*, and the
    rest is paid out of it.""",
    (
        LEFT,
        "free = gpu_bytes - other_bytes\n"
        "    left = gpu_memory_utilization * free - model.weight_bytes / tp - activation_bytes",
    ),
)

the_memory_of_all_gpus = lines(
    """The bytes of all GPUs are added up; everything here is of one GPU, and each has its own
    blocks for its heads.""",
    (BUDGET, BUDGET + " * tp"),
)

heads_of_one_gpu_only = lines(
    """With more GPUs than key/value heads each GPU is given all of them; it keeps one, a copy of
    another GPU's.""",
    (ITS_HEADS, "heads_here = heads // tp if heads >= tp else heads"),
)

no_head_is_left = lines(
    """With more GPUs than key/value heads the quotient is 0, and so are a block's bytes; a GPU has
    one head at least, a copy of another's.""",
    (ITS_HEADS, "heads_here = heads // tp"),
)

bytes_of_one_token = lines(
    """kv_bytes_per_block is that of a token; a block holds block_size of them.""",
    (BLOCK, BLOCK.replace(" * block_size", "")),
)

a_head_without_its_width = lines(
    """A key is one number a head here; it is a vector of head_dim numbers.""",
    (
        "vector = heads_here * model.head_dim * kv_dtype_bytes",
        "vector = heads_here * kv_dtype_bytes",
    ),
)

the_cache_has_one_byte_a_value = lines(
    """The numbers of a block are counted and not their bytes; each has kv_dtype_bytes.""",
    ("model.head_dim * kv_dtype_bytes", "model.head_dim"),
)

keys_and_values_taken_twice = lines(
    """The factor 2 for keys and values is there twice; the 2 of kv_dtype_bytes is another one.""",
    (BLOCK, BLOCK.replace("= 2 *", "= 4 *")),
)

blocks_are_a_float = lines(
    """num_blocks is a float, because // of floats gives one; blocks are counted in whole numbers:
    an int.""",
    (FITTING, "num_blocks = max(0, left // kv_bytes_per_block)"),
)

bytes_are_a_float = lines(
    """kv_bytes_per_block is a float, because / gives one; bytes are counted in whole numbers, so
    divide the heads with //.""",
    (ITS_HEADS, "heads_here = max(1, heads / tp)"),
)

one_block_at_least = lines(
    """There is one block at least here; where nothing is left, there is none.""",
    (FITTING, FITTING.replace("max(0,", "max(1,")),
)

nothing_left_is_an_error = lines(
    """Where nothing is left an error is raised; the answer is 0 blocks, and whether an engine
    starts with that is its own affair.""",
    (
        f"    {FITTING}\n",
        '    if left < 0:\n        raise ValueError("nothing is left")\n' + f"    {FITTING}\n",
    ),
)

less_than_a_block_is_an_error = lines(
    """Where nothing is left an error is raised; the answer is 0 blocks, and whether an engine
    starts with that is its own affair.""",
    (
        f"    {FITTING}\n",
        "    if left < kv_bytes_per_block:\n"
        '        raise ValueError("nothing is left")\n'
        f"    {FITTING}\n",
    ),
)

the_last_block_of_a_request_is_forgotten = lines(
    """The blocks of a request are rounded down; its last tokens need one more, even if they do not
    fill it.""",
    (AT_ONCE, "concurrency = num_blocks / max(1, max_model_len // block_size)"),
)

requests_on_all_gpus = lines(
    """max_concurrency is multiplied by the GPUs; each request has a part of its cache on every one
    of them, so they serve together what one has blocks for.""",
    (AT_ONCE, AT_ONCE + " * tp"),
)

the_null_block_serves_nobody = lines(
    """The null block is taken off for max_concurrency; it is all blocks over those of one request,
    as vLLM's log says it.""",
    (AT_ONCE, AT_ONCE.replace("num_blocks /", "max(0, num_blocks - 1) /")),
)

concurrency_as_the_log_prints_it = lines(
    """max_concurrency is rounded to two decimals, as the log prints it; it is the ratio itself.""",
    (FOUND, FOUND.replace("concurrency)", "round(concurrency, 2))")),
)

whole_requests_from_one_on = lines(
    """max_concurrency is 1 at least here; where a single request of the greatest length does not
    fit, the ratio is below 1 and says so.""",
    (AT_ONCE, AT_ONCE + "\n    concurrency = max(1.0, concurrency) if num_blocks else 0.0"),
)

the_bytes_over_the_requests_bytes = lines(
    """Concurrency divides what is left by the bytes of a request; only whole blocks are there, and
    what is left behind the last one serves nobody.""",
    (
        AT_ONCE,
        "request = kv_bytes_per_block * blocks_for(max_model_len, block_size)\n"
        "    concurrency = max(0.0, left / request)",
    ),
)

the_whole_card_is_refused = lines(
    """A utilization of 1 is refused; the whole card is allowed, only more is not.""",
    (RANGE, "    if not 0 < gpu_memory_utilization < 1:\n"),
)

more_gpus_than_heads_are_refused = lines(
    """More GPUs than key/value heads are refused; the heads are replicated then, as long as one
    number divides the other.""",
    (DIVIDES, "    if heads % tp:\n"),
)

the_utilization_is_not_checked = lines(
    """A utilization that is not a part of the card is taken; it is above 0 and at most 1, and 90
    for 90 % is a mistake that should not be found by an out-of-memory error.""",
    (RANGE, "    if gpu_memory_utilization != gpu_memory_utilization:\n"),
    gate=False,
)

a_percentage_is_taken = lines(
    """A utilization that is not a part of the card is taken; it is above 0 and at most 1, and 90
    for 90 % is a mistake that should not be found by an out-of-memory error.""",
    (RANGE, "    if not 0 < gpu_memory_utilization:\n"),
    gate=False,
)

heads_need_not_divide = lines(
    """Heads that cannot be shared out are taken: 8 over 3 GPUs leave two heads without a place. One
    of the two numbers has to divide the other.""",
    (DIVIDES, "    if False:\n"),
    gate=False,
)
