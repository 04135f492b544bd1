from grader.suite import block, lines

sends_the_whole_tensor = block(
    """The whole tensor goes round twice, 2 (W - 1) S bytes a rank, W times what a ring needs: send
    one chunk a step, the one that the next rank adds to.""",
    """
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    chunks = flat.tensor_split(world_size)
    total, sent = flat, 0
    for step in range(2 * (world_size - 1)):
        incoming = torch.empty_like(flat)
        sending = dist.isend(flat, group=group, group_dst=after)
        dist.irecv(incoming, group=group, group_src=before).wait()
        sending.wait()
        sent += flat.numel() * flat.element_size()
        theirs = incoming.tensor_split(world_size)
        if step < world_size - 1:
            chunks[(rank - step - 1) % world_size].add_(theirs[(rank - step - 1) % world_size])
        else:
            at = (rank - (step - world_size + 1)) % world_size
            chunks[at].copy_(theirs[at])
    return sent""",
)

each_rank_adds_in_its_own_order = block(
    """Every rank adds up what passes by, each beginning with its own numbers: floats depend on the
    order, so the replicas' sums differ in their last bits and drift apart.""",
    """
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    passing, sent = flat.clone(), 0
    for _ in range(world_size - 1):
        incoming = torch.empty_like(flat)
        sending = dist.isend(passing, group=group, group_dst=after)
        dist.irecv(incoming, group=group, group_src=before).wait()
        sending.wait()
        sent += flat.numel() * flat.element_size()
        flat += incoming
        passing = incoming
    return sent""",
)

the_rest_of_a_ragged_tensor_stays = lines(
    """Chunks of N // W elements leave the last N % W alone: a bias of 7 on 3 ranks keeps a local
    element, and with N < W nothing is reduced at all.""",
    (
        "chunks = flat.tensor_split(world_size)\n    sent",
        "size = len(flat) // world_size\n    chunks = "
        "flat[: size * world_size].view(world_size, size).unbind()\n    sent",
    ),
)

no_all_gather = lines(
    """Half of the work: after reduce-scatter every rank has ONE finished chunk; the others hold
    partial sums until W - 1 more steps have passed the finished ones on.""",
    (
        "    for step in range(world_size - 1):\n        sent += exchange(chunks[",
        "    for step in range(0):\n        sent += exchange(chunks[",
    ),
)

counts_elements = lines(
    """The number of elements is returned; bytes are elements times element_size().""",
    ("return out.numel() * out.element_size()", "return out.numel()"),
)

means_instead_of_sums = lines(
    """The sum is divided by W here; an all-reduce sums, and who wants the mean scales.""",
    ("    return sent\n", "    flat /= world_size\n    return sent\n"),
)

calls_the_library = block(
    """The library's all-reduce does the work and a formula gives the bytes; this task is to build
    that collective from sends and receives.""",
    """
    dist.all_reduce(flat, group=group)
    world_size = dist.get_world_size(group)
    return 2 * (world_size - 1) * (flat.numel() * flat.element_size() // world_size)""",
)

gathers_its_own_number_first = lines(
    """Every chunk ends as one rank's own numbers: either what arrives is not added, or the
    all-gather begins with the chunk of the rank's own number, which is not finished. After W - 1
    steps that add, rank r holds the sum of the chunk that it received last; follow one chunk round
    the ring to see which.""",
    (
        "chunks[(rank + 1 - step) % world_size], chunks[(rank - step) % world_size])",
        "chunks[(rank - step) % world_size], chunks[(rank - step - 1) % world_size])",
    ),
)

bytes_from_a_formula = lines(
    """The bytes are computed as 2 (W - 1) / W of the tensor; where W does not divide N, chunks
    differ by an element, and ranks send different numbers of bytes. Count what is sent.""",
    (
        "    return sent\n",
        "    return 2 * (world_size - 1) * flat.numel() * flat.element_size() // world_size\n",
    ),
)

chunks_that_are_missing = lines(
    """torch.chunk may give fewer than W chunks (one of 1 element, say), and some ranks then find
    none to send: cut into W chunks, of which some may be empty.""",
    ("flat.tensor_split(world_size)", "flat.chunk(world_size)"),
)
