from grader.suite import lines

sums_gradients_for_each_micro_batch = lines(
    """Gradients are summed over the replicas for each micro-batch here; they add up on the GPU
    first and are sent once a step, which is why DP may use the slow links.""",
    ("4 * params, m if plan.zero >= 2 else 1)", "4 * params, m)"),
    (
        'add("all_reduce", axis, stride, size, 4 * params, 1)',
        'add("all_reduce", axis, stride, size, 4 * params, m)',
    ),
)

sends_gradients_in_bf16 = lines(
    """Gradients are sent as bf16 here; they are kept and summed in fp32, 4 bytes each, so a step
    sends twice as much as the weights alone would say.""",
    ("4 * params, m if plan.zero >= 2 else 1)", "2 * params, m if plan.zero >= 2 else 1)"),
    (
        'add("all_reduce", axis, stride, size, 4 * params, 1)',
        'add("all_reduce", axis, stride, size, 2 * params, 1)',
    ),
)

gathers_the_weights_in_fp32 = lines(
    """The sharded optimizer's new weights are gathered in fp32 here; only their bf16 copies leave
    the rank that owns them, 2 bytes each.""",
    (
        "2 * params, 2 * m if plan.zero >= 3 else 1)",
        "4 * params, 2 * m if plan.zero >= 3 else 1)",
    ),
)

sequence_parallelism_comes_on_top = lines(
    """A reduce-scatter and an all-gather are counted twice a block; together they *are* the
    all-reduce that they replace, so sequence parallelism sends no byte more.""",
    (
        "2 * n * h, blocks * passes * layers * m)",
        "2 * n * h, blocks * passes * layers * m * (2 if plan.sp else 1))",
    ),
)

tensor_parallelism_in_the_forward_only = lines(
    """Only the forward's two operations of each layer are counted; the backward of a split matrix
    product sums the gradient of its input as well, so there are four.""",
    ("2 * n * h, blocks * passes * layers * m)", "2 * n * h, blocks * layers * m)"),
)

recomputing_sends_nothing = lines(
    """Full recompute runs a layer's forward again, and with it its collectives: three passes
    instead of two, so it costs traffic, not kernels alone.""",
    ('passes = 3 if plan.recompute == "full" else 2', "passes = 2"),
)

tensor_parallel_tensors_are_shards = lines(
    """The tensor of TP's collectives is divided by tp; what is summed is the *whole* activation of
    n x h, which every rank has a partial sum of: more TP makes it no smaller.""",
    ('add(kind, "tp", 1, tp, 2 * n * h,', 'add(kind, "tp", 1, tp, 2 * n * h / tp,'),
)

tokens_come_from_the_experts_alone = lines(
    """One all-to-all a layer and pass sends tokens to their experts, but they have to come back,
    too: dispatch and combine, each way.""",
    (
        '"ep", etp, plan.ep, tokens, 2 * passes * layers * m)',
        '"ep", etp, plan.ep, tokens, passes * layers * m)',
    ),
)

a_token_goes_to_one_expert = lines(
    """A token is sent once here; it goes to topk experts, and each of them gets a copy.""",
    ("tokens = 2 * (n / split) * model.topk * h", "tokens = 2 * (n / split) * h"),
)

the_ring_carries_all_query_heads = lines(
    """The ring carries keys and values of the *key/value* heads; with grouped queries these are a
    fraction of h, which is what makes long rings cheap.""",
    (
        "4 * n * (h / model.heads) * max(model.kv_heads / tp, 1)",
        "4 * n * (h / model.heads) * max(model.heads / tp, 1)",
    ),
)

gradients_of_keys_stay_abroad = lines(
    """The gradients of keys and values are missing: they are made all around the ring, so they
    travel with them and go home with one hop more, cp in all.""",
    ("(passes * (cp - 1) + cp) * layers * m)", "passes * (cp - 1) * layers * m)"),
)

no_gradient_goes_back_a_stage = lines(
    """Stages send activations only; the gradient of each comes back over the same link, so a stage
    in the middle sends twice a micro-batch and chunk.""",
    ("sends = 2 * m * plan.vpp if pp > 2 else m * (2 * plan.vpp - 1)", "sends = m * plan.vpp"),
)

chunks_send_no_more = lines(
    """Each virtual stage hands its output on: v chunks a rank cross the boundary v times as often.
    That is the price of the smaller bubble.""",
    (
        "sends = 2 * m * plan.vpp if pp > 2 else m * (2 * plan.vpp - 1)",
        "sends = 2 * m if pp > 2 else m",
    ),
)

places_dp_innermost = lines(
    """The strides are reversed: neighbours are replicas and a TP group is spread over all nodes.
    The leftmost axis of tp-cp-ep-dp-pp has stride 1, so that TP stays in a node.""",
    ('add(kind, "tp", 1, tp, 2', 'add(kind, "tp", cp * plan.dp * pp, tp, 2'),
    ('("dp-cp", tp, shard, dense)', '("dp-cp", pp, shard, dense)'),
    ('add("send", "pp", tp * cp * plan.dp, pp', 'add("send", "pp", 1, pp'),
)

context_ranks_share_no_gradients = lines(
    """Gradients are summed over dp alone; context-parallel ranks hold the same weights and see
    other tokens, so they are replicas, too: the group is dp-cp.""",
    (
        '("dp-cp", tp, shard, dense)',
        '("dp-cp", tp, shard, dense) if plan.shard else ("dp-cp", tp * cp, plan.dp, dense)',
    ),
)

experts_have_as_many_replicas = lines(
    """An expert's gradients are summed over the dense replicas dp-cp, where most ranks hold *other*
    experts; its replicas are edp = tp * cp * dp / (etp * ep) ranks.""",
    (
        "expert_replicas = tp * dp_cp // (etp * plan.ep)",
        "expert_replicas = dp_cp",
    ),
)

every_stage_has_all_layers = lines(
    """All L layers are counted for one GPU; it has those of its stage, L / pp.""",
    ("layers = max(stage_layers(plan, model))", "layers = model.L"),
)

micro_batches_of_the_whole_batch = lines(
    """Micro-batches are gbs / micro here; each data-parallel rank has its own part of the batch,
    gbs / (dp * micro) of them.""",
    (
        "    etp = tp if plan.etp is None else plan.etp\n"
        "    m = plan.gbs // (plan.dp * plan.micro)\n",
        "    etp = tp if plan.etp is None else plan.etp\n    m = plan.gbs // plan.micro\n",
    ),
)

small_groups_stay_in_a_node = lines(
    """A group is taken to stay inside a node because it has no more ranks than a node; ranks that
    are 8 or more apart lie on different nodes of 8, however few they are.""",
    (
        "if world <= gpus or gpus % (stride * size) == 0:",
        "if world <= gpus or size <= gpus:",
    ),
)

experts_are_cut_over_tp_as_well = lines(
    """A routed MLP is counted among tp's blocks *and* among ep's: with experts, only attention is
    tp's; their tokens go through ep and etp.""",
    ("blocks = 1 if routed else 2", "blocks = 2"),
)

fsdp_gathers_once_a_step = lines(
    """FSDP lets go of a unit's weights when it has computed, so they are gathered again in the
    backward, and for the next micro-batch: 2 * m times a step, and not once.""",
    ("2 * m if plan.zero >= 3 else 1", "1"),
)

fsdp_gathers_in_the_forward_only = lines(
    """The weights are gone when the backward comes to a unit: with zero 3 they are gathered in both
    passes of each micro-batch, 2 * m times.""",
    ("2 * m if plan.zero >= 3 else 1", "m if plan.zero >= 3 else 1"),
)

full_recompute_gathers_again = lines(
    """Full recompute runs a unit's forward just before its backward, with the same gathered
    weights: two gathers a micro-batch, and not three.""",
    ("2 * m if plan.zero >= 3 else 1", "passes * m if plan.zero >= 3 else 1"),
)

sharded_gradients_wait_for_the_step = lines(
    """With zero 2 and 3 no rank has room for whole gradients until the step ends: each
    micro-batch's are summed and scattered at once, m times.""",
    ("m if plan.zero >= 2 else 1", "1"),
)

shards_are_copies = lines(
    """Groups that hold the same shard have seen other tokens: their gradients are summed over
    dp * cp / shard ranks, or the copies of the model drift apart.""",
    (
        '    add("all_reduce", "replicate", tp * shard, dp_cp // shard, 4 * dense / shard, 1)\n',
        "",
    ),
)

whole_gradients_between_shards = lines(
    """After the reduce-scatter a rank has its shard of the gradients; only that is summed with the
    other groups', 1 / shard of the bytes.""",
    ("4 * dense / shard, 1)", "4 * dense, 1)"),
)

attention_is_the_only_block = lines(
    """A dense layer has two blocks that are cut over TP, attention and MLP, and each of them sends;
    one block is half of the traffic.""",
    ("blocks = 1 if routed else 2", "blocks = 1"),
)

gradients_of_keys_stop_one_hop_short = lines(
    """The gradients of keys and values have to come home: they make as many hops as there are ranks
    in the ring, one more than the keys and values themselves.""",
    ("(passes * (cp - 1) + cp) * layers * m)", "(passes * (cp - 1) + cp - 1) * layers * m)"),
)

all_groups_stand_as_the_first = lines(
    """Only the group of rank 0 is looked at; where groups do not fill nodes evenly, another one can
    cross from node to node although the first does not, and all wait for that one.""",
    (
        "        if world <= gpus or gpus % (stride * size) == 0:\n"
        "            near = size  # whole groups fit into a node, side by side\n"
        "        elif gpus % stride == 0 and size % (gpus // stride) == 0:\n"
        "            near = gpus // stride\n"
        "        else:\n"
        "            near = 1\n",
        "        nodes = [place * stride // gpus for place in range(size)]\n"
        "        seen = {nodes.count(node) for node in nodes}\n"
        "        near = seen.pop() if len(seen) == 1 else 1\n",
    ),
)

the_first_stage_has_the_most_weights = lines(
    """The gradients are those of the first stage; with a head, a last norm or a split by hand
    another stage can have more parameters, and the step waits for the stage that has the most.""",
    ("heaviest = max(range(pp), key=lambda s: stages[s].param)", "heaviest = 0"),
)

groups_that_divide_a_node_stay_in_it = lines(
    """A group is taken to stay inside a node because it has no more ranks than a node; ranks that
    are 8 or more apart lie on different nodes of 8, however few they are.""",
    (
        "if world <= gpus or gpus % (stride * size) == 0:",
        "if world <= gpus or gpus % size == 0:",
    ),
)
