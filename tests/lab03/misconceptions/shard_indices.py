from grader.suite import lines

contiguous_blocks = lines(
    """Each rank takes one contiguous block; DistributedSampler deals the order out like cards,
    rank r gets every world_size-th row.""",
    ("order[rank::world_size]", "order[rank * each : (rank + 1) * each]"),
)

epoch_is_not_in_the_seed = lines(
    """Epoch 1 repeats epoch 0's order: seed+epoch never changed.""",
    ("manual_seed(seed + epoch)", "manual_seed(seed)"),
)

rank_is_in_the_seed = lines(
    """Each rank shuffles with a seed of its own, so the shards overlap and rows are missing; all
    ranks must deal from one permutation.""",
    ("manual_seed(seed + epoch)", "manual_seed(seed + epoch + rank)"),
)

nothing_is_filled_up = lines(
    """Some ranks get a row more than others and wait for ever in their last all-reduce; the list
    is filled up from its front until every rank has equally many.""",
    (
        "[order[i % n] for i in range(each * world_size)]",
        "order[: each * world_size] if drop_last else order",
    ),
)

filled_up_with_the_last_row = lines(
    """The list is filled up with its last row, which then counts several times; the sampler goes
    round from the front.""",
    ("order[i % n]", "order[min(i, n - 1)]"),
)

always_drops = lines(
    """Rows that do not fill a round are dropped although drop_last was not asked for: up to
    world_size - 1 rows are never read in an epoch.""",
    ("n // world_size if drop_last else -(-n // world_size)", "n // world_size"),
)

never_drops = lines(
    """drop_last is ignored: rows are repeated where the end of the order should be left out.""",
    ("n // world_size if drop_last else -(-n // world_size)", "-(-n // world_size)"),
)

filled_up_once = lines(
    """The list is appended to itself once, which is too short when there are fewer than half as
    many rows as ranks: some ranks get no row. Repeat it as often as it takes.""",
    (
        "[order[i % n] for i in range(each * world_size)]",
        "(order + order)[: each * world_size]",
    ),
)

seeds_every_draw = lines(
    """The order is drawn from torch's global generator, seeded for it: every other draw of the
    program, dropout's too, then begins anew in each epoch. The order needs a generator of its
    own.""",
    (
        "generator = torch.Generator().manual_seed(seed + epoch)",
        "torch.manual_seed(seed + epoch)",
    ),
    ("torch.randperm(n, generator=generator)", "torch.randperm(n)"),
)
