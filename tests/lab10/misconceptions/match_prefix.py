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

SLICE = "hashes[: (num_tokens - 1) // block_size]"

a_number_of_blocks = lines(
    """The number of blocks comes back; the caller puts the blocks themselves into the request's
    table. Return them, in order.""",
    ("    return found", "    return len(found)"),
)

a_number_of_tokens = lines(
    """The number of cached tokens comes back; the caller puts the blocks themselves into the
    request's table. Return them, in order.""",
    ("    return found", "    return len(found) * block_size"),
)

blocks_and_tokens = lines(
    """Blocks and the number of cached tokens come back as a pair, as in vLLM; here the blocks alone
    are asked for.""",
    ("    return found", "    return found, len(found) * block_size"),
)

the_hashes_that_were_found = lines(
    """The hashes come back that were found; the blocks that hold them are asked for, as the pool
    names them.""",
    ("found.append(block)", "found.append(content)"),
)

drops_the_last_hash = lines(
    """The last hash is always left out; whether a token is left to compute depends on num_tokens,
    and behind the last full block there often is one.""",
    (SLICE, "hashes[:-1]"),
)

drops_the_last_hash_of_the_full_blocks = lines(
    """The last hash is always left out; whether a token is left to compute depends on num_tokens,
    and behind the last full block there often is one.""",
    (SLICE, "hashes[: min(len(hashes) - 1, (num_tokens - 1) // block_size)]"),
)

rounds_up_to_blocks = lines(
    """num_tokens - 1 tokens are rounded *up* to blocks, so a block counts that is not full, or the
    one with the last token; only whole blocks come from the cache. Round down.""",
    (SLICE, "hashes[: blocks_for(num_tokens - 1, block_size)]"),
)

the_miss_is_in_the_list = lines(
    """The hash that is not found stands in the list as None; the run ends *before* it.""",
    (
        "        if block is None:\n            break\n        found.append(block)\n",
        "        found.append(block)\n        if block is None:\n            break\n",
    ),
)

misses_stand_as_none = lines(
    """What is not found stands in the list as None, and what comes behind it as well; the list ends
    before the first hash that is not found.""",
    ("        if block is None:\n            break\n", ""),
)

touches_what_it_finds = lines(
    """A block that is found is touched here; a request that is looked at may not be admitted, and
    then nobody would ever let go of it. Nothing is touched.""",
    ("    return found", "    if found:\n        pool.touch(found)\n    return found"),
    gate=False,
)

touches_one_by_one = lines(
    """A block that is found is touched here; a request that is looked at may not be admitted, and
    then nobody would ever let go of it. Nothing is touched.""",
    ("found.append(block)", "found.append(block)\n        pool.touch([block])"),
    gate=False,
)

touches_in_any_case = lines(
    """A block that is found is touched here; a request that is looked at may not be admitted, and
    then nobody would ever let go of it. Nothing is touched.""",
    ("    return found", "    pool.touch(found)\n    return found"),
    gate=False,
)

one_run_of_the_whole_prompt = lines(
    """A prompt that is cached whole gives up one block in any case, but one whose last block is not
    full loses nothing of its run; ask how many tokens may come from the cache, num_tokens - 1.""",
    (SLICE, "hashes[: num_tokens // block_size]"),
    ("    return found", "    return found[:-1] if len(found) == len(hashes) else found"),
)

two_tokens_are_left = lines(
    """Two tokens are left to compute; one is enough, the last, and where it stands alone in its
    block everything before it may come from the cache.""",
    (SLICE, "hashes[: max(0, num_tokens - 2) // block_size]"),
)
