"""block_hashes, BlockPool, match_prefix: what is in the cache, who holds it, what goes next."""

import pytest

from grader.suite import expect, property_settings, task

from . import oracles
from .oracles import SlowPool, shared_blocks

# -- block_hashes ---------------------------------------------------------------------------------

A, B, C = [11, 12, 13, 14], [21, 22, 23, 24], [31, 32, 33, 34]
PAIRS = {
    "ten_tokens_shared": (A + B + [1, 2, 3], A + B + [1, 2, 4], 2),
    "ten_of_fifteen": (A + B + C[:2] + [1, 2, 3], A + B + C[:2] + [5, 6, 7], 2),
    "the_first_token_differs": ([99, *A[1:], *B, *C], A + B + C, 0),
    "blocks_exchanged": (A + B, B + A, 0),
    "the_same_block_behind_another": (A + C + B, B + C + A, 0),
    "one_is_the_beginning_of_the_other": (A + B, A + B + C + [1], 2),
    "tokens_of_a_block_exchanged": ([12, 11, 13, 14, *B], A + B, 0),
    "the_last_token_of_a_block_differs": ([*A, *B[:3], 99, *C], A + B + C, 1),
    "the_same": (A + B + C, A + B + C, 3),
    "a_shift_by_one": ([1, *A, *B], A + B, 0),
    # 1 23 and 12 3 are the same digits, one after the other.
    "the_same_digits": ([1, 23, 4, 5, *B], [12, 3, 4, 5, *B], 0),
    "the_same_digits_over_the_blocks": ([5, 6, 7, 8, 1, 23, 4, 5], [5, 6, 7, 8, 12, 3, 4, 5], 1),
    "the_end_of_a_vocabulary": ([128_009, 128_000, 151_643, 2], [128_009, 128_000, 151_643, 3], 0),
    "neighbours_at_the_end_of_a_vocabulary": ([151_643, 1, 2, 3], [151_644, 1, 2, 3], 0),
    "ids_that_differ_by_256": ([300, 1, 2, 3], [44, 1, 2, 3], 0),
    "ids_that_differ_by_65536": ([128_006, 1, 2, 3], [62_470, 1, 2, 3], 0),
    "the_sums_are_the_same": ([11, 12, 13, 14], [10, 13, 13, 14], 0),
    "the_products_are_the_same": ([2, 6, 5, 7], [3, 4, 5, 7], 0),
    "a_token_amid_a_block_differs": ([11, 12, 13, 14, *B], [11, 12, 99, 14, *B], 0),
    "the_second_token_differs": ([*A, 21, 22, 23, 24], [*A, 21, 99, 23, 24], 1),
    "a_zero_at_the_beginning": ([0, 5, 6, 7, *B], [5, 6, 7, 0, *B], 0),
    "zeros_and_a_one": ([0, 0, 0, 0, *A], [0, 0, 0, 1, *A], 0),
}


@task("block_hashes", holds=("full_blocks", "chained", "agree", "real_ids", "behind"))
@pytest.mark.parametrize("case", PAIRS)
def test_hashes_agree_as_far_as_the_tokens_do(student, case):
    """Two prompts, blocks of four: as many equal hashes as equal full blocks at the beginning.
    Oracle: counted by hand."""
    one, other, want = PAIRS[case]
    got, theirs = student.block_hashes(one, 4), student.block_hashes(other, 4)
    expect.equal(
        len(set(got) & set(theirs)),
        want,
        "a block's hash stands for the block and for everything before it",
        what=f"hashes that {one} and {other} share",
    )


@task("block_hashes", holds=("chained",))
def test_a_block_that_comes_again_has_another_hash(student):
    """The same four tokens three times, zeros among them: three hashes.
    Oracle: each stands behind another prefix."""
    for tokens in (A, [0] * 4):
        got = student.block_hashes(tokens * 3, 4)
        expect.equal(len(set(got)), 3, "the keys of a token depend on what stands before it")


@task("block_hashes", holds=("count", "ints", "size_one", "block_size"))
def test_only_full_blocks_have_a_hash(student):
    """n tokens in blocks of b: n // b hashes.
    Oracle: a block is full or it is not."""
    sizes = [(n, b) for b in (1, 3, 4, 16) for n in (0, 1, b - 1, b, b + 1, 2 * b, 5 * b - 1)]
    got = student.map("block_hashes", [(list(range(1, n + 1)), b) for n, b in sizes])
    for (n, b), hashes in zip(sizes, got, strict=True):
        because = "more tokens may still come into the last block"
        expect.equal(len(hashes), n // b, because, what=f"hashes of {n} tokens in blocks of {b}")
        kinds = sorted({type(one).__name__ for one in hashes} - {"int"})
        expect.true(
            isinstance(hashes, list) and not kinds,
            "block_hashes returns a list of ints, which a trace can hold as well",
            f"{type(hashes).__name__} of {', '.join(kinds) or 'int'}",
        )


@task("block_hashes", holds=("salts", "no_salt"))
def test_a_salt_isolates(student):
    """The same tokens under other salts share nothing, under the same salt everything.
    Oracle: the contract."""
    salts = [None, "", "a", "b", "None", "0", "a1", "A", "None "]
    all_of_them = student.map("block_hashes", [(A + B + C, 4, salt) for salt in salts * 2])
    for i, one in enumerate(all_of_them):
        for j, other in enumerate(all_of_them):
            same = i % len(salts) == j % len(salts)
            shared = sum(a == b for a, b in zip(one, other, strict=True))
            expect.equal(
                shared,
                3 if same else 0,
                "requests share blocks only where their salts are the same",
                what=f"hashes shared by {salts[i % len(salts)]!r} and {salts[j % len(salts)]!r}",
            )


@task("block_hashes", holds=("salt_ends",))
def test_a_salt_ends_where_the_tokens_begin(student):
    """Salt and tokens that are the same characters in a row: nothing is shared.
    Oracle: the salts differ, which is all that the contract asks for."""
    rows = [("a1", [2, 3, 4, 5]), ("a", [12, 3, 4, 5]), ("", [12, 3, 4, 5]), ("1", [2, 3, 4, 5])]
    rows += [(None, [12, 3, 4, 5]), ("a1, ", [2, 3, 4, 5])]
    got = student.map("block_hashes", [(tokens, 4, salt) for salt, tokens in rows])
    expect.equal(
        len({one for hashes in got for one in hashes}),
        len(rows),
        "the salt is one thing and the first token another, so no digit belongs to either",
        what=f"different hashes of {rows}",
    )


@task("block_hashes", gate=False, holds=("any_sequence",))
def test_a_tuple_of_tokens_has_the_hashes_of_the_list(student):
    """The same tokens in a list, a tuple, a range and an array of NumPy.
    Oracle: they are the same tokens."""
    in_list, *others = student.probe.hashes_of(list(range(128_000, 128_013)), 4)
    for hashes, kind in zip(others, ("a tuple", "a range", "an array"), strict=True):
        expect.true(
            hashes == in_list,
            "the hash is one of the tokens, whatever holds them",
            f"a list and {kind} of the same tokens gave different hashes",
        )


@task("block_hashes", gate=False, holds=("agree", "behind", "block_size"))
def test_equal_prefix_if_and_only_if_equal_hashes(student):
    """Prompts drawn so that they often begin alike: hashes agree exactly as far as the blocks.
    Oracle: the tokens compared one by one."""
    from hypothesis import given
    from hypothesis import strategies as st

    prompts = st.lists(st.lists(st.integers(0, 2), max_size=9), min_size=2, max_size=5)

    @property_settings(40)
    @given(prompts, st.integers(1, 4))
    def law(drawn, size):
        hashes = student.map("block_hashes", [(tokens, size) for tokens in drawn])
        for one, mine in zip(drawn, hashes, strict=True):
            for other, theirs in zip(drawn, hashes, strict=True):
                expect.equal(
                    sum(a == b for a, b in zip(mine, theirs, strict=False)),
                    shared_blocks(one, other, size),
                    "equal hashes mean equal prefixes, and the other way round",
                    what=f"equal hashes of {one} and {other}, blocks of {size}",
                )

    law()


@task("block_hashes", gate=False, holds=("sixty_bits",))
def test_three_hundred_thousand_hashes_do_not_collide(student, rng):
    """3,000 prompts of 100 tokens in blocks of one token: no hash comes twice.
    Oracle: with 60 bits one collision in twenty million such tests; with 32 bits ten in each."""
    prompts = rng.integers(0, 150_000, (3_000, 100))
    prompts[:, 0] = rng.permutation(150_000)[:3_000]  # no two begin alike
    different = set()
    for part in prompts.reshape(6, 500, 100).tolist():  # calls that are short beside their limit
        rows = [(tokens, 1) for tokens in part]
        for hashes in student.probe.hashes_in_hex("block_hashes", rows):
            different.update(hashes.split(","))
    because = "a collision gives a request the keys of another's text, so 60 bits or more"
    expect.equal(len(different), 300_000, because, what="different hashes")


@task("block_hashes", gate=False, holds=("sixty_bits", "chained"))
def test_ten_thousand_blocks_do_not_collide(student, rng):
    """5,000 blocks of one prompt, and of another: no hash comes twice.
    Oracle: with 60 bits one collision in twenty billion such tests."""
    tokens = rng.integers(0, 50_000, 4 * 5_000).tolist()
    one = student.block_hashes(tokens, 4)
    other = student.block_hashes([1, *tokens[1:]], 4)
    expect.equal(
        len({*one, *other}), 10_000, "a collision gives a request the keys of another's text"
    )


@task("block_hashes", gate=False, holds=("size_below_one",))
def test_a_block_without_tokens_is_refused(student):
    """A block size of 0 is a mistake in the configuration.
    Oracle: the contract."""
    for size in (0, -1, -4):
        with expect.raises(ValueError, "blocks hold tokens"):
            student.block_hashes(A, size)


# -- BlockPool ------------------------------------------------------------------------------------


def run(student, num_blocks, operations):
    """The operations on the student's pool, with what each returned and num_free after it."""
    return student.probe.pool_script(num_blocks, [list(op) for op in operations])


def check(student, num_blocks, script, because, label=""):
    """Each operation of the script [(operation, result, num_free), ...] does what it says."""
    got = run(student, num_blocks, [operation for operation, _result, _free in script])
    for number, (operation, result, free) in enumerate(script):
        name, *arguments = operation
        call = f"{name}({', '.join(map(str, arguments))})"
        mine = got[number] if number < len(got) else ("nothing: the script ended before", None)
        expect.equal(
            f"{call} returned {mine[0]}, num_free is {mine[1]}",
            f"{call} returned {result}, num_free is {free}",
            because,
            what=f"{label}operation {number + 1}",
        )


# Ten blocks besides the null block. Request a computes 1 2 3 4 5, request b shares 1 2 and computes
# 6 7; b's end, a's end; then c, whose first three blocks are a's, takes five more.
def _ten_blocks(full_tails):
    yield ("alloc", 4), [1, 2, 3, 4], 6
    for block, content in ((1, 100), (2, 101), (3, 102)):
        yield ("cache", block, content), None, 6
    yield ("alloc", 1), [5], 5
    yield ("cache", 4, 103), None, 5
    yield ("touch", [1, 2]), None, 5
    yield ("alloc", 2), [6, 7], 3
    yield ("cache", 6, 200), None, 3
    if full_tails:
        yield ("cache", 5, 104), None, 3
        yield ("cache", 7, 201), None, 3
    yield ("free", [1, 2, 3, 4, 5]), None, 6
    yield ("free", [1, 2, 6, 7]), None, 10
    yield ("lookup", 102), 3, 10
    yield ("touch", [1, 2, 3]), None, 7


QUEUES = {
    "every_block_full": (True, [8, 9, 10, 5, 4, 7, 6]),
    "the_last_blocks_not_full": (False, [7, 5, 8, 9, 10, 4, 6]),
}


@task("BlockPool", holds=("queue_order", "last_first", "to_the_tail", "to_the_head", "at_first"))
@pytest.mark.parametrize("case", QUEUES)
def test_the_ten_block_example(student, case):
    """Two requests share two blocks and end; a third finds three and takes the rest of the queue.
    Oracle: vLLM's documentation (its blocks 0 to 9 are 1 to 10 here) for full blocks; blocks that
    nobody can find at the head, as vLLM 0.33.0 does, by hand."""
    full_tails, queue = QUEUES[case]
    script = [*_ten_blocks(full_tails)]
    script += [(("alloc", 5), queue[:5], 2), (("alloc", 3), None, 2), (("alloc", 2), queue[5:], 0)]
    check(
        student,
        11,
        script,
        "hits leave the free queue before anything is taken from its head; tables are freed from "
        "their end",
    )


@task(
    "BlockPool",
    holds=("references", "shared", "keeps_its_hash", "found_free", "forgotten", "leaves_the_queue"),
)
def test_a_shared_block_is_free_when_the_last_one_lets_go(student):
    """Two hold block 1, then three, then one after the other lets go; a block that is free is
    found all the same, until it is handed out.
    Oracle: counted by hand."""
    script = [
        (("alloc", 2), [1, 2], 1),
        (("references", 1), 1, 1),
        (("cache", 1, 70), None, 1),
        (("touch", [1]), None, 1),
        (("touch", [1]), None, 1),
        (("references", 1), 3, 1),
        (("free", [1]), None, 1),
        (("free", [1, 2]), None, 2),
        (("references", 1), 1, 2),
        (("references", 2), 0, 2),
        (("lookup", 70), 1, 2),
        (("alloc", 2), [2, 3], 0),
        (("free", [1]), None, 1),
        (("references", 1), 0, 1),
        (("lookup", 70), 1, 1),
        (("touch", [1]), None, 0),
        (("references", 1), 1, 0),
        (("alloc", 1), None, 0),
        (("free", [1]), None, 1),
        (("alloc", 1), [1], 0),
        (("lookup", 70), None, 0),
        (("references", 1), 1, 0),
    ]
    check(
        student,
        4,
        script,
        "a block has as many references as requests hold it, and is free at none",
    )


CONTENTS = {"zero": 0, "minus_one": -1, "an_empty_text": "", "an_empty_tuple": (), "large": 2**70}


@task("BlockPool", holds=("any_hash", "forgotten", "to_the_tail"))
@pytest.mark.parametrize("content", CONTENTS)
def test_any_hash_is_a_hash(student, content):
    """A block whose hash is 0, -1, an empty text, ...: it goes to the tail, is found there, and is
    forgotten when it is handed out. The first block of every prompt in Mooncake's trace has 0.
    Oracle: followed by hand."""
    name = CONTENTS[content]
    script = [
        (("alloc", 3), [1, 2, 3], 1),
        (("cache", 1, name), None, 1),
        (("lookup", name), 1, 1),
        (("free", [1, 2]), None, 3),
        (("references", 1), 0, 3),
        (("lookup", name), 1, 3),
        (("alloc", 2), [2, 4], 1),
        (("lookup", name), 1, 1),
        (("touch", [1]), None, 0),
        (("alloc", 1), None, 0),
        (("free", [1]), None, 1),
        (("lookup", name), 1, 1),
        (("alloc", 1), [1], 0),
        (("lookup", name), None, 0),
        (("cache", 1, 5), None, 0),
        (("lookup", name), None, 0),
        (("lookup", 5), 1, 0),
    ]
    check(student, 5, script, f"{name!r} is a hash like any other")


@task("BlockPool", holds=("iterables",))
@pytest.mark.parametrize("kind", ["generator", "tuple", "set"])
def test_touch_takes_any_iterable(student, kind):
    """Blocks, one held and two free, in a generator, which can be gone through once, a tuple, a
    set: each has one reference more, and none is in the queue.
    Oracle: counted by hand."""
    script = [
        (("alloc", 3), [1, 2, 3], 2),
        (("cache", 1, 70), None, 2),
        (("cache", 2, 71), None, 2),
        (("cache", 3, 72), None, 2),
        (("free", [2, 3]), None, 4),
        ((f"touch:{kind}", [1, 2, 3]), None, 2),
        (("references", 1), 2, 2),
        (("references", 2), 1, 2),
        (("references", 3), 1, 2),
        (("alloc", 2), [4, 5], 0),
    ]
    check(student, 6, script, f"touch is given a {kind} of blocks, and goes through it once")


@task("BlockPool", holds=("cost",))
def test_a_hit_does_not_search_the_queue(student):
    """Blocks in the middle of the free queue are found, touched and freed, and the oldest is
    evicted: in a pool of 4,096 blocks with the effort of one of 64.
    Oracle: instructions and comparisons, counted; a search would take 64 times as many."""
    (small_right, small), (large_right, large) = (
        student.probe.pool_effort(num_blocks, 12) for num_blocks in (64, 4_096)
    )
    expect.true(small_right and large_right, "a block that is touched leaves the free queue")
    expect.at_most(
        large / max(small, 1),
        4.0,
        "an engine takes a block from the middle of the queue at every hit, so nothing may search "
        "it",
        what="effort with 4,096 blocks over that with 64",
    )


@task("BlockPool", holds=("vllm", "queue_order", "leaves_the_queue"))
def test_vllms_own_pool_over_thousands_of_operations(student):
    """60 random lives of vLLM's BlockPool, 7,000 operations: the same blocks, the same free ones.
    Oracle: vLLM 0.33.0, recorded."""
    lives = oracles.recorded()["pools"]
    for number, life in enumerate(lives):
        script = [((op, *rest[:-2]), rest[-2], rest[-1]) for op, *rest in life["operations"]]
        check(
            student,
            life["num_blocks"],
            script,
            f"{oracles.VLLM} did so with {life['num_blocks']} blocks",
            label=f"record {number}, ",
        )


@task("BlockPool", gate=False, holds=("null_block", "references", "too_many"))
def test_blocks_held_and_blocks_free_are_all_blocks(student):
    """Random lives: nothing is handed out twice, block 0 never, and free + held = n - 1.
    Oracle: this law, and a pool of lists that are searched."""
    from hypothesis import given
    from hypothesis import strategies as st

    moves = st.lists(
        st.tuples(st.sampled_from(("new", "new", "end", "too many")), *[st.integers(0, 7)] * 3),
        min_size=4,
        max_size=24,
    )

    @property_settings(40)
    @given(st.integers(2, 14), moves)
    def law(num_blocks, drawn):
        model, tables, script = SlowPool(num_blocks), [], []

        def do(name, *arguments):
            result = getattr(model, name)(*arguments)
            script.append(((name, *arguments), result, len(model.queue)))
            return result

        for move, kind, length, full in drawn:
            if move == "end" and tables:
                do("free", tables.pop(kind % len(tables)))
            elif move == "too many":
                do("alloc", len(model.queue) + 1 + kind)
            elif move == "new":
                hits = []
                while len(hits) < min(length, full):
                    block = do("lookup", 10 * (kind % 3) + len(hits))
                    if block is None:
                        break
                    hits.append(block)
                awoken = sum(model.held[block] == 0 for block in hits)
                if length - len(hits) + awoken > len(model.queue):
                    continue
                do("touch", hits)
                table = hits + do("alloc", length - len(hits))
                for place in range(len(hits), min(full, length)):
                    do("cache", table[place], 10 * (kind % 3) + place)
                tables.append(table)
        for block in range(1, num_blocks):
            do("references", block)
        check(
            student,
            num_blocks,
            script,
            "which blocks are free, in which order, and who holds them; block 0 is neither",
        )
        got = run(student, num_blocks, [operation for operation, _result, _free in script])
        held = sum(result > 0 for result, _free in got[-(num_blocks - 1) :])
        expect.equal(
            held + got[-1][1], num_blocks - 1, "a block that is neither free nor held is lost"
        )

    law()


@task("BlockPool", holds=("twice_the_same", "longest"))
def test_the_block_that_had_it_longest(student):
    """Of several blocks with one hash the one is found that got it first: not the lowest number,
    and not one that lost it in between and got it again.
    Oracle: followed by hand."""
    script = [
        (("alloc", 3), [1, 2, 3], 0),
        (("cache", 3, 5), None, 0),
        (("cache", 1, 5), None, 0),
        (("cache", 2, 5), None, 0),
        (("lookup", 5), 3, 0),
        (("touch", [3]), None, 0),
        (("lookup", 5), 3, 0),
        (("free", [3]), None, 0),
        (("free", [3]), None, 1),
        (("lookup", 5), 3, 1),
        (("alloc", 1), [3], 0),
        (("lookup", 5), 1, 0),
        (("cache", 3, 5), None, 0),
        (("lookup", 5), 1, 0),
        (("free", [1, 2]), None, 2),
        (("alloc", 1), [2], 1),
        (("lookup", 5), 1, 1),
        (("alloc", 1), [1], 0),
        (("lookup", 5), 3, 0),
    ]
    check(student, 4, script, "of several blocks with a hash the one that has had it longest")


@task("BlockPool", gate=False, holds=("twice_the_same", "longest"))
def test_the_same_content_twice(student):
    """Two requests compute the same block at the same time: both keep theirs, the older is found,
    and after its end as an owner of that content the other one.
    Oracle: the contract; tables only grow, so nothing is merged."""
    script = [
        (("alloc", 2), [1, 2], 1),
        (("cache", 1, 5), None, 1),
        (("cache", 2, 5), None, 1),
        (("lookup", 5), 1, 1),
        (("free", [1]), None, 2),
        (("lookup", 5), 1, 2),
        (("alloc", 2), [3, 1], 0),
        (("lookup", 5), 2, 0),
        (("free", [2]), None, 1),
        (("alloc", 1), [2], 0),
        (("lookup", 5), None, 0),
    ]
    check(student, 4, script, "blocks with the same hash are found oldest first")


@task("BlockPool", gate=False, holds=("nobody_holds", "negative", "smallest", "last_reference"))
def test_what_cannot_be_is_refused(student):
    """A block freed once too often, also within one call, the null block, a negative number, a
    pool without a block: a ValueError.
    Oracle: the contract."""
    for operations in (
        [("alloc", 2), ("free", [1]), ("free", [1])],
        [("alloc", 1), ("free", [2])],
        [("alloc", 2), ("free", [1, 3])],
        [("alloc", 2), ("free", [3, 1])],
        [("alloc", 1), ("free", [0])],
        [("alloc", 1), ("cache", 1, 9), ("free", [1]), ("free", [1])],
        [("alloc", 1), ("free", [1, 1])],
        [("alloc", 1), ("cache", 1, 0), ("touch", [1]), ("free", [1, 1]), ("free", [1])],
        [("alloc", -1)],
        [("alloc", 5), ("alloc", -5)],
    ):
        got = run(student, 6, operations)
        said = got[-1][0]
        last = said.split(":")[0] if isinstance(said, str) else f"returned {said!r}"
        expect.equal(
            f"{len(got)} of {operations}: {last}",
            f"{len(operations)} of {operations}: ValueError",
            "a block freed twice is handed to two requests later; say it at once",
            what="operations done, and how the last one ended",
        )
    for num_blocks in (0, -1):
        with expect.raises(ValueError, because="the null block alone is one block"):
            run(student, num_blocks, [])


@task(
    "BlockPool",
    gate=False,
    holds=("too_many", "all_of_them", "smallest", "twice", "no_blocks", "two_references"),
)
def test_all_or_nothing_and_the_smallest_pool(student):
    """Exactly what is free, none, one more than there is; a pool of the null block alone; a block
    that stands in a table twice.
    Oracle: counted by hand."""
    script = [
        (("alloc", 6), None, 5),
        (("alloc", 0), [], 5),
        (("touch", []), None, 5),
        (("free", []), None, 5),
        (("alloc", 5), [1, 2, 3, 4, 5], 0),
        (("alloc", 0), [], 0),
        (("alloc", 1), None, 0),
        (("cache", 4, 9), None, 0),
        (("touch", [4]), None, 0),
        (("free:tuple", [4, 4]), None, 1),
        (("touch", [4, 4]), None, 0),
        (("references", 4), 2, 0),
        (("free", [4]), None, 0),
        (("free", [4]), None, 1),
        (("references", 4), 0, 1),
        (("free:tuple", [5, 3]), None, 3),
        (("alloc", 3), [3, 5, 4], 0),
    ]
    check(student, 6, script, "what cannot be given whole is not given in part")
    check(student, 1, [(("alloc", 1), None, 0), (("alloc", 0), [], 0)], "there is no block to give")


# -- match_prefix ---------------------------------------------------------------------------------

CHAIN = [900, 901, 902, 903, 904]
FOUND = {
    "the_same_prompt_again": ({900: 4, 901: 7, 902: 2, 903: 9}, CHAIN[:4], 16, [4, 7, 2]),
    "one_token_more": ({900: 4, 901: 7, 902: 2, 903: 9}, CHAIN[:4], 17, [4, 7, 2, 9]),
    "a_hole": ({900: 4, 902: 2, 903: 9}, CHAIN[:4], 18, [4]),
    "the_first_is_missing": ({901: 7, 902: 2}, CHAIN[:4], 18, []),
    "nothing_cached": ({}, CHAIN, 23, []),
    "one_block_and_no_more": ({900: 4}, CHAIN[:1], 4, []),
    "one_block_and_one_token": ({900: 4}, CHAIN[:1], 5, [4]),
    "one_token": ({900: 4}, [], 1, []),
    "a_last_block_that_is_not_full": ({900: 4, 901: 7, 902: 2}, CHAIN[:3], 10, [4, 7]),
    "it_lacks_one_token": ({900: 4, 901: 7, 902: 2}, CHAIN[:3], 11, [4, 7]),
    "fewer_hashes_than_blocks": ({900: 4, 901: 7}, CHAIN[:2], 40, [4, 7]),
    "a_hash_of_0": ({0: 4, 901: 7}, [0, 901, 902], 13, [4, 7]),
    "0_and_below": ({900: 4, 0: 7, -1: 9}, [900, 0, -1], 13, [4, 7, 9]),
    "blocks_in_any_order": ({900: 9, 901: 3, 902: 20}, CHAIN[:3], 13, [9, 3, 20]),
    "hashes_in_a_tuple": ({900: 4, 901: 7, 902: 2, 903: 9}, tuple(CHAIN[:4]), 16, [4, 7, 2]),
}


@task(
    "match_prefix",
    holds=("in_order", "longest_run", "never_all", "not_full", "one_token", "any_hash", "sequence"),
)
@pytest.mark.parametrize("case", FOUND)
def test_the_longest_run_of_full_blocks_but_the_last_token(student, case):
    """Blocks of four in a pool, and a request: the blocks it finds.
    Oracle: counted by hand; vLLM 0.33.0 computes 4 of 16 tokens of a prompt that is all cached."""
    contents, hashes, num_tokens, want = FOUND[case]
    (got,), _changes = student.probe.prefixes(contents, [(hashes, num_tokens, 4)])
    expect.equal(
        got,
        want,
        f"of {num_tokens} tokens at most {num_tokens - 1} may come from the cache, in full blocks",
        what=f"blocks found of {len(hashes)} hashes",
    )


@task("match_prefix", holds=("held_or_free",))
@pytest.mark.parametrize("held", [0, 1, 3])
def test_blocks_that_somebody_holds_are_found(student, held):
    """The same blocks, free, held by one request, and by three: the same are found.
    Oracle: counted by hand; sharing a block that is in use is what a prefix cache is for."""
    contents = {name: place + 1 for place, name in enumerate(CHAIN[:3])}
    queries = [(CHAIN, 21, 4), (CHAIN[:3], 12, 4), (CHAIN[:3], 9, 4), (CHAIN[:4], 4, 1)]
    queries.append((CHAIN[:2], 2, 1))
    found, _changes = student.probe.prefixes(contents, queries, held)
    expect.equal(
        found,
        [[1, 2, 3], [1, 2], [1, 2], [1, 2, 3], [1]],
        f"a block that is held by {held} requests has its content all the same",
        what="blocks found",
    )


@task("match_prefix", holds=("block_size", "never_all", "trace"))
def test_an_endless_cache(student, rng):
    """Conversations that go on, over a cache that forgets nothing: blocks found, request by
    request. A trace gives each prompt's last block a hash whether it is full or not.
    Oracle: a set of all prefixes so far, compared as whole texts."""
    rows, texts, size = [], [], 8
    for _ in range(60):
        begin = texts[int(rng.integers(len(texts)))] if texts and rng.random() < 0.7 else ()
        begin = begin[: int(rng.integers(1, len(begin) + 2))] if begin else begin
        text = (*begin, *rng.integers(0, 2**40, int(rng.integers(0, 30))).tolist(), 7)
        texts.append(text)
    ids, seen, want = {}, set(), []
    for text in texts:
        ends = range(size, len(text) + size, size)
        rows.append((len(text), [ids.setdefault(text[:end], len(ids)) for end in ends]))
        full = [text[:end] for end in range(size, len(text), size)]
        count = next((i for i, prefix in enumerate(full) if prefix not in seen), len(full))
        want.append(count)
        seen.update(text[:end] for end in range(size, len(text) + 1, size))
    got = student.probe.endless_cache(rows, size)
    expect.equal(
        got, want, "a block counts if it is full and everything before it is there", what="found"
    )


@task("match_prefix", gate=False, holds=("untouched",))
def test_looking_changes_nothing(student):
    """A request that is looked at may not be admitted: nothing is touched or taken.
    Oracle: a pool that writes down who changes it."""
    contents = {name: place + 1 for place, name in enumerate(CHAIN)}
    queries = [(CHAIN[: -(-n // 4)], n, 4) for n in (1, 8, 20, 21)]
    _found, changes = student.probe.prefixes(contents, queries)
    expect.equal(changes, [], "whoever finds blocks does not hold them yet")


@task("match_prefix", extra=("data:mooncake_conversation_trace.jsonl",))
def test_mooncakes_conversations(student):
    """12,031 real requests over an endless cache of 512-token blocks.
    Oracle: the prefixes counted as a set of hash ids."""
    import json

    from grader.lab import datasets

    rows, seen, want = [], set(), 0
    path = datasets.need("mooncake_conversation_trace.jsonl")
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        length, ids = entry["input_length"], entry["hash_ids"]
        rows.append((length, ids))
        run = ids[: (length - 1) // 512]
        want += next((i for i, name in enumerate(run) if name not in seen), len(run))
        seen.update(ids[: length // 512])
    got = sum(student.probe.endless_cache(rows, 512))
    expect.equal(got, want, "full blocks, and never the last token", what="blocks found")
