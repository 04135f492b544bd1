from grader.suite import block, lines

closes_before_the_cap_is_exceeded = block(
    """A tensor that does not fit opens a new bucket; the reducer adds first and closes afterwards,
    so buckets overshoot (28.03 MiB under a cap of 25).""",
    """
    buckets, size = [[]], 0
    for index, tensor_bytes in enumerate(nbytes):
        if buckets[-1] and size + tensor_bytes > caps[min(len(buckets), len(caps)) - 1]:
            buckets.append([])
            size = 0
        buckets[-1].append(index)
        size += tensor_bytes
    return buckets""",
)

full_is_not_full = lines(
    """A bucket that is exactly full is left open (> instead of >=): four layers of 25 MiB then make
    two buckets of 50 instead of four.""",
    ("if size >= caps", "if size > caps"),
)

first_cap_for_all = lines(
    """Every bucket is held to the first cap; that one is small only so that the first all-reduce
    starts early.""",
    ("caps[min(len(buckets), len(caps)) - 1]", "caps[0]"),
)

last_cap_for_all = lines(
    """The first cap is not used: the first bucket is as large as the others, and nothing travels
    until 25 MiB of gradients are there.""",
    ("caps[min(len(buckets), len(caps)) - 1]", "caps[-1]"),
)

an_empty_bucket_at_the_end = lines(
    """When the last tensor closes a bucket, an empty one is left behind: an all-reduce of nothing,
    and a bucket that never gets ready.""",
    ("[bucket for bucket in buckets if bucket]", "buckets"),
)

reversed_here = lines(
    """The list of buckets is turned round here; the order is the caller's affair, and a caller who
    has reversed the parameters gets the last bucket first.""",
    ("[bucket for bucket in buckets if bucket]", "[b for b in reversed(buckets) if b]"),
)

equal_parts = block(
    """ceil(total / cap) buckets of equal size: tensors are not cut, and 40 MiB of layers make
    three buckets under a cap of 25 MiB, not two.""",
    """
    count = -(-sum(nbytes) // caps[-1])
    share = sum(nbytes) / count
    buckets, size = [[] for _ in range(count)], 0
    for index, tensor_bytes in enumerate(nbytes):
        buckets[min(int(size / share), count - 1)].append(index)
        size += tensor_bytes
    return [bucket for bucket in buckets if bucket]""",
)

caps_are_used_up = block(
    """Caps are taken off the caller's list as buckets are closed: the buckets are right, but the
    next call with that list has other caps. Read the list, and leave it as it was.""",
    """
    buckets, size = [[]], 0
    cap = caps.pop(0) if len(caps) > 1 else caps[0]
    for index, tensor_bytes in enumerate(nbytes):
        buckets[-1].append(index)
        size += tensor_bytes
        if size >= cap:
            buckets.append([])
            size = 0
            cap = caps.pop(0) if len(caps) > 1 else caps[0]
    return [bucket for bucket in buckets if bucket]""",
)
