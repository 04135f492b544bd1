"""Lab 07's suite for the Triton kernel: values against float64, traffic and FLOPs as integers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from grader.kernels import Report
from grader.suite import expect, task

from . import oracles
from .oracles import normal, qkv, values

ROWS = "each program masks its own rows and keys: the last blocks are padding in part"
EXACT = "attention in tiles is exact: only rounding may differ"
LSE = "lse = m + ln(l), over the keys that exist and are visible"
TYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}
READS, WRITES = ("q_ptr", "k_ptr", "v_ptr"), ("o_ptr", "lse_ptr")
POINTERS = {**dict.fromkeys(READS, "read"), **dict.fromkeys(WRITES, "write")}
LAUNCHED = {"out of bounds": ROWS}


def run(student: Any, *calls: tuple[tuple, dict], seed: int = 0) -> list:
    """flash_kernel for each (args, kwargs) in one round trip: (value, reports, operators)."""
    found = student.probe.launches([(args, kwargs, seed) for args, kwargs in calls])
    for _, reports, _ in found:
        for report in reports:
            expect.launched(Report.from_plain(report).errors, because=LAUNCHED)
    return found


def expect_attention(
    got: object, q, k, v, causal=False, scale=None, because=EXACT, size=None, what=""
) -> None:
    """(o, lse) against SDPA in float64."""
    want_o, want_lse = oracles.attention(q, k, v, causal, scale)
    expect_values(got, q, k, want_o, want_lse, because, size, what)


def expect_values(got, q, k, want_o, want_lse, because=EXACT, size=None, what="") -> None:
    o, lse = values(got, ("o", "lse"))
    kind, n = TYPES[q.dtype], q.shape[3] + k.shape[2]
    oracles.expect_dtype(lse, torch.float32, what=f"lse{what}", because="statistics are float32")
    oracles.expect_dtype(o, q.dtype, what=f"o{what}", because="outputs have the dtype of q")
    # exp turns the rounding of a score into a relative error of p
    grown = None if size is None else size * float(v_size(want_o))
    expect.close(
        lse, want_lse, because=LSE if because == EXACT else because, n=n, dtype="float32",
        scale=size, what=f"lse{what}",
    )  # fmt: skip
    expect.close(
        o, want_o, because=because, n=n if kind == "float32" else 1, dtype=kind, scale=grown,
        what=f"o{what}",
    )  # fmt: skip


def v_size(o: torch.Tensor) -> float:
    return float(o.abs().max()) if o.numel() else 0.0


@task("flash_kernel", holds=("tiles", "last_blocks", "lse", "natural"))
@pytest.mark.parametrize(
    ("S", "block_q", "block_k"),
    [(1, 16, 16), (33, 16, 16), (127, 64, 32), (256, 128, 64), (272, 128, 16)],
)
def test_output_and_lse_match_torchs_kernel(student, rng, S, block_q, block_k):
    """With and without the mask, last blocks that are padding in part, more key blocks than a block
    has keys.   Oracle: torch's flash kernel for the CPU, in float64."""
    q, k, v = qkv(rng, 1, 1, 1, S, S, 16)
    args = (q, k, v)
    blocks = {"block_q": block_q, "block_k": block_k}
    full, causal = run(student, (args, blocks), (args, {**blocks, "causal": True}))
    for (got, _, _), is_causal in ((full, False), (causal, True)):
        want_o, want_lse = oracles.library_kernel(q, k, v, is_causal)
        what = ", causal" if is_causal else ""
        expect_values(got, q, k, want_o, want_lse, what=what)


@task("flash_kernel", holds=("aligned",))
def test_the_last_query_of_a_tile_sees_the_last_key(student, rng):
    """S < S_kv, causal, aligned to the end.   Oracle: SDPA in float64, explicit mask."""
    q, k, v = qkv(rng, 1, 1, 1, 20, 50, 16)
    blocks = {"causal": True, "block_q": 16, "block_k": 16}
    ((got, _, _),) = run(student, ((q, k, v), blocks))
    because = "row i sees the keys up to i + (S_kv - S)"
    expect_attention(got, q, k, v, causal=True, because=because)


@task("flash_kernel", holds=("groups", "shapes"))
def test_programs_of_a_group_read_one_kv_head(student, rng):
    """H = 6 query heads on H_kv = 2, three sequences.   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 3, 6, 2, 5, 9, 16)
    ((got, _, _),) = run(student, ((q, k, v), {"block_q": 16, "block_k": 16}))
    because = "program (h, b) reads KV head h // (H // H_kv) of sequence b"
    expect_attention(got, q, k, v, because=because)


@task("flash_kernel", holds=("shapes",))
def test_a_long_context(student, rng):
    """Two rows on 33,100 keys; those behind number 32,767 weigh most.   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 1, 1, 1, 2, 33_100, 16)
    k[..., 32_768:, :] += 2.0 * q[..., :1, :]
    ((got, _, _),) = run(student, ((q, k, v), {"block_q": 16, "block_k": 256}))
    because = "key 32,768 comes after key 32,767: 16 bits cannot count the keys of a context"
    expect_attention(got, q, k, v, because=because)


@task("flash_kernel", holds=("strides", "nothing_copied"))
def test_each_tensor_has_its_own_strides(student, rng):
    """(B, S, H, D) in memory, every fourth or second element of a row, V transposed and the same
    for all sequences: as views.   Oracle: SDPA in float64; the operator log."""
    q = normal(rng, 2, 7, 2, 64, size=2.0)[..., ::4].transpose(1, 2)
    k = normal(rng, 2, 20, 2, 32)[..., ::2].transpose(1, 2)
    v = normal(rng, 1, 2, 16, 20).mT.expand(2, 2, 20, 16)
    ((got, _, computed),) = run(student, ((q, k, v), {"block_q": 16, "block_k": 16}))
    because = "q, k and v have strides of their own, four each"
    expect_attention(got, q, k, v, because=because)
    expect_views_only(computed)


@task("flash_kernel", holds=("float32_scores",))
def test_scores_far_from_zero(student, rng):
    """Scores near 1000 and near -1000 are as good as scores near 0.   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 1, 1, 1, 5, 40, 16)
    q[..., 0] = 100.0
    calls = []
    for far in (40.0, -40.0):
        k = k.clone()
        k[..., 0] = far
        calls.append(((q, k, v), {"block_q": 16, "block_k": 16}))
    for (got, _, _), (args, _) in zip(run(student, *calls), calls, strict=True):
        because = "exp is taken of s - m, and the maximum of nothing is -inf"
        expect_attention(got, *args, because=because, size=1000.0)


def expect_views_only(computed: list) -> None:
    expect.equal(
        computed,
        [],
        because="torch makes views and new tensors only: copies, casts and sums are the kernel's",
        what="torch operators",
    )


def expect_counts(found, heads, q, k, v, causal, block_q, block_k) -> None:
    """One launch that moves and computes what the tiles need, and nothing else."""
    got, reports, computed = found
    expect.equal(
        len(reports), 1, because="the task is one launch of a Triton kernel", what="launches"
    )
    expect_views_only(computed)
    report = Report.from_plain(reports[0])
    expect.equal(
        [name for name in POINTERS if name not in report.touched],
        [],
        because="traffic is counted by the names of the kernel's pointers: keep these five",
        what="missing parameters",
    )
    S, S_kv, D = q.shape[2], k.shape[2], q.shape[3]
    walk = oracles.walk(heads, S, S_kv, block_q, block_k, causal)
    expect.equal(
        math.prod(report.grid),
        walk.programs,
        because="one program for block_q rows of a query head",
        what="programs",
    )
    moved = {name: report.total("lanes", kind, array=name) for name, kind in POINTERS.items()}
    for name, want in (("q_ptr", q.numel()), ("o_ptr", q.numel()), ("lse_ptr", heads * S)):
        expect.equal(
            moved[name],
            want,
            because="a program loads its rows of q once and stores o and lse once, without padding",
            what=f"elements that go through {name}",
        )
    for name in ("k_ptr", "v_ptr"):
        expect.within(
            moved[name],
            walk.least_keys * D,
            walk.keys * D,
            because="a program loads a key block once, if one of its rows sees a key of it",
            what=f"elements that go through {name}",
            unit=None,
        )
    expect.equal(
        report.total("lanes"),
        sum(moved.values()),
        because="nothing else travels: no scores, no statistics, no partial outputs",
        what="elements of all arrays",
    )
    expect.at_most(
        report.flops,
        4 * D * walk.tile_pairs,
        because="two products for each key block that some row sees, and none for the others",
        what="tl.dot",
        unit="FLOPs",
    )
    expect.at_least(
        report.flops,
        4 * D * walk.pairs,
        because="both products are tl.dot's: nothing else reaches the tensor cores",
        what="tl.dot",
        unit="FLOPs",
    )
    expect_attention(got, q, k, v, causal=causal)


@task(
    "flash_kernel",
    holds=("programs", "q_once", "k_once", "dots", "one_launch", "nothing_copied"),
)
def test_each_program_moves_its_tiles_and_nothing_else(student, rng):
    """Elements, programs and FLOPs without a mask.   Oracle: a walk of the tiles; SDPA."""
    q, k, v = qkv(rng, 1, 2, 1, 40, 56, 16, dtype=torch.float16)
    (found,) = run(student, ((q, k, v), {"block_q": 32, "block_k": 16}))
    expect_counts(found, 2, q, k, v, False, 32, 16)


@task("flash_kernel", holds=("k_only_if_seen", "dots", "programs"))
def test_key_blocks_above_the_diagonal_are_never_loaded(student, rng):
    """Elements, programs and FLOPs of a causal launch.   Oracle: a walk of the mask; SDPA."""
    q, k, v = qkv(rng, 1, 2, 1, 96, 96, 16, dtype=torch.float16)
    (found,) = run(student, ((q, k, v), {"causal": True, "block_q": 32, "block_k": 32}))
    expect_counts(found, 2, q, k, v, True, 32, 32)


@task("flash_kernel", holds=("tiles", "whole_tiles", "blocks", "one_launch"))
def test_tiles_are_block_q_rows_by_block_k_keys(student, rng):
    """20 rows, 130 keys, blocks of every size.   Oracle: 4 D block_q block_k FLOPs a tile; SDPA."""
    q, k, v = qkv(rng, 1, 1, 1, 20, 130, 16)
    sizes = [(16, 16), (128, 32), (32, 64), (64, 128)]
    calls = [((q, k, v), {"block_q": rows, "block_k": keys}) for rows, keys in sizes]
    for (got, reports, _), (rows, keys) in zip(run(student, *calls), sizes, strict=True):
        what = f", blocks of {rows} by {keys}"
        expect.equal(len(reports), 1, because="the task is one launch", what=f"launches{what}")
        tiles = math.ceil(20 / rows) * math.ceil(130 / keys)
        expect.equal(
            Report.from_plain(reports[0]).flops,
            4 * 16 * rows * keys * tiles,
            because="a tile is block_q rows by block_k keys, as the caller says",
            what=f"FLOPs of tl.dot{what}",
        )
        expect_attention(got, q, k, v, what=what)


@task("flash_kernel", holds=("no_keys", "empty_rows"))
def test_a_call_without_keys(student, rng):
    """S_kv = 0, with and without the mask.   Oracle: o = 0, lse = -inf by definition."""
    q, k, v = qkv(rng, 1, 2, 1, 20, 0, 16)
    calls = [((q, k, v), {"causal": c, "block_q": 16, "block_k": 16}) for c in (False, True)]
    because = "a row that sees no key: o = 0, lse = -inf, and somebody must store them"
    for (got, _, _), (_, kwargs) in zip(run(student, *calls), calls, strict=True):
        expect_attention(got, q, k, v, causal=kwargs["causal"], because=because)


@task(
    "flash_kernel",
    holds=("float32_scores", "scale_on_scores", "float16", "bfloat16", "p_rounded"),
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_scores_of_16_bit_inputs_stay_float32(student, rng, dtype):
    """Scores near 60 or 100, 272 keys, no scale that is a power of two.   Oracle: SDPA in float64
    on the same 16-bit numbers."""
    q, k, v = oracles.sensitive(rng, 6, 272, getattr(torch, dtype))
    calls = [((q, k, v), {"scale": s, "block_q": 16, "block_k": 64}) for s in (None, 0.3)]
    for (got, _, _), (_, kwargs) in zip(run(student, *calls), calls, strict=True):
        because = "a score that is rounded, or made of a rounded q * scale, is another score"
        o, _ = values(got, ("o", "lse"))
        want, _ = oracles.attention(q, k, v, scale=kwargs["scale"])
        what = f"o, scale = {kwargs['scale']}"
        expect.close(o, want, because=because, c=1.0, dtype=dtype, what=what)


@task("flash_kernel", holds=("float32_sums",))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_accumulator_is_float32(student, rng, dtype):
    """Values near 64, then near -64: what is left is small.   Oracle: SDPA in float64 on the same
    16-bit numbers."""
    q, k, v = oracles.cancelling(rng, 5, 128, getattr(torch, dtype))
    ((got, _, _),) = run(student, ((q, k, v), {"block_q": 16, "block_k": 16}))
    o, _ = values(got, ("o", "lse"))
    want, _ = oracles.attention(q, k, v)
    because = "acc is float32 until the last key block is in"
    expect.close(o, want, because=because, c=1.0, dtype=dtype, what="o")


@task("flash_kernel", gate=False, holds=("refused", "check"))
@pytest.mark.parametrize(
    "fault",
    [
        "head size 24", "other k than v", "another batch", "another head size", "3 heads on 2",
        "no KV heads", "float64", "two dtypes", "scale 0", "scale -1", "scale nan", "head size 0",
        "no rows and scale -1", "no rows and 3 heads on 2", "no rows and two dtypes",
        "no keys and scale 0", "no keys and float64", "no sequences and head size 24",
    ],
)  # fmt: skip
def test_what_the_kernel_is_not_made_for(student, rng, fault):
    """ValueError, and nothing is launched.   Oracle: the docstring of `check`."""
    empty, _, fault = fault.rpartition(" and ")
    B, S, S_kv = 2 * (empty != "no sequences"), 3 * (empty != "no rows"), 5 * (empty != "no keys")
    q, k, v = qkv(rng, B, 4, 2, S, S_kv, 16)
    kwargs = {"block_q": 16, "block_k": 16}
    if fault.startswith("scale"):
        kwargs["scale"] = float(fault.split()[1])
    if fault == "head size 0":
        kwargs["scale"] = 1.0
    if fault.startswith("head size"):
        q, k, v = qkv(rng, B, 4, 2, S, S_kv, int(fault.split()[2]))
    if fault == "other k than v":
        v = v[:, :, :4]
    if fault == "another batch":
        k, v = k[:1], v[:1]
    if fault == "another head size":
        k, v = (torch.cat([x, x], dim=-1) for x in (k, v))
    if fault == "3 heads on 2":
        q = q[:, :3]
    if fault == "no KV heads":
        k, v = k[:, :0], v[:, :0]
    if fault == "float64":
        q, k, v = q.double(), k.double(), v.double()
    if fault == "two dtypes":
        k, v = k.half(), v.half()
    because = f"`check` refuses this before a kernel reads memory that is not there: {fault}"
    with expect.raises(ValueError, because=because):
        student.flash_kernel(q, k, v, **kwargs)


@task("flash_kernel", gate=False, holds=("shapes",))
def test_more_rows_than_16_bits_count(student, rng):
    """40,000 rows against 16 keys, in five programs.   Oracle: SDPA in float64, for the rows from
    32,768 on."""
    q, k, v = qkv(rng, 1, 1, 1, 40_000, 16, 16, dtype=torch.float16)
    ((got, _, _),) = run(student, ((q, k, v), {"block_q": 8192, "block_k": 16}))
    o, lse = values(got, ("o", "lse"))
    expect.shape(o, tuple(q.shape), because="one output row a query", what="o")
    expect.shape(lse, (1, 1, 40_000), because="one number a query", what="lse")
    far = slice(32_768, None)
    because = "a row's number is no 16-bit integer"
    expect_attention((o[:, :, far], lse[:, :, far]), q[:, :, far], k, v, because=because)


@task("flash_kernel", gate=False, holds=("no_rows",))
def test_a_call_without_rows(student, rng):
    """S = 0.   Oracle: o and lse have no elements."""
    q, k, v = qkv(rng, 2, 2, 1, 0, 20, 16)
    ((got, _, _),) = run(student, ((q, k, v), {"block_q": 16, "block_k": 16}))
    o, lse = values(got, ("o", "lse"))
    expect.shape(o, (2, 2, 0, 16), because="one output row a query", what="o")
    expect.shape(lse, (2, 2, 0), because="one number a query", what="lse")


@task("flash_kernel", gate=False, holds=("shapes", "aligned"))
def test_a_context_beyond_sixteen_bits(student, rng):
    """33,000 keys, of which the last row of a causal block sees all.   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 1, 1, 1, 16, 33_000, 16)
    blocks = {"block_q": 16, "block_k": 4096}
    calls = [((q, k, v), {**blocks, "causal": causal}) for causal in (False, True)]
    for (got, _, _), (_, kwargs) in zip(run(student, *calls), calls, strict=True):
        because = "a key's number, and its place in memory, may be larger than 32,767"
        expect_attention(got, q, k, v, causal=kwargs["causal"], because=because)


@task("flash_kernel", gate=False, holds=("compiled",))
def test_a_gpu_can_start_what_is_launched(student, rng):
    """Small and large tiles of small and large rows.   Oracle: CUDA's rule, a block has at most
    1,024 threads, and Triton's, its warps are a power of two."""
    calls = []
    for D, dtype in ((16, torch.float16), (64, torch.float16), (128, torch.float32)):
        args = qkv(rng, 1, 1, 1, 5, 5, D, dtype=dtype)
        calls += [(args, {"block_q": rows, "block_k": 16}) for rows in (16, 128)]
    for (_, reports, _), (_, kwargs) in zip(run(student, *calls), calls, strict=True):
        for report in reports:
            warps = Report.from_plain(report).options.get("num_warps", 4)
            expect.true(
                warps in (1, 2, 4, 8, 16, 32),
                because="a GPU runs the same launch, so num_warps is a power of two up to 32",
                observed=f"num_warps = {warps}, block_q = {kwargs['block_q']}",
            )


@task("flash_kernel", gate=False, holds=("float32_scores", "aligned"))
def test_scores_below_any_stand_in_for_minus_infinity_in_a_kernel(student, rng):
    """All visible scores are -2^40, where other keys are hidden or padding.   Oracle: the mean of
    the visible values."""
    q, k, v = qkv(rng, 1, 1, 1, 5, 24, 16)
    q, k = torch.zeros_like(q), torch.zeros_like(k)
    q[..., 0], k[..., 0] = 2.0**20, -(2.0**20)
    calls = []
    for causal in (False, True):
        calls.append(((q, k, v), {"causal": causal, "scale": 1.0, "block_q": 16, "block_k": 16}))
    because = "a hidden score is -inf, and so is the maximum of nothing: -2^40 is a score"
    for (got, _, _), (_, kwargs) in zip(run(student, *calls), calls, strict=True):
        o, _ = values(got, ("o", "lse"))
        mask = oracles.visible(5, 24, kwargs["causal"]).double()
        want = (mask / mask.sum(dim=1, keepdim=True)) @ v.double()
        expect.close(o, want, because=because, n=24, dtype="float32", what="o")


@task("flash_kernel", gate=False, holds=("empty_rows",))
def test_programs_whose_rows_see_no_key(student, rng):
    """More queries than keys, causal.   Oracle: o = 0, lse = -inf by definition."""
    q, k, v = qkv(rng, 1, 1, 1, 40, 20, 16)
    ((got, _, _),) = run(student, ((q, k, v), {"causal": True, "block_q": 16, "block_k": 16}))
    because = "a row that sees no key: o = 0, lse = -inf, never NaN, and somebody must store them"
    expect_attention(got, q, k, v, causal=True, because=because)


@task("flash_kernel", gate=False, holds=("float16", "bfloat16", "lse_float32", "dtype_of_q", "l"))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bits_in_and_wide_sums(student, rng, dtype):
    """fp16 and bf16 in and out, float32 between.   Oracle: SDPA in float64 on the same numbers."""
    q, k, v = qkv(rng, 1, 1, 1, 20, 20, 32, dtype=getattr(torch, dtype))
    ((got, _, _),) = run(student, ((q, k, v), {"causal": True, "block_q": 16, "block_k": 16}))
    because = "scores, statistics and accumulator are float32"
    expect_attention(got, q, k, v, causal=True, because=because)


@task("flash_kernel", gate=False, holds=("given_scale",))
def test_the_kernel_takes_the_scale_it_is_given(student, rng):
    """A given scale replaces 1/sqrt(D).   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 1, 1, 1, 7, 20, 16)
    calls = [((q, k, v), {"scale": s, "block_q": 16, "block_k": 16}) for s in (0.5, 0.01)]
    for (got, _, _), (_, kwargs) in zip(run(student, *calls), calls, strict=True):
        because = "scale is an argument, and log2(e) is no part of it"
        expect_attention(got, q, k, v, scale=kwargs["scale"], because=because)


@task("flash_kernel", gate=False, holds=("head_sizes",))
def test_head_sizes_from_32_to_128(student, rng):
    """D is 32, 64 or 128.   Oracle: SDPA in float64."""
    inputs = [qkv(rng, 1, 1, 1, 7, 20, D) for D in (32, 64, 128)]
    found = run(student, *((args, {"block_q": 16, "block_k": 32}) for args in inputs))
    for (got, _, _), (q, k, v) in zip(found, inputs, strict=True):
        because = "D is an argument of the kernel, a constexpr"
        expect_attention(got, q, k, v, because=because, what=f", D = {q.shape[3]}")


@task("flash_kernel", gate=False, holds=("pointers", "one_launch"))
def test_programs_run_in_any_order(student, rng):
    """The same values when programs start in another order.   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 2, 1, 1, 20, 20, 16)
    blocks = {"causal": True, "block_q": 16, "block_k": 16}
    ((got, _, _),) = run(student, ((q, k, v), blocks), seed=int(rng.integers(1, 1000)))
    because = "nothing orders the programs of a launch, and none reads what another one stores"
    expect_attention(got, q, k, v, causal=True, because=because)


@task("flash_kernel", extra=("gpu",))
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("S", "D", "causal"), [(1, 64, True), (1000, 16, False), (4096, 128, True), (8192, 64, True)]
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_gpu_gives_the_same_attention(student, rng, S, D, causal, dtype):
    """Compiled, at the block sizes that are the default.   Oracle: SDPA in float64 on the GPU."""
    q, k, v = qkv(rng, 1, 4, 2, S, S, D, dtype=getattr(torch, dtype))
    rows = sorted({0, S // 3, S - 1, *(int(r) for r in rng.integers(0, S, size=13))})
    found = student.probe.on_gpu(q, k, v, causal, rows)
    o, lse, want_o, want_lse = values(found, ("o", "lse", "want_o", "want_lse"))
    expect_values((o, lse), q, k, want_o, want_lse)


@task("flash_kernel", extra=("gpu",))
@pytest.mark.gpu
def test_a_gpus_memory_grows_with_s_alone(student):
    """bf16, 4 heads, D 64, S = 8,192: o and lse, and no scores.   Oracle: the allocator's peak."""
    S, D = 8192, 64
    grown, o, v = student.probe.gpu_memory(S, D)
    outputs = 4 * S * (2 * D + 4)
    expect.at_most(
        grown,
        2 * outputs,
        because="one head's scores alone would be 128 MiB",
        what="peak growth",
        unit="bytes",
    )
    expect.close(o, v, because="the first row sees the first key only", dtype="bfloat16")


@task("flash_kernel", extra=("gpu",))
@pytest.mark.gpu
@pytest.mark.parametrize(("D", "causal"), [(64, True), (128, False), (128, True)])
def test_a_gpu_reaches_a_quarter_of_torchs_flash_kernel(student, D, causal):
    """bf16, S = 8,192: TFLOP/s at least a quarter of SDPA's.   Oracle: torch's flash kernel on the
    same inputs in the same run, timed by the GPU's events."""
    mine, theirs, gap = student.probe.gpu_speed(2, 16, 8192, D, causal)
    expect.at_most(gap, 0.05, because="a fast answer is still the answer", what="gap", unit=None)
    expect.at_least(
        mine,
        0.25 * theirs,
        because="the products are tensor cores' work, and loads overlap with them",
        what="flash_kernel",
        unit="TFLOP/s",
    )
