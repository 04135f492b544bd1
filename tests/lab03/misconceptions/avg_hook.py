from grader.suite import block, lines

divides_by_w = lines(
    """x/3 and x·(1/3) are different floats; the reducer multiplies by the reciprocal.""",
    (".mul_(1 / dist.get_world_size(state))", ".div_(dist.get_world_size(state))"),
)

scales_after_the_sum = lines(
    """The sum is scaled afterwards; DDP scales each rank's gradients first, which rounds
    elsewhere and keeps fp16 sums from overflowing.""",
    (".mul_(1 / dist.get_world_size(state))", ""),
    ("future.value()[0])", "future.value()[0].mul_(1 / dist.get_world_size(state)))"),
)

sums_without_a_mean = lines(
    """The gradients are summed, not averaged: with a hook nobody else divides, and the learning
    rate is W times what it says.""",
    (".mul_(1 / dist.get_world_size(state))", ""),
)

waits_in_the_hook = lines(
    """The all-reduce is waited for inside the hook: every bucket stops the backward until the
    slowest rank has come, and nothing overlaps.""",
    (
        "return work.get_future()",
        "work.wait()\n    return work.get_future()",
    ),
)

nothing_travels = block(
    """The hook gives back this rank's own gradients: without an all-reduce the replicas drift
    apart.""",
    """
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future""",
)
