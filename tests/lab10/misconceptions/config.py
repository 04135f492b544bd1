from grader.suite import lines

swap_space_is_set = lines(
    """swap_space is from older versions: vLLM no longer swaps a preempted request's blocks to the
    host, it computes them again, and the argument is gone.""",
    ("dtype: bfloat16  #", "swap_space: 4  # for preempted requests\ndtype: bfloat16  #"),
)

partial_prefills_are_set = lines(
    """max_num_partial_prefills is gone from vLLM: how many prompts share a step follows from the
    token budget alone.""",
    (
        "dtype: bfloat16  #",
        "max_num_partial_prefills: 2  # two prompts a step\ndtype: bfloat16  #",
    ),
)

a_tab = lines(
    """YAML indents and separates with spaces; a tab before a key or a value that needs one is an
    error at that line and column.""",
    ("max_num_seqs: 64", "\tmax_num_seqs: 64"),
)

fewer_tokens_than_requests = lines(
    """A step has fewer tokens than requests may run: vLLM refuses it, since each running request
    needs a token a step.""",
    ("max_num_seqs: 64", "max_num_seqs: 1024"),
)

no_chunks_and_a_small_budget = lines(
    """Without chunked prefill a prompt is computed in one step, so a budget below max_model_len is
    refused: the longest prompt would wait for ever.""",
    ("enable_chunked_prefill: true", "enable_chunked_prefill: false"),
)

ninety_five_per_cent = lines(
    """gpu_memory_utilization is a part, 0.95, not a percentage.""",
    ("gpu_memory_utilization: 0.95", "gpu_memory_utilization: 95.0"),
)

scientific_notation = lines(
    """YAML 1.1 takes 1e4 as a text; write the digits.""",
    ("max_model_len: 16384", "max_model_len: 2e4"),
)

requests_cut_short = lines(
    """max_model_len is below the trace's longest request, which the server would refuse; the mean
    says nothing about the longest.""",
    ("max_model_len: 16384", "max_model_len: 8192"),
)

the_defaults = lines(
    """The defaults for this card, 0.92, 8,192 tokens and 1,024 requests, are made for throughput:
    their large steps stall everybody's next token, and their activations take 1.5 GiB of cache.""",
    ("gpu_memory_utilization: 0.95", "gpu_memory_utilization: 0.92"),
    ("max_num_batched_tokens: 512", "max_num_batched_tokens: 8192"),
    ("max_num_seqs: 64", "max_num_seqs: 1024"),
    ("num_blocks = 3308", "num_blocks = 2322"),
    ("max_concurrency = 3.23", "max_concurrency = 2.27"),
    ("goodput = 3.37", "goodput = 0.58"),
)

too_few_at_once = lines(
    """16 requests at once keep every step short, and everybody else waits in the queue: TPOT is
    perfect and TTFT is gone.""",
    ("max_num_seqs: 64", "max_num_seqs: 16"),
    ("num_blocks = 3308", "num_blocks = 3315"),
    ("max_concurrency = 3.23", "max_concurrency = 3.24"),
    ("goodput = 3.37", "goodput = 0.10"),
)

a_capacity_of_the_whole_card = lines(
    """The claimed blocks are those of the whole card without weights; the pool is what weights,
    activations and the rest leave.""",
    ("num_blocks = 3308", "num_blocks = 19212"),
)

throughput_as_goodput = lines(
    """The claimed goodput is the throughput: requests that came too late were served, and do not
    count.""",
    ("goodput = 3.37", "goodput = 3.61"),
)

requests_at_once_as_concurrency = lines(
    """The claimed concurrency is max_num_seqs; vLLM's is how many requests of max_model_len tokens
    the blocks hold, the worst case.""",
    ("max_concurrency = 3.23", "max_concurrency = 64"),
)

two_claims_of_one_name = lines(
    """num_blocks is claimed twice, with two values; a reader cannot know which one is meant. Take
    the old one out.""",
    ("# claim: num_blocks = 3308\n", "# claim: num_blocks = 3308\n# claim: num_blocks = 2322\n"),
)

blocks_without_the_logits = lines(
    """The claimed blocks forget the logits of max_num_seqs requests, 4 bytes for each word of the
    vocabulary; capacity counts what the largest step needs.""",
    ("num_blocks = 3308", "num_blocks = 3317"),
)

blocks_without_activations = lines(
    """The claimed blocks forget the activations of the largest step; they are taken from the pool,
    which is why fewer tokens a step leave more blocks.""",
    ("num_blocks = 3308", "num_blocks = 3345"),
)

goodput_of_the_plain_scheduler = lines(
    """The claimed goodput is that of PlainScheduler, which reserves memory up to the last token;
    vLLM's rules admit more. Run serving.py with --scheduler own.""",
    ("goodput = 3.37", "goodput = 3.11"),
)

concurrency_at_the_models_length = lines(
    """The claimed concurrency is that of the model's own 32,768 tokens; max_model_len is what this
    file says.""",
    ("max_concurrency = 3.23", "max_concurrency = 1.62"),
)

a_block_of_eight = lines(
    """block_size is 8: the kernels that vLLM chooses on an H100 take multiples of 16.""",
    (
        "dtype: bfloat16  #",
        "block_size: 8  # fewer places are empty at a request's end\ndtype: bfloat16  #",
    ),
)

seats_are_left_to_the_default = lines(
    """max_num_seqs is missing; its default depends on the card, 1,024 here, and is not a
    choice.""",
    ("max_num_seqs: 64\n", ""),
)

BF16 = "dtype: bfloat16  #"
MODEL = """# The model that the problem gives; 61 GiB of weights in bf16.
model: Qwen/Qwen2.5-32B-Instruct
"""


def _with(text):
    """One line more in the file, with a comment beside it."""
    return (BF16, f"{text}\n{BF16}")


def _row(utilization, tokens, requests, blocks, goodput):
    """Another row of the grid, with the claims that follow from it."""
    return (
        ("gpu_memory_utilization: 0.95", f"gpu_memory_utilization: {utilization}"),
        ("max_num_batched_tokens: 512", f"max_num_batched_tokens: {tokens}"),
        ("max_num_seqs: 64", f"max_num_seqs: {requests}"),
        ("num_blocks = 3308", f"num_blocks = {blocks}"),
        ("max_concurrency = 3.23", f"max_concurrency = {blocks / 1024:.2f}"),
        ("goodput = 3.37", f"goodput = {goodput}"),
    )


LARGE_STEPS = """A step of so many tokens delays everybody's next token beyond 40 ms: the simulated
    goodput falls while the throughput stays. Some 300 tokens are enough to be bound by compute."""

steps_of_8192 = lines(LARGE_STEPS, *_row(0.95, 8192, 64, 3068, 1.93))
steps_of_2048 = lines(LARGE_STEPS, *_row(0.95, 2048, 64, 3260, 2.47))
steps_of_1024 = lines(LARGE_STEPS, *_row(0.95, 1024, 64, 3292, 2.94))

UNUSED_MEMORY = """Memory that was yours is left unused: weights and the rest have taken their part
    already, so three hundredths of the card are a fifth of the blocks, and who has none waits."""

the_default_utilization = lines(UNUSED_MEMORY, *_row(0.92, 512, 64, 2701, 2.78))
the_default_utilization_in_256 = lines(UNUSED_MEMORY, *_row(0.92, 256, 64, 2709, 2.97))
ninety_per_cent_of_the_card = lines(UNUSED_MEMORY, *_row(0.9, 512, 64, 2297, 1.63))

thirty_two_at_once = lines(
    """Fewer requests may run than are there on average and in bursts, so they wait in the queue
    with blocks to spare, and TTFT is missed.""",
    *_row(0.95, 512, 32, 3313, 2.78),
)

# -- keys and values

a_colon_without_a_blank = lines(
    """Between a key and its value stand a colon *and* a blank; YAML takes anything else for a part
    of a text.""",
    ("max_num_seqs: 64", "max_num_seqs:64"),
)

an_equals_sign = lines(
    """Between a key and its value stand a colon *and* a blank; YAML takes anything else for a part
    of a text.""",
    ("max_num_seqs: 64", "max_num_seqs = 64"),
)

keys_in_a_list = lines(
    """Each key has a dash and a blank before it, which makes the file a list; `--config` takes one
    mapping, a `key: value` a line.""",
    *(
        (f"\n{key}: ", f"\n- {key}: ")
        for key in (
            "model",
            "dtype",
            "gpu_memory_utilization",
            "max_model_len",
            "max_num_batched_tokens",
            "max_num_seqs",
            "enable_chunked_prefill",
        )
    ),
)

a_key_twice = lines(
    """A key stands in the file twice; YAML would take one of the two values, and a reader cannot
    know which.""",
    ("max_num_seqs: 64\n", "max_num_seqs: 64\nmax_num_seqs: 128\n"),
)

a_name_of_another_engine = lines(
    """max_batch_size is another engine's name; vLLM's limit of requests at once is
    max_num_seqs.""",
    ("max_num_seqs: 64", "max_batch_size: 64"),
)

a_limit_of_the_answer = lines(
    """max_tokens is what a request asks for; the engine's bound of prompt and answer together is
    max_model_len.""",
    _with("max_tokens: 1000  # the longest answer of the trace"),
)

a_shortened_name = lines(
    """gpu_mem_utilization is not its name; vLLM ends at an argument that it does not know, and the
    name here is gpu_memory_utilization.""",
    ("gpu_memory_utilization: 0.95", "gpu_mem_utilization: 0.95"),
)

several_steps_at_once = lines(
    """num_scheduler_steps is gone from vLLM with multi-step scheduling; each step is decided
    anew.""",
    _with("num_scheduler_steps: 8  # fewer decisions"),
)

how_to_preempt = lines(
    """preemption_mode is gone from vLLM; a preempted request is always computed again.""",
    _with("preemption_mode: recompute  # nothing is swapped"),
)

the_old_block_manager = lines(
    """use_v2_block_manager is gone from vLLM; there is one block manager.""",
    _with("use_v2_block_manager: true  # paged memory"),
)

a_name_that_nobody_knows = lines(
    """A key is not a field of EngineArgs, and vLLM ends at an argument that it does not know; look
    its name up, and leave host, port and the like to the server's command line.""",
    _with("kv_block_size: 16  # tokens a block"),
)

a_number_with_its_unit = lines(
    """A number with a unit behind it is a text, to YAML and to vLLM; the argument wants a number,
    so write the digits alone.""",
    ("max_num_seqs: 64", "max_num_seqs: 64 requests"),
)

another_model = lines(
    """The model is not that of the problem; the weights, the cache's bytes and all claims are
    those of the one that it names.""",
    ("model: Qwen/Qwen2.5-32B-Instruct", "model: Qwen/Qwen2.5-32B"),
)

the_model_is_left_out = lines(
    """The model is missing; its default is a small one, and nothing here would be true of it.""",
    (MODEL, ""),
)

the_utilization_is_left_out = lines(
    """gpu_memory_utilization is missing; its default, 0.92, leaves a fifth fewer blocks than you
    may have, and is not a choice.""",
    ("gpu_memory_utilization: 0.95\n", ""),
)

the_length_is_left_out = lines(
    """max_model_len is missing; its default is the model's own 32,768 tokens, twice what the trace
    needs, and is not a choice.""",
    ("max_model_len: 16384\n", ""),
)

the_budget_is_left_out = lines(
    """max_num_batched_tokens is missing; its default depends on the card, 8,192 here, and stalls
    everybody's next token.""",
    ("max_num_batched_tokens: 512\n", ""),
)

two_gpus = lines(
    """The model is split over several GPUs; the problem has one H100.""",
    _with("tensor_parallel_size: 2  # two cards"),
)

half_precision = lines(
    """The weights are made float16; the problem has them in bf16, as they were published.""",
    (BF16, "dtype: float16  #"),
)

an_eight_bit_cache = lines(
    """The cache is made 8-bit, which doubles the blocks; the problem has a bf16 cache, and what 8
    bits do to the answers is not asked here.""",
    _with("kv_cache_dtype: fp8  # twice as many tokens"),
)

by_priority = lines(
    """The scheduling policy is another than first come, first served; the problem's requests have
    no priorities.""",
    _with("scheduling_policy: priority  # short ones first"),
)

no_chunks_and_a_large_budget = lines(
    """Chunked prefill is turned off, so a prompt of thousands of tokens is one step that stalls
    everybody; the engine is simulated with it, and it stays on.""",
    ("enable_chunked_prefill: true", "enable_chunked_prefill: false"),
    ("max_num_batched_tokens: 512", "max_num_batched_tokens: 16384"),
)

a_knob_that_nobody_simulates = lines(
    """A key is set whose effect on this trace nobody could say here; the simulation knows the
    limits of the scheduler, and the rest stays at its default.""",
    _with("enforce_eager: true  # saves memory for captured graphs"),
)

more_than_is_ours = lines(
    """gpu_memory_utilization is above 0.95; the rest of the card belongs to somebody else.""",
    ("gpu_memory_utilization: 0.95", "gpu_memory_utilization: 0.98"),
)

longer_than_the_model = lines(
    """max_model_len is above what the model was trained for, 32,768 tokens; the trace needs less
    than half of that.""",
    ("max_model_len: 16384", "max_model_len: 65536"),
)

no_room_beside_the_weights = lines(
    """The utilization leaves less than one request's blocks beside 61 GiB of weights; vLLM then
    does not start.""",
    ("gpu_memory_utilization: 0.95", "gpu_memory_utilization: 0.8"),
)

a_limit_of_none = lines(
    """A limit is 0 or below, as if that meant none; it is the most that a step or a pool may have,
    so nothing could run.""",
    ("max_num_seqs: 64", "max_num_seqs: 0"),
)

# -- claims

blocks_are_not_claimed = lines(
    """The claim of num_blocks is missing; a file is not done until it says what follows from
    it.""",
    ("# claim: num_blocks = 3308\n", ""),
)

concurrency_is_not_claimed = lines(
    """The claim of max_concurrency is missing; a file is not done until it says what follows from
    it.""",
    ("# claim: max_concurrency = 3.23\n", ""),
)

goodput_is_not_claimed = lines(
    """The claim of goodput is missing; a file is not done until it says what follows from it.""",
    ("# claim: goodput = 3.37\n", ""),
)

a_claim_with_a_unit = lines(
    """A claim has a unit or a word in its number's place; write the number alone.""",
    ("goodput = 3.37", "goodput = 3.37/s"),
)

tokens_for_blocks = lines(
    """The claimed blocks are the tokens that fit; a block has 16 of them.""",
    ("num_blocks = 3308", "num_blocks = 52928"),
)

blocks_without_the_null_block = lines(
    """One block is taken off the claim for the null block; num_blocks is what the memory holds, the
    null block among them.""",
    ("num_blocks = 3308", "num_blocks = 3307"),
)

blocks_without_the_rest = lines(
    """The claimed blocks forget other_bytes, the GiB for the context and captured graphs; it lies
    in the engine's part of the card.""",
    ("num_blocks = 3308", "num_blocks = 3564"),
)

blocks_of_the_default_limits = lines(
    """The claimed blocks are those of the default limits of a step; fewer tokens and requests have
    smaller activations, which leaves more blocks. Count with this file's limits.""",
    ("num_blocks = 3308", "num_blocks = 2929"),
)

concurrency_in_whole_requests = lines(
    """The claimed concurrency is rounded to a whole number; it is a ratio, to two decimals.""",
    ("max_concurrency = 3.23", "max_concurrency = 3"),
)

concurrency_by_littles_law = lines(
    """The claimed concurrency is how many requests run at once on average; vLLM's is how many of
    max_model_len tokens the blocks hold, the worst case.""",
    ("max_concurrency = 3.23", "max_concurrency = 24"),
)

goodput_as_a_share = lines(
    """The claimed goodput is the share of the requests that keep the SLO; it is requests a
    second.""",
    ("goodput = 3.37", "goodput = 0.93"),
)

goodput_as_a_number = lines(
    """The claimed goodput is the number of requests that keep the SLO; it is requests a second, so
    divide by the duration.""",
    ("goodput = 3.37", "goodput = 560"),
)

goodput_with_one_decimal = lines(
    """The claimed goodput is rounded too far; two decimals are asked for.""",
    ("goodput = 3.37", "goodput = 3.4"),
)

SEATS = """\
# By Little's law some 24 requests run at once (3.6 a second, 6.7 s each); 64 leaves room for bursts
# without a queue before the engine, and many more would be admitted only to be preempted.
"""
STEPS = """\
# A step's prompt tokens delay everybody's next token, and its activations take memory away from the
# cache. 512 tokens are enough to be bound by compute (the ridge is at 295) and 39 ms a step.
"""

values_without_a_reason = lines(
    """A value stands there without a comment; whoever changes it next year has to know what it was
    traded for.""",
    (
        SEATS,
        "",
    ),
    gate=False,
)

a_reason_that_names_no_trade = lines(
    """A comment says that a value is good and not why; name what the knob trades, as memory against
    requests or one token's delay against another's.""",
    (
        SEATS,
        "# This is a good value that worked best in all of our own tests.\n",
    ),
    gate=False,
)

one_reason_for_two = lines(
    """Two keys have the same comment; each bounds something else, so each has a reason of its
    own.""",
    (
        SEATS,
        STEPS,
    ),
    gate=False,
)

blocks_of_the_default_utilization = lines(
    """The claimed blocks are those of vLLM's default utilization, 0.92, and the file says another
    one. Claims follow from the values above them: work them out again when one changes.""",
    ("num_blocks = 3308", "num_blocks = 2701"),
)
