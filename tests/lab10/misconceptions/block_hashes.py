from grader.suite import lines, misconception

CONTENT = "{list(tokens[end - block_size : end])}"


@misconception()
def begins_at_zero(tokens, block_size, salt=None):
    """The chain multiplies and adds, and begins at 0: token id 0 leaves it there, so all blocks of
    zeros have one hash. Begin with another number, or hash parent and tokens together."""
    if block_size < 1:
        raise ValueError(block_size)
    state = 0 if salt is None else 1 + int.from_bytes(hashlib.sha256(salt.encode()).digest()[:7])
    hashes = []
    for place, token in enumerate(tokens, 1):
        state = (state * 6_364_136_223_846_793_005 + token) % (2**61 - 1)
        if place % block_size == 0:
            hashes.append(state)
    return hashes


none_is_the_word_none = lines(
    """Without a salt the chain begins with the text "None", which a tenant may have as its salt.
    Use the repr, or another type.""",
    ('parent = f"salt {salt!r}"', 'parent = f"salt {salt}"'),
)

ids_cut_to_sixteen_bits = lines(
    """Each id is cut to 16 bits, so 128,006 is 62,470; Llama 3 has 128,256 tokens and its special
    ones are the last. Hash the whole number.""",
    (CONTENT, "{[token % 65_536 for token in tokens[end - block_size : end]]}"),
)


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


digits_run_together = lines(
    """The ids are joined without anything between them: 1, 23 and 12, 3 are the same digits, so two
    texts share a block. Hash a tuple or a list, or put a separator between.""",
    (CONTENT, "{''.join(map(str, tokens[end - block_size : end]))}"),
)

ids_cut_to_a_byte = lines(
    """Each id is cut to a byte, so 300 is 44; vocabularies have 32,000 to 256,000 tokens. Hash the
    whole number.""",
    (CONTENT, "{bytes(token % 256 for token in tokens[end - block_size : end])}"),
)


only_the_sum = lines(
    """A block is hashed by the sum of its ids, which 11, 12 and 10, 13 share; hash the ids
    themselves, in their order.""",
    (CONTENT, "{sum(tokens[end - block_size : end])}"),
)

an_empty_salt_is_none = lines(
    """An empty salt is taken for none, because both are false; "" is a salt that somebody has set.
    Compare with None.""",
    ('parent = f"salt {salt!r}"', 'parent = f"salt {salt or None!r}"'),
)


the_salt_runs_into_the_tokens = lines(
    """Salt and first id are joined without anything between them: salt a and id 12 are salt a1 and
    id 2. Keep the two apart.""",
    ('parent = f"salt {salt!r}"', 'parent = "none: " if salt is None else f"salt {salt}"'),
    (
        'content = f"{parent}: {list(tokens[end - block_size : end])}"',
        'content = parent + ", ".join(map(str, tokens[end - block_size : end]))',
    ),
    ('parent = f"after {hashes[-1]}"', 'parent = f"after {hashes[-1]}: "'),
)
