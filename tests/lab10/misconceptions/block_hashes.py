from grader.suite import lines, misconception


@misconception()
def hashes_the_block_alone(tokens, block_size, salt=None):
    """Each block is hashed by itself, so the same tokens behind another beginning are taken for the
    same block; their keys and values are others. Hash the parent's hash with the block."""

    def digest(*content):
        return int.from_bytes(hashlib.sha256(repr(content).encode()).digest()[:8])

    ends = range(block_size, len(tokens) + 1, block_size)
    return [digest(salt, *tokens[end - block_size : end]) for end in ends]


@misconception()
def hashes_place_and_block(tokens, block_size, salt=None):
    """A block's number is no substitute for its prefix: two prompts with different beginnings would
    share every later block that is the same. Chain the parent's hash."""

    def digest(*content):
        return int.from_bytes(hashlib.sha256(repr(content).encode()).digest()[:8])

    ends = range(block_size, len(tokens) + 1, block_size)
    return [digest(salt, end, *tokens[end - block_size : end]) for end in ends]


@misconception()
def hashes_a_last_block_that_is_not_full(tokens, block_size, salt=None):
    """The rest that does not fill a block gets a hash as well; more tokens will come into that
    block, and whoever finds it then reads other keys. Hash full blocks only."""
    hashes, parent = [], f"salt {salt!r}"
    for start in range(0, len(tokens), block_size):
        content = f"{parent}: {list(tokens[start : start + block_size])}"
        hashes.append(int.from_bytes(hashlib.sha256(content.encode()).digest()[:8]))
        parent = f"after {hashes[-1]}"
    return hashes


forgets_the_salt = lines(
    """The salt is not hashed, so two tenants with the same prompt share blocks, and one of them can
    tell from its TTFT what the other has asked. Begin the chain with the salt.""",
    ('parent = f"salt {salt!r}"', 'parent = "salt"'),
)

order_within_a_block_is_lost = lines(
    """The tokens of a block are hashed as a set or a sum, so "dog bites man" finds the block of
    "man bites dog". Hash them in their order.""",
    ("{list(tokens[end - block_size : end])}", "{sorted(tokens[end - block_size : end])}"),
)

hashes_the_whole_prompt_into_each_block = lines(
    """What stands *behind* a block goes into its hash, too, so only identical prompts share
    anything. A block depends on itself and on what is before it.""",
    ('parent = f"salt {salt!r}"', 'parent = f"salt {salt!r} {list(tokens)}"'),
)

the_last_full_block_is_lost = lines(
    """range ends before its stop: a prompt of exactly k blocks gets k - 1 hashes here, and its last
    block is never shared. Let the ends run to len(tokens) inclusive.""",
    (
        "range(block_size, len(tokens) + 1, block_size)",
        "range(block_size, len(tokens), block_size)",
    ),
)
