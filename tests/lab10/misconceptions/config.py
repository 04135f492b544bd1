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
