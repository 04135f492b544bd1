from grader.suite import lines

forgets_sequence_parallel = lines(
    """--sequence-parallel is missing: Megatron leaves it off unless it is told, and every rank
    keeps the activations of the norms for the whole sequence, more memory than was computed for the
    plan.""",
    ('        switches.append("sequence-parallel")\n', "        pass\n"),
)

sequence_parallel_alone = lines(
    """--sequence-parallel with TP 1: there is no tensor group to split the sequence over.""",
    ("if plan.sp and plan.tp > 1:", "if plan.sp:"),
)

global_batch_of_one_micro_batch = lines(
    """--global-batch-size is micro * dp here, one micro-batch a rank: nothing would fill the
    pipeline. It is all sequences of a step.""",
    ('"global-batch-size": plan.gbs,', '"global-batch-size": plan.micro * plan.dp,'),
)

global_batch_of_a_replica = lines(
    """--global-batch-size is what one replica has; global means all replicas together, and Megatron
    divides by dp itself.""",
    ('"global-batch-size": plan.gbs,', '"global-batch-size": plan.gbs // plan.dp,'),
)

data_parallel_is_an_option = lines(
    """There is no --data-parallel-size: dp is what is left of the ranks that torchrun starts, and
    the parser stops with an error at an option that it does not know.""",
    (
        '        "context-parallel-size": plan.cp,\n',
        '        "context-parallel-size": plan.cp,\n        "data-parallel-size": plan.dp,\n',
    ),
)

all_ranks_on_each_node = lines(
    """--nproc-per-node is the number of ranks of *one* node, its GPUs; this starts all of them on
    every node.""",
    (
        '"--nproc-per-node", str(cluster.gpus)]',
        '"--nproc-per-node", str(world)]',
    ),
)

one_virtual_stage_is_said = lines(
    """One virtual stage a rank is plain 1F1B; with the option Megatron takes the interleaved
    schedule, and that one needs more than one.""",
    ("if plan.vpp > 1:", "if plan.vpp:"),
)

full_recompute_without_a_method = lines(
    """Full recompute needs a method and a number of layers: without them Megatron refuses to
    start.""",
    (
        'values |= {"recompute-method": "uniform", "recompute-num-layers": 1}',
        "pass",
    ),
)

recompute_none_is_a_granularity = lines(
    """"none" is not a granularity: to recompute nothing, the option is left out.""",
    (
        '    if plan.recompute != "none":\n        values["recompute-granularity"]',
        '    if plan.recompute:\n        values["recompute-granularity"]',
    ),
)

forgets_the_groups_of_queries = lines(
    """Without --group-query-attention and --num-query-groups every query head gets keys and values
    of its own: another model, with 8 times the K and V weights for Llama-3-70B.""",
    (
        '        switches.append("group-query-attention")\n'
        '        values["num-query-groups"] = model.kv_heads\n',
        "        pass\n",
    ),
)

forgets_the_distributed_optimizer = lines(
    """--use-distributed-optimizer is missing: each replica keeps all 12 bytes of optimizer states,
    and a plan that fitted on paper does not fit.""",
    (
        'switches += ["use-distributed-optimizer", "overlap-param-gather"]',
        'switches += ["overlap-param-gather"]',
    ),
)

switches_have_values = lines(
    """Switches are options without a value: the word "true" behind one is an argument that the
    parser does not know.""",
    (
        'return words + [f"--{name}" for name in switches]',
        'return words + [word for name in switches for word in (f"--{name}", "true")]',
    ),
)

expert_tensor_parallelism_left_out = lines(
    """--expert-tensor-parallel-size is missing where the plan leaves etp open: etp is tp then, and
    the command has to say so.""",
    (
        '            "expert-tensor-parallel-size": '
        "plan.tp if plan.etp is None else plan.etp,\n        }\n",
        "        }\n        if plan.etp is not None:\n"
        '            values["expert-tensor-parallel-size"] = plan.etp\n',
    ),
)

micro_batch_of_all_replicas = lines(
    """--micro-batch-size is one data-parallel rank's; that of all of them together is dp times too
    large.""",
    ('"micro-batch-size": plan.micro,', '"micro-batch-size": plan.micro * plan.dp,'),
)

query_groups_are_counted_by_their_size = lines(
    """--num-query-groups is how many groups there are, each with keys and values of its own; the
    number given here is how many query heads share one of them.""",
    (
        'values["num-query-groups"] = model.kv_heads',
        'values["num-query-groups"] = model.heads // model.kv_heads',
    ),
)
