from grader.suite import lines

buffers_stay_behind = lines(
    """Only parameters are sent: BatchNorm's running statistics, its counter and every table stay
    as each rank made them, and evaluation differs by rank.""",
    ("[*module.parameters(), *module.buffers()]", "module.parameters()"),
)

only_what_a_state_dict_lists = lines(
    """state_dict() leaves out buffers registered with persistent=False, but forward reads them.""",
    ("[*module.parameters(), *module.buffers()]", "module.state_dict().values()"),
)

frozen_parameters_stay_behind = lines(
    """Parameters that need no gradient are left out; nobody trains them, so nothing will ever make
    them equal.""",
    (
        "[*module.parameters(), *module.buffers()]",
        "[*(p for p in module.parameters() if p.requires_grad), *module.buffers()]",
    ),
)

always_from_rank_0 = lines(
    """src is ignored and rank 0 sends; a replica restored on another rank would be lost.""",
    ("broadcast(dense, src=src)", "broadcast(dense, src=0)"),
)

means_of_the_starts = lines(
    """The ranks' numbers are averaged instead of taken from src: a mean of random layers has a
    smaller variance than any of them, and no rank's checkpoint survives.""",
    (
        "dist.broadcast(dense, src=src)",
        "dist.all_reduce(dense)\n            dense.copy_(dense / dist.get_world_size())",
    ),
)

the_copy_is_forgotten = lines(
    """A tensor that is not contiguous is received into a contiguous copy, and the copy is thrown
    away: on every rank but src it keeps its own numbers.""",
    ("            tensor.copy_(dense)\n", ""),
    gate=False,
)

memory_is_sent_as_it_lies = lines(
    """A tensor that does not fill its memory, such as every second column of a table, is handed to
    the backend as it is: gloo sends the memory from its first element on, gaps included, and part
    of the tensor never arrives.""",
    ("tensor.contiguous()", "tensor"),
    ("            tensor.copy_(dense)\n", ""),
    gate=False,
)

BOTH_WAYS = """Every rank puts something into an all-reduce, zeros in the end, so that the sum is
src's: that sends about twice the bytes, for all ranks but src have nothing to give. One rank sends
and the others receive: a broadcast."""

zeros_are_added = lines(
    BOTH_WAYS,
    (
        "            dense = tensor.contiguous()  # a backend sends memory as it lies there\n"
        "            dist.broadcast(dense, src=src)\n",
        "            dense = tensor.contiguous()\n"
        "            if dist.get_rank() != src:\n"
        "                dense = tensor.new_zeros(tensor.shape)\n"
        "            wire = dense.view(torch.uint8) if dense.dtype == torch.bool else dense\n"
        "            dist.all_reduce(wire)\n",
    ),
)

times_zero = lines(
    """What the other ranks hold is multiplied by 0 and all-reduced; 0 times NaN or infinity is NaN,
    so it reaches every rank, and all of them send. Only src gives.""",
    (
        "            dense = tensor.contiguous()  # a backend sends memory as it lies there\n"
        "            dist.broadcast(dense, src=src)\n",
        "            dense = tensor.contiguous() * (dist.get_rank() == src)\n"
        "            wire = dense.view(torch.uint8) if dense.dtype == torch.bool else dense\n"
        "            dist.all_reduce(wire)\n",
    ),
)
