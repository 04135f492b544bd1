from grader.suite import lines

_CUT = """size = -(-len(flat) // world_size)
        mine = flat[rank * size : (rank + 1) * size]
        shard = flat.new_zeros(size)
        shard[: len(mine)] = mine
        return shard"""

shards_of_unequal_size = lines(
    """The last ranks get shorter shards than the first; all-gather and reduce-scatter exchange
    equal pieces, so the end is filled up with zeros.""",
    (_CUT, "return flat.tensor_split(world_size)[rank].clone()"),
)

the_remainder_is_left_out = lines(
    """floor(total / N) elements a rank: what is left over, up to N - 1 elements at the end of the
    last bias, is on no rank. Round up.""",
    ("-(-len(flat) // world_size)", "max(1, len(flat) // world_size)"),
)

padded_one_by_one = lines(
    """Every parameter is filled up to a multiple of N before they are put together: zeros stand
    between parameters, and all that follows is shifted. Padding stands once, at the very end.""",
    (
        "[tensors[name].reshape(-1) for name in optimizer",
        "[\n            nn.functional.pad(\n                tensors[name].reshape(-1), "
        "(0, -tensors[name].numel() % world_size)\n            )\n"
        "            for name in optimizer",
    ),
)

steps_start_again = lines(
    """The new ranks begin at step 0: AdamW corrects full-grown moments as if it were step 1, and
    with the default betas the first update has 0.32 times its size.""",
    ('"step": optimizer["step"],', '"step": 0,'),
)

moments_start_again = lines(
    """The new ranks begin with empty moments; the parameters go on, but AdamW has forgotten how
    large gradients are, and its next steps are those of a new run.""",
    ('cut(optimizer["exp_avg"])', 'torch.zeros_like(cut(optimizer["exp_avg"]))'),
    ('cut(optimizer["exp_avg_sq"])', 'torch.zeros_like(cut(optimizer["exp_avg_sq"]))'),
)

a_view_of_the_whole = lines(
    """The shard is a slice of the flat buffer, and a slice is a view: the whole stays in memory
    behind it on every rank, and nothing is saved.""",
    (
        """mine = flat[rank * size : (rank + 1) * size]
        shard = flat.new_zeros(size)
        shard[: len(mine)] = mine
        return shard""",
        """flat = nn.functional.pad(flat, (0, size * world_size - len(flat)))
        return flat[rank * size : (rank + 1) * size]""",
    ),
)

moments_in_the_parameters_dtype = lines(
    """Moments are given the parameters' dtype: a bfloat16 second moment stops moving, because 0.001
    of a squared gradient is less than half a step of it.""",
    (
        "return shard\n",
        'return shard.to(full["model"][next(iter(optimizer["exp_avg"]))].dtype)\n',
    ),
)

in_the_order_of_the_alphabet = lines(
    """Parameters are put together in the order of their sorted names; ranks read the buffer in the
    model's order, and weights end up in each other's places without an error.""",
    ('in optimizer["exp_avg"]]', 'in sorted(optimizer["exp_avg"])]'),
)

everything_in_the_file_is_cut = lines(
    """All of the model's entries go into the flat buffer, with running statistics, frozen layers
    and a tied weight twice; shards hold what is trained, each parameter once.""",
    (
        "[tensors[name].reshape(-1) for name in optimizer",
        "[value.reshape(-1) for value in tensors.values() if optimizer",
    ),
)

shards_are_float32 = lines(
    """Every shard is float32, whatever the checkpoint has: float64 loses digits, and bfloat16
    parameters take twice the bytes.""",
    ("shard = flat.new_zeros(size)", "shard = torch.zeros(size)"),
)
