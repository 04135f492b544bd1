from grader.suite import lines

a_stage_holds_one_micro_batch = lines(
    """1F1B stage 0 keeps p micro-batches in flight, so PP does not shrink its activations: L / p
    layers for p micro-batches are L layers.""",
    ("in_flight = min(m * v, chunks) / v", "in_flight = 1"),
)

all_micro_batches_wait_as_in_gpipe = lines(
    """GPipe keeps all m micro-batches until the forwards are over; 1F1B begins its backwards as
    early as possible, and stage s never has more than p - s.""",
    ("in_flight = min(m * v, chunks) / v", "in_flight = m"),
)

every_stage_is_as_full_as_the_first = lines(
    """A later stage gets its backward sooner: stage s of p holds p - s micro-batches, and the last
    one only one of them.""",
    ("chunks = p - s if v == 1", "chunks = p if v == 1"),
)

interleaving_is_free = lines(
    """Interleaving fills the pipeline with more chunks before the first backward: stage 0 holds
    1 + (p - 1) / (p v) times what plain 1F1B does. The smaller bubble is paid with memory.""",
    ("2 * (p - s - 1) + (v - 1) * p + 1\n        in_flight", "(p - s) * v\n        in_flight"),
)

context_ranks_are_no_replicas = lines(
    """Context ranks hold the same weights, so the distributed optimizer shards over them as well:
    dp * cp replicas, and not dp.""",
    (
        "replicas = plan.dp * plan.cp if plan.shard",
        "replicas = plan.dp if plan.shard",
    ),
)

an_expert_has_as_many_replicas_as_a_dense_weight = lines(
    """With EP an expert is on fewer GPUs than the attention beside it: its states are sharded over
    tp * cp * dp / (etp * ep) of them; divided by the dense dp * cp they come out too small.""",
    ("shared += experts * layers / expert_replicas", "shared += experts * layers / replicas"),
)

the_head_is_forgotten = lines(
    """The last stage has the head, as large as the embedding (they are untied here), and the last
    norm; without them a model of 70B loses a billion parameters.""",
    ("ends.append(model.vocab * h / t + h)", "ends.append(h)"),
)

tensor_parallelism_divides_everything = lines(
    """TP divides what is inside of attention and MLP; inputs, norms and dropout masks, 10 bytes of
    34 in a GPT layer, stay whole on every rank until sequence parallelism divides them, too.""",
    ("split = t if plan.sp else 1", "split = t"),
)

gradients_are_bf16 = lines(
    """Megatron sums gradients over micro-batches in fp32, 4 bytes each; a parameter takes 18 bytes
    without the distributed optimizer, and not 16.""",
    ("grad = 4 * (shared", "grad = 2 * (shared"),
)

zero_1_shards_gradients = lines(
    """ZeRO 1 shards the optimizer states only: 6 + 12 / d bytes a parameter. The gradient buffer
    stays whole, for it is what the micro-batches add to.""",
    ("if plan.zero >= 2 else whole)", "if plan.zero >= 2 else shared if plan.zero else whole)"),
)

fsdp_gathers_nothing = lines(
    """FSDP holds more than its shard: the unit that computes is gathered whole, and the next one
    meanwhile, so two units' weights come on top.""",
    ("2 * (shared + sum(units[:2]) if", "2 * (shared if"),
)

fsdp_gathers_one_unit = lines(
    """While one unit computes, the next is gathered, or every layer would wait for its weights: two
    units' weights are whole at a time.""",
    ("sum(units[:2])", "sum(units[:1])"),
)

units_are_layers_only = lines(
    """The embedding and the head are units, too, and with a vocabulary of 128,256 larger than a
    layer of an 8B model: the largest units decide.""",
    ("sorted([dense + experts] * layers + ends, reverse=True)", "[dense + experts] * layers"),
)

gradients_are_sharded_at_once = lines(
    """A unit's gradients are whole before they can be summed and scattered: with zero 2 and 3 one
    unit's are held on top of the shard.""",
    ("4 * (shared + units[0] if", "4 * (shared if"),
)

zero_3_shards_weights_alone = lines(
    """ZeRO 3 is ZeRO 2 and more: optimizer states and gradients are sharded as well as weights.""",
    ("if plan.zero >= 2 else whole)", "if plan.zero == 2 else whole)"),
)

hybrid_shards_over_everybody = lines(
    """With a shard of fewer ranks each group keeps the whole: states are divided by `shard`, not by
    dp * cp, and that is the price of talking inside the node.""",
    (
        "plan.dp * plan.cp if plan.shard is None else plan.shard\n    expert",
        "plan.dp * plan.cp\n    expert",
    ),
)

a_key_value_head_is_cut = lines(
    """Nobody computes with half a key/value head: where TP exceeds their number, each rank holds a
    copy of a whole one, and 2 heads on TP 8 are 8 heads' weights.""",
    ("max(model.kv_heads / t, 1)", "(model.kv_heads / t)"),
)

context_parallelism_cuts_the_scores_twice = lines(
    """A context rank has seq / cp queries, and each of them meets all keys on the way around the
    ring: its scores are seq / cp by seq, divided by cp once.""",
    (
        "act += 5 * model.heads * n * model.seq / t",
        "act += 5 * model.heads * n * model.seq / plan.cp / t",
    ),
)

a_stage_of_1f1b_holds_one_micro_batch = lines(
    """1F1B stage 0 keeps p micro-batches in flight, so PP does not shrink its activations: L / p
    layers for p micro-batches are L layers.""",
    ("chunks = p - s if v == 1", "chunks = 1 if v == 1"),
)

only_zero_3_has_shards = lines(
    """`shard` counts here with zero 3 only; it says over how many replicas *anything* is sharded,
    the optimizer states of zero 1 and the gradients of zero 2 as well.""",
    (
        "if plan.shard is None else plan.shard",
        "if plan.shard is None or plan.zero < 3 else plan.shard",
    ),
)

more_chunks_than_there_are = lines(
    """With few micro-batches an interleaved warm-up ends early: m micro-batches in v chunks are m *
    v, and a stage cannot hold more of them than that.""",
    (
        "in_flight = min(m * v, chunks) / v",
        "in_flight = (min(m, chunks) if v == 1 else chunks) / v",
    ),
)

expert_activations_are_cut_over_etp = lines(
    """What a layer's experts keep is divided by etp here. All ranks of a stage share its tokens
    evenly, so each keeps one tth of n * topk tokens' activations, however experts are cut.""",
    (
        "mlp = model.topk * (2 * h + inner * model.moe_ffn) / t\n",
        "mlp = model.topk * (2 * h + inner * model.moe_ffn) / etp\n",
    ),
)
