from grader.suite import misconception


@misconception()
def the_last_block_is_used_whole(q, k_cache, v_cache, block_table, context_lens, scale=None):
    """The last block is used beyond context_len; its other slots belong to nobody yet, and a NaN
    there survives a weight of 0."""
    o = torch.zeros_like(q)
    for b, length in enumerate(context_lens.tolist()):
        blocks = block_table[b, : -(-length // k_cache.shape[1])].long()
        k, v = (x[blocks].flatten(0, 1).transpose(0, 1)[None] for x in (k_cache, v_cache))
        o[b] = flash_forward(q[b, :, None][None], k, v, 1, 16, scale=scale)[0][0, :, 0]
    return o


@misconception()
def the_table_is_ignored(q, k_cache, v_cache, block_table, context_lens, scale=None):
    """Block n of a sequence is read from pool block n; where it lies is block_table[b, n]."""
    o = torch.zeros_like(q)
    for b, length in enumerate(context_lens.tolist()):
        k, v = (x.flatten(0, 1)[:length].transpose(0, 1)[None] for x in (k_cache, v_cache))
        o[b] = flash_forward(q[b, :, None][None], k, v, 1, 16, scale=scale)[0][0, :, 0]
    return o


@misconception()
def the_pool_is_copied(q, k_cache, v_cache, block_table, context_lens, scale=None):
    """The whole pool is copied (cast, or repeated for the query heads) for the sake of a few
    blocks; gather through the table first."""
    o = torch.zeros_like(q)
    k_cache, v_cache = k_cache.double(), v_cache.double()
    for b, length in enumerate(context_lens.tolist()):
        blocks = block_table[b, : -(-length // k_cache.shape[1])].long()
        k, v = (x[blocks].flatten(0, 1)[:length].transpose(0, 1)[None] for x in (k_cache, v_cache))
        o[b] = flash_forward(q[b, :, None][None].double(), k, v, 1, 16, scale=scale)[0][0, :, 0]
    return o
