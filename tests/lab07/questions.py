"""Lab 07: questions of an interview with figures that can be done on paper."""

import math

import torch

from grader.suite.questions import Ask, question
from grader.suite.shown_programs import ran


@question("standard_traffic", task="io_model", section="Read first")
def standard_traffic(rng):
    """Scores are written and read, and so are probabilities: four times S squared."""
    S, D = rng.choice([1024, 2048, 4096]), rng.choice([64, 128])
    total = 4 * S * D + 4 * S * S
    return Ask(
        f"Attention of one head, S = {S:,}, D = {D}, in three kernels: scores, softmax, weighted "
        "sum, and every operand crosses memory. How many elements are read and written in all?",
        lambda code: code.io_model(S, D, 1)[0],
        working=[
            f"Q, K, V in and O out: 4 S D = {4 * S * D:,}",
            f"scores out and in, probabilities out and in: 4 S^2 = {4 * S * S:,}",
            f"{4 * S * D:,} + {4 * S * S:,} = {total:,}",
        ],
        check=total,
        within=0.001,
    )


@question("flash_traffic", task="io_model", minutes=2, section="Line by line")
def flash_traffic(rng):
    """Each round of the outer loop reads Q and O and writes O; how many rounds are there?"""
    D = 64
    memory = rng.choice([4096, 8192, 16_384])
    S = rng.choice([1024, 2048])
    block = memory // (4 * D)
    rounds = S // block
    total = 2 * S * D + rounds * (3 * S * D + 4 * S)
    return Ask(
        f"FlashAttention's Algorithm 1 on one head, S = {S:,}, D = {D}, with M = {memory:,} "
        "elements on the chip, so key blocks of M / 4D. Each round of the outer loop loads a block "
        "of K and V, reads Q, O, l and m and writes O, l and m. How many elements cross memory "
        "in all?",
        lambda code: code.io_model(S, D, memory)[1],
        working=[
            f"a key block: {memory:,} / {4 * D} = {block}; rounds: {S:,} / {block} = {rounds}",
            f"K and V once: 2 S D = {2 * S * D:,}",
            f"a round: 3 S D + 4 S = {3 * S * D + 4 * S:,}",
            f"{2 * S * D:,} + {rounds} x {3 * S * D + 4 * S:,} = {total:,}",
        ],
        check=total,
        within=0.001,
    )


@question("key_block_of_a_chip", task="io_model", minutes=1)
def key_block_of_a_chip(rng):
    """A quarter of the elements for each of Q, K, V and O."""
    kib, D = rng.choice([(192, 64), (192, 128), (100, 64), (96, 64)])
    elements = kib * 1024 // 2
    block = -(-elements // (4 * D))
    return Ask(
        f"FlashAttention's Algorithm 1 has key blocks of Bc = ceil(M / 4D), M in elements. With "
        f"{kib} KiB of on-chip memory in fp16 and D = {D}, how large is Bc?",
        lambda code: code.block_sizes(D, elements)[0],
        working=[
            f"M = {kib} x 1,024 / 2 bytes = {elements:,} elements",
            f"{elements:,} / {4 * D} = {elements / (4 * D):g}, rounded up: {block}",
        ],
        check=block,
    )


def _state(m, l, o):
    top, total = (torch.tensor([x], dtype=torch.float64) for x in (m, l))
    return top, total, torch.tensor([[o]], dtype=torch.float64)


@question("merged_sum", task="merge", minutes=2, section="Line by line")
def merged_sum(rng):
    """Bring both sums to the larger maximum; then add."""
    gap = rng.choice([1, 2])
    low, high = rng.choice([(2.0, 3.0), (4.0, 1.0), (10.0, 2.0)])
    total = low * math.exp(-gap) + high
    return Ask(
        f"Two blocks of one row of scores: one has maximum 0 and sum of exponentials {low:g}, the "
        f"other maximum {gap} and sum {high:g} (each relative to its own maximum). What is the sum "
        f"of both, relative to the maximum {gap}? (e^-1 = 0.368, e^-2 = 0.135)",
        lambda code: float(
            code.merge(_state(0.0, low, 1.0), _state(float(gap), high, 1.0))[1].item()
        ),
        working=[
            f"the first is brought to maximum {gap}: {low:g} x e^-{gap} = "
            f"{low * math.exp(-gap):.3f}",
            f"{low * math.exp(-gap):.3f} + {high:g} = {total:.3f}",
        ],
        check=total,
        within=0.005,
    )


@question("online_sum", task="online_softmax", minutes=2)
def online_sum(rng):
    """The largest score has the weight 1; each other one e to the difference."""
    rest = rng.choice([[1.0, 2.0], [0.0, 2.0], [1.0, 1.0, 2.0]])
    scores = [*rest, 3.0] if rng.random() < 0.5 else [3.0, *rest]
    total = sum(math.exp(x - 3.0) for x in scores)
    printed = [round(math.exp(x - 3.0), 3) for x in scores]
    terms = " + ".join(f"{term:.3f}" for term in printed)
    listed = ", ".join(f"{x:g}" for x in scores)
    return Ask(
        f"An online softmax goes through the scores {listed} one at a time. What is its running "
        "sum l at the end? (e^-1 = 0.368, e^-2 = 0.135, e^-3 = 0.050)",
        lambda code: float(
            code.online_softmax(torch.tensor(scores, dtype=torch.float64), 1)[2].item()
        ),
        working=[
            "the maximum is 3; whatever came before it was rescaled by e^(old - new)",
            f"{terms} = {sum(printed):.3f}",
        ],
        check=total,
        within=0.006,
    )


def _computed_tiles(code, S, S_kv, block):
    """Tiles of S queries by S_kv keys that `flash_forward_skips` leaves to be computed."""
    return sum(
        not code.flash_forward_skips(i, i + block, j, j + block, S, S_kv)
        for i in range(0, S, block)
        for j in range(0, S_kv, block)
    )


@question("tiles_under_the_diagonal", task="flash_forward_skips", minutes=1.5)
def tiles_under_the_diagonal(rng):
    """A tile is computed if its last row sees its first key."""
    block, count = rng.choice([64, 128]), rng.choice([4, 8, 16])
    S = block * count
    computed = count * (count + 1) // 2
    return Ask(
        f"Causal attention, S = {S:,} queries and keys, in tiles of {block} by {block}. How many "
        "tiles have at least one visible pair?",
        lambda code: _computed_tiles(code, S, S, block),
        working=[
            f"{count} rows of tiles; row i has i tiles, its diagonal one included",
            f"{count} x {count + 1} / 2 = {computed}",
        ],
        check=computed,
    )


@question("queries_behind_a_cache", task="flash_forward_skips", minutes=2)
def queries_behind_a_cache(rng):
    """The mask is aligned to the end: the last query sees all keys."""
    S, S_kv = rng.choice([(128, 512), (64, 256), (128, 384)])
    block = 64
    rows = [
        sum(j <= (i + block - 1) + S_kv - S for j in range(0, S_kv, block))
        for i in range(0, S, block)
    ]
    seen = sum(rows)
    return Ask(
        f"Causal attention of {S} new queries over {S_kv} keys, of which the first {S_kv - S} are "
        f"cached; tiles of {block} by {block}. How many tiles have a visible pair?",
        lambda code: _computed_tiles(code, S, S_kv, block),
        working=[
            f"query i stands at position {S_kv - S} + i: the last one sees all {S_kv} keys",
            f"tiles by row of tiles: {' + '.join(map(str, rows))} = {seen}",
        ],
        check=seen,
    )


@question("group_of_a_head", task="gqa_varlen", minutes=1.5)
def group_of_a_head(rng):
    """Neighbouring query heads share a key/value head."""
    heads, kv = rng.choice([(32, 8), (40, 8), (64, 8), (16, 4)])
    head = rng.randrange(1, heads)
    group = heads // kv
    return Ask(
        f"{heads} query heads share {kv} key/value heads. Counted from 0, which key/value head is "
        f"read by query head {head}?",
        lambda code: _read_by(code, heads, kv, head),
        working=[
            f"a key/value head serves {heads} / {kv} = {group} neighbouring query heads",
            f"{head} // {group} = {head // group}",
        ],
        check=head // group,
    )


def _read_by(code, heads, kv, head):
    """Values say which key/value head they are of."""
    q = torch.zeros(1, heads, 16, dtype=torch.float64)
    k = torch.zeros(1, kv, 16, dtype=torch.float64)
    v = torch.arange(kv, dtype=torch.float64)[None, :, None].expand(1, kv, 16).contiguous()
    ends = torch.tensor([0, 1], dtype=torch.int32)
    return round(float(code.gqa_varlen(q, k, v, ends, ends, 1, 1)[0][0, head, 0]), 6)


# -- programs that are shown ----------------------------------------------------------------------


def _tiles(code, **names):
    """How often a program visits a tile, and the elements that it loads."""
    counts = {"visit": 0, "load": 0}

    def visit(i, j):
        counts["visit"] += 1

    def load(rows, width):
        counts["load"] += rows * width

    ran(code, visit=visit, load=load, **names)
    return counts


@question("tiles_below_the_diagonal", task="flash_forward_skips", minutes=2, kind="count")
def tiles_below_the_diagonal(rng):
    """A tile is left out if its first key comes after its last query."""
    S, bq, bk = rng.choice([(64, 16, 16), (128, 32, 16), (128, 16, 32), (96, 32, 32)])
    code = """for i in range(0, S, BQ):
    for j in range(0, S, BK):
        if j > i + BQ - 1:       # all of it above the diagonal
            break
        visit(i, j)"""
    rows = [min(-(-(i + bq) // bk), -(-S // bk)) for i in range(0, S, bq)]
    return Ask(
        f"Causal attention in tiles, S = {S}, BQ = {bq} queries by BK = {bk} keys. How many tiles "
        "are visited?",
        lambda _: _tiles(code, S=S, BQ=bq, BK=bk)["visit"],
        working=[
            f"by blocks of queries: {' + '.join(map(str, rows))} = {sum(rows)}",
        ],
        check=sum(rows),
        code=code,
    )


@question("elements_of_keys_and_values", task="io_model", minutes=2, kind="count")
def elements_of_keys_and_values(rng):
    """Each block of queries loads all keys and values again."""
    S, bq, bk = rng.choice([(1024, 64, 64), (1024, 128, 64), (2048, 128, 128)])
    d = rng.choice([64, 128])
    code = """for i in range(0, S, BQ):
    load(BQ, D)                  # queries
    for j in range(0, S, BK):
        load(BK, D)              # keys
        load(BK, D)              # values"""
    blocks = S // bq
    total = S * d + blocks * 2 * S * d
    return Ask(
        f"S = {S:,}, D = {d}, BQ = {bq}, BK = {bk}. How many elements does the loop load in all?",
        lambda _: _tiles(code, S=S, BQ=bq, BK=bk, D=d)["load"],
        working=[
            f"queries once: {S:,} x {d} = {S * d:,}",
            f"keys and values for each of {blocks} blocks: {blocks} x 2 x {S * d:,} = "
            f"{2 * blocks * S * d:,}",
            f"in all {total:,}",
        ],
        check=total,
        within=0.001,
        code=code,
    )


@question("splits_with_keys", task="split_kv_decode", minutes=1.5, kind="count")
def splits_with_keys(rng):
    """Every worker takes ceil(S / W) keys, as far as there are any."""
    S, W = rng.choice([(9, 4), (10, 4), (100, 16), (65, 8), (33, 8)])
    code = """n = -(-S // W)                   # rounded up
working = 0
for w in range(W):
    keys = min(S, (w + 1) * n) - min(S, w * n)
    if keys > 0:
        working += 1"""
    n = -(-S // W)
    return Ask(
        f"One query against S = {S} keys, split over W = {W} workers. How many of them have keys?",
        lambda _: ran(code, S=S, W=W)["working"],
        working=[
            f"n = {S} / {W}, rounded up: {n}",
            f"{S} / {n}, rounded up: {-(-S // n)}",
        ],
        check=-(-S // n),
        code=code,
    )
