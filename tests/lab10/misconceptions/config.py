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
