"""state_bytes, dim0_shard and flat_partition: what a rank holds, without a process group."""

import itertools
import math

import pytest
from types_lab08 import MLP_SHAPES, RECIPES, Slice

from grader.suite import expect, task

from . import oracles
from .oracles import GB, GIB, PUBLISHED

STAGES = (0, 1, 2, 3)
T5_3B, LARGEST = 2_851_000_000, 32_000_000


def _total(student, P, N, stage, recipe):
    return student.state_bytes(P, N, stage, recipe)["total"]


# --- state_bytes ---------------------------------------------------------------------------------


@task(
    "state_bytes",
    holds=(
        "four_parts",
        "a_rank",
        "stage_0",
        "stage_1",
        "stage_2",
        "stage_3",
        "bf16_mixed",
        "not_gathered",
    ),
)
@pytest.mark.parametrize("stage", STAGES)
def test_zero_figure_1(student, stage):
    """7.5 billion parameters on 64 ranks: 120, 31.4, 16.6 and 1.88 GB.
    Oracle: published.json: ZeRO, figure 1."""
    got = _total(student, 7_500_000_000, 64, stage, "bf16_mixed")
    expect.published(got / GB, PUBLISHED[f"zero_fig1_stage{stage}"])


@task(
    "state_bytes",
    holds=(
        "four_parts",
        "stage_0",
        "stage_1",
        "stage_2",
        "stage_3",
        "padded",
        "fp32",
        "bf16_mixed",
        "bf16_fp32grads",
        "fp16_fp16grads",
        "deepspeed",
        "deepspeed_3",
    ),
)
@pytest.mark.parametrize("recipe", RECIPES)
def test_each_state_of_each_recipe(student, rng, recipe):
    """Parameters, gradients and the optimizer's states, each by itself, to the byte.
    Oracle: NumPy arrays of these dtypes, padded and cut, and their nbytes."""
    N = int(rng.integers(3, 9))
    for more in (0, 1):
        # Another size at each stage: the same slip at another stage gives another number.
        shares = rng.choice(range(50, 200), len(STAGES), replace=False)
        rows = [
            (N * int(k) + more, N, stage, recipe) for k, stage in zip(shares, STAGES, strict=True)
        ]
        for (P, _, stage, _), got in zip(rows, student.map("state_bytes", rows), strict=True):
            for part, size in oracles.kept_bytes(P, N, stage, recipe).items():
                expect.equal(
                    got[part],
                    size,
                    "each state has its price, its stage from which it is sharded, and a shard is "
                    "ceil(P / N) elements of it",
                    f"{part} of P={P}, N={N}, stage {stage}, {recipe}",
                    "bytes",
                )


@task("state_bytes", gate=False, holds=("stage_1", "stage_2", "stage_3", "bf16_mixed"))
@pytest.mark.parametrize("N", [4, 16, 64, 256, 1024])
def test_zero_table_1(student, N):
    """Every cell that was read of 7.5 B, 128 B and 1 T parameters; large cells are cut to whole GB
    in the paper.   Oracle: published.json: ZeRO, table 1."""
    for model, P in (("7.5b", 7_500_000_000), ("128b", 128 * GB), ("1t", 1000 * GB)):
        for stage in STAGES[1:]:
            if row := PUBLISHED.get(f"zero_t1_{model}_n{N}_s{stage}"):
                expect.published(_total(student, P, N, stage, "bf16_mixed") / GB, row)


@task("state_bytes", gate=False, holds=("a_rank", "stage_1", "stage_2", "stage_3", "bf16_mixed"))
def test_zero_table_2(student):
    """How many billion parameters fit into 32 GB on 64 ranks, and 16 times that.
    Oracle: published.json: ZeRO, table 2, whose cells are cut to one decimal."""
    P = 64_000_000
    rates = [_total(student, P, 64, stage, "bf16_mixed") / P for stage in STAGES]
    fits = [math.floor(10 * 32 / rate) / 10 for rate in rates]
    expect.published(fits, PUBLISHED["zero_t2_mp1"])
    expect.published([round(16 * billions, 1) for billions in fits[:3]], PUBLISHED["zero_t2_mp16"])


@task("state_bytes", gate=False, holds=("bf16_fp32grads", "stage_1"))
def test_a_float32_copy_of_all_gradients(student):
    """3 billion gradients in one float32 buffer are 12 GB.   Oracle: published.json: ZeRO, 6.2."""
    got = student.state_bytes(3_000_000_000, 64, 1, "bf16_fp32grads")["grad"]
    expect.published(got / GB, PUBLISHED["zero_fused_buffer_3b"])


@task("state_bytes", gate=False, holds=("deepspeed", "deepspeed_3", "not_gathered"))
def test_deepspeed_estimators(student):
    """What DeepSpeed's estimators print for t5-3b on 8 GPUs. Its documentation's ZeRO-2 figure is
    older than its code; it is what stage 1 keeps.   Oracle: published.json: DeepSpeed."""
    held = [student.state_bytes(T5_3B, 8, stage, "deepspeed") for stage in STAGES]
    gathered = 4 * LARGEST
    found = {
        "ds_z2_none_code": held[2]["total"],
        "ds_z2_none_doc": held[1]["total"],
        "ds_z2_offload": held[2]["param"],
        "ds_z3_none": held[3]["total"] + gathered,
        "ds_z3_opt_offload": held[3]["param"] + gathered,
        "ds_z3_both_offload": gathered,
    }
    for name, size in found.items():
        expect.published(size / GIB, PUBLISHED[name])
    whole = student.state_bytes(T5_3B, 1, 3, "deepspeed")
    start = student.state_bytes(T5_3B, 1, 0, "fp32")["param"]
    host = [1.5 * size / GIB for size in (whole["total"], whole["opt"], 8 * start)]
    expect.published([round(size, 2) for size in host], PUBLISHED["ds_z3_cpu"])


@task(
    "state_bytes",
    gate=False,
    holds=("stage_0", "stage_1", "fp32", "bf16_fp32grads", "fp16_fp16grads"),
)
def test_megatron_distributed_optimizer(student):
    """20, 18 and 16 bytes a parameter become 4 + 16/d, 6 + 12/d and 8 + 8/d.
    Oracle: published.json: Megatron's documentation."""
    recipes = ("fp16_fp16grads", "bf16_fp32grads", "fp32")
    P = 8_000
    for d, stage, row in ((1, 0, "megatron_dist_opt_one"), (8, 1, "megatron_dist_opt_8")):
        got = [_total(student, P, d, stage, recipe) / P for recipe in recipes]
        expect.published(got, PUBLISHED[row])


@task("state_bytes", gate=False, holds=("one_rank",))
def test_one_rank_has_nobody_to_share_with(student):
    """With one rank every stage keeps what stage 0 keeps, DeepSpeed's 16-bit gradients apart.
    Oracle: the price a parameter, times P."""
    prices = {"fp32": 16, "bf16_mixed": 16, "bf16_fp32grads": 18, "fp16_fp16grads": 20}
    for recipe, price in prices.items():
        for stage in STAGES:
            got = _total(student, 1001, 1, stage, recipe)
            expect.bytes(got, price * 1001, "one of one is everything", f"{recipe}, stage {stage}")


@task("state_bytes", gate=False, holds=("many_ranks", "no_parameter", "padded"))
@pytest.mark.parametrize("P", [5, 1, 0])
def test_more_ranks_than_elements(student, P):
    """A rank's share is at least one element as soon as there is any, padding included.
    Oracle: NumPy arrays, padded and cut."""
    for stage in STAGES:
        expect.equal(
            student.state_bytes(P, 8, stage, "bf16_mixed"),
            oracles.kept_bytes(P, 8, stage, "bf16_mixed"),
            "all ranks hold equally many elements, also those that hold nothing but padding",
            f"P={P}, N=8, stage {stage}",
        )


@task("state_bytes", holds=("exact", "ints", "four_parts"))
def test_exact_however_large(student, rng):
    """Parameters beyond 2^53, where a float has no odd numbers, for 2 to 4,096 ranks.
    Oracle: P is made of a share and N, so nothing is divided; the prices by hand."""
    prices = {"fp32": (4, 4, 8), "bf16_mixed": (2, 2, 12), "fp16_fp16grads": (2, 2, 16)}
    for N in (2, 3, 1000, 4096):
        share = (1 << 54) // N + 2 * int(rng.integers(1, 1000)) + 1
        for missing in (0, 1, N - 1):
            P = N * share - missing
            for recipe, price in prices.items():
                rows = [(P, N, stage, recipe) for stage in STAGES]
                for (_, _, stage, _), got in zip(
                    rows, student.map("state_bytes", rows), strict=True
                ):
                    held = [
                        each * (share if stage >= first else P)
                        for each, first in zip(price, (3, 2, 1), strict=True)
                    ]
                    want = dict(
                        zip(("param", "grad", "opt", "total"), [*held, sum(held)], strict=True)
                    )
                    expect.equal(
                        got,
                        want,
                        "bytes are whole numbers, and a float has only 53 bits of them",
                        f"P={P}, N={N}, stage {stage}, {recipe}",
                    )
                    expect.true(
                        all(type(size) is int for size in got.values()),
                        because="all four are int: sizes of memory are counted, not measured",
                        observed=" ".join(sorted({type(size).__name__ for size in got.values()})),
                    )


@task("state_bytes", gate=False, holds=("other_stage", "other_recipe", "no_rank", "negative"))
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("stage", (100, 2, 4, "fp32")),
        ("stage", (100, 2, -1, "fp32")),
        ("stage", (100, 2, 1.5, "fp32")),
        ("recipe", (100, 2, 1, "adam8bit")),
        ("recipe", (100, 2, 0, "FP32")),
        ("N", (100, 0, 1, "fp32")),
        ("N", (100, -2, 0, "fp32")),
        ("P", (-1, 2, 1, "fp32")),
    ],
)
def test_a_bad_value_is_refused(student, name, args):
    """ValueError, and right answers for what is good.   Oracle: the contract."""
    expect.bytes(_total(student, 100, 2, 1, "fp32"), 1200, "8 + 8/2 bytes times 100", "a good call")
    with expect.raises(ValueError, f"{name} is out of range in state_bytes{args}"):
        student.state_bytes(*args)


# --- dim0_shard ----------------------------------------------------------------------------------


def _shards(student, shape, N):
    return student.map("dim0_shard", [(shape, N, rank) for rank in range(N)])


def _same_shapes(got, want, because, what):
    """A list does for a tuple, as a `torch.Size` does."""
    mine = [tuple(shape) if isinstance(shape, list | tuple) else shape for shape in got]
    expect.equal(mine, [tuple(shape) for shape in want], because, what)


@task("dim0_shard", holds=("first_dimension", "ceil", "fewer", "empty"))
@pytest.mark.parametrize(
    ("shape", "N", "rows"),
    [((65, 32), 3, [22, 22, 21]), ((7,), 3, [3, 3, 1]), ((9, 32), 8, [2] * 4 + [1, 0, 0, 0])],
    ids=["65x32", "7", "9x32"],
)
def test_rows_that_do_not_divide(student, shape, N, rows):
    """65 rows on 3 ranks, 7 on 3, 9 on 8.   Oracle: read off `fully_shard` (torch 2.13)."""
    _same_shapes(
        _shards(student, shape, N),
        [(count, *shape[1:]) for count in rows],
        "torch.chunk gives ceil-sized chunks; the last rank may be short or empty",
        f"{shape} on {N} ranks",
    )


@task("dim0_shard", holds=("first_dimension", "ceil", "fewer"))
def test_chunks_of_torch(student, rng):
    """Any shape on any number of ranks.   Oracle: torch.chunk."""
    for _ in range(12):
        dims = int(rng.integers(1, 5))
        shape = tuple(int(n) for n in rng.integers(1, 20, dims))
        N = int(rng.integers(2, 12))
        _same_shapes(
            _shards(student, shape, N),
            oracles.chunk_shapes(shape, N),
            "torch.chunk gives ceil-sized chunks; the last rank may be short or empty",
            f"{shape} on {N} ranks",
        )


@task("dim0_shard", gate=False, holds=("sequence",))
def test_a_shape_may_be_a_list(student, rng):
    """Shapes of one to four dimensions, as a list and as a tuple.   Oracle: torch.chunk."""
    for dims in (1, 2, 3, 4):
        shape = [int(n) for n in rng.integers(1, 20, dims)]
        for given in (shape, tuple(shape)):
            _same_shapes(
                [student.dim0_shard(given, 3, 1)],
                [oracles.chunk_shapes(shape, 3)[1]],
                "any sequence of sizes is a shape",
                f"{given} on rank 1 of 3",
            )


@task("dim0_shard", gate=False, holds=("fsdp2", "empty"))
@pytest.mark.parametrize("N", [2, 3, 4, 8])
def test_shapes_of_fully_shard(student, N):
    """Every parameter of the small MLP, and a (1, 3, 2) that most ranks hold nothing of.
    Oracle: the real `fully_shard` on a CPU mesh of N pretended ranks."""
    shapes = (*MLP_SHAPES, (1, 3, 2), (5,))
    want = oracles.fsdp_shapes(shapes, N)
    for index, shape in enumerate(shapes):
        _same_shapes(
            _shards(student, shape, N),
            [local[index] for local in want],
            "FSDP2 cuts every parameter by itself, along its first dimension",
            f"{shape} on {N} ranks",
        )


@task("dim0_shard", gate=False, holds=("fsdp2", "ceil"))
@pytest.mark.parametrize(
    ("N", "held"), [(2, [18_216, 17_688]), (3, [12_408, 12_408, 11_088])], ids=["2", "3"]
)
def test_bytes_of_the_small_mlp_in_chunks(student, N, held):
    """Adam's two float32 moments of 4,488 parameters, on each rank.
    Oracle: bytes of the states that AdamW held after a step under `fully_shard` (torch 2.13)."""
    for rank, size in enumerate(held):
        shapes = student.map("dim0_shard", [(shape, N, rank) for shape in MLP_SHAPES])
        expect.bytes(
            8 * sum(math.prod(shape) for shape in shapes),
            size,
            "every parameter is cut by itself, so the first ranks hold more of each",
            f"rank {rank} of {N}",
        )


@task("dim0_shard", gate=False, holds=("ceil", "fewer"))
def test_rows_of_all_ranks_are_the_parameter(student, rng):
    """No row is lost or held twice, at any size: all small ones, and some up to 300 rows and 40
    ranks.   Oracle: torch.chunk."""
    sizes = list(itertools.product(range(10), range(1, 8)))
    sizes += sorted((int(rng.integers(10, 301)), int(rng.integers(1, 41))) for _ in range(40))
    asked = [((rows, 3), N, rank) for rows, N in sizes for rank in range(N)]
    got = iter(student.map("dim0_shard", asked))
    for rows, N in sizes:
        _same_shapes(
            list(itertools.islice(got, N)),
            oracles.chunk_shapes((rows, 3), N),
            "chunks are as large as the first until the rows are used up",
            f"{(rows, 3)} on {N} ranks",
        )


@task("dim0_shard", gate=False, holds=("scalar", "no_rank", "outside", "no_rows", "one_rank"))
@pytest.mark.parametrize(
    "args", [((), 2, 0), ((5,), 2, 2), ((5,), 2, -1), ((5,), 0, 0), ((5,), -1, 0), ((0, 5), 3, 3)]
)
def test_no_shard_of_that(student, args):
    """A scalar, and ranks that do not exist, are refused; an empty parameter is not.
    Oracle: the contract; `fully_shard` refuses scalars, too."""
    _same_shapes([student.dim0_shard((0, 5), 3, 1)], [(0, 5)], "no rows are no rows", "(0, 5)")
    _same_shapes([student.dim0_shard((5, 0), 1, 0)], [(5, 0)], "one rank has all", "(5, 0)")
    with expect.raises(ValueError, f"there is no dim0_shard{args}"):
        student.dim0_shard(*args)


# --- flat_partition ------------------------------------------------------------------------------


def _same_slices(got, numels, N, align=1):
    because = (
        "position p of the padded buffer belongs to rank p // share, whatever parameter it is in"
    )
    what = f"flat_partition({list(numels)}, {N}, {align})"
    expect.equal(list(got), oracles.sliced(numels, N, align), because, what)


@task("flat_partition", holds=("equal", "who", "straddles"))
def test_megatron_s_sixteen_gradients(student):
    """16 elements on 4 ranks: [0:4], [4:8], [8:12], [12:16].
    Oracle: published.json: Megatron's documentation, for one parameter and for three."""
    edges = PUBLISHED["megatron_16_grads"]
    got = student.flat_partition([16], 4)
    expect.published([edge for piece in got for edge in (piece.lo, piece.hi)], edges)
    expect.equal(
        student.flat_partition([5, 8, 3], 4),
        [
            Slice(0, 0, 0, 4),
            Slice(1, 0, 4, 5),
            Slice(1, 1, 0, 3),
            Slice(2, 1, 3, 7),
            Slice(3, 1, 7, 8),
            Slice(3, 2, 0, 3),
        ],
        "the same sixteen as three parameters: cuts at 4, 8 and 12 do not care where one ends",
        "flat_partition([5, 8, 3], 4)",
    )


@task("flat_partition", holds=("equal", "align", "order", "one_a_part", "padding"))
def test_any_sizes_any_ranks(student, rng):
    """Slices of any list of sizes, padding included.
    Oracle: every element of the padded buffer written down with its owner."""
    for align in (1, 1, 1, 3, 8):
        numels = [int(n) for n in rng.integers(1, 60, int(rng.integers(2, 7)))]
        N = int(rng.integers(2, 7))
        _same_slices(student.flat_partition(numels, N, align), numels, N, align)
    _same_slices(student.flat_partition([7, 1], 6, 3), [7, 1], 6, 3)  # padding on four ranks


@task("flat_partition", gate=False, holds=("sequence",))
def test_sizes_may_be_a_tuple(student, rng):
    """Sizes in a tuple and in a list, the first of them 0.
    Oracle: every element of the padded buffer written down with its owner."""
    numels = [0, *(int(n) for n in rng.integers(1, 30, 3))]
    for given in (tuple(numels), numels):
        _same_slices(student.flat_partition(given, 3, 2), numels, 3, 2)


@task("flat_partition", holds=("equally_many", "who"))
@pytest.mark.parametrize(("N", "size"), [(2, 17_952), (3, 11_968), (5, 7_184)])
def test_bytes_of_the_small_mlp_in_slices(student, N, size):
    """Adam's two float32 moments of 4,488 parameters: equally many bytes on each rank.
    Oracle: 8 bytes times 4,488 over N, rounded up to whole elements."""
    got = student.flat_partition(oracles.numels(MLP_SHAPES), N)
    for rank, elements in enumerate(oracles.elements_a_rank(got, N)):
        because = "flat slices are equally large, the last one by its padding"
        expect.bytes(8 * elements, size, because, f"rank {rank} of {N}")
    real = sum(oracles.elements_a_rank(got, N, padding=False))
    expect.equal(real, 4488, "every parameter's every element has one owner", "elements held")


@task(
    "flat_partition",
    gate=False,
    holds=(
        "equal",
        "least",
        "align",
        "equally_many",
        "order",
        "one_a_part",
        "padding",
        "none_empty",
    ),
)
def test_each_element_once(student, rng):
    """No element is lost, none is held twice, all shares are equal multiples of `align`: one or two
    small parameters, and some lists of up to six.
    Oracle: every element written down with its owner."""
    asked = []
    for numels in [[n] for n in range(4)] + [[n, m] for n in range(4) for m in range(4)]:
        asked += [(numels, N, align) for N in (1, 2, 3) for align in (1, 2)]
    for count in sorted(int(n) for n in rng.integers(1, 7, 60)):
        numels = rng.integers(-10, 41, count).clip(min=0).tolist()
        asked.append((numels, int(rng.integers(1, 10)), int(rng.choice([1, 2, 5, 16]))))
    for (numels, N, align), slices in zip(asked, student.map("flat_partition", asked), strict=True):
        got = list(slices)
        held = oracles.elements_a_rank(got, N)
        least = -(-sum(numels) // (N * align)) * N * align
        what = f"elements in flat_partition({numels}, {N}, {align})"
        expect.equal(sum(held), least, "elements and the least padding", what)
        expect.equal(held, [held[0]] * N, "equal shares", f"{what}, by rank")
        _same_slices(got, numels, N, align)


@task("flat_partition", gate=False, holds=("padding", "equally_many"))
def test_more_ranks_than_elements_are_padded(student):
    """3 elements on 8 ranks: five ranks hold nothing but padding.   Oracle: by hand."""
    want = [Slice(0, 0, 0, 1), Slice(1, 0, 1, 2), Slice(2, 1, 0, 1)]
    want += [Slice(3 + at, None, at, at + 1) for at in range(5)]
    expect.equal(
        student.flat_partition([2, 1], 8), want, "padding counts from where it begins", "[2, 1], 8"
    )


@task("flat_partition", gate=False, holds=("straddles", "one_a_part", "order"))
def test_a_parameter_across_many_ranks(student):
    """A model's embedding of 131,072,000 elements among small norms, on 64 ranks: ends and owners.
    Oracle: floor divisions of positions by the share, by hand."""
    numels = [4096, 131_072_000, 4096]
    got = student.flat_partition(numels, 64)
    share = 2_048_128  # 131,080,192 / 64
    expect.equal(len(got), 66, "64 shares, and one cut more in the first and in the last", "slices")
    ends = [
        Slice(0, 0, 0, 4096),
        Slice(0, 1, 0, share - 4096),
        Slice(63, 1, 63 * share - 4096, 131_072_000),
        Slice(63, 2, 0, 4096),
    ]
    expect.equal([got[0], got[1], got[-2], got[-1]], ends, "each share is one run", "the ends")
    owners = [piece.rank for piece in got if piece.param == 1]
    expect.equal(owners, list(range(64)), "every rank holds a part of it", "owners")


@task(
    "flat_partition",
    gate=False,
    holds=("no_parameter", "no_rank", "no_align", "negative", "none_empty"),
)
@pytest.mark.parametrize(
    "args", [([4], 0), ([4], -1), ([4], 2, 0), ([4], 2, -4), ([4, -1], 2), ([-1, 4], 2), ([], 0)]
)
def test_no_partition_of_that(student, args):
    """No ranks, no alignment, negative sizes are refused.   Oracle: the contract."""
    expect.equal(student.flat_partition([], 2), [], "nothing is cut into nothing", "no parameters")
    want = [Slice(0, 1, 0, 1)]
    because = "a parameter without elements has no Slice, and one rank has all"
    expect.equal(student.flat_partition([0, 1, 0], 1), want, because, "[0, 1, 0] on 1 rank")
    with expect.raises(ValueError, f"there is no flat_partition{args}"):
        student.flat_partition(*args)
