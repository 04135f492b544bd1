from grader.suite import lines

bubble_of_the_total = lines(
    """(p-1) / (m+p-1) is the bubble's part of the *whole* time; what has to be added to the work is
    (p-1) / m of it.""",
    (
        "bubble_s = work * (plan.pp - 1) / (plan.vpp * m)",
        "bubble_s = work * (plan.pp - 1) / (plan.vpp * m + plan.pp - 1)",
    ),
)

chunks_leave_the_bubble = lines(
    """Virtual stages change nothing here; with v chunks a rank the first piece is 1/v as long, and
    so is the wait for it.""",
    ("work * (plan.pp - 1) / (plan.vpp * m)", "work * (plan.pp - 1) / m"),
)

bubble_over_the_whole_batch = lines(
    """The bubble is spread over gbs / micro micro-batches; a pipeline has those of its own replica,
    dp times fewer, and the bubble is dp times larger.""",
    (
        "work * (plan.pp - 1) / (plan.vpp * m)",
        "work * (plan.pp - 1) / (plan.vpp * m * plan.dp)",
    ),
)

bubble_of_kernels_alone = lines(
    """The bubble is a share of the kernels' time here; while a stage waits, so do its collectives:
    everything that makes a micro-batch longer makes the bubble longer.""",
    ("bubble_s = work * (plan.pp - 1)", "bubble_s = compute_s * (plan.pp - 1)"),
)

nothing_hides_gradients = lines(
    """All of the gradients' time is added; their buckets are sent while the backward goes on, so
    only what is longer than that is exposed.""",
    ("exposed_s = max(0.0, behind + last - backward_s)", "exposed_s = behind + last"),
    ("(m - 1) * max(0.0, behind - backward_s)", "(m - 1) * behind"),
)

gradients_hide_behind_the_whole_step = lines(
    """Gradients are hidden behind all micro-batches; they are complete in the *last* one's backward
    only, so no more than that is there to hide them.""",
    (
        "exposed_s = max(0.0, behind + last - backward_s)",
        "exposed_s = max(0.0, behind + last - (m if plan.zero < 2 else 1) * backward_s)",
    ),
)

hidden_time_is_saved_time = lines(
    """A ring that is shorter than its attention makes a step *shorter* here; what is hidden costs
    nothing and saves nothing: not below 0.""",
    (
        'cp_s = max(0.0, seconds.get("cp", 0.0) - attention_s)',
        'cp_s = seconds.get("cp", 0.0) - (attention_s if plan.cp > 1 else 0.0)',
    ),
)

the_ring_is_exposed = lines(
    """All of the ring is added; the next block of keys travels while attention works on this one,
    and only what is longer is exposed.""",
    (
        'cp_s = max(0.0, seconds.get("cp", 0.0) - attention_s)',
        'cp_s = seconds.get("cp", 0.0)',
    ),
)

tensor_parallelism_hides_as_well = lines(
    """TP's collectives are hidden behind kernels; the next matrix product needs their result, so
    nothing runs meanwhile.""",
    (
        "    work = compute_s + tp_s + cp_s",
        "    tp_s = max(0.0, tp_s - compute_s)\n    work = compute_s + tp_s + cp_s",
    ),
)

utilization_of_the_hardware = lines(
    """Recomputed FLOPs count as work done; that is HFU. MFU counts what the model needs, so that
    doing work twice does not look like being faster.""",
    (
        "flops = 3 * plan.gbs * seq * (model.L * layer + head)",
        "core = 4 * model.h * seq\n"
        '    again = {"none": 0, "selective": core, "full": layer}[plan.recompute]\n'
        "    flops = plan.gbs * seq * (model.L * (3 * layer + again) + 3 * head)",
    ),
)

six_times_the_parameters_is_all = lines(
    """Attention itself is missing: 6 FLOPs a parameter are the matrix products, and 12 * L * h * s
    come on top, which at 128k tokens are most of the work.""",
    ("return 2 * weights + 4 * h * model.seq,", "return 2 * weights,"),
)

looking_up_an_embedding_is_a_product = lines(
    """The embedding's parameters are counted with 6 FLOPs each, too; looking up a row multiplies
    nothing, only the head does.""",
    ("model.seq, 2 * model.vocab * h", "model.seq, 4 * model.vocab * h"),
)

a_token_meets_all_experts = lines(
    """A token is computed by all experts; it meets topk of them, which is why such a model is cheap
    for its size.""",
    (
        "weights += model.topk * matrices * h * model.moe_ffn + h",
        "weights += model.experts * matrices * h * model.moe_ffn + h",
    ),
)

both_ways_at_once = lines(
    """450 GB/s are what NVLink moves one way; 900 is the sum of both, and a ring sends each byte
    one way: bandwidths here are one way already.""",
    (
        "one = coll_time(op.kind, op.bytes, op.ranks, op.per_node, cluster)\n        axis",
        "links = Cluster(cluster.nodes, cluster.gpus, cluster.hbm_bytes, "
        "2 * cluster.intra_Bps, cluster.inter_Bps, cluster.lat_s)\n"
        "        one = coll_time(op.kind, op.bytes, op.ranks, op.per_node, links)\n"
        "        axis",
    ),
)

stages_are_even = lines(
    """The head is forgotten: the last stage has as many layers as the others *and* the head, so it
    is the slowest, and a pipeline is as fast as that one.""",
    ("    stages[-1][0] += run.head_s\n    stages[-1][1] += run.head_back_s\n", ""),
)

a_backward_is_a_forward = lines(
    """A backward takes as long as a forward here; it has two products for each of the forward's,
    one for the input's gradient and one for the weight's.""",
    ("count * (run.layer_back_s + again)", "count * (run.layer_s + again)"),
)

experts_multiply_the_gpus = lines(
    """MFU is taken over tp * pp * cp * dp * ep GPUs; EP re-uses the ranks of a stage and adds
    none.""",
    (
        "    gpus = plan.tp * plan.pp * plan.cp * plan.dp\n",
        "    gpus = plan.tp * plan.pp * plan.cp * plan.dp * plan.ep\n",
    ),
)

nothing_is_done_again = lines(
    """Recompute is free here; what is not kept is computed again in the backward, attention with
    "selective" and the whole layer with "full": that is what memory is bought with.""",
    ("(run.layer_back_s + again)", "run.layer_back_s"),
)

fsdp_hides_once_a_step = lines(
    """FSDP's gathers of all micro-batches hide behind one; each micro-batch has only its own
    forward and backward to hide them.""",
    ("        weights /= 2 * m\n        behind += weights\n", "        weights /= 2\n"),
    ("(m if plan.zero >= 3 else 1) * max", "1 * max"),
)

backward_gathers_are_free = lines(
    """The second gather of FSDP is forgotten: in the backward weights come in while gradients go
    out, over the same links, and both have one backward to hide behind.""",
    ("        behind += weights\n", ""),
)

copies_agree_for_nothing = lines(
    """The all-reduce between the groups of a hybrid shard is left out of the time; it comes after
    the last reduce-scatter, and often crosses nodes.""",
    ('last = seconds.get("replicate", 0.0)', "last = 0.0"),
)

the_last_stage_is_the_slowest = lines(
    """The last stage is taken for the slowest because of its head; with fewer layers than another
    it is not: compare forward and backward of all stages.""",
    ("forward_s, backward_s = max(stages, key=sum)", "forward_s, backward_s = stages[-1]"),
)

utilization_counts_a_fourth_forward = lines(
    """Recomputed FLOPs count as work done; that is HFU. MFU counts what the model needs, so that
    doing work twice does not look like being faster.""",
    (
        "flops = 3 * plan.gbs * seq",
        'flops = (4 if plan.recompute == "full" else 3) * plan.gbs * seq',
    ),
)

the_slowest_stage_by_flops = lines(
    """The slowest stage is looked for by FLOPs; kernels of few FLOPs that move many bytes take
    their time as well, and so does recompute. Compare seconds, forward and backward together.""",
    (
        "forward_s, backward_s = max(stages, key=sum)",
        "layer, head = token_flops(model)\n"
        "    work = [count * layer for count in layers]\n"
        "    work[-1] += head\n"
        "    forward_s, backward_s = stages[work.index(max(work))]",
    ),
)

the_slowest_stage_by_all_flops = lines(
    """The slowest stage is looked for by FLOPs; kernels of few FLOPs that move many bytes take
    their time as well, and so does recompute. Compare seconds, forward and backward together.""",
    (
        "forward_s, backward_s = max(stages, key=sum)",
        "layer, head = token_flops(model)\n"
        '    more = {"none": 0, "selective": 4 * model.h * model.seq, "full": layer}\n'
        "    work = [count * (3 * layer + more[plan.recompute]) for count in layers]\n"
        "    work[-1] += 3 * head\n"
        "    forward_s, backward_s = stages[work.index(max(work))]",
    ),
)

the_slowest_stage_by_its_forward = lines(
    """The slowest stage is looked for by its forward alone; recompute makes a backward longer than
    two forwards, so another stage can be the slower one in both passes together.""",
    (
        "forward_s, backward_s = max(stages, key=sum)",
        "forward_s, backward_s = max(stages, key=lambda stage: stage[0])",
    ),
)

the_slowest_stage_by_its_backward = lines(
    """The slowest stage is looked for by its backward alone; a large head, of which nothing is done
    again, weighs more in the forward. What counts is both passes together.""",
    (
        "forward_s, backward_s = max(stages, key=sum)",
        "forward_s, backward_s = max(stages, key=lambda stage: stage[1])",
    ),
)

the_slowest_stage_before_recompute = lines(
    """The slowest stage is looked for without recompute, which is added to it afterwards; layers
    are done again and the head is not, so that can make another stage the slowest.""",
    (
        "forward_s, backward_s = max(stages, key=sum)",
        "plain = [count * (run.layer_s + run.layer_back_s) for count in layers]\n"
        "    plain[-1] += run.head_s + run.head_back_s\n"
        "    forward_s, backward_s = stages[plain.index(max(plain))]",
    ),
)

the_slowest_stage_has_the_most_layers = lines(
    """The slowest stage is taken to be the one with the most layers. A head behind fewer layers can
    take longer than they do: compare the seconds of all stages.""",
    (
        "forward_s, backward_s = max(stages, key=sum)",
        "forward_s, backward_s = stages[layers.index(max(layers))]",
    ),
)

the_slowest_stage_has_the_most_parameters = lines(
    """The slowest stage is taken to be the one with the most parameters. The embedding has many and
    computes nothing, and the head takes longer than its size says: compare seconds.""",
    (
        "forward_s, backward_s = max(stages, key=sum)",
        "sizes = [stage.param for stage in memory(replace(plan, zero=0, shard=None), model)]\n"
        "    forward_s, backward_s = stages[sizes.index(max(sizes))]",
    ),
)
