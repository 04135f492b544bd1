from grader.suite import lines, misconception

CONTENT = "{[int(token) for token in tokens[end - block_size : end]]}"


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


NEXT = '        parent = f"after {hashes[-1]}"\n'

hashes_the_block_alone = lines(
    """Each block is hashed by itself, so the same tokens behind another beginning are taken for the
    same block; their keys and values are others. Hash the parent's hash with the block.""",
    (NEXT, ""),
)

hashes_place_and_block = lines(
    """A block's number does not replace its prefix: two prompts with different beginnings would
    share every later block that is the same. Chain the parent's hash.""",
    (NEXT, ""),
    ('content = f"{parent}: ', 'content = f"{parent}, {end}: '),
)

only_the_block_before = lines(
    """A block is hashed with the tokens of the one before it, and with nothing that stands before
    that: the third block does not know the first. Chain the *hash* of the block before, which
    stands for everything up to there.""",
    (NEXT, ""),
    (CONTENT, "{list(tokens[max(0, end - 2 * block_size) : end])}"),
)

everything_hangs_on_the_first_block = lines(
    """Each block is hashed with the first one's hash, and what lies between them does not count.
    The parent is the block before.""",
    (NEXT, NEXT.replace("-1", "0")),
)

the_chain_adds = lines(
    """Parent's and block's hashes are added or xored, and a sum has no order: two blocks the other
    way round end with the same hash. Hash the two together, one behind the other.""",
    ('    parent = f"salt {salt!r}"', "    parent = 0"),
    ('content = f"{parent}: ', 'content = f"{salt!r}: '),
    (
        "hashes.append(int.from_bytes(hashlib.sha256(content.encode()).digest()))",
        "hashes.append(parent + int.from_bytes(hashlib.sha256(content.encode()).digest()))",
    ),
    (NEXT, "        parent = hashes[-1]\n"),
)

the_chain_xors = lines(
    """Parent's and block's hashes are added or xored, and a sum has no order: two blocks the other
    way round end with the same hash. Hash the two together, one behind the other.""",
    ('    parent = f"salt {salt!r}"', "    parent = 0"),
    ('content = f"{parent}: ', 'content = f"{salt!r}: '),
    (
        "hashes.append(int.from_bytes(hashlib.sha256(content.encode()).digest()))",
        "hashes.append(parent ^ int.from_bytes(hashlib.sha256(content.encode()).digest()))",
    ),
    (NEXT, "        parent = hashes[-1]\n"),
)

hashes_are_texts = lines(
    """The hashes are texts or bytes, as a digest gives them; a list of ints is asked for, which a
    trace holds as well.""",
    (
        "int.from_bytes(hashlib.sha256(content.encode()).digest())",
        "hashlib.sha256(content.encode()).hexdigest()",
    ),
)

hashes_a_last_block_that_is_not_full = lines(
    """The rest that does not fill a block gets a hash as well; more tokens will come into that
    block, and whoever finds it then reads other keys. Hash full blocks only.""",
    (
        "range(block_size, len(tokens) + 1, block_size)",
        "range(block_size, len(tokens) + block_size, block_size)",
    ),
)

forgets_the_salt = lines(
    """The salt is not hashed, so two tenants with the same prompt share blocks, and one of them can
    tell from its TTFT what the other has asked. Begin the chain with the salt.""",
    ('parent = f"salt {salt!r}"', 'parent = "salt"'),
)

order_within_a_block_is_lost = lines(
    """The tokens of a block are hashed as a set or a sum, so "dog bites man" finds the block of
    "man bites dog". Hash them in their order.""",
    (CONTENT, "{sorted(tokens[end - block_size : end])}"),
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
        'content = f"{parent}: {[int(token) for token in tokens[end - block_size : end]]}"',
        'content = parent + ", ".join(map(str, tokens[end - block_size : end]))',
    ),
    ('parent = f"after {hashes[-1]}"', 'parent = f"after {hashes[-1]}: "'),
)

written_as_they_print = lines(
    """The ids are hashed as they print, and in NumPy 2 an element of an array prints as
    np.int64(7): the same tokens in an array have other hashes than in a list.""",
    (
        "[int(token) for token in tokens[end - block_size : end]]",
        "[*tokens[end - block_size : end]]",
    ),
    gate=False,
)

FULL = "range(block_size, len(tokens) + 1, block_size)"
DIGEST = "int.from_bytes(hashlib.sha256(content.encode()).digest())"
SIZE_CHECK = """    if block_size < 1:
        raise ValueError(f"block_size is {block_size}; a block holds one token at least.")
"""

the_last_token_of_each_block = lines(
    """The last token of each block is not hashed, so two blocks that differ there alone have one
    hash; a slice ends before its stop. All block_size tokens go in.""",
    (CONTENT, CONTENT.replace("end]]", "end - 1]]")),
)

the_first_token_of_each_block = lines(
    """The first token of each block is not hashed, so two blocks that differ there alone have one
    hash. All block_size tokens go in.""",
    (CONTENT, CONTENT.replace("end - block_size :", "end - block_size + 1 :")),
)

a_hash_for_every_place = lines(
    """A window of block_size tokens is moved on by one token each time; blocks do not overlap, the
    next one begins where the last one ends, and n tokens have n // block_size hashes.""",
    (FULL, "range(block_size, len(tokens) + 1)"),
)

always_blocks_of_sixteen = lines(
    """A block is taken to have 16 tokens whatever block_size says.""",
    ("    hashes: list[int] = []\n", "    block_size = 16\n    hashes: list[int] = []\n"),
)

the_salt_has_a_hash_of_its_own = lines(
    """The list begins with the hash that the chain starts from, so there is one hash too many and
    each stands one place too late; what is before the first block is not a block.""",
    (
        "    return hashes",
        "    return [int.from_bytes(hashlib.sha256(repr(salt).encode()).digest()), *hashes]",
    ),
)

the_hashes_are_bytes = lines(
    """The hashes are texts or bytes, as a digest gives them; a list of ints is asked for, which a
    trace holds as well.""",
    (DIGEST, "hashlib.sha256(content.encode()).digest()"),
)

the_hashes_are_tuples = lines(
    """Each entry is the pair of the parent and the block's tokens, not a hash of it; ints are asked
    for, and such pairs grow with the prompt.""",
    (
        f'content = f"{{parent}}: {CONTENT}"',
        "parent = (parent, tuple(tokens[end - block_size : end]))",
    ),
    (f"hashes.append({DIGEST})", "hashes.append(parent)"),
    ('        parent = f"after {hashes[-1]}"\n', ""),
)

the_hashes_are_in_a_tuple = lines(
    """The hashes come back in a tuple or another sequence; a list is asked for.""",
    ("    return hashes", "    return tuple(hashes)"),
)

only_the_product = lines(
    """A block is hashed by the product of its ids, which 2, 6 and 3, 4 share, and which a single 0
    makes 0; hash the ids themselves, in their order.""",
    (CONTENT, "{np.prod([int(token) for token in tokens[end - block_size : end]], dtype=object)}"),
)

only_first_and_last = lines(
    """A block is hashed by some of its tokens only; another text may agree in just these. All of
    them go in.""",
    (CONTENT, "{[int(tokens[end - block_size]), int(tokens[end - 1])]}"),
)

each_id_is_a_byte = lines(
    """bytes() of a list takes numbers below 256 and raises for others; token ids go up to 256,000.
    Give each id more bytes, or hash a text or a tuple of them.""",
    (CONTENT, "{bytes(tokens[end - block_size : end])}"),
)

each_id_has_two_bytes = lines(
    """Two bytes for an id hold numbers up to 65,535, and to_bytes raises for others; vocabularies
    have up to 256,000 tokens. Take four or eight bytes.""",
    (
        CONTENT,
        "{[int(token).to_bytes(2, 'big') for token in tokens[end - block_size : end]]}",
    ),
)

a_list_cannot_be_hashed = lines(
    """hash() is given a list, which Python refuses with a TypeError, since a list can change; make
    a tuple of the tokens first.""",
    (DIGEST, "hash((parent, tokens[end - block_size : end]))"),
)

a_block_size_below_zero = lines(
    """A block size below 1, or one below 0, gives no hashes; it is a mistake in the configuration,
    and a ValueError says so before the cache merely seems empty.""",
    (SIZE_CHECK, ""),
    gate=False,
)

a_division_by_a_block_size_of_zero = lines(
    """A block size of 0 ends in a ZeroDivisionError; a ValueError is asked for, which says what is
    wrong. Look at block_size before anything is divided by it.""",
    (SIZE_CHECK, "    len(tokens) // block_size\n"),
    gate=False,
)
