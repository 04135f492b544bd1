from grader.suite import lines, misconception

hits_the_whole_prompt = lines(
    """All n tokens come from the cache; then nothing is computed, and there is no output to sample
    the next token from. At most n - 1 count, so a full hit gives back its last block.""",
    (
        "found: list[int] = []\n    for content in hashes[: (num_tokens - 1) // block_size]:",
        "found = []\n    for content in hashes[: num_tokens // block_size]:",
    ),
)

counts_the_last_block_that_is_not_full = lines(
    """The last block of a trace's list is counted although it is not full: 36.64 % of Mooncake's
    conversation blocks instead of 38.19 % of the full ones. Only full blocks are in the cache.""",
    (
        "found: list[int] = []\n    for content in hashes[: (num_tokens - 1) // block_size]:",
        "found = []\n    for content in hashes:",
    ),
)


@misconception()
def goes_on_behind_a_hole(pool, hashes, num_tokens, block_size):
    """Blocks behind a missing one are counted, too; the tokens in between have no keys, and the
    request would compute with a gap in its context. Stop at the first miss."""
    blocks = [pool.lookup(content) for content in hashes[: (num_tokens - 1) // block_size]]
    return [block for block in blocks if block is not None]


always_leaves_a_block = lines(
    """One whole block is always left to compute; only the last token must be, and where it stands
    in a block of its own everything before it may come from the cache.""",
    (
        "found: list[int] = []\n    for content in hashes[: (num_tokens - 1) // block_size]:",
        "found = []\n    for content in hashes[: max(0, num_tokens // block_size - 1)]:",
    ),
)


@misconception()
def all_or_nothing(pool, hashes, num_tokens, block_size):
    """Nothing is used unless everything is there; a system prompt in front of a new question is
    just what a prefix cache is for. Take the longest run from the beginning."""
    blocks = [pool.lookup(content) for content in hashes[: (num_tokens - 1) // block_size]]
    return [] if None in blocks else blocks


from_the_end = lines(
    """The search begins at the last block and takes the longest run that ends there; what is needed
    is a run that begins at the first block.""",
    (
        "found: list[int] = []\n    for content in hashes[: (num_tokens - 1) // block_size]:",
        "found = []\n    for content in reversed(hashes[: (num_tokens - 1) // block_size]):",
    ),
    ("found.append(block)", "found.insert(0, block)"),
)

stops_at_a_block_that_is_held = lines(
    """A block that another request holds ends the run; its content is there all the same, and to
    share it while it is in use is what reference counts are for.""",
    ("        if block is None:", "        if block is None or pool.references(block):"),
)

stops_at_a_block_that_is_free = lines(
    """A block that nobody holds ends the run; it keeps its content until it is handed out again,
    and most of a prefix cache is free blocks.""",
    ("        if block is None:", "        if block is None or not pool.references(block):"),
)

a_hash_of_zero_ends_the_run = lines(
    """A hash of 0 is taken for a missing one, because 0 is false; the first block of every prompt
    in Mooncake's trace has the hash 0, so nothing would ever be found.""",
    (
        "        block = pool.lookup(content)\n",
        "        block = pool.lookup(content) if content else None\n",
    ),
)

the_last_block_first = lines(
    """The blocks come back with the last one first; a block table follows the tokens, from the
    first block on.""",
    ("    return found", "    return found[::-1]"),
)

the_last_hit_is_given_back = lines(
    """One whole block is always left to compute; only the last token must be, and where it stands
    in a block of its own everything before it may come from the cache.""",
    ("    return found", "    return found[:-1]"),
)

always_one_block_fewer = lines(
    """One whole block is always left to compute; only the last token must be, and where it stands
    in a block of its own everything before it may come from the cache.""",
    (
        "found: list[int] = []\n    for content in hashes[: (num_tokens - 1) // block_size]:",
        "found = []\n    for content in hashes[: max(0, (num_tokens - 1) // block_size - 1)]:",
    ),
)

only_a_whole_hit_gives_one_back = lines(
    """All hashes are looked up, and the last block is given back only where the hits are exactly
    num_tokens; with the hash of a partly filled block, one more, they are more than that.""",
    ("hashes[: (num_tokens - 1) // block_size]:", "hashes:"),
    (
        "        found.append(block)\n    return found",
        "        found.append(block)\n    if len(found) * block_size == num_tokens:\n"
        "        found.pop()\n    return found",
    ),
)
