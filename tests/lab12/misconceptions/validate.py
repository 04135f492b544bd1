from grader.suite import lines

ep_multiplies_the_gpus = lines(
    """EP re-uses the DP x CP x TP ranks; it does not need more GPUs. The guide's line "TP x PP x CP
    x EP x DP" holds only where DP means the replicas of an expert.""",
    ("world, gpus = tp * pp * cp * dp,", "world, gpus = tp * pp * cp * dp * ep,"),
)

key_value_heads_must_be_a_multiple = lines(
    """Where there are more tensor ranks than key/value heads, each head is copied to tp / kv_heads
    of them: 8 heads on TP 16 are fine. It fails only where neither number divides the other.""",
    ("kv % tp and tp % kv", "kv % tp"),
)

only_real_layers_count = lines(
    """The embedding and the head cost as much as a layer, and count as one where the plan says so:
    405B's 126 layers are 128 then, 16 for each of 8 stages.""",
    ("counted = model.L + plan.count_embedding + plan.count_loss", "counted = model.L"),
)

the_batch_is_not_divided_by_dp = lines(
    """Each data-parallel rank gets its own share of the global batch, and that share must be whole
    micro-batches: gbs % (micro * dp), and not gbs % micro.""",
    ("m, uneven = divmod(gbs, micro * dp)", "m, uneven = divmod(gbs, micro)"),
)

experts_are_not_split_by_tensor_ranks = lines(
    """An expert is cut into etp pieces, tp of them unless the plan says otherwise, so a layer's
    experts take etp * ep ranks of the stage, and not ep.""",
    ("if model.experts and stage % (etp * ep):", "if model.experts and stage % ep:"),
)

experts_share_the_data_ranks_only = lines(
    """The experts' grid lies on all ranks of a stage, tp * cp * dp of them; asked to divide dp
    alone, EP 8 on TP 4 x DP 4 is refused, which Megatron starts with ETP 1.""",
    ("if model.experts and stage % (etp * ep):", "if model.experts and (dp * cp) % ep:"),
)

context_ranks_take_one_piece = lines(
    """Causal attention makes late tokens dearer, so each context rank takes an early piece and a
    late one; the sequence is cut into 2 x CP pieces, and not into CP.""",
    ("model.seq % (2 * cp)", "model.seq % cp"),
)

virtual_stages_are_not_counted = lines(
    """With vpp chunks a rank there are pp * vpp virtual stages, and each has equally many layers;
    80 layers on PP 4 divide, on PP 4 x VPP 3 they do not.""",
    ("if counted % (pp * vpp):", "if counted % pp:"),
)

a_tensor_group_over_two_nodes_is_refused = lines(
    """TP 16 on nodes of 8 is slow, as every layer's all-reduces cross the network, but it can be
    started; speed is judged by `step_time` and not here.""",
    ("if heads % tp:", "if heads % tp or tp > cluster.gpus:"),
)

sequence_parallelism_for_any_experts = lines(
    """Sequence parallelism divides tokens over tensor ranks; with TP 1 there is nothing to divide,
    and EP does not need it.""",
    ("tp > 1 and ep > 1 and not plan.sp", "ep > 1 and not plan.sp"),
)

a_layout_counts_the_ends = lines(
    """The embedding and the head are counted in a layout here; count_embedding and count_loss are
    for an even split only. The numbers of a layout are layers, and add up to L.""",
    (
        "sum(rows) != model.L or",
        "sum(rows) != model.L + plan.count_embedding + plan.count_loss or",
    ),
)

one_rank_takes_two_pieces = lines(
    """An early and a late piece of a sequence are for context ranks that share one; with CP 1
    nothing is cut, and a sequence may have any number of tokens.""",
    ("if cp > 1 and model.seq % (2 * cp):", "if model.seq % (2 * cp):"),
)

rounds_of_a_number_that_is_none = lines(
    """The rule vpp_micro is checked although the batch does not divide into whole micro-batches:
    their number, rounded down, means nothing, and the plan is given a second fault that it does not
    have.""",
    ("elif vpp > 1 and m % pp:", "if vpp > 1 and m % pp:"),
)

zero_has_no_upper_end = lines(
    """A zero of 4 passes, since only its lower end is looked at; there are four kinds of sharding,
    0 to 3, and a larger number names none of them.""",
    ("and plan.zero in (0, 1, 2, 3)", "and plan.zero >= 0"),
)
