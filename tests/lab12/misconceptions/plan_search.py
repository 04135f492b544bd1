from grader.suite import lines

everything_that_fits = lines(
    """Everything that fits is returned, sorted; a plan that another beats in time *and* bytes is
    never the right one, and thousands of them hide those that are.""",
    ("if any(row[0] < least and row[1] <= held for row in front):", "if False:"),
    (
        "row[0] <= seconds and row[1] <= held and row[:2] != (seconds, held) for row in front",
        "False for row in front",
    ),
    ("if row[0] < seconds or row[1] < held or row[:2] == (seconds, held)", "if True"),
)

the_fastest_alone = lines(
    """Only the fastest plan is returned; with two goals there is a plan for each budget of memory,
    and who needs longer sequences tomorrow wants the next one.""",
    (
        "return [plan for _seconds, _held, plan in front]",
        "return [plan for _seconds, _held, plan in front][:1]",
    ),
)

experts_need_gpus_of_their_own = lines(
    """EP is multiplied into the number of GPUs here; EP re-uses the DP x CP x TP ranks, so the plan
    takes only 1/ep of the cluster.""",
    (
        "                        one = Plan(tp, pp, cp, dp, micro, gbs, ep, etp, vpp)\n"
        "                        if validate(one, model, cluster):\n",
        "                        apart = max(1, dp // ep)\n"
        "                        one = Plan(tp, pp, cp, apart, micro, gbs, ep, etp, vpp)\n"
        "                        said = {v.rule for v in validate(one, model, cluster)}\n"
        '                        if said - {"gpus"}:\n',
    ),
)

whatever_divides_can_start = lines(
    """Plans are not validated: sizes whose product is right still leave heads, layers or
    micro-batches that do not divide, and the job ends before its first step.""",
    ("if validate(one, model, cluster):\n", "if vpp > 1 and pp == 1:\n"),
)

fits_on_average = lines(
    """A plan fits here if the mean of its stages does; the first stage keeps the most micro-batches
    in flight and the job dies on it: the fullest GPU decides.""",
    (
        "return max(a + b for a, b in zip(states[sizes], acts[kept], strict=True))",
        "return sum(states[sizes] + acts[kept]) / plan.pp",
    ),
)

memory_is_no_object = lines(
    """What does not fit is returned as well: the fastest plans are those that keep everything, and
    none of them can be started.""",
    ("if held <= cluster.hbm_bytes:", "if True:"),
)

states_are_all_that_has_to_fit = lines(
    """Only weights, gradients and optimizer states are counted; activations are often the larger
    half, above all on a pipeline's first stage.""",
    (
        "return max(a + b for a, b in zip(states[sizes], acts[kept], strict=True))",
        "return max(states[sizes])",
    ),
)

one_kind_of_recompute = lines(
    """Recompute is not searched: it trades time for bytes, so the front's small end is made of
    "full" and its fast end of "none" where that fits.""",
    ('kinds = ("none", "selective", "full")', 'kinds = ("selective",)'),
)

the_network_is_as_fast_as_nvlink = lines(
    """All links are taken to be NVLink, so TP over two nodes looks fine: it puts 4 all-reduces a
    layer on the 50 GB/s link, nine times slower.""",
    (
        "seconds = step_time(plan, model, cluster).total_s",
        "seconds = step_time(plan, model, "
        "replace(cluster, inter_Bps=cluster.intra_Bps)).total_s",
    ),
)

powers_of_two_alone = lines(
    """Only powers of two are tried; three nodes have 24 GPUs, and a data-parallel size of 3, 6 or
    12 is as good as another: try all divisors.""",
    (
        "                dp = gpus // (tp * pp * cp)\n",
        "                dp = gpus // (tp * pp * cp)\n"
        "                if dp & (dp - 1):\n                    continue\n",
    ),
)

the_largest_micro_batch = lines(
    """Only micro-batches of 1 are tried; larger ones send fewer, larger messages, at the price of
    activations and, in a pipeline, of the bubble.""",
    ("for micro in (1, 2, 4) if", "for micro in (1,) if"),
)

a_pipeline_has_one_chunk = lines(
    """Virtual stages are not tried; they make the bubble smaller and memory a little larger, so
    they are on the front wherever there is a pipeline.""",
    ("for vpp in chunks if pp > 1 else [1]:", "for vpp in [1]:"),
)

weights_are_never_sharded = lines(
    """Zero 3 is not tried: FSDP holds a shard of the weights and gathers the rest while it
    computes, so that some plans fit that would otherwise need a pipeline.""",
    (
        "kept: list[tuple[int, int | None]] = [(1, None), (3, None)]",
        "kept: list[tuple[int, int | None]] = [(1, None)]",
    ),
)

fsdp_is_all_or_nothing = lines(
    """Hybrid sharding is not tried: shards inside of a node cost memory and keep the gathers on
    NVLink.""",
    ("if 1 < shard < dp * cp else []", "if False else []"),
)

a_full_gpu_is_too_full = lines(
    """A plan that needs exactly hbm_bytes is dropped; it fits, because at most hbm_bytes are
    allowed, and not only less.""",
    ("if held <= cluster.hbm_bytes:", "if held < cluster.hbm_bytes:"),
)

one_expert_cut_comes_twice = lines(
    """With TP 1 an ETP of 1 and one of TP are the same plan, and it is listed twice.""",
    (
        "itertools.product(divisors(model.experts), {1, tp})",
        "itertools.product(divisors(model.experts), (1, tp))",
    ),
)

the_first_stage_decides = lines(
    """Only the first stage is asked whether it fits. It keeps the most micro-batches, but the last
    has the head and its logits, and with full recompute those weigh more: ask the fullest.""",
    (
        "return max(a + b for a, b in zip(states[sizes], acts[kept], strict=True))",
        "return states[sizes][0] + acts[kept][0]",
    ),
)

experts_are_dealt_out_over_dp = lines(
    """ep is looked for among the divisors of dp only; experts stand on tensor and context ranks,
    too, so an ep that does not divide dp can be as good a plan.""",
    (
        "                        if validate(one, model, cluster):\n",
        "                        if dp % ep or validate(one, model, cluster):\n",
    ),
)

three_chunks_are_not_tried = lines(
    """Three virtual stages are left out. They are tried like 1, 2 and 4, wherever a stage's layers
    can be cut into three chunks.""",
    ("for vpp in (1, 2, 3, 4) if model", "for vpp in (1, 2, 4) if model"),
)
