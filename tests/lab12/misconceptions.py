"""Known wrong answers of lab 12, as code. Each docstring is what the learner who gave it reads."""

# Executed among the reference's names: `rank_groups`, `Plan`, `StageBytes`, ... are the
# reference's.
from grader.skeleton import changed
from grader.suite import misconception

PARALLELISM = "parallelism.py"


# -- groups, rules, memory, pipeline --------------------------------------------------------------


@misconception("rank_groups", file=PARALLELISM)
def the_rightmost_axis_is_the_fastest(text):
    """The strides are reversed: with pp as the fastest digit a tensor group has one rank on each of
    many nodes, and TP's all-reduces of every layer run over the network. The leftmost axis of
    Megatron's order changes fastest."""
    return changed(
        text,
        (
            'names, along = order.split("-"), token.split("-")',
            'names, along = order.split("-")[::-1], token.split("-")',
        ),
    )


@misconception("rank_groups")
def every_group_is_a_run_of_neighbours(sizes, order="tp-cp-ep-dp-pp", token="dp"):
    """Groups are cut from 0, 1, 2, ... as if each axis were the fastest; only one is. The ranks of
    a data-parallel group stand tp * cp apart."""
    along = token.split("-")
    if any(size < 1 for size in sizes.values()) or len(set(along)) < len(along):
        raise ValueError("no grid")
    names = order.split("-")
    wanted = [*along, *(axis for axis, size in sizes.items() if size > 1)]
    if len(set(names)) < len(names) or any(name not in names for name in wanted):
        raise ValueError("no grid")
    world = math.prod(sizes.values())
    length = math.prod(sizes.get(name, 1) for name in along)
    return [list(range(first, first + length)) for first in range(0, world, length)]


@misconception("rank_groups", file=PARALLELISM)
def a_joint_token_is_its_first_axis(text):
    """Of "dp-cp" only dp is followed. Context ranks hold the same weights and see other tokens, so
    their gradients belong into the same sum: a joint group varies all its axes."""
    return changed(text, ("if name not in along:", "if name != along[0]:"))


@misconception("rank_groups", file=PARALLELISM)
def groups_come_in_another_sequence(text):
    """The groups are right and their sequence is not: all ranks create all groups in the same
    sequence, and Megatron's ascends by the first rank, so the leftmost of the fixed digits changes
    fastest there, too."""
    return changed(
        text,
        (
            "return list(groups.values())\n    # END SOLUTION",
            "return [groups[key] for key in sorted(groups)]\n    # END SOLUTION",
        ),
    )


@misconception("expert_groups", file=PARALLELISM)
def dense_replicas_for_experts(text):
    """Two ranks of a dense data group may hold different experts; their gradients must not be
    summed. With EP the replicas of an expert are edp = tp * cp * dp / (etp * ep) ranks."""
    return changed(
        text,
        (
            '    return rank_groups(grid, order, "-".join(',
            '    if token == "edp":\n        return rank_groups(sizes, order, "dp")\n'
            '    return rank_groups(grid, order, "-".join(',
        ),
    )


@misconception("expert_groups", file=PARALLELISM)
def experts_have_gpus_of_their_own(text):
    """EP multiplied into the world counts ranks that nobody has: experts stand on the stage's
    tp * cp * dp ranks, and edp is what is left of them."""
    return changed(text, ('"dp": stage // (etp * ep), "pp"', '"dp": stage // etp, "pp"'))


@misconception("coll_time", file=PARALLELISM)
def nvlink_s_nine_hundred(text):
    """The data sheet's 900 GB/s of NVLink4 count both directions together; a ring sends one way, at
    450 GB/s, so all times inside a node come out half as long."""
    return changed(
        text,
        (
            "near, far = per_node, n // per_node",
            "cluster = replace(cluster, intra_Bps=2 * cluster.intra_Bps)\n"
            "    near, far = per_node, n // per_node",
        ),
        ("import math\n", "import math\nfrom dataclasses import replace\n"),
    )


@misconception("coll_time", file=PARALLELISM)
def an_all_reduce_goes_round_once(text):
    """After one round of the ring each rank has the sum of one piece only; the pieces still have to
    go to everybody. An all-reduce is a reduce-scatter and an all-gather, 2(n-1)/n of the tensor."""
    return changed(
        text,
        ('halves = ("reduce_scatter", "all_gather")', 'halves = ("reduce_scatter",)'),
    )


@misconception("coll_time", file=PARALLELISM)
def an_all_gather_s_size_is_taken_for_one_share(text):
    """`nbytes` of an all-gather is what comes out, of which each rank brings one nth; taken for the
    share of one rank, the time is n times too long."""
    return changed(
        text,
        (
            "near, far = per_node, n // per_node",
            'near, far = per_node, n // per_node\n    if op == "all_gather":\n        nbytes *= n',
        ),
    )


@misconception("coll_time", file=PARALLELISM)
def one_flat_ring_over_all_nodes(text):
    """One ring through all nodes pulls the whole tensor through every network card. If the GPUs of
    a node first divide it among themselves, each card carries one gth of it."""
    return changed(
        text,
        (
            "moved = nbytes * (near - 1) / near / cluster.intra_Bps\n",
            "moved = nbytes * (n - 1) / n / cluster.inter_Bps\n"
            "    if near < n:\n        return moved + (near - 1 + far - 1) * cluster.lat_s\n"
            "    moved = nbytes * (near - 1) / near / cluster.intra_Bps\n",
        ),
    )


@misconception("coll_time", file=PARALLELISM)
def latency_once_for_a_collective(text):
    """A ring of n ranks has n - 1 steps, each of which waits for the one before, so small messages
    on many ranks cost (n - 1) latencies and not one."""
    return changed(text, ("(near - 1 + far - 1) * cluster.lat_s", "cluster.lat_s"))


@misconception("coll_time", file=PARALLELISM)
def an_all_to_all_stays_inside(text):
    """Of an all-to-all over nodes only the g - 1 pieces for the own node travel over NVLink; the
    n - g others cross the network, at a ninth of the speed."""
    return changed(
        text,
        (
            "nbytes * (n - near) / n / cluster.inter_Bps",
            "nbytes * (n - near) / n / cluster.intra_Bps",
        ),
    )


@misconception("validate", file=PARALLELISM)
def ep_multiplies_the_gpus(text):
    """EP re-uses the DP x CP x TP ranks; it does not need more GPUs. The guide's line "TP x PP x CP
    x EP x DP" holds only where DP means the replicas of an expert."""
    return changed(
        text, ("world, gpus = tp * pp * cp * dp,", "world, gpus = tp * pp * cp * dp * ep,")
    )


@misconception("validate", file=PARALLELISM)
def key_value_heads_must_be_a_multiple(text):
    """Where there are more tensor ranks than key/value heads, each head is copied to tp / kv_heads
    of them: 8 heads on TP 16 are fine. Only where neither number divides the other it fails."""
    return changed(text, ("kv % tp and tp % kv", "kv % tp"))


@misconception("validate", file=PARALLELISM)
def only_real_layers_count(text):
    """The embedding and the head cost as much as a layer, and count as one where the plan says so:
    405B's 126 layers are 128 then, 16 for each of 8 stages."""
    return changed(
        text, ("counted = model.L + plan.count_embedding + plan.count_loss", "counted = model.L")
    )


@misconception("validate", file=PARALLELISM)
def the_batch_is_not_divided_by_dp(text):
    """Each data-parallel rank gets its own share of the global batch, and that share must be whole
    micro-batches: gbs % (micro * dp), and not gbs % micro."""
    return changed(text, ("m, uneven = divmod(gbs, micro * dp)", "m, uneven = divmod(gbs, micro)"))


@misconception("validate", file=PARALLELISM)
def experts_are_not_split_by_tensor_ranks(text):
    """An expert is cut into etp pieces, tp of them unless the plan says otherwise, so a layer's
    experts take etp * ep ranks of the stage, and not ep."""
    return changed(
        text, ("if model.experts and stage % (etp * ep):", "if model.experts and stage % ep:")
    )


@misconception("validate", file=PARALLELISM)
def experts_share_the_data_ranks_only(text):
    """The experts' grid lies on all ranks of a stage, tp * cp * dp of them; asked to divide dp
    alone, EP 8 on TP 4 x DP 4 is refused, which Megatron starts with ETP 1."""
    return changed(
        text, ("if model.experts and stage % (etp * ep):", "if model.experts and (dp * cp) % ep:")
    )


@misconception("validate", file=PARALLELISM)
def context_ranks_take_one_piece(text):
    """Causal attention makes late tokens dearer, so each context rank takes an early piece and a
    late one; the sequence is cut into 2 x CP pieces, and not into CP."""
    return changed(text, ("model.seq % (2 * cp)", "model.seq % cp"))


@misconception("validate", file=PARALLELISM)
def virtual_stages_are_not_counted(text):
    """With vpp chunks a rank there are pp * vpp virtual stages, and each has equally many layers;
    80 layers on PP 4 divide, on PP 4 x VPP 3 they do not."""
    return changed(text, ("if counted % (pp * vpp):", "if counted % pp:"))


@misconception("validate", file=PARALLELISM)
def a_tensor_group_over_two_nodes_is_refused(text):
    """TP 16 on nodes of 8 is slow, as every layer's all-reduces cross the network, but it can be
    started; speed is judged by `step_time` and not here."""
    return changed(
        text,
        ("if heads % tp:", "if heads % tp or tp > cluster.gpus:"),
    )


@misconception("validate", file=PARALLELISM)
def sequence_parallelism_for_any_experts(text):
    """Sequence parallelism divides tokens over tensor ranks; with TP 1 there is nothing to divide,
    and EP alone does without it."""
    return changed(text, ("tp > 1 and ep > 1 and not plan.sp", "ep > 1 and not plan.sp"))


@misconception("memory", file=PARALLELISM)
def a_stage_holds_one_micro_batch(text):
    """1F1B stage 0 keeps p micro-batches in flight, so PP does not shrink its activations: L / p
    layers for p micro-batches are L layers."""
    return changed(text, ("in_flight = min(m * v, chunks) / v", "in_flight = 1"))


@misconception("memory", file=PARALLELISM)
def all_micro_batches_wait_as_in_gpipe(text):
    """GPipe keeps all m micro-batches until the forwards are over; 1F1B begins its backwards as
    early as possible, and stage s never has more than p - s."""
    return changed(text, ("in_flight = min(m * v, chunks) / v", "in_flight = m"))


@misconception("memory", file=PARALLELISM)
def every_stage_is_as_full_as_the_first(text):
    """A later stage gets its backward sooner: stage s of p holds p - s micro-batches, and the last
    one only one of them."""
    return changed(text, ("chunks = p - s if v == 1", "chunks = p if v == 1"))


@misconception("memory", file=PARALLELISM)
def interleaving_is_free(text):
    """Interleaving fills the pipeline with more chunks before the first backward: stage 0 holds
    1 + (p - 1) / (p v) times what plain 1F1B does. The smaller bubble is paid with memory."""
    return changed(
        text,
        ("2 * (p - s - 1) + (v - 1) * p + 1\n        in_flight", "(p - s) * v\n        in_flight"),
    )


@misconception("memory", file=PARALLELISM)
def context_ranks_are_no_replicas(text):
    """Context ranks hold the same weights, so the distributed optimizer shards over them as well:
    dp * cp replicas, and not dp."""
    return changed(
        text,
        (
            "replicas, expert_replicas = plan.dp * plan.cp, t * plan.cp",
            "replicas, expert_replicas = plan.dp, t * plan.cp",
        ),
    )


@misconception("memory", file=PARALLELISM)
def an_expert_has_as_many_replicas_as_a_dense_weight(text):
    """With EP an expert is on fewer GPUs than the attention beside it: its optimizer is shared by
    tp * cp * dp / (etp * ep) of them, and dense data parallelism makes it too small."""
    return changed(text, ("experts * layers / expert_replicas", "experts * layers / replicas"))


@misconception("memory", file=PARALLELISM)
def the_head_is_forgotten(text):
    """The last stage has the head, as large as the embedding (they are untied here), and the last
    norm; without them a model of 70B loses a billion parameters."""
    return changed(
        text, ("            params += model.vocab * h / t + h\n", "            params += h\n")
    )


@misconception("memory", file=PARALLELISM)
def tensor_parallelism_divides_everything(text):
    """TP divides what is inside of attention and MLP; inputs, norms and dropout masks, 10 bytes of
    34 in a GPT layer, stay whole on every rank until sequence parallelism divides them, too."""
    return changed(text, ("split = t if plan.sp else 1", "split = t"))


@misconception("memory", file=PARALLELISM)
def gradients_are_bf16(text):
    """Megatron sums gradients over micro-batches in fp32, 4 bytes each; a parameter takes 18 bytes
    without the distributed optimizer, and not 16."""
    return changed(text, ("StageBytes(2 * total, 4 * total,", "StageBytes(2 * total, 2 * total,"))


@misconception("memory", file=PARALLELISM)
def zero_1_shards_gradients(text):
    """ZeRO 1 shards the optimizer states only: 6 + 12 / d bytes a parameter. The gradient buffer
    stays whole, for it is what the micro-batches add to."""
    return changed(
        text,
        ("StageBytes(2 * total, 4 * total,", "StageBytes(2 * total, 4 * total / replicas,"),
    )


@misconception("memory", file=PARALLELISM)
def a_key_value_head_is_cut(text):
    """Nobody computes with half a key/value head: where TP exceeds their number, each rank holds a
    copy of a whole one, and 2 heads on TP 8 are 8 heads' weights."""
    return changed(text, ("max(model.kv_heads / t, 1)", "(model.kv_heads / t)"))


@misconception("memory", file=PARALLELISM)
def context_parallelism_cuts_the_scores_twice(text):
    """A context rank has seq / cp queries, and each of them meets all keys on the way around the
    ring: its scores are seq / cp by seq, divided by cp once."""
    return changed(
        text,
        (
            "act += 5 * model.heads * n * model.seq / t",
            "act += 5 * model.heads * n * model.seq / plan.cp / t",
        ),
    )


@misconception("simulate_pipeline", file=PARALLELISM)
def the_two_bubbles_are_exchanged(text):
    """(p - 1) / m is a share of the work and (p - 1) / (m + p - 1) one of the total; at p = m = 8
    one is 0.875 and the other 0.467, so say which you mean."""
    return changed(
        text,
        (
            "total, (total - work) / work, (total - work) / total,",
            "total, (total - work) / total, (total - work) / work,",
        ),
    )


@misconception("simulate_pipeline", file=PARALLELISM)
def one_f_one_b_waits_like_gpipe(text):
    """1F1B warms up with p - s - 1 forwards and then alternates; done after all forwards, its
    backwards cost the same time and m instead of p - s micro-batches of memory."""
    return changed(
        text,
        ('warm_up = m if schedule == "gpipe" else min(m, p - s - 1)', "warm_up = m"),
    )


@misconception("simulate_pipeline", file=PARALLELISM)
def the_warm_up_is_one_forward_longer(text):
    """The last stage can go backward as soon as it went forward, so its warm-up is 0 and that of
    stage s is p - s - 1; one more holds a micro-batch more on every stage."""
    return changed(
        text,
        (
            'warm_up = m if schedule == "gpipe" else min(m, p - s - 1)',
            'warm_up = m if schedule == "gpipe" else min(m, p - s)',
        ),
    )


@misconception("simulate_pipeline", file=PARALLELISM)
def all_micro_batches_go_through_a_chunk_first(text):
    """Interleaving sends p micro-batches through all chunks before the next p start; with all m
    through the first chunk, the first backward is far away and memory grows with m."""
    return changed(
        text,
        ("rounds = [range(first, first + p) for first in range(0, m, p)]", "rounds = [range(m)]"),
    )


@misconception("simulate_pipeline", file=PARALLELISM)
def a_chunk_takes_as_long_as_a_stage(text):
    """A rank's layers are divided among its v chunks, so one chunk takes the vth part of tf or tb;
    otherwise interleaving makes the step v times as long."""
    return changed(text, ('(tf if kind == "F" else tb) / v', '(tf if kind == "F" else tb)'))


@misconception("simulate_pipeline", file=PARALLELISM)
def a_backward_needs_its_own_forward_only(text):
    """The gradient comes from the stage behind; a backward that starts without it computes from
    nothing, and the bubble of the way back vanishes."""
    return changed(
        text,
        (
            'needed = ("B", i, stage + 1) if stage < p * v - 1 else ("F", i, stage)',
            'needed = ("F", i, stage)',
        ),
    )


@misconception("simulate_pipeline", file=PARALLELISM)
def the_peak_is_looked_up_between_pairs(text):
    """In the steady state a stage holds one more between its forward and its backward than after
    both; memory is allocated for the larger of the two."""
    return changed(
        text,
        (
            "            peak = max(peak, held)\n",
            '            peak = max(peak, held) if slot.kind == "B" else peak\n',
        ),
    )


# -- traffic, time, planner -----------------------------------------------------------------------

WORKSHEET = "topology_design_worksheet.md"


# --- comm ---------------------------------------------------------------------------------------


@misconception("comm", file=PARALLELISM)
def sums_gradients_for_each_micro_batch(text):
    """Gradients are summed over the replicas for each micro-batch here; they add up on the GPU
    first and are sent once a step, which is why DP may use the slow links."""
    return changed(
        text,
        (
            'add("reduce_scatter", axis, stride, size, 4 * params, 1)',
            'add("reduce_scatter", axis, stride, size, 4 * params, m)',
        ),
        (
            'add("all_reduce", axis, stride, size, 4 * params, 1)',
            'add("all_reduce", axis, stride, size, 4 * params, m)',
        ),
    )


@misconception("comm", file=PARALLELISM)
def sends_gradients_in_bf16(text):
    """Gradients are sent as bf16 here; they are kept and summed in fp32, 4 bytes each, so a step
    sends twice as much as the weights alone would say."""
    return changed(
        text,
        (
            'add("reduce_scatter", axis, stride, size, 4 * params, 1)',
            'add("reduce_scatter", axis, stride, size, 2 * params, 1)',
        ),
        (
            'add("all_reduce", axis, stride, size, 4 * params, 1)',
            'add("all_reduce", axis, stride, size, 2 * params, 1)',
        ),
    )


@misconception("comm", file=PARALLELISM)
def gathers_the_weights_in_fp32(text):
    """The sharded optimizer's new weights are gathered in fp32 here; only their bf16 copies leave
    the rank that owns them, 2 bytes each."""
    return changed(
        text,
        (
            'add("all_gather", axis, stride, size, 2 * params, 1)',
            'add("all_gather", axis, stride, size, 4 * params, 1)',
        ),
    )


@misconception("comm", file=PARALLELISM)
def sequence_parallelism_comes_on_top(text):
    """A reduce-scatter and an all-gather are counted twice a block; together they *are* the
    all-reduce that they replace, so sequence parallelism sends no byte more."""
    return changed(
        text,
        (
            "2 * n * h, blocks * passes * layers * m)",
            "2 * n * h, blocks * passes * layers * m * (2 if plan.sp else 1))",
        ),
    )


@misconception("comm", file=PARALLELISM)
def tensor_parallelism_in_the_forward_only(text):
    """Only the forward's two operations of each layer are counted; the backward of a split matrix
    product sums the gradient of its input as well, so there are four."""
    return changed(
        text,
        ("2 * n * h, blocks * passes * layers * m)", "2 * n * h, blocks * layers * m)"),
    )


@misconception("comm", file=PARALLELISM)
def recomputing_sends_nothing(text):
    """Full recompute runs a layer's forward again, and with it its collectives: three passes
    instead of two, so it costs traffic, not kernels alone."""
    return changed(text, ('passes = 3 if plan.recompute == "full" else 2', "passes = 2"))


@misconception("comm", file=PARALLELISM)
def tensor_parallel_tensors_are_shards(text):
    """The tensor of TP's collectives is divided by tp; what is summed is the *whole* activation of
    n x h, which every rank has a partial sum of: more TP makes it no smaller."""
    return changed(
        text,
        ('add(kind, "tp", 1, tp, 2 * n * h,', 'add(kind, "tp", 1, tp, 2 * n * h / tp,'),
    )


@misconception("comm", file=PARALLELISM)
def tokens_come_from_the_experts_alone(text):
    """One all-to-all a layer and pass sends tokens to their experts, but they have to come back,
    too: dispatch and combine, each way."""
    return changed(
        text,
        (
            '"ep", etp, plan.ep, tokens, 2 * passes * layers * m)',
            '"ep", etp, plan.ep, tokens, passes * layers * m)',
        ),
    )


@misconception("comm", file=PARALLELISM)
def a_token_goes_to_one_expert(text):
    """A token is sent once here; it goes to topk experts, and each of them gets a copy."""
    return changed(
        text,
        ("tokens = 2 * (n / split) * model.topk * h", "tokens = 2 * (n / split) * h"),
    )


@misconception("comm", file=PARALLELISM)
def the_ring_carries_all_query_heads(text):
    """The ring carries keys and values of the *key/value* heads; with grouped queries these are a
    fraction of h, which is what makes long rings cheap."""
    return changed(
        text,
        (
            "4 * n * (h / model.heads) * max(model.kv_heads / tp, 1)",
            "4 * n * (h / model.heads) * max(model.heads / tp, 1)",
        ),
    )


@misconception("comm", file=PARALLELISM)
def gradients_of_keys_stay_abroad(text):
    """The gradients of keys and values are missing: they are made all around the ring, so they
    travel with them and go home with one hop more, cp in all."""
    return changed(
        text, ("(passes * (cp - 1) + cp) * layers * m)", "passes * (cp - 1) * layers * m)")
    )


@misconception("comm", file=PARALLELISM)
def no_gradient_goes_back_a_stage(text):
    """Stages send activations only; the gradient of each comes back over the same link, so a stage
    in the middle sends twice a micro-batch and chunk."""
    return changed(
        text,
        ("sends = 2 * m * plan.vpp if pp > 2 else m * (2 * plan.vpp - 1)", "sends = m * plan.vpp"),
    )


@misconception("comm", file=PARALLELISM)
def chunks_send_no_more(text):
    """Each virtual stage hands its output on: v chunks a rank cross the boundary v times as often.
    That is the price of the smaller bubble."""
    return changed(
        text,
        (
            "sends = 2 * m * plan.vpp if pp > 2 else m * (2 * plan.vpp - 1)",
            "sends = 2 * m if pp > 2 else m",
        ),
    )


@misconception("comm", file=PARALLELISM)
def places_dp_innermost(text):
    """The strides are reversed: neighbours are replicas and a TP group is spread over all nodes.
    The leftmost axis of tp-cp-ep-dp-pp has stride 1, so that TP stays in a node."""
    return changed(
        text,
        ('add(kind, "tp", 1, tp, 2', 'add(kind, "tp", cp * plan.dp * pp, tp, 2'),
        ('("dp-cp", tp, cp * plan.dp, dense)', '("dp-cp", pp, cp * plan.dp, dense)'),
        ('add("send", "pp", tp * cp * plan.dp, pp', 'add("send", "pp", 1, pp'),
    )


@misconception("comm", file=PARALLELISM)
def context_ranks_share_no_gradients(text):
    """Gradients are summed over dp alone; context-parallel ranks hold the same weights and see
    other tokens, so they are replicas, too: the group is dp-cp."""
    return changed(
        text,
        ('("dp-cp", tp, cp * plan.dp, dense)', '("dp-cp", tp * cp, plan.dp, dense)'),
    )


@misconception("comm", file=PARALLELISM)
def experts_have_as_many_replicas(text):
    """An expert's gradients are summed over the dense replicas dp-cp, where most ranks hold *other*
    experts; its replicas are edp = tp * cp * dp / (etp * ep) ranks."""
    return changed(
        text,
        (
            "replicas = tp * cp * plan.dp // (etp * plan.ep)",
            "replicas = cp * plan.dp",
        ),
    )


@misconception("comm", file=PARALLELISM)
def every_stage_has_all_layers(text):
    """All L layers are counted for one GPU; it has those of its stage, L / pp."""
    return changed(text, ("layers = max(stage_layers(plan, model))", "layers = model.L"))


@misconception("comm", file=PARALLELISM)
def micro_batches_of_the_whole_batch(text):
    """Micro-batches are gbs / micro here; each data-parallel rank has its own part of the batch,
    gbs / (dp * micro) of them."""
    return changed(
        text,
        (
            "    etp = tp if plan.etp is None else plan.etp\n"
            "    m = plan.gbs // (plan.dp * plan.micro)\n",
            "    etp = tp if plan.etp is None else plan.etp\n    m = plan.gbs // plan.micro\n",
        ),
    )


@misconception("comm", file=PARALLELISM)
def small_groups_stay_in_a_node(text):
    """A group is taken to be inside a node because it has no more ranks than one; ranks that lie a
    stride of 8 apart are on 8 nodes, however few they are."""
    return changed(
        text,
        (
            "if world <= gpus or gpus % (stride * size) == 0:",
            "if world <= gpus or size <= gpus:",
        ),
    )


@misconception("comm", file=PARALLELISM)
def experts_are_cut_over_tp_as_well(text):
    """A routed MLP is counted among tp's blocks *and* among ep's: with experts, only attention is
    tp's; their tokens go through ep and etp."""
    return changed(text, ("blocks = 1 if routed else 2", "blocks = 2"))


# --- step_time ----------------------------------------------------------------------------------


@misconception("step_time", file=PARALLELISM)
def bubble_of_the_total(text):
    """(p-1) / (m+p-1) is the bubble's part of the *whole* time; what has to be added to the work is
    (p-1) / m of it."""
    return changed(
        text,
        (
            "bubble_s = work * (plan.pp - 1) / (plan.vpp * m)",
            "bubble_s = work * (plan.pp - 1) / (plan.vpp * m + plan.pp - 1)",
        ),
    )


@misconception("step_time", file=PARALLELISM)
def chunks_leave_the_bubble(text):
    """Virtual stages change nothing here; with v chunks a rank the first piece is one vth as long,
    and so is the wait for it."""
    return changed(
        text,
        ("work * (plan.pp - 1) / (plan.vpp * m)", "work * (plan.pp - 1) / m"),
    )


@misconception("step_time", file=PARALLELISM)
def bubble_over_the_whole_batch(text):
    """The bubble is spread over gbs / micro micro-batches; a pipeline has those of its own replica,
    dp times fewer, and the bubble is dp times larger."""
    return changed(
        text,
        (
            "work * (plan.pp - 1) / (plan.vpp * m)",
            "work * (plan.pp - 1) / (plan.vpp * m * plan.dp)",
        ),
    )


@misconception("step_time", file=PARALLELISM)
def bubble_of_kernels_alone(text):
    """The bubble is a share of the kernels' time here; while a stage waits, so do its collectives:
    everything that makes a micro-batch longer makes the bubble longer."""
    return changed(
        text,
        ("bubble_s = work * (plan.pp - 1)", "bubble_s = compute_s * (plan.pp - 1)"),
    )


@misconception("step_time", file=PARALLELISM)
def nothing_hides_gradients(text):
    """All of the gradients' time is added; their buckets are sent while the backward goes on, so
    only what is longer than that is exposed."""
    return changed(
        text,
        (
            'exposed_s = max(0.0, seconds.get("gradients", 0.0) - backward_s)',
            'exposed_s = seconds.get("gradients", 0.0)',
        ),
    )


@misconception("step_time", file=PARALLELISM)
def gradients_hide_behind_the_whole_step(text):
    """Gradients are hidden behind all micro-batches; they are complete in the *last* one's backward
    only, so no more than that is there to hide them."""
    return changed(
        text,
        (
            'exposed_s = max(0.0, seconds.get("gradients", 0.0) - backward_s)',
            'exposed_s = max(0.0, seconds.get("gradients", 0.0) - m * backward_s)',
        ),
    )


@misconception("step_time", file=PARALLELISM)
def hidden_time_is_saved_time(text):
    """A ring that is shorter than its attention makes a step *shorter* here; what is hidden costs
    nothing and saves nothing: not below 0."""
    return changed(
        text,
        (
            'cp_s = max(0.0, seconds.get("cp", 0.0) - attention_s)',
            'cp_s = seconds.get("cp", 0.0) - (attention_s if plan.cp > 1 else 0.0)',
        ),
    )


@misconception("step_time", file=PARALLELISM)
def the_ring_is_exposed(text):
    """All of the ring is added; the next block of keys travels while attention works on this one,
    and only what is longer is exposed."""
    return changed(
        text,
        (
            'cp_s = max(0.0, seconds.get("cp", 0.0) - attention_s)',
            'cp_s = seconds.get("cp", 0.0)',
        ),
    )


@misconception("step_time", file=PARALLELISM)
def tensor_parallelism_hides_as_well(text):
    """TP's collectives are hidden behind kernels; the next matrix product needs their result, so
    nothing runs meanwhile."""
    return changed(
        text,
        (
            "    work = compute_s + tp_s + cp_s",
            "    tp_s = max(0.0, tp_s - compute_s)\n    work = compute_s + tp_s + cp_s",
        ),
    )


@misconception("step_time", file=PARALLELISM)
def kernels_at_the_peak(text):
    """Kernels run at the data sheet's peak, which no matrix product of a layer reaches; divide by
    EFFICIENCY * flops."""
    return changed(
        text,
        (
            "(plan.tp * plan.cp) / (EFFICIENCY * cluster.flops)",
            "(plan.tp * plan.cp) / cluster.flops",
        ),
    )


@misconception("step_time", file=PARALLELISM)
def utilization_of_the_hardware(text):
    """Recomputed FLOPs count as work done; that is HFU. MFU counts what the model needs, so that
    doing work twice does not look like being faster."""
    return changed(
        text,
        (
            "flops = 3 * plan.gbs * seq * (model.L * layer + head)",
            "flops = plan.gbs * seq * (model.L * (3 * layer + again) + 3 * head)",
        ),
    )


@misconception("step_time", file=PARALLELISM)
def six_times_the_parameters_is_all(text):
    """Attention itself is missing: 6 FLOPs a parameter are the matrix products, and 12 * L * h * s
    come on top, which at 128k tokens are most of the work."""
    return changed(text, ("    layer = 2 * weights + core\n", "    layer = 2 * weights\n"))


@misconception("step_time", file=PARALLELISM)
def looking_up_an_embedding_is_a_product(text):
    """The embedding's parameters are counted with 6 FLOPs each, too; looking up a row multiplies
    nothing, only the head does."""
    return changed(
        text,
        ("return layer, 2 * model.vocab * h, again", "return layer, 4 * model.vocab * h, again"),
    )


@misconception("step_time", file=PARALLELISM)
def a_token_meets_all_experts(text):
    """A token is computed by all experts; it meets topk of them, which is why such a model is cheap
    for its size."""
    return changed(
        text,
        (
            "weights += model.topk * matrices * h * model.moe_ffn + h",
            "weights += model.experts * matrices * h * model.moe_ffn + h",
        ),
    )


@misconception("step_time", file=PARALLELISM)
def both_ways_at_once(text):
    """450 GB/s are what NVLink moves one way; 900 is the sum of both, and a ring sends each byte
    one way: bandwidths here are one way already."""
    return changed(
        text,
        (
            "one = coll_time(op.kind, op.bytes, op.ranks, op.per_node, cluster)\n        axis",
            "links = Cluster(cluster.nodes, cluster.gpus, cluster.hbm_bytes, "
            "2 * cluster.intra_Bps, cluster.inter_Bps, cluster.lat_s)\n"
            "        one = coll_time(op.kind, op.bytes, op.ranks, op.per_node, links)\n"
            "        axis",
        ),
    )


@misconception("step_time", file=PARALLELISM)
def stages_are_even(text):
    """The head is forgotten: the last stage has as many layers as the others *and* the head, so it
    is the slowest, and a pipeline is as fast as that one."""
    return changed(text, ("    forwards[-1] += head\n", ""))


@misconception("step_time", file=PARALLELISM)
def a_backward_is_a_forward(text):
    """A backward takes as long as a forward here; it has two products for each of the forward's,
    one for the input's gradient and one for the weight's."""
    return changed(text, ("(2 * flops + count * again) * share", "(flops + count * again) * share"))


@misconception("step_time", file=PARALLELISM)
def experts_multiply_the_gpus(text):
    """MFU is taken over tp * pp * cp * dp * ep GPUs; EP re-uses the ranks of a stage and adds
    none."""
    return changed(
        text,
        (
            "    gpus = plan.tp * plan.pp * plan.cp * plan.dp\n    flops",
            "    gpus = plan.tp * plan.pp * plan.cp * plan.dp * plan.ep\n    flops",
        ),
    )


# --- plan_search --------------------------------------------------------------------------------


@misconception("plan_search", file=PARALLELISM)
def everything_that_fits(text):
    """Everything that fits is returned, sorted; a plan that another beats in time *and* bytes is
    never the right one, and thousands of them hide those that are."""
    return changed(
        text,
        ("if any(row[0] < least and row[1] <= held for row in front):", "if False:"),
        (
            "row[0] <= seconds and row[1] <= held and row[:2] != (seconds, held) for row in front",
            "False for row in front",
        ),
        ("if row[0] < seconds or row[1] < held or row[:2] == (seconds, held)", "if True"),
    )


@misconception("plan_search", file=PARALLELISM)
def the_fastest_alone(text):
    """Only the fastest plan is returned; with two goals there is a plan for each budget of memory,
    and who needs longer sequences tomorrow wants the next one."""
    return changed(
        text,
        (
            "return [plan for _seconds, _held, plan in front]",
            "return [plan for _seconds, _held, plan in front][:1]",
        ),
    )


@misconception("plan_search", file=PARALLELISM)
def experts_need_gpus_of_their_own(text):
    """EP is multiplied into the number of GPUs here; EP re-uses the DP x CP x TP ranks, so the plan
    takes an ep-th of the cluster."""
    return changed(
        text,
        (
            "                        plan = Plan(tp, pp, cp, dp, micro, gbs, ep, etp, vpp, "
            "recompute=recompute)\n                        if validate(plan, model, cluster):\n",
            "                        if dp % ep:\n                            continue\n"
            "                        plan = Plan(tp, pp, cp, dp // ep, micro, gbs, ep, etp, vpp, "
            "recompute=recompute)\n"
            "                        said = {v.rule for v in validate(plan, model, cluster)}\n"
            '                        if said - {"gpus"}:\n',
        ),
    )


@misconception("plan_search", file=PARALLELISM)
def whatever_divides_can_start(text):
    """Plans are not validated: sizes whose product is right still leave heads, layers or
    micro-batches that do not divide, and the job ends before its first step."""
    return changed(text, ("if validate(plan, model, cluster):\n", "if vpp > 1 and pp == 1:\n"))


@misconception("plan_search", file=PARALLELISM)
def fits_on_average(text):
    """A plan fits here if the mean of its stages does; the first stage keeps the most micro-batches
    in flight and the job dies on it: the fullest GPU decides."""
    return changed(
        text,
        (
            "return max(map(operator.add, states[sizes], acts[kept]))",
            "return sum(map(operator.add, states[sizes], acts[kept])) / plan.pp",
        ),
    )


@misconception("plan_search", file=PARALLELISM)
def memory_is_no_object(text):
    """What does not fit is returned as well: the fastest plans are those that keep everything, and
    none of them can be started."""
    return changed(text, ("if held <= cluster.hbm_bytes:", "if True:"))


@misconception("plan_search", file=PARALLELISM)
def states_are_all_that_has_to_fit(text):
    """Only weights, gradients and optimizer states are counted; activations are often the larger
    half, above all on a pipeline's first stage."""
    return changed(
        text,
        ("return max(map(operator.add, states[sizes], acts[kept]))", "return max(states[sizes])"),
    )


@misconception("plan_search", file=PARALLELISM)
def one_kind_of_recompute(text):
    """Recompute is not searched: it trades time for bytes, so the front's small end is made of
    "full" and its fast end of "none" where that fits."""
    return changed(text, ('kinds = ("none", "selective", "full")', 'kinds = ("selective",)'))


@misconception("plan_search", file=PARALLELISM)
def the_network_is_as_fast_as_nvlink(text):
    """All links are taken to be NVLink, so TP 16 looks fine: it puts 4 all-reduces a layer on the
    50 GB/s link, nine times slower."""
    return changed(
        text,
        (
            "parts = step_time(plan, model, cluster)",
            "parts = step_time(plan, model, Cluster(cluster.nodes, cluster.gpus, "
            "cluster.hbm_bytes, cluster.intra_Bps, cluster.intra_Bps))",
        ),
    )


@misconception("plan_search", file=PARALLELISM)
def powers_of_two_alone(text):
    """Only powers of two are tried; three nodes have 24 GPUs, and a data-parallel size of 3, 6 or
    12 is as good as another: try all divisors."""
    return changed(
        text,
        (
            "                dp = gpus // (tp * pp * cp)\n",
            "                dp = gpus // (tp * pp * cp)\n"
            "                if dp & (dp - 1):\n                    continue\n",
        ),
    )


@misconception("plan_search", file=PARALLELISM)
def the_largest_micro_batch(text):
    """Only micro-batches of 1 are tried; larger ones send fewer, larger messages, at the price of
    activations and, in a pipeline, of the bubble."""
    return changed(text, ("for micro in (1, 2, 4) if", "for micro in (1,) if"))


@misconception("plan_search", file=PARALLELISM)
def a_pipeline_has_one_chunk(text):
    """Virtual stages are not tried; they make the bubble smaller and memory a little larger, so
    they are on the front wherever there is a pipeline."""
    return changed(text, ("for vpp in chunks if pp > 1 else [1]:", "for vpp in [1]:"))


# --- emit ---------------------------------------------------------------------------------------


@misconception("emit", file=PARALLELISM)
def forgets_sequence_parallel(text):
    """--sequence-parallel is missing: Megatron leaves it off unless it is told, and every rank
    keeps the whole sequence's norms, which is not the plan whose memory was computed."""
    return changed(text, ('        switches.append("sequence-parallel")\n', "        pass\n"))


@misconception("emit", file=PARALLELISM)
def sequence_parallel_alone(text):
    """--sequence-parallel with TP 1: there is no tensor group to split the sequence over."""
    return changed(text, ("if plan.sp and plan.tp > 1:", "if plan.sp:"))


@misconception("emit", file=PARALLELISM)
def global_batch_of_one_micro_batch(text):
    """--global-batch-size is micro * dp here, one micro-batch a rank: nothing would fill the
    pipeline. It is all sequences of a step."""
    return changed(
        text, ('"global-batch-size": plan.gbs,', '"global-batch-size": plan.micro * plan.dp,')
    )


@misconception("emit", file=PARALLELISM)
def global_batch_of_a_replica(text):
    """--global-batch-size is what one replica has; global means all replicas together, and Megatron
    divides by dp itself."""
    return changed(
        text, ('"global-batch-size": plan.gbs,', '"global-batch-size": plan.gbs // plan.dp,')
    )


@misconception("emit", file=PARALLELISM)
def data_parallel_is_an_option(text):
    """There is no --data-parallel-size: dp is what is left of the ranks that torchrun starts, and
    the parser ends at a word that it does not know."""
    return changed(
        text,
        (
            '        "context-parallel-size": plan.cp,\n',
            '        "context-parallel-size": plan.cp,\n        "data-parallel-size": plan.dp,\n',
        ),
    )


@misconception("emit", file=PARALLELISM)
def all_ranks_on_each_node(text):
    """--nproc-per-node is the number of ranks of *one* node, its GPUs; this starts all of them on
    every node."""
    return changed(
        text,
        (
            '"--nproc-per-node", str(cluster.gpus)]',
            '"--nproc-per-node", str(world)]',
        ),
    )


@misconception("emit", file=PARALLELISM)
def one_virtual_stage_is_said(text):
    """One virtual stage a rank is plain 1F1B; with the option Megatron takes the interleaved
    schedule, and that one needs more than one."""
    return changed(text, ("if plan.vpp > 1:", "if plan.vpp:"))


@misconception("emit", file=PARALLELISM)
def full_recompute_without_a_method(text):
    """Full recompute needs a method and a number of layers: without them Megatron refuses to
    start."""
    return changed(
        text,
        (
            'values |= {"recompute-method": "uniform", "recompute-num-layers": 1}',
            "pass",
        ),
    )


@misconception("emit", file=PARALLELISM)
def recompute_none_is_a_granularity(text):
    """ "none" is no granularity: to recompute nothing, the option is left out."""
    return changed(
        text,
        (
            '    if plan.recompute != "none":\n        values["recompute-granularity"]',
            '    if plan.recompute:\n        values["recompute-granularity"]',
        ),
    )


@misconception("emit", file=PARALLELISM)
def forgets_the_groups_of_queries(text):
    """Without --group-query-attention and --num-query-groups every query head gets keys and values
    of its own: another model, with 8 times the K and V weights for Llama-3-70B."""
    return changed(
        text,
        (
            '        switches.append("group-query-attention")\n'
            '        values["num-query-groups"] = model.kv_heads\n',
            "        pass\n",
        ),
    )


@misconception("emit", file=PARALLELISM)
def forgets_the_distributed_optimizer(text):
    """--use-distributed-optimizer is missing: each replica keeps all 12 bytes of optimizer states,
    and the plan does not fit that fitted on paper."""
    return changed(
        text,
        (
            'switches += ["use-distributed-optimizer", "overlap-param-gather"]',
            'switches += ["overlap-param-gather"]',
        ),
    )


@misconception("emit", file=PARALLELISM)
def switches_have_values(text):
    """Switches are options without a value: the word "true" behind one is an argument that nobody
    knows."""
    return changed(
        text,
        (
            'return words + [f"--{name}" for name in switches]',
            'return words + [word for name in switches for word in (f"--{name}", "true")]',
        ),
    )


# --- worksheet ----------------------------------------------------------------------------------


def _seventy(text, plan, peak, bubble, wait):
    """The worksheet with another plan for Llama-3-70B, and claims that are right for it."""
    old = "  tp: 4\n  pp: 4\n  cp: 2\n  dp: 2\n  vpp: 4\n  micro: 1\n  recompute: selective\n"
    return changed(
        text,
        (old, "".join(f"  {line}\n" for line in plan.split(", "))),
        ("peak_gb: 69.2", f"peak_gb: {peak}"),
        ("bubble: 0.0116", f"bubble: {bubble}"),
        ("exposed_s: 1.30", f"exposed_s: {wait}"),
    )


@misconception("worksheet", file=WORKSHEET)
def tp_over_two_nodes(text):
    """TP 16 puts 4 all-reduces a layer on the 50 GB/s link; a node has 8 GPUs, and what talks in
    every layer belongs inside it."""
    return _seventy(
        text, "tp: 16, pp: 2, cp: 1, dp: 2, micro: 1, recompute: selective", 39.1, 0.0154, 9.6
    )


@misconception("worksheet", file=WORKSHEET)
def recomputes_to_be_safe(text):
    """Full recompute where selective fits: every layer's forward is done twice, kernels and
    collectives, a third more of the step for memory that nobody needs."""
    return _seventy(
        text,
        "tp: 4, pp: 4, cp: 2, dp: 2, vpp: 4, micro: 1, recompute: full",
        42.5,
        0.0116,
        1.95,
    )


@misconception("worksheet", file=WORKSHEET)
def a_pipeline_without_micro_batches(text):
    """A micro-batch of 4 leaves few of them for a long pipeline: the bubble grows, and stage 0
    holds pp micro-batches that are 4 times as large."""
    return _seventy(
        text, "tp: 8, pp: 8, cp: 1, dp: 1, micro: 4, recompute: selective", 116.9, 0.1795, 2.76
    )


@misconception("worksheet", file=WORKSHEET)
def three_sequences_at_once(text):
    """Each replica's share of the batch has to be a whole number of micro-batches: 128 sequences on
    DP 2 do not divide by 3."""
    return changed(text, ("  micro: 1\n  recompute", "  micro: 3\n  recompute"))


@misconception("worksheet", file=WORKSHEET)
def three_chunks_of_twenty_layers(text):
    """A stage's 20 layers do not divide into 3 chunks; pp * vpp has to divide the layers."""
    return changed(text, ("  vpp: 4\n", "  vpp: 3\n"))


@misconception("worksheet", file=WORKSHEET)
def ep_takes_gpus(text):
    """PP 4 x DP 2 x EP 8 = 64 counts EP as an axis of its own; EP re-uses the ranks of DP, so this
    plan takes 8 GPUs."""
    return changed(text, ("cp: 1, dp: 16, ep: 8", "cp: 1, dp: 2, ep: 8"))


@misconception("worksheet", file=WORKSHEET)
def ep_makes_room_enough(text):
    """With PP 1 each GPU has one expert of all 32 layers and everything else of the model:
    activations and states together need 85.6 GB of 80."""
    return changed(
        text, ("{tp: 1, pp: 4, cp: 1, dp: 16, ep: 8, vpp: 4", "{tp: 1, pp: 1, cp: 1, dp: 64, ep: 8")
    )


@misconception("worksheet", file=WORKSHEET)
def one_micro_batch_in_flight(text):
    """The claimed memory has the activations of one micro-batch; stage 0 of 1F1B keeps pp of them
    in flight (and interleaving some more), so PP does not shrink them."""
    return changed(text, ("peak_gb: 69.2", "peak_gb: 46.8"))


@misconception("worksheet", file=WORKSHEET)
def memory_in_gib(text):
    """The claimed memory is in GiB, 2^30 bytes; peak_gb is in 10^9 bytes, and the two are 7.4 %
    apart."""
    return changed(text, ("peak_gb: 69.2", "peak_gb: 64.4"))


@misconception("worksheet", file=WORKSHEET)
def bubble_of_the_work(text):
    """The claimed bubble is (pp - 1) / (vpp * m), which is its ratio to the work; of the whole
    step it is a smaller part."""
    return changed(text, ("bubble: 0.0448", "bubble: 0.0469"))


@misconception("worksheet", file=WORKSHEET)
def bubble_without_dp(text):
    """The claimed bubble counts the micro-batches of the whole batch; a pipeline has those of its
    own replica, dp times fewer."""
    return changed(text, ("bubble: 0.0448", "bubble: 0.0029"))


@misconception("worksheet", file=WORKSHEET)
def the_ring_counts_although_hidden(text):
    """CP is claimed to be what kernels wait for; the ring is long, but attention over 131,072 keys
    is longer and hides it: exposed is what is left."""
    return changed(text, ("exposed: tp\n  exposed_s: 0.326", "exposed: cp\n  exposed_s: 8.02"))


@misconception("worksheet", file=WORKSHEET)
def the_fence_stays_open(text):
    """A block that is not closed swallows the rest of the file: end it with three backquotes."""
    return changed(text, ("pay for it.\n```\n", "pay for it.\n"))


@misconception("worksheet", file=WORKSHEET)
def a_tab_in_a_block(text):
    """YAML indents with spaces; a tab is an error at its line and column."""
    return changed(text, ("  tp: 4\n", "\ttp: 4\n"))


@misconception("worksheet", file=WORKSHEET)
def names_of_its_own(text):
    """`data_parallel` is no key of the worksheet: a design that is not read is not there. The name
    is dp."""
    return changed(text, ("  dp: 2\n  vpp", "  data_parallel: 2\n  vpp"))


@misconception("worksheet", file=WORKSHEET)
def a_unit_behind_a_number(text):
    """`69.2 GB` is a text; the unit is in the key, and the value is a number."""
    return changed(text, ("peak_gb: 69.2", "peak_gb: 69.2 GB"))


@misconception("worksheet", file=WORKSHEET)
def one_design_twice(text):
    """Two blocks have the same design: say which model each one is for."""
    return changed(text, ("design: llama3-8b-128k", "design: llama3-70b"))
