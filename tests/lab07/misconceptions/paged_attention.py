from grader.suite import lines

the_last_block_is_used_whole = lines(
    """The last block is used beyond context_len; its other slots belong to nobody yet, and a NaN
    there survives a weight of 0.""",
    ("filled = min(length - n * block_size, block_size)", "filled = block_size"),
)

the_table_is_ignored = lines(
    """Block n of a sequence is read from pool block n; where it lies is block_table[b, n].""",
    ("block = int(block_table[b, n])", "block = n"),
)

blocks_are_sorted = lines(
    """The blocks of a sequence are read in the order of their pool numbers; block n of a sequence
    is entry n of its table, and only the block of the last entry is partly filled.""",
    (
        "block = int(block_table[b, n])",
        "block = int(block_table[b, : -(-length // block_size)].sort().values[n])",
    ),
)

the_last_block_is_left_out = lines(
    """A last block that is not full is left out: a context of 13 tokens has four blocks of 4, not
    three.""",
    ("range(-(-length // block_size))", "range(length // block_size)"),
)

the_pool_is_copied = lines(
    """The whole pool is copied (cast, or repeated for the query heads) for the sake of a few
    blocks; gather through the table first.""",
    (
        "    o = torch.zeros_like(q_grouped)\n",
        "    k_cache, v_cache = k_cache.double(), v_cache.double()\n"
        "    o = torch.zeros_like(q_grouped)\n",
    ),
)

the_pool_is_cast_as_a_whole = lines(
    """The pool is cast before the blocks are gathered. In float32 that costs nothing, but a cast of
    half precision copies all blocks of all sequences; cast a block when it is read.""",
    (
        "    o = torch.zeros_like(q_grouped)\n",
        "    k_cache, v_cache = k_cache.to(wide), v_cache.to(wide)\n"
        "    o = torch.zeros_like(q_grouped)\n",
    ),
)

paged_heads_in_turn = lines(
    """KV heads are dealt out in turn, h % H_kv; a group is H // H_kv NEIGHBOURING query heads.""",
    (
        "q.to(wide).unflatten(1, (H_kv, q.shape[1] // H_kv))",
        "q.to(wide).unflatten(1, (q.shape[1] // H_kv, H_kv)).transpose(1, 2)",
    ),
    ("return o.flatten(1, 2)", "return o.transpose(1, 2).flatten(1, 2)"),
)

parts_of_a_cache_are_rounded = lines(
    """The accumulator is rounded to the type of q after each block; it stays float32 until the last
    token is in, and is rounded once.""",
    (
        "            state = merge(state,",
        "            state = (*state[:2], state[2].to(q.dtype).to(wide))\n"
        "            state = merge(state,",
    ),
)

a_cache_is_always_float32 = lines(
    """Scores and sums are computed in float32 here, whatever the cache's dtype is; of a float64
    cache that keeps seven digits.""",
    ("wide = statistics_dtype(q)", "wide = torch.float32"),
)
