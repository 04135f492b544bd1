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
        "replicas, expert_replicas = plan.dp * plan.cp, t * plan.cp",
        "replicas, expert_replicas = plan.dp, t * plan.cp",
    ),
)

an_expert_has_as_many_replicas_as_a_dense_weight = lines(
    """With EP an expert is on fewer GPUs than the attention beside it: its optimizer is shared by
    tp * cp * dp / (etp * ep) of them, and dense data parallelism makes it too small.""",
    ("experts * layers / expert_replicas", "experts * layers / replicas"),
)

the_head_is_forgotten = lines(
    """The last stage has the head, as large as the embedding (they are untied here), and the last
    norm; without them a model of 70B loses a billion parameters.""",
    ("            params += model.vocab * h / t + h\n", "            params += h\n"),
)

tensor_parallelism_divides_everything = lines(
    """TP divides what is inside of attention and MLP; inputs, norms and dropout masks, 10 bytes of
    34 in a GPT layer, stay whole on every rank until sequence parallelism divides them, too.""",
    ("split = t if plan.sp else 1", "split = t"),
)

gradients_are_bf16 = lines(
    """Megatron sums gradients over micro-batches in fp32, 4 bytes each; a parameter takes 18 bytes
    without the distributed optimizer, and not 16.""",
    ("StageBytes(2 * total, 4 * total,", "StageBytes(2 * total, 2 * total,"),
)

zero_1_shards_gradients = lines(
    """ZeRO 1 shards the optimizer states only: 6 + 12 / d bytes a parameter. The gradient buffer
    stays whole, for it is what the micro-batches add to.""",
    ("StageBytes(2 * total, 4 * total,", "StageBytes(2 * total, 4 * total / replicas,"),
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
