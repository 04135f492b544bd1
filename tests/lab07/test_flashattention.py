"""Lab 07's suite: exactness against float64, and bytes, FLOPs and reductions as measured."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from grader.suite import expect, task

from . import oracles
from .oracles import normal, qkv, values

PUBLISHED = {
    row["id"]: row for row in json.loads(Path(__file__).with_name("published.json").read_text())
}
INF = math.inf
WIDE = (torch.float32, torch.float64)
EXACT = "attention in tiles is exact: only rounding may differ"
TORCH_ONLY = (
    "the meter sees torch's matmul, @ and einsum; products made in another way cannot be measured"
)


def no_library(seen: dict, min_flops: int) -> None:
    """The call made its own matrix products and used no attention kernel."""
    expect.equal(
        seen["library"],
        [],
        because="the kernel that this task is about is yours to write",
        what="attention kernels of the library that were called",
    )
    # einsum multiplies elementwise where a contracted axis has length 1
    least = math.floor(0.9 * min_flops)
    expect.at_least(seen["flops"], least, because=TORCH_ONLY, what="matmul", unit="FLOPs")


# --- naive_attention ---------------------------------------------------------------------------


@task("naive_attention", holds=("formula", "shape", "default_scale"))
def test_each_row_averages_the_values_by_its_softmax(student, rng):
    """Each row averages the values by its softmax.   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 2, 3, 3, 33, 31, 16)
    want, _ = oracles.attention(q, k, v)
    got = student.naive_attention(q, k, v)
    expect.close(
        got, want, because="o = softmax(q k^T / sqrt(D)) v", n=16 + 31, dtype="float32", what="o"
    )


@task("naive_attention", holds=("aligned",))
@pytest.mark.parametrize(("S", "S_kv"), [(5, 9), (17, 17)])
def test_the_last_query_sees_the_last_key(student, rng, S, S_kv):
    """Causal rows end at the last key.   Oracle: SDPA in float64, explicit mask."""
    q, k, v = qkv(rng, 2, 2, 2, S, S_kv, 8)
    want, _ = oracles.attention(q, k, v, causal=True)
    got = student.naive_attention(q, k, v, causal=True)
    expect.close(
        got,
        want,
        because="row i sees the keys up to i + (S_kv - S): with a cache, new queries come last",
        n=8 + S_kv,
        dtype="float32",
        what="o",
    )


@task("naive_attention", holds=("no_library",))
def test_no_library_attention_is_called(student, rng):
    """The scores are made here.   Oracle: 4 S S_kv D H FLOPs; SDPA in float64 for the values."""
    q, k, v = qkv(rng, 1, 2, 2, 24, 40, 8)
    seen = student.probe.logged("naive_attention", (q, k, v), {"causal": True})
    no_library(seen, 4 * 24 * 40 * 8 * 2)
    want, _ = oracles.attention(q, k, v, causal=True)
    expect.close(seen["result"], want, because=EXACT, n=48, dtype="float32", what="o")


@task("naive_attention", gate=False, holds=("empty_rows",))
def test_a_row_without_keys_gives_zero(student, rng):
    """More queries than keys: the first rows see nothing.   Oracle: SDPA, empty rows 0."""
    q, k, v = qkv(rng, 1, 2, 2, 9, 5, 8)
    want, _ = oracles.attention(q, k, v, causal=True)
    got = student.naive_attention(q, k, v, causal=True)
    expect.close(got, want, because="no key, no value: 0, not 0/0", n=16, dtype="float32", what="o")


@task("naive_attention", gate=False, holds=("no_keys",))
def test_a_call_without_keys_gives_zero(student, rng):
    """S_kv = 0.   Oracle: o = 0 by definition."""
    q, k, v = qkv(rng, 1, 2, 1, 3, 0, 8)
    for causal in (False, True):
        got = student.naive_attention(q, k, v, causal)
        expect.close(got, torch.zeros_like(q), because="no key, no value: 0", what="o")


@task("naive_attention", gate=False, holds=("strides",))
def test_naive_takes_views(student, rng):
    """(B, S, H, D) in memory, every other element.   Oracle: SDPA in float64."""
    q, k, v = (x.transpose(1, 2)[..., ::2] for x in qkv(rng, 2, 9, 9, 3, 3, 8))
    want, _ = oracles.attention(q, k, v)
    got = student.naive_attention(q, k, v)
    expect.close(got, want, because="strides are not shapes", n=13, dtype="float32", what="o")


@task("naive_attention", holds=("groups",))
def test_naive_groups_of_query_heads_share_a_kv_head(student, rng):
    """Query head h reads KV head h // (H // H_kv).   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 2, 6, 2, 7, 11, 8)
    want, _ = oracles.attention(q, k, v)
    got = student.naive_attention(q, k, v)
    expect.close(
        got, want, because="neighbouring query heads form a group", n=19, dtype="float32", what="o"
    )


@task("naive_attention", gate=False, holds=("scale",))
@pytest.mark.parametrize("scale", [0.5, 0.01])
def test_naive_takes_the_scale_it_is_given(student, rng, scale):
    """A given scale replaces 1/sqrt(D).   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 1, 2, 2, 7, 9, 16)
    want, _ = oracles.attention(q, k, v, scale=scale)
    got = student.naive_attention(q, k, v, scale=scale)
    expect.close(got, want, because="scale is an argument", n=25, dtype="float32", what="o")


@task("naive_attention", gate=False, holds=("dtype_of_q", "float64", "unchanged"))
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_naive_output_has_the_dtype_of_q(student, rng, dtype):
    """float64 stays float64, bf16 comes back as bf16.   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 1, 2, 2, 15, 15, 16, dtype=getattr(torch, dtype))
    want, _ = oracles.attention(q, k, v, causal=True)
    got = student.naive_attention(q, k, v, causal=True)
    oracles.expect_dtype(got, q.dtype, what="o", because="outputs have the dtype of q")
    n = 31 if dtype == "float64" else 1
    expect.close(got, want, because="float64 input stays float64", n=n, dtype=dtype, what="o")


# --- online_softmax ----------------------------------------------------------------------------


@task("online_softmax", holds=("m_and_l", "p_from_the_last"))
def test_the_worked_example(student):
    """[1, 2, 3, 4] in blocks of two.   Oracle: l = 1 + e^-1 + e^-2 + e^-3 by hand."""
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    p, m, l = values(student.online_softmax(x, 2), "pml")
    want = sum(math.exp(-i) for i in range(4))
    expect.close(m, torch.tensor(4.0), because="m is the maximum of the row", what="m")
    expect.close(
        l,
        torch.tensor(want, dtype=torch.float64),
        because="both blocks must be measured from the same maximum, 4",
        n=4,
        what="l",
    )
    expect.close(
        p, torch.softmax(x, 0), because="p = exp(x - m) / l with the FINAL m and l", n=4, what="p"
    )


@task("online_softmax", holds=("m_and_l", "last_block", "p_from_the_last", "unchanged"))
@pytest.mark.parametrize("block", [1, 31, 64, 127, 500])
def test_every_block_size_gives_the_softmax(student, rng, block):
    """The block size changes nothing.   Oracle: float64 softmax, max and sum in one piece."""
    x = normal(rng, 3, 127, size=3.0)
    x[0] = x[0].sort().values  # every block raises the maximum
    x[1] = x[1].sort(descending=True).values  # no block does
    p, m, l = values(student.online_softmax(x, block), "pml")
    wide = x.double()
    top = wide.amax(-1)
    expect.close(m, top, because="m is the maximum of the row", dtype="float32", what="m")
    expect.close(
        l,
        torch.exp(wide - top[:, None]).sum(-1),
        because="l is the sum of exp(x - m) over the row",
        n=127,
        dtype="float32",
        what="l",
    )
    want = torch.softmax(wide, -1)
    expect.close(p, want, because="p = exp(x - m) / l", n=127, dtype="float32", what="p")


@task("online_softmax", holds=("from_minus_infinity",))
def test_logits_far_below_zero(student):
    """Logits near -1000 are as good as logits near 0.   Oracle: float64 softmax."""
    x = torch.tensor([[-1003.0, -1001.0, -1002.0, -1000.0, -1004.0], [-200.0, 3, 2, 1, -5]])
    p, m, l = values(student.online_softmax(x, 2), "pml")
    top = torch.tensor([-1000.0, 3.0])
    expect.close(m, top, because="the running maximum starts at -inf", what="m")
    want = torch.exp((x - top[:, None]).double()).sum(-1)
    # whoever goes through a log-sum-exp near -1000 has its rounding in l and p
    near = {"n": 5, "dtype": "float32", "scale": 1000.0}
    expect.close(l, want, because="exp is taken of x - m", what="l", **near)
    p_want = torch.softmax(x.double(), -1)
    expect.close(p, p_want, because="p = exp(x - m) / l", what="p", **near)


@task("online_softmax", holds=("one_pass", "a_block_at_a_time", "no_whole_axis", "two_loops"))
def test_no_reduction_sees_more_than_a_block(student, rng):
    """One pass, a block at a time.   Oracle: the operator log, and float64 softmax."""
    x = normal(rng, 96, size=3.0)
    seen = student.probe.softmax_reductions(x, 8)
    expect.equal(
        seen["whole"],
        [],
        because="the library's softmax reads the whole row, twice",
        what="operators",
    )
    expect.at_most(
        seen["widest"],
        8,
        because="a block must suffice: on the chip there is no room for the row",
        what=f"entries that one result of `{seen['widest_op']}` is made from",
        unit=None,
    )
    maxima = [at for at, name in enumerate(seen["order"]) if "max" in name]
    sums = [at for at, name in enumerate(seen["order"]) if "max" not in name]
    loops = len(maxima) > 1 and bool(sums)
    expect.true(
        not (loops and sums[0] > maxima[-1]),
        because="one pass: a block's maximum and its sum are both taken before the next block's",
        observed="the first sum comes after the last maximum: that is a second pass",
    )
    expect.at_least(
        seen["partial"],
        12,
        because="12 blocks give 12 maxima; reduce with torch, the meter sees nothing else",
        what="partial results",
        unit=None,
    )
    p, _, _ = values(seen["result"], "pml")
    expect.close(
        p,
        torch.softmax(x.double(), -1),
        because="p = exp(x - m) / l",
        n=96,
        dtype="float32",
        what="p",
    )


@task("online_softmax", holds=("wide_sums",))
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_sum_of_many_small_blocks_is_wide(student, dtype):
    """4,099 equal logits, in blocks of 8.   Oracle: 4,099 times exp(0); m is the logit itself."""
    x = torch.full((4099,), 0.75, dtype=getattr(torch, dtype))
    p, m, l = values(student.online_softmax(x, 8), "pml")
    expect.close(m, torch.tensor(0.75), because="m is the maximum of the row", what="m")
    because = "a bf16 sum stops growing at 256, an fp16 sum at 2,048: l is float32 or wider"
    expect.close(l, torch.tensor(4099.0), because=because, dtype="float32", what="l")
    expect.close(p, torch.full((4099,), 1 / 4099), because="p = 1 / l", dtype=dtype, what="p")


@task("online_softmax", holds=("wide_p", "wide_sums"))
def test_70_000_equal_logits_of_16_bits(student):
    """l is beyond 65,504, float16's largest number.   Oracle: p = 1 / 70,000, to half a unit."""
    x = torch.full((70_000,), 3.0, dtype=torch.float16)
    p, _, l = values(student.online_softmax(x, 8192), "pml")
    because = "p is wide until it is rounded, once: neither exp(x - m) nor l is rounded before"
    expect.close(l, torch.tensor(70_000.0), because=because, dtype="float32", what="l")
    want = torch.full((70_000,), 1 / 70_000, dtype=torch.float64)
    # below 2^-14 the float16 numbers are 2^-24 apart
    expect.close(p, want, because=because, c=0.51, scale=2.0**-14, dtype="float16", what="p")


@task("online_softmax", gate=False, holds=("wide_p", "dtype_of_x"))
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_p_is_the_nearest_number_of_its_type(student, rng, dtype):
    """Rows of two logits, the larger one p between 1/2 and 1, the other between 1/4 and 1/2.
    Oracle: float64 softmax of the same 16-bit numbers, and half a unit in the last place."""
    x = torch.from_numpy(rng.uniform([0.0, -1.0], [0.05, -0.1], (512, 2)))
    x = x.to(getattr(torch, dtype))
    p, _, _ = values(student.online_softmax(x, 1), "pml")
    want = torch.softmax(x.double(), -1)
    because = "p is wide until it is rounded, once: neither exp(x - m) nor l is rounded before"
    expect.shape(p, (512, 2), because="p has the shape of x", what="p")
    for column, half_a_unit in enumerate((0.255, 0.1275)):
        expect.close(
            p[:, column],
            want[:, column],
            because=because,
            c=half_a_unit,
            scale=1.0,
            dtype=dtype,
            what=f"p[:, {column}]",
        )


@task("online_softmax", gate=False, holds=("one_entry", "strides"))
def test_rows_of_one_entry_and_rows_in_columns(student, rng):
    """N = 1; and a transposed x.   Oracle: p = 1, l = 1; float64 softmax."""
    one = normal(rng, 2, 1)
    p, m, l = values(student.online_softmax(one, 4), "pml")
    expect.close(m, one[:, 0], because="the only entry is the maximum", what="m")
    expect.close(l, torch.ones(2), because="exp(0) = 1", what="l")
    expect.close(p, torch.ones(2, 1), because="all of the weight", what="p")
    x = normal(rng, 13, 3).T
    p, _, _ = values(student.online_softmax(x, 4), "pml")
    want = torch.softmax(x.double(), -1)
    expect.close(p, want, because="strides are not shapes", n=13, dtype="float32", what="p")


@task("online_softmax", gate=False, holds=("from_minus_infinity",))
def test_logits_at_the_ends_of_float32(student):
    """3e38 and -3e38 in one row.   Oracle: float64 softmax; their difference is not finite."""
    x = torch.tensor([[-3e38, 0.0, 3e38], [3e38, 3e38, -3e38], [-3e38, -3e38, -3e38]])
    p, m, l = values(student.online_softmax(x, 1), "pml")
    want = torch.softmax(x.double(), -1)
    expect.close(m, x.amax(-1), because="m is the maximum of the row", what="m")
    because = "exp(-inf) = 0: a difference that overflows to -inf is still right"
    expect.close(l, torch.tensor([1.0, 2.0, 3.0]), because=because, what="l")
    expect.close(p, want, because=because, n=3, dtype="float32", what="p")


@task("online_softmax", gate=False, holds=("m_and_l",))
def test_huge_logits_do_not_overflow(student, rng):
    """Logits of 1e4 and -1e4.   Oracle: float64 softmax."""
    x = normal(rng, 4, 100, dtype=torch.float64, size=1e4)
    p, m, l = values(student.online_softmax(x, 16), "pml")
    want = torch.softmax(x, -1)
    # exp turns the rounding of a logit, 1e4 * eps, into a relative error
    expect.close(p, want, because="x - m <= 0 keeps exp in range", n=100, scale=1e3, what="p")
    expect.close(m, x.amax(-1), because="m is the maximum of the row", what="m")
    expect.at_least(float(l.min()), 0.999, because="the maximum itself adds exp(0) = 1", unit=None)


@task("online_softmax", gate=False, holds=("m_and_l",))
def test_shift_invariance(student, rng):
    """Adding a constant to a row moves m and nothing else.   Oracle: the definition."""
    x = torch.from_numpy(rng.integers(-6, 6, size=(3, 21))).double()  # shifts are then exact
    (p, m, l), (p_shifted, m_shifted, l_shifted) = (
        values(got, "pml") for got in student.map("online_softmax", [(x, 4), (x + 64, 4)])
    )
    expect.close(m_shifted, m + 64, because="m moves with the row", what="m")
    expect.close(l_shifted, l, because="l is measured from m", n=21, what="l")
    expect.close(p_shifted, p, because="softmax does not see a common shift", n=21, what="p")


@task("online_softmax", holds=("hidden_row",))
def test_masked_logits_have_no_weight(student, rng):
    """Whole blocks and whole rows of -inf.   Oracle: float64 softmax of the visible part."""
    x = normal(rng, 3, 12, dtype=torch.float64)
    x[0, :7] = -INF  # the first block, and half of the second
    x[1, 5:] = -INF
    x[2] = -INF
    p, m, l = values(student.online_softmax(x, 4), "pml")
    want = torch.softmax(x, -1)
    want[2] = 0.0
    expect.close(m, x.amax(-1), because="a row of -inf has maximum -inf", what="m")
    shift = torch.where(m == -INF, 0.0, m)[:, None]
    expect.close(l, torch.exp(x - shift).sum(-1), because="exp(-inf) adds 0", n=12, what="l")
    expect.close(p, want, because="-inf - -inf must not become NaN", n=12, what="p")


@task("online_softmax", holds=("dtype_of_x", "statistics", "shape"))
@pytest.mark.parametrize(("dtype", "wide"), [("float64", "float64"), ("bfloat16", "float32")])
def test_statistics_are_wide_and_leading_axes_stay(student, rng, dtype, wide):
    """bf16 in, fp32 statistics, bf16 out; float64 stays.   Oracle: float64 softmax."""
    x = normal(rng, 2, 1, 3, 33, dtype=getattr(torch, dtype), size=2.0)
    p, m, l = values(student.online_softmax(x, 8), "pml")
    oracles.expect_dtype(p, x.dtype, what="p", because="p has the dtype of x")
    for name, statistic in (("m", m), ("l", l)):
        allowed = [kind for kind in WIDE if kind == torch.float64 or wide == "float32"]
        oracles.expect_dtype(
            statistic, *allowed, what=name, because="a bf16 sum of 256 ones stops at 256"
        )
    exp = torch.exp(x.double() - x.double().amax(-1, keepdim=True))
    expect.close(l, exp.sum(-1), because="statistics are wide", n=33, dtype=wide, what="l")
    n = 33 if dtype == "float64" else 1
    want = torch.softmax(x.double(), -1)
    expect.close(p, want, because="p = exp(x - m) / l", n=n, dtype=dtype, what="p")


# --- merge -------------------------------------------------------------------------------------


def _parts(rng, n_keys, cuts, rows=3, D=5, size=3.0):
    """Scores and values of n_keys keys, cut at `cuts`: the states of the parts and of the whole."""
    s = normal(rng, rows, n_keys, dtype=torch.float64, size=size)
    v = normal(rng, n_keys, D, dtype=torch.float64)
    edges = [0, *cuts, n_keys]
    pieces = [oracles.state(s[:, a:b], v[a:b]) for a, b in pairwise(edges)]
    return pieces, oracles.state(s, v), s, v


def _expect_state(got, want, because, n=1):
    m, l, o = values(got, "mlo")
    expect.close(m, want[0], because="the maximum of the union", what="m")
    expect.close(l, want[1], because=because, n=n, what="l")
    expect.close(o, want[2], because=because, n=n, what="o")


@task("merge", holds=("union", "state"))
@pytest.mark.parametrize("larger", ["first", "second"])
def test_two_halves_make_the_whole(student, rng, larger):
    """Either half may hold the maximum.   Oracle: float64 sums in one piece."""
    s = normal(rng, 4, 10, dtype=torch.float64)
    s[:, :5] += 3.0 if larger == "first" else -3.0
    v = normal(rng, 10, 6, dtype=torch.float64)
    a, b = oracles.state(s[:, :5], v[:5]), oracles.state(s[:, 5:], v[5:])
    _expect_state(
        student.merge(a, b),
        oracles.state(s, v),
        "l and o of both parts are rescaled to the common maximum, then added",
        n=10,
    )


@task("merge", holds=("union", "empty_part", "not_normalised"))
@pytest.mark.parametrize("n_keys", [1, 31, 127])
def test_any_split_equals_the_whole(student, rng, n_keys):
    """Any split, empty parts included, equals the whole.   Oracle: float64 softmax in one piece."""
    cuts = sorted(int(c) for c in rng.integers(0, n_keys + 1, size=5))
    parts, _, s, v = _parts(rng, n_keys, cuts)
    got = parts[0]
    for part in parts[1:]:
        got = student.merge(tuple(got), part)
    _, l, o = values(got, "mlo")
    expect.close(
        o / l[:, None],
        torch.softmax(s, -1) @ v,
        because="o / l is the attention output, whatever the split",
        n=n_keys + 5,
        scale=float(v.abs().max()),
        what="o / l",
    )


@task("merge", holds=("masked_rows",))
def test_rows_masked_in_both_parts_stay_empty(student, rng):
    """A row that neither part sees is (-inf, 0, 0).   Oracle: the identity of the monoid."""
    s = normal(rng, 4, 8, dtype=torch.float64)
    s[1] = -INF
    s[2, :4] = -INF
    s[3, 4:] = -INF
    v = normal(rng, 8, 3, dtype=torch.float64)
    got = student.merge(oracles.state(s[:, :4], v[:4]), oracles.state(s[:, 4:], v[4:]))
    _expect_state(got, oracles.state(s, v), "-inf - -inf is NaN; an empty part has weight 0", n=8)


@task("merge", gate=False, holds=("commutative",))
def test_the_order_of_two_parts_does_not_matter(student, rng):
    """merge(a, b) = merge(b, a).   Oracle: property, hypothesis."""
    _check_random_states(student, 2, lambda f, a, b: (f(a, b), f(b, a)))


@task("merge", gate=False, holds=("associative",))
def test_the_bracketing_of_three_parts_does_not_matter(student, rng):
    """merge(merge(a, b), c) = merge(a, merge(b, c)).   Oracle: property, hypothesis."""
    _check_random_states(student, 3, lambda f, a, b, c: (f(f(a, b), c), f(a, f(b, c))))


@task("merge", gate=False, holds=("identity",))
def test_the_empty_part_is_the_identity(student, rng):
    """(-inf, 0, 0) changes nothing, on either side.   Oracle: property, hypothesis."""
    empty = (
        torch.full((2,), -INF, dtype=torch.float64),
        torch.zeros(2, dtype=torch.float64),
        torch.zeros(2, 3, dtype=torch.float64),
    )
    _check_random_states(student, 1, lambda f, a: (f(a, empty), a))
    _check_random_states(student, 1, lambda f, a: (f(empty, a), a))


def _check_random_states(student, count, sides):
    """`sides(merge, *states)` gives two states that must be equal, for random states: any maximum
    from -1e4 to 1e4 or -inf, two rows, D = 3."""
    from hypothesis import given
    from hypothesis import strategies as st

    from grader.suite import property_settings

    finite = st.floats(-3, 3, allow_subnormal=False)
    row = st.one_of(
        st.just((-INF, 0.0, (0.0, 0.0, 0.0))),
        st.tuples(
            st.one_of(st.integers(-8, 8).map(float), st.floats(-1e4, 1e4)),
            st.floats(1, 50),
            st.tuples(finite, finite, finite),
        ),
    )

    def as_state(rows):
        m, l, o = zip(*rows, strict=True)
        return tuple(torch.tensor(x, dtype=torch.float64) for x in (m, l, o))

    a_state = st.tuples(row, row).map(as_state)

    def merge(a, b):
        return tuple(values(student.merge(a, b), "mlo"))

    @property_settings(20)
    @given(st.tuples(*[a_state] * count))
    def check(states):
        left, right = sides(merge, *states)
        for name, mine, other in zip("mlo", left, right, strict=True):
            expect.close(
                mine, other, because="merge is a commutative monoid", n=9, scale=150.0, what=name
            )

    check()


@task("merge", gate=False, holds=("any_maximum",))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_maximum_may_be_any_finite_number(student, dtype, sign):
    """Maxima near 2e4, 2e9, 1e30 and the end of float32 (float64: 1e300), one row each, above and
    below zero.   Oracle: weights 1 and exp(-(m_a - m_b)), written out by hand."""
    kind = getattr(torch, dtype)
    size = [2e4, 2e9, 1e30, 3e38 if dtype == "float32" else 1e300]
    m_a = sign * torch.tensor(size, dtype=kind)
    m_b = m_a - torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=kind)
    weight = torch.tensor([math.exp(-1.0), 1.0, 1.0, 1.0], dtype=kind)
    l_a, l_b = torch.full((4,), 2.0, dtype=kind), torch.full((4,), 3.0, dtype=kind)
    o_a, o_b = (torch.arange(8, dtype=kind).reshape(4, 2) + n for n in (1, 5))
    want = (m_a, l_a + weight * l_b, o_a + weight[:, None] * o_b)
    for first, second in (((m_a, l_a, o_a), (m_b, l_b, o_b)), ((m_b, l_b, o_b), (m_a, l_a, o_a))):
        got = values(student.merge(first, second), "mlo")
        for name, mine, theirs in zip("mlo", got, want, strict=True):
            because = "only -inf is no maximum: -20,000 and -3e38 are maxima like any other"
            expect.close(mine, theirs, because=because, dtype=dtype, what=name)


@task("merge", gate=False, holds=("unchanged",))
def test_the_arguments_stay_as_they_were(student, rng):
    """A state that was merged can be merged again.   Oracle: the arguments, compared."""
    (a, b), _, _, _ = _parts(rng, 6, [3])
    expect.true(
        student.probe.unmodified("merge", (a, b)),
        because="merge returns a new state and writes into none",
    )


@task("merge", gate=False, holds=("dtype",))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_merged_state_has_the_dtype_of_its_parts(student, rng, dtype):
    """As many rows as dimensions, so that a missing axis shows.   Oracle: float64 sums."""
    s = normal(rng, 4, 9, dtype=torch.float64, size=3.0)
    v = normal(rng, 9, 4, dtype=torch.float64)
    a, b = (
        tuple(x.to(getattr(torch, dtype)) for x in oracles.state(s[:, keys], v[keys]))
        for keys in (slice(0, 4), slice(4, 9))
    )
    got = values(student.merge(a, b), "mlo")
    for name, mine, want in zip("mlo", got, oracles.state(s, v), strict=True):
        expect.dtype(mine, dtype, because="a state keeps its dtype", what=name)
        near = {"n": 9, "dtype": dtype, "scale": 10.0}
        expect.close(mine, want, because="one factor a row", what=name, **near)


@task("merge", gate=False, holds=("shape",))
@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4)])
def test_any_leading_shape(student, rng, shape):
    """m, l: (...), o: (..., D).   Oracle: float64 sums in one piece."""
    s = normal(rng, *shape, 9, dtype=torch.float64)
    v = normal(rng, 9, 2, dtype=torch.float64)
    flat = s.reshape(-1, 9)
    a, b, whole = (
        tuple(x.reshape((*shape, *x.shape[1:])) for x in oracles.state(flat[:, keys], v[keys]))
        for keys in (slice(0, 4), slice(4, 9), slice(0, 9))
    )
    _expect_state(student.merge(a, b), whole, "leading axes are rows", n=9)


# --- flash_forward -----------------------------------------------------------------------------

# The measured call: blocks so uneven that the S x S scores (9 MiB), one block of rows against all
# keys (4.5 MiB) and everything that is linear in S (U = 0.75 MiB) stand far apart.
BIG = {"S": 1536, "D": 32, "block_q": 768, "block_k": 64}
UNIT = BIG["S"] * max(BIG["D"], BIG["block_k"]) * 8
MEMORY = "no tensor of S x S, and none of block_q rows against all keys, is ever held"
# Seen from outside, a process also grows by whatever it touches for the first time: a longer input,
# and the same call once before.
LONG = {"S": 4096, "D": 32, "block_q": 2048, "block_k": 64}
PROCESS_LIMIT = 56 * 2**20


def _big(rng, size=BIG):
    return qkv(rng, 1, 1, 1, size["S"], size["S"], size["D"])


def _expect_linear_memory(seen):
    shape = f"largest allocation {seen['largest_shape']}"
    expect.at_most(seen["largest_bytes"], UNIT, because=MEMORY, what=shape, unit="bytes")
    expect.at_most(
        seen["peak_bytes"],
        10 * UNIT,
        because="memory is linear in S",
        what="alive together",
        unit="bytes",
    )


def _expect_process_stays_small(peak):
    """The same fact as the parent process sees it: the S x S float32 scores alone are 64 MiB,
    an honest call up to 35 (the heap's gaps)."""
    if peak.available:
        expect.at_most(
            peak.growth_bytes,
            PROCESS_LIMIT,
            because="the process itself must not grow by S x S either",
            what="growth of the process's memory",
            unit="bytes",
            noise=expect.GROWTH_NOISE,
        )


@task("flash_forward", holds=("shape", "last_blocks", "natural", "default_scale"))
@pytest.mark.parametrize(("S", "causal"), [(33, False), (33, True), (127, True)])
def test_output_and_lse_match_the_library_kernel(student, rng, S, causal):
    """Ragged last blocks, S = S_kv.   Oracle: torch's flash kernel for the CPU, in float64."""
    q, k, v = qkv(rng, 2, 2, 2, S, S, 16)
    want_o, want_lse = oracles.library_kernel(q, k, v, causal)
    o, lse = values(student.flash_forward(q, k, v, 16, 10, causal=causal), ("o", "lse"))
    expect.close(
        lse,
        want_lse,
        because="lse = m + ln(l), over the keys that exist and are visible",
        n=16 + S,
        dtype="float32",
        what="lse",
    )
    expect.close(o, want_o, because=EXACT, n=16 + S, dtype="float32", what="o")


@task("flash_forward", holds=("aligned",))
@pytest.mark.parametrize(("S", "S_kv"), [(7, 40), (1, 33)])
def test_fewer_queries_than_keys(student, rng, S, S_kv):
    """Causal, aligned to the end.   Oracle: SDPA in float64, explicit mask."""
    q, k, v = qkv(rng, 1, 2, 2, S, S_kv, 8)
    want_o, want_lse = oracles.attention(q, k, v, causal=True)
    o, lse = values(student.flash_forward(q, k, v, 4, 8, causal=True), ("o", "lse"))
    because = "row i sees the keys up to i + (S_kv - S)"
    expect.close(lse, want_lse, because=because, n=8 + S_kv, dtype="float32", what="lse")
    expect.close(o, want_o, because=because, n=8 + S_kv, dtype="float32", what="o")


@task("flash_forward", holds=("memory", "no_matrix", "no_row_block"))
def test_no_tensor_of_s_by_s_is_allocated(student, rng):
    """Memory is linear in S.   Oracle: the storage meter; rows of the same call in float64."""
    q, k, v = _big(rng)
    args = (q, k, v, BIG["block_q"], BIG["block_k"])
    seen = student.probe.footprint("flash_forward", args, {"causal": True})
    _expect_linear_memory(seen)
    o, _ = values(seen["result"], ("o", "lse"))
    for row in (int(r) for r in rng.integers(0, BIG["S"], size=4)):
        want, _ = oracles.attention(q[:, :, row : row + 1], k[:, :, : row + 1], v[:, :, : row + 1])
        expect.close(
            o[:, :, row : row + 1],
            want,
            because=EXACT,
            n=64,
            dtype="float32",
            what=f"row {row} of o",
        )


@task("flash_forward", holds=("memory",))
def test_the_process_does_not_grow_by_s_by_s(student, rng):
    """Memory from outside.   Oracle: the operating system's account of the process."""
    q, k, v = _big(rng, LONG)
    student.flash_forward(q, k, v, LONG["block_q"], LONG["block_k"], causal=True)
    with student.peak_memory() as peak:
        got = student.flash_forward(q, k, v, LONG["block_q"], LONG["block_k"], causal=True)
    _expect_process_stays_small(peak)
    o, _ = values(got, ("o", "lse"))
    expect.shape(o, tuple(q.shape), because="one output row a query", what="o")
    expect.close(
        o[0, 0, 0],
        v[0, 0, 0],
        because="the first row sees the first key only",
        n=4,
        dtype="float32",
    )


@task("flash_forward", holds=("no_library",))
def test_the_products_are_made_here(student, rng):
    """No attention kernel is called.   Oracle: half of 4 S^2 D H FLOPs; SDPA for the values."""
    q, k, v = qkv(rng, 1, 2, 2, 32, 32, 8)
    seen = student.probe.logged("flash_forward", (q, k, v, 8, 8), {"causal": True})
    no_library(seen, 2 * 32 * 32 * 8 * 2)
    want_o, want_lse = oracles.attention(q, k, v, causal=True)
    o, lse = values(seen["result"], ("o", "lse"))
    expect.close(lse, want_lse, because="lse = m + ln(l)", n=40, dtype="float32", what="lse")
    expect.close(o, want_o, because=EXACT, n=40, dtype="float32", what="o")


@task("flash_forward", holds=("one_pass",))
def test_keys_and_values_pass_once(student, rng):
    """Two products a tile.   Oracle: 4 S S_kv D H FLOPs; SDPA for the values."""
    S, S_kv, D = 32, 48, 16
    q, k, v = qkv(rng, 1, 2, 1, S, S_kv, D)
    seen = student.probe.logged("flash_forward", (q, k, v, 16, 8), {})
    least = 4 * S * S_kv * D * 2
    no_library(seen, least)
    expect.at_most(
        seen["flops"],
        least * 115 // 100,
        because="m, l and the output come from one walk over the keys: no scores are made twice",
        what="matmul",
        unit="FLOPs",
    )
    want_o, _ = oracles.attention(q, k, v)
    o, _ = values(seen["result"], ("o", "lse"))
    expect.close(o, want_o, because=EXACT, n=64, dtype="float32", what="o")


@task("flash_forward", holds=("empty_rows", "no_keys"))
def test_rows_and_calls_without_keys_give_zero(student, rng):
    """S > S_kv, and S_kv = 0.   Oracle: o = 0, lse = -inf by definition."""
    because = "a row that sees no key: o = 0, lse = -inf, never NaN"
    q, k, v = qkv(rng, 1, 2, 2, 11, 4, 8)
    want_o, want_lse = oracles.attention(q, k, v, causal=True)
    o, lse = values(student.flash_forward(q, k, v, 4, 3, causal=True), ("o", "lse"))
    expect.close(lse, want_lse, because=because, n=12, dtype="float32", what="lse")
    expect.close(o, want_o, because=because, n=12, dtype="float32", what="o")
    none = k[:, :, :0]
    for causal in (False, True):
        got = student.flash_forward(q, none, none, 4, 3, causal=causal)
        o, lse = values(got, ("o", "lse"))
        expect.close(lse, torch.full((1, 2, 11), -INF), because=because, what="lse, S_kv = 0")
        expect.close(o, torch.zeros_like(q), because=because, what="o, S_kv = 0")


@task("flash_forward", holds=("groups",))
def test_tiled_groups_of_query_heads_share_a_kv_head(student, rng):
    """H = 6 query heads on H_kv = 2.   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 2, 6, 2, 13, 20, 8)
    want_o, want_lse = oracles.attention(q, k, v, causal=True)
    o, lse = values(student.flash_forward(q, k, v, 5, 6, causal=True), ("o", "lse"))
    because = "query head h reads KV head h // (H // H_kv)"
    expect.close(lse, want_lse, because=because, n=28, dtype="float32", what="lse")
    expect.close(o, want_o, because=because, n=28, dtype="float32", what="o")


@task("flash_forward", gate=False, holds=("larger_blocks", "float64", "block_q"))
@pytest.mark.parametrize(("block_q", "block_k"), [(1, 1), (1, 50), (50, 1), (7, 3), (50, 50)])
def test_the_blocks_change_nothing(student, rng, block_q, block_k):
    """One row, one key, more than there are: float64 throughout.   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 1, 1, 1, 10, 12, 8, dtype=torch.float64)
    want_o, want_lse = oracles.attention(q, k, v, causal=True)
    got = student.flash_forward(q, k, v, block_q, block_k, causal=True)
    o, lse = values(got, ("o", "lse"))
    for name, tensor in (("o", o), ("lse", lse)):
        oracles.expect_dtype(tensor, torch.float64, what=name, because="float64 stays float64")
    because = "float64 input stays float64 in every tile"
    expect.close(lse, want_lse, because=because, n=20, what="lse")
    expect.close(o, want_o, because=because, n=20, what="o")


@task("flash_forward", gate=False, holds=("dtype_of_q", "lse_dtype", "l_not_rounded"))
def test_low_precision_keeps_wide_scores(student, rng):
    """bf16 in, bf16 out, fp32 scores and statistics.   Oracle: SDPA in float64 on the same bf16."""
    q, k, v = qkv(rng, 1, 2, 2, 40, 40, 16, dtype=torch.bfloat16)
    want_o, want_lse = oracles.attention(q, k, v, causal=True)
    o, lse = values(student.flash_forward(q, k, v, 16, 16, causal=True), ("o", "lse"))
    oracles.expect_dtype(o, torch.bfloat16, what="o", because="outputs have the dtype of q")
    oracles.expect_dtype(lse, *WIDE, what="lse", because="statistics are float32 or wider")
    because = "a bf16 score of 8 is off by up to 1/32, and exp makes that 3 %"
    expect.close(lse, want_lse, because=because, n=56, dtype="float32", what="lse")
    expect.close(o, want_o, because="one rounding to bf16 at the end", dtype="bfloat16", what="o")


@task("flash_forward", gate=False, holds=("scale",))
def test_scale_and_large_scores(student, rng):
    """A given scale, scores of several hundred.   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 1, 2, 2, 20, 20, 16, dtype=torch.float64)
    for scale in (0.02, 60.0):
        want_o, want_lse = oracles.attention(q, k, v, scale=scale)
        o, lse = values(student.flash_forward(q, k, v, 8, 8, scale=scale), ("o", "lse"))
        because = "exp is taken of s - m, which is never above 0"
        expect.close(lse, want_lse, because=because, n=36, what="lse")
        # exp turns the rounding of a score into a relative error of p
        size = max(1.0, float(want_lse.abs().max())) * float(v.abs().max())
        expect.close(o, want_o, because=because, n=36, scale=size, what="o")


@task("flash_forward", gate=False, holds=("strides", "unchanged"))
def test_strided_inputs(student, rng):
    """(B, S, H, D) in memory, seen as (B, H, S, D).   Oracle: SDPA in float64."""
    q, k, v = (x.transpose(1, 2) for x in qkv(rng, 2, 9, 9, 3, 3, 8))
    v = v.expand(2, 3, 9, 8)[:1].expand(2, -1, -1, -1)  # the same values for both sequences
    want_o, want_lse = oracles.attention(q, k, v)
    o, lse = values(student.flash_forward(q, k, v, 4, 4), ("o", "lse"))
    because = "strides are not shapes"
    expect.close(lse, want_lse, because=because, n=17, dtype="float32", what="lse")
    expect.close(o, want_o, because=because, n=17, dtype="float32", what="o")


# --- flash_forward_skips -----------------------------------------------------------------------


@task("flash_forward_skips", holds=("predicate", "aligned"))
@pytest.mark.parametrize(
    ("S", "S_kv", "block_q", "block_k"),
    [(12, 12, 4, 4), (12, 12, 5, 2), (6, 17, 3, 4), (17, 6, 4, 2)],
)
def test_exactly_the_tiles_without_a_visible_pair(student, S, S_kv, block_q, block_k):
    """Every tile of a walk.   Oracle: the explicit mask, `not mask[rows, keys].any()`."""
    mask = oracles.visible(S, S_kv, causal=True)
    tiles = [
        (i, min(i + block_q, S), j, min(j + block_k, S_kv), S, S_kv)
        for i in range(0, S, block_q)
        for j in range(0, S_kv, block_k)
    ]
    got = student.map("flash_forward_skips", tiles)
    want = [not bool(mask[t[0] : t[1], t[2] : t[3]].any()) for t in tiles]
    expect.equal(
        got,
        want,
        because="only the tile's last row against its first key decides: its lower left corner",
        what=f"skipped, of the tiles of {block_q} x {block_k} in {S} x {S_kv}, row by row",
    )


def _tile_flops(S, S_kv, block_q, block_k, D):
    """FLOPs of both products over the tiles that hold a visible pair."""
    mask = oracles.visible(S, S_kv, causal=True)
    return sum(
        4 * D * mask[i : i + block_q, j : j + block_k].numel()
        for i in range(0, S, block_q)
        for j in range(0, S_kv, block_k)
        if mask[i : i + block_q, j : j + block_k].any()
    )


@task("flash_forward_skips", holds=("half", "asks"))
def test_a_causal_run_computes_half_of_the_scores(student, rng):
    """FLOPs within one block row of half.   Oracle: 4 S^2 D FLOPs, halved; SDPA for the values."""
    S, block, D = 128, 16, 16
    expect.equal(
        student.flash_forward_skips(0, block, block, 2 * block, S, S),
        True,
        because="the first row block does not see the second key block",
        what="flash_forward_skips",
    )
    q, k, v = qkv(rng, 1, 1, 1, S, S, D)
    seen = student.probe.logged("flash_forward", (q, k, v, block, block), {"causal": True})
    o, _ = values(seen["result"], ("o", "lse"))
    want, _ = oracles.attention(q, k, v, causal=True)
    expect.close(
        o, want, because="a skipped tile has no visible pair", n=S + D, dtype="float32", what="o"
    )
    half, block_row = 2 * S * S * D, 4 * block * S * D
    expect.at_most(
        seen["flops"],
        half + block_row,
        because="tiles wholly above the diagonal are not computed",
        what="matmul",
        unit="FLOPs",
    )
    least = math.floor(0.9 * half)
    expect.at_least(seen["flops"], least, because=TORCH_ONLY, what="matmul", unit="FLOPs")


@task("flash_forward_skips", holds=("never_read",))
@pytest.mark.parametrize(("S", "S_kv"), [(64, 64), (32, 64)])
def test_skipped_key_blocks_are_never_read(student, rng, S, S_kv):
    """NaN in keys that a row block cannot see.   Oracle: SDPA in float64 on the clean keys."""
    q, k, v = qkv(rng, 1, 2, 2, S, S_kv, 8)
    want, _ = oracles.attention(q, k, v, causal=True)
    first = S_kv - 16  # the last 16 rows see these keys, no other row does
    k[:, :, first:] = math.nan
    v[:, :, first:] = math.nan
    o, _ = values(student.flash_forward(q, k, v, 16, 8, causal=True), ("o", "lse"))
    expect.shape(o, tuple(q.shape), because="one output row a query", what="o")
    expect.close(
        o[:, :, : S - 16],
        want[:, :, : S - 16],
        because="a key block that is skipped is not loaded; masking alone multiplies 0 by NaN",
        n=8 + S_kv,
        dtype="float32",
        what="o, in the rows whose visible keys hold no NaN",
    )


@task("flash_forward_skips", gate=False, holds=("no_cast",))
@pytest.mark.parametrize(("S", "S_kv"), [(512, 512), (256, 512)])
def test_a_skipped_key_block_is_not_cast(student, rng, S, S_kv):
    """float16 keys, 32 rows by 64 keys a tile: one copy of k and one of v for each tile that holds
    a visible pair.   Oracle: the operator log, tiles of the explicit mask; SDPA in float64."""
    D, block_q, block_k = 16, 32, 64
    q, k, v = qkv(rng, 1, 1, 1, S, S_kv, D, dtype=torch.float16)
    args = (q, k, v, block_q, block_k)
    seen = student.probe.casts("flash_forward", args, {"causal": True}, (block_k, D))
    mask = oracles.visible(S, S_kv, causal=True)
    tiles = sum(
        bool(mask[i : i + block_q, j : j + block_k].any())
        for i in range(0, S, block_q)
        for j in range(0, S_kv, block_k)
    )
    expect.at_most(
        seen["copies"],
        2 * tiles,
        because="ask first: a key block that is skipped is neither multiplied nor cast",
        what="casts of a key block",
        unit=None,
    )
    o, _ = values(seen["result"], ("o", "lse"))
    want, _ = oracles.attention(q, k, v, causal=True)
    expect.close(o, want, because="a skipped tile has no visible pair", dtype="float16", what="o")


@task("flash_forward_skips", gate=False, holds=("half", "aligned", "any_lengths"))
@pytest.mark.parametrize(("S", "S_kv"), [(32, 96), (96, 32)])
def test_unequal_lengths_skip_as_well(student, rng, S, S_kv):
    """Visible tiles only.   Oracle: tiles with a visible pair in the explicit mask, counted."""
    q, k, v = qkv(rng, 1, 1, 1, S, S_kv, 32)
    seen = student.probe.logged("flash_forward", (q, k, v, 16, 16), {"causal": True})
    o, _ = values(seen["result"], ("o", "lse"))
    want, _ = oracles.attention(q, k, v, causal=True)
    expect.close(
        o, want, because="a skipped tile has no visible pair", n=128, dtype="float32", what="o"
    )
    expect.at_most(
        seen["flops"],
        _tile_flops(S, S_kv, 16, 16, 32) * 105 // 100,
        because="the diagonal ends at the last key; with S > S_kv the first rows visit no tile",
        what="matmul",
        unit="FLOPs",
    )


# --- flash_backward ----------------------------------------------------------------------------


def _saved(q, k, v, causal=False, scale=None):
    """What a forward keeps: o in the dtype of q, lse in the statistics' dtype."""
    o, lse = oracles.attention(q, k, v, causal, scale)
    return o.to(q.dtype), lse.to(torch.promote_types(q.dtype, torch.float32))


def _expect_gradients(got, want, because, n, dtype="float32", scale=None):
    dq, dk, dv = values(got, ("dq", "dk", "dv"))
    for name, mine, theirs in zip(("dv", "dk", "dq"), (dv, dk, dq), want[::-1], strict=True):
        expect.close(mine, theirs, because=because, n=n, dtype=dtype, scale=scale, what=name)


@task("flash_backward", holds=("shapes", "from_lse", "last_blocks"))
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_match_autograd(student, rng, causal):
    """Ragged blocks.   Oracle: float64 autograd through SDPA."""
    q, k, v = qkv(rng, 2, 2, 2, 33, 33, 16)
    do = normal(rng, 2, 2, 33, 16)
    o, lse = _saved(q, k, v, causal)
    got = student.flash_backward(q, k, v, o, lse, do, 16, 10, causal=causal)
    want = oracles.gradients(q, k, v, do, causal)
    _expect_gradients(got, want, "ds = p * (dp - D), D = rowsum(do * o)", n=16 + 33)


@task("flash_backward", holds=("memory",))
def test_no_tensor_of_s_by_s_is_kept_for_backward(student, rng):
    """Memory is linear in S.   Oracle: the storage meter; rows of dq in float64, same call."""
    q, k, v = _big(rng)
    do = normal(rng, *q.shape)
    o, lse = _saved_of_a_long_input(q, k, v)
    args = (q, k, v, o, lse, do, BIG["block_q"], BIG["block_k"])
    seen = student.probe.footprint("flash_backward", args, {"causal": True})
    _expect_linear_memory(seen)
    dq, _, _ = values(seen["result"], ("dq", "dk", "dv"))
    for row in (int(r) for r in rng.integers(0, BIG["S"], size=3)):
        one = slice(row, row + 1)
        leaves = (q[:, :, one], k[:, :, : row + 1], v[:, :, : row + 1])
        want, _, _ = oracles.gradients(*leaves, do[:, :, one])
        expect.close(
            dq[:, :, one],
            want,
            because=EXACT,
            n=128,
            dtype="float32",
            scale=1.0,
            what=f"row {row} of dq",
        )


def _saved_of_a_long_input(q, k, v):
    """`_saved`, causal, from torch's flash kernel in float32."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    o, lse = kernel(q, k, v, 0.0, True)
    return o, lse


@task("flash_backward", holds=("memory",))
def test_the_process_does_not_grow_by_s_by_s_in_backward(student, rng):
    """Memory from outside.   Oracle: the operating system's account of the process."""
    q, k, v = _big(rng, LONG)
    do = normal(rng, *q.shape)
    o, lse = _saved_of_a_long_input(q, k, v)
    args = (q, k, v, o, lse, do, LONG["block_q"], LONG["block_k"])
    student.flash_backward(*args, causal=True)
    with student.peak_memory() as peak:
        got = student.flash_backward(*args, causal=True)
    _expect_process_stays_small(peak)
    _, _, dv = values(got, ("dq", "dk", "dv"))
    expect.shape(dv, tuple(v.shape), because="one gradient a value", what="dv")
    # the last key is seen by the last row alone
    p = torch.exp((q[0, 0, -1] * k[0, 0, -1]).sum() / math.sqrt(BIG["D"]) - lse[0, 0, -1])
    expect.close(
        dv[0, 0, -1], p * do[0, 0, -1], because="dv = p^T do", n=64, dtype="float32", scale=1.0
    )


@task("flash_backward", holds=("five", "no_second_softmax"))
def test_five_products_a_tile(student, rng):
    """s, dp, dv, dq, dk: nothing is computed twice.   Oracle: 5 * 2 S S_kv D H FLOPs."""
    S, S_kv, D = 48, 40, 8
    q, k, v = qkv(rng, 1, 2, 2, S, S_kv, D)
    do = normal(rng, *q.shape)
    o, lse = _saved(q, k, v)
    seen = student.probe.logged("flash_backward", (q, k, v, o, lse, do, 16, 8), {})
    five = 5 * 2 * S * S_kv * D * 2
    no_library(seen, five)
    expect.at_most(
        seen["flops"],
        five * 115 // 100,
        because="o and lse are given: there is no output and no row sum to compute again",
        what="matmul",
        unit="FLOPs",
    )
    want = oracles.gradients(q, k, v, do)
    _expect_gradients(seen["result"], want, "ds = p * (dp - D), D = rowsum(do * o)", n=S + D)


@task("flash_backward", holds=("wide_sums",))
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gradients_are_added_up_wide(student, rng, dtype):
    """All scores are 0 and large terms of every sum cancel: 16 blocks of rows, 16 of keys.
    Oracle: the equations of the backward on whole matrices in float64."""
    kind, half = getattr(torch, dtype), torch.arange(256) < 128
    sign = torch.where(half, 1.0, -1.0)[:, None]
    q, k, v = (torch.zeros(1, 1, 256, 16) for _ in range(3))
    q[..., :8] = 8 + normal(rng, 1, 1, 256, 8)  # q and k share no dimension: every p is 1/256
    k[..., 8:] = 8 + normal(rng, 1, 1, 256, 8)
    v[:] = sign + 0.1 * normal(rng, 1, 1, 256, 16)
    do = sign * 4 + normal(rng, 1, 1, 256, 16)
    q, k, v, do = (x.to(kind) for x in (q, k, v, do))
    o, lse = _saved(q, k, v)
    got = student.flash_backward(q, k, v, o, lse, do, 16, 16)
    want = oracles.gradients_of_saved(q, k, v, o, lse, do)
    because = "dq, dk and dv add up over many tiles: in 16 bits the small terms are lost"
    got = values(got, ("dq", "dk", "dv"))
    for name, mine, theirs in zip(("dq", "dk", "dv"), got, want, strict=True):
        # ds may be rounded before its products
        expect.close(mine, theirs, because=because, c=8.0, dtype=dtype, what=name)


@task("flash_backward", holds=("given_o", "wide_statistics"))
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_coupling_comes_from_the_given_o_and_stays_wide(student, rng, dtype):
    """Values near 16: dp - D is small beside both, and o is rounded.   Oracle: the equations of
    the backward on whole matrices in float64, with the o that is given."""
    kind = getattr(torch, dtype)
    q, k, v = qkv(rng, 1, 1, 1, 9, 40, 32, dtype=kind)
    v = (v + 16).to(kind)
    do = normal(rng, *q.shape, dtype=kind)
    o, lse = _saved(q, k, v)
    got = student.flash_backward(q, k, v, o, lse, do, 4, 16)
    want = oracles.gradients_of_saved(q, k, v, o, lse, do)
    because = "D = rowsum(do * o), in float32 or wider, of the o that the forward returned"
    got = values(got, ("dq", "dk", "dv"))
    for name, mine, theirs in zip(("dq", "dk", "dv"), got, want, strict=True):
        expect.close(mine, theirs, because=because, c=2.0, dtype=dtype, what=name)


@task("flash_backward", gate=False, holds=("larger_blocks", "strides", "unchanged"))
@pytest.mark.parametrize(("block_q", "block_k"), [(1, 1), (1, 50), (50, 1), (7, 3)])
def test_the_blocks_change_no_gradient(student, rng, block_q, block_k):
    """One row, one key, more than there are; strided views.   Oracle: float64 autograd."""
    shapes = ((2, 10, 2), (2, 12, 2), (2, 12, 2), (2, 10, 2))
    q, k, v, do = (
        normal(rng, *shape, 16, dtype=torch.float64)[..., ::2].transpose(1, 2) for shape in shapes
    )
    o, lse = _saved(q, k, v, causal=True)
    o = torch.stack([o, o])[1].mT.contiguous().mT
    got = student.flash_backward(q, k, v, o, lse, do, block_q, block_k, causal=True)
    want = oracles.gradients(q, k, v, do, causal=True)
    because = "blocks are a way to walk, and strides are not shapes"
    _expect_gradients(got, want, because, n=60, dtype="float64")


@task("flash_backward", gate=False, holds=("any_scale",))
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [0.0, -0.7])
def test_gradients_with_any_scale(student, rng, scale, causal):
    """scale = 0: no score depends on q or k.   Oracle: float64 autograd through SDPA."""
    q, k, v = qkv(rng, 1, 1, 1, 6, 9, 8, dtype=torch.float64)
    do = normal(rng, *q.shape, dtype=torch.float64)
    o, lse = _saved(q, k, v, causal, scale=scale)
    got = student.flash_backward(q, k, v, o, lse, do, 4, 4, causal=causal, scale=scale)
    want = oracles.gradients(q, k, v, do, causal, scale=scale)
    because = "1/sqrt(D) is for calls that give no scale: 0 is a scale, too"
    _expect_gradients(got, want, because, n=60, dtype="float64")


@task("flash_backward", gate=False, holds=("no_keys",))
def test_gradients_without_keys(student, rng):
    """S_kv = 0.   Oracle: nothing depends on q, and there are no keys."""
    q, k, v = qkv(rng, 1, 2, 1, 5, 0, 8)
    o, lse = _saved(q, k, v)
    got = student.flash_backward(q, k, v, o, lse, normal(rng, *q.shape), 4, 4)
    dq, dk, dv = values(got, ("dq", "dk", "dv"))
    expect.close(dq, torch.zeros_like(q), because="o is 0 whatever q is", what="dq")
    for name, tensor in (("dk", dk), ("dv", dv)):
        expect.shape(tensor, (1, 1, 0, 8), because="a gradient has its tensor's shape", what=name)


@task("flash_backward", gate=False, holds=("dtypes_differ",))
def test_gradients_where_the_dtypes_differ(student, rng):
    """float32 queries on a cache of bf16 keys and fp16 values.   Oracle: float64 autograd."""
    q, k, v = qkv(rng, 1, 2, 1, 6, 9, 8)
    k, v, do = k.bfloat16(), v.half(), normal(rng, *q.shape)
    o, lse = _saved(q, k, v)
    got = values(student.flash_backward(q, k, v, o, lse, do, 4, 4), ("dq", "dk", "dv"))
    want = oracles.gradients(q, k, v, do)
    kinds = ("float32", "bfloat16", "float16")
    for name, mine, theirs, kind in zip(("dq", "dk", "dv"), got, want, kinds, strict=True):
        because = "a gradient has its tensor's dtype"
        expect.dtype(mine, kind, because=because, what=name)
        n = 60 if kind == "float32" else 1
        expect.close(mine, theirs, because=because, n=n, dtype=kind, what=name)


@task("flash_backward", gate=False, holds=("from_lse",))
def test_gradients_match_finite_differences(student, rng):
    """A step along the gradient changes the loss as predicted.   Oracle: central differences."""
    q, k, v = qkv(rng, 1, 1, 1, 9, 14, 8, dtype=torch.float64)
    do = normal(rng, *q.shape, dtype=torch.float64)
    o, lse = _saved(q, k, v, causal=True)
    got = values(student.flash_backward(q, k, v, o, lse, do, 4, 4, causal=True), ("dq", "dk", "dv"))
    for at, name in enumerate("qkv"):
        inputs, step = [q, k, v], 1e-4
        direction = normal(rng, *inputs[at].shape, dtype=torch.float64)
        losses = []
        for sign in (step, -step):
            moved = list(inputs)
            moved[at] = inputs[at] + sign * direction
            losses.append(float((oracles.attention(*moved, causal=True)[0] * do).sum()))
        expect.close(
            float((got[at].double() * direction).sum()),
            (losses[0] - losses[1]) / (2 * step),
            because="a gradient predicts the change of the loss",
            floor=1e-4,  # third derivatives times step^2
            what=f"slope along a random direction of {name}",
        )


@task("flash_backward", holds=("groups",))
def test_a_kv_head_collects_from_its_group(student, rng):
    """H = 6 on H_kv = 2, S != S_kv.   Oracle: float64 autograd through SDPA."""
    q, k, v = qkv(rng, 2, 6, 2, 7, 20, 8)
    do = normal(rng, *q.shape)
    o, lse = _saved(q, k, v, causal=True)
    got = student.flash_backward(q, k, v, o, lse, do, 4, 6, causal=True)
    want = oracles.gradients(q, k, v, do, causal=True)
    _expect_gradients(got, want, "dk and dv add up over the query heads of the group", n=60)


@task("flash_backward", holds=("empty_rows",))
def test_rows_without_keys_contribute_nothing(student, rng):
    """S > S_kv: lse = -inf in the first rows.   Oracle: float64 autograd through SDPA."""
    q, k, v = qkv(rng, 1, 2, 2, 11, 4, 8)
    do = normal(rng, *q.shape)
    o, lse = _saved(q, k, v, causal=True)
    got = student.flash_backward(q, k, v, o, lse, do, 4, 3, causal=True)
    want = [x.nan_to_num(0.0) for x in oracles.gradients(q, k, v, do, causal=True)]
    _expect_gradients(got, want, "exp(s - lse) with lse = -inf must be 0, not NaN", n=20)


@task("flash_backward", gate=False, holds=("given_lse",))
def test_probabilities_come_from_the_lse_that_is_given(student, rng):
    """lse + ln 2 halves every gradient.   Oracle: p = exp(s - lse) is linear in exp(-lse)."""
    q, k, v = qkv(rng, 1, 1, 1, 10, 10, 8, dtype=torch.float64)
    do = normal(rng, *q.shape, dtype=torch.float64)
    o, lse = _saved(q, k, v)
    got = student.flash_backward(q, k, v, o, lse + math.log(2.0), do, 4, 4)
    want = [x / 2 for x in oracles.gradients(q, k, v, do)]
    _expect_gradients(got, want, "no second softmax: p is exp(s - lse)", n=40, dtype="float64")


@task("flash_backward", holds=("dtypes", "scale", "float64"))
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_gradients_have_the_dtypes_of_the_inputs(student, rng, dtype):
    """And are added up in fp32 or wider; a given scale counts.   Oracle: float64 autograd."""
    kind = getattr(torch, dtype)
    q, k, v = qkv(rng, 1, 1, 1, 40, 40, 16, dtype=kind)
    do = normal(rng, *q.shape, dtype=kind)
    o, lse = _saved(q, k, v, causal=True, scale=0.3)
    got = student.flash_backward(q, k, v, o, lse, do, 8, 8, causal=True, scale=0.3)
    for name, tensor in zip(("dq", "dk", "dv"), values(got, ("dq", "dk", "dv")), strict=True):
        oracles.expect_dtype(tensor, kind, what=name, because="a gradient has its tensor's dtype")
    want = oracles.gradients(q, k, v, do, causal=True, scale=0.3)
    n = 60 if dtype == "float64" else 1
    _expect_gradients(got, want, "sums of tiles are kept wide", n=n, dtype=dtype)


# --- io_model ----------------------------------------------------------------------------------


@task("io_model", holds=("block_sizes", "elements"))
@pytest.mark.parametrize(
    "row",
    ["fa1_blocks_25600_64", "fa1_blocks_25600_128", "fa1_blocks_98304_64", "fa1_blocks_98304_128"],
)
def test_published_block_sizes(student, row):
    """Bc and Br as in Algorithm 1, line 1.   Oracle: the published rule and sizes."""
    got = student.block_sizes(**PUBLISHED[row]["inputs"])
    because = "Bc = ceil(M / 4D), Br = min(Bc, D), M in elements"
    expect.equal(list(got) if isinstance(got, tuple) else got, PUBLISHED[row]["expected"], because)


@task("io_model", holds=("standard", "flash", "pair"))
@pytest.mark.parametrize("row", ["fa1_flash_1024_64_bc256", "fa1_flash_1024_64_bc64"])
def test_counts_of_the_two_algorithms(student, row):
    """N 1024, d 64.   Oracle: 4N^2 + 4Nd and 2Nd + Tc(3Nd + 4N), counted from the paper."""
    got = student.io_model(**PUBLISHED[row]["inputs"])
    standard, flash = _pair(got)
    expect.published(standard, PUBLISHED["fa1_standard_1024_64"])
    expect.published(flash, PUBLISHED[row])


def _pair(got):
    fits = isinstance(got, tuple | list) and len(got) == 2
    expect.true(fits, because="io_model returns (standard, flash)", observed=got)
    return got


@task("io_model", holds=("standard", "keys_once", "rounds"))
def test_counts_equal_a_walk_of_the_loops(student, rng):
    """Random sizes, ragged blocks.   Oracle: Algorithm 1's loads and stores, walked and counted."""
    cases = []
    for _ in range(8):
        D = int(rng.choice([32, 64, 128]))
        cases.append((int(rng.integers(200, 1500)), D, 4 * D * int(rng.integers(16, 200)) - 3))
    cases.append((100, 64, 4 * 64 * 500))  # one block holds everything
    for case, got in zip(cases, student.map("io_model", cases), strict=True):
        S, D, M = case
        what = f"elements moved, S {S:,}, D {D}, M {M:,}"
        standard, flash = _pair(got)
        expect.equal(
            standard,
            4 * S * S + 4 * S * D,
            because="the S x S matrix crosses HBM four times",
            what=f"standard, {what}",
        )
        expect.equal(
            flash,
            oracles.algorithm_1(S, D, math.ceil(M / (4 * D))),
            because="each of ceil(S / Bc) rounds reads Q, O, l, m and writes O, l, m",
            what=f"flash, {what}",
        )


@task("io_model", gate=False, holds=("ints", "exact"))
def test_counts_are_exact_ints(student):
    """More than 2^53 elements; S, M or both too large for a float; M no multiple of 4 D; S = 1.
    Oracle: Python's ints."""
    cases = [(123_456_789, 128, 98_303), (1, 1, 1), (1, 64, 100_000)]
    # float quotients would be 4 instead of 5 rounds, and a Bc of 2^58 instead of 2^58 + 1
    cases += [(2**60 + 1, 1, 2**60), (2**60 + 4, 1, 2**60 + 1), (2**60 + 2, 3, 3 * 2**60 - 11)]
    for (S, D, M), got in zip(cases, student.map("io_model", cases), strict=True):
        what = f"elements moved, S {S:,}, D {D}, M {M:,}"
        rounds = -(-S // -(-M // (4 * D)))
        standard, flash = _pair(got)
        ints = type(standard) is int and type(flash) is int
        because = "both are counts: ints, in which no float has lost a digit"
        expect.true(ints, because=because, observed=f"{type(standard)}, {type(flash)}")
        expect.equal(standard, 4 * S * S + 4 * S * D, because=because, what=f"standard, {what}")
        want = 2 * S * D + rounds * (3 * S * D + 4 * S)
        expect.equal(flash, want, because=because, what=f"flash, {what}")


@task("io_model", gate=False, holds=("rounds",))
def test_doubling_s_quadruples_the_traffic_of_the_rounds(student):
    """Memory is O(N), traffic is not.   Oracle: Theorem 2, Theta(N^2 d^2 / M)."""
    S, D, M = 1024, 64, 65536
    counts = [_pair(got)[1] for got in student.map("io_model", [(S << n, D, M) for n in range(5)])]
    rounds = [count - 2 * (S << n) * D for n, count in enumerate(counts)]
    for n in range(4):
        because = "twice the rounds, and each moves twice as much"
        expect.equal(rounds[n + 1], 4 * rounds[n], because=because, what=f"from S {S << n:,}")


@task("io_model", gate=False, holds=("flash",))
def test_a_small_sram_loses(student):
    """N 8192, d 128, Bc 50: 0.52x.   Oracle: Algorithms 0 and 1, counted."""
    row = PUBLISHED["fa1_ratio_8192_128_bc50"]
    standard, flash = _pair(student.io_model(**row["inputs"]))
    expect.published(standard / flash, row, because="164 rounds over Q and O cost more than 4 N^2")


# --- gqa_varlen --------------------------------------------------------------------------------


def _packed(rng, lengths_q, lengths_k, H, H_kv, D, dtype=torch.float32):
    edges = [
        torch.tensor([0, *lengths]).cumsum(0).to(torch.int32) for lengths in (lengths_q, lengths_k)
    ]
    q = normal(rng, sum(lengths_q), H, D, dtype=dtype, size=2.0)
    k, v = (normal(rng, sum(lengths_k), H_kv, D, dtype=dtype) for _ in range(2))
    return q, k, v, edges[0], edges[1]


def _per_sequence(q, k, v, cu_q, cu_k, causal, scale=None):
    """(o, lse) of each sequence on its own, packed again."""
    outs, lses = [], []
    edges = zip(pairwise(cu_q.tolist()), pairwise(cu_k.tolist()), strict=True)
    for (a, b), (c, d) in edges:
        parts = (x.transpose(0, 1)[None] for x in (q[a:b], k[c:d], v[c:d]))
        o, lse = oracles.attention(*parts, causal, scale)
        outs.append(o[0].transpose(0, 1))
        lses.append(lse[0])
    return torch.cat(outs), torch.cat(lses, dim=1)


def _expect_packed(got, want, because, n, dtype="float32"):
    o, lse = values(got, ("o", "lse"))
    expect.close(lse, want[1], because=because, n=n, dtype=dtype, what="lse")
    expect.close(o, want[0], because=because, n=n, dtype=dtype, what="o")


@task("gqa_varlen", holds=("own_keys", "groups", "shape"))
@pytest.mark.parametrize("causal", [False, True])
def test_each_sequence_is_on_its_own(student, rng, causal):
    """Four sequences, six query heads on two.   Oracle: SDPA in float64, a sequence at a time."""
    lengths = [5, 1, 17, 9]
    args = _packed(rng, lengths, lengths, 6, 2, 8)
    got = student.gqa_varlen(*args, 4, 6, causal=causal)
    because = "query head h reads KV head h // (H // H_kv), and only keys of its own sequence"
    _expect_packed(got, _per_sequence(*args, causal), because, n=25)


@task("gqa_varlen", holds=("lengths_differ",))
def test_new_tokens_after_a_cache(student, rng):
    """Query and key lengths differ.   Oracle: SDPA in float64, a sequence at a time."""
    args = _packed(rng, [3, 1, 6], [9, 20, 6], 4, 2, 8)
    got = student.gqa_varlen(*args, 2, 8, causal=True)
    because = "causal is aligned to the end, sequence by sequence"
    _expect_packed(got, _per_sequence(*args, causal=True), because, n=28)


# The measured call: 16 query heads on 2 KV heads. K and V are 5 MiB each, repeated 40 MiB each.
# With one KV head a matmul could broadcast it for nothing; with two it has to copy.
REPEAT = {"T_k": 5120, "H": 16, "H_kv": 2, "D": 128, "block_k": 512}
REPEAT_UNIT = 8 * REPEAT["D"] * (REPEAT["T_k"] * REPEAT["H_kv"] + REPEAT["H"] * REPEAT["block_k"])
SHARED = "eight query heads read one KV head: K and V are not copied for each"


def _few_kv_heads(rng):
    lengths = [96, REPEAT["T_k"] - 96]
    return _packed(rng, [2, 2], lengths, REPEAT["H"], REPEAT["H_kv"], REPEAT["D"])


@task("gqa_varlen", holds=("memory", "one_block"))
def test_kv_heads_are_not_repeated_in_memory(student, rng):
    """At most one key block is repeated.   Oracle: the storage meter; SDPA for the same call."""
    args = _few_kv_heads(rng)
    seen = student.probe.footprint("gqa_varlen", (*args, 16, REPEAT["block_k"]), {"causal": True})
    shape = f"largest allocation {seen['largest_shape']}"
    expect.at_most(seen["largest_bytes"], REPEAT_UNIT, because=SHARED, what=shape, unit="bytes")
    expect.at_most(
        seen["peak_bytes"], 3 * REPEAT_UNIT, because=SHARED, what="alive together", unit="bytes"
    )
    _expect_packed(seen["result"], _per_sequence(*args, causal=True), SHARED, n=256)


@task("gqa_varlen", holds=("memory",))
def test_the_process_does_not_hold_repeated_heads(student, rng):
    """Memory from outside.   Oracle: the operating system's account of the process."""
    args = _few_kv_heads(rng)
    student.gqa_varlen(*args, 16, REPEAT["block_k"], causal=True)
    with student.peak_memory() as peak:
        got = student.gqa_varlen(*args, 16, REPEAT["block_k"], causal=True)
    if peak.available:
        expect.at_most(
            peak.growth_bytes,
            3 * REPEAT_UNIT,
            because="K and V repeated are 80 MiB",
            what="growth of the process's memory",
            unit="bytes",
            noise=expect.GROWTH_NOISE,
        )
    o, _ = values(got, ("o", "lse"))
    expect.shape(o, tuple(args[0].shape), because="one output row a query", what="o")


@task("gqa_varlen", holds=("flops", "no_padding"))
def test_nothing_is_padded_or_crossed(student, rng):
    """FLOPs of each sequence with itself.   Oracle: the sum of 4 s^2 D H, whole blocks at most."""
    lengths, H, D, block = [96, 3, 16, 5, 1, 8], 4, 8, 32
    args = _packed(rng, lengths, lengths, H, 2, D)
    seen = student.probe.logged("gqa_varlen", (*args, block, block), {})
    no_library(seen, sum(4 * s * s * D * H for s in lengths))
    whole = sum(4 * (math.ceil(s / block) * block) ** 2 * D * H for s in lengths)
    expect.at_most(
        seen["flops"],
        whole * 102 // 100,
        because="packing exists so that short sequences do not pay for the longest",
        what="matmul",
        unit="FLOPs",
    )
    because = "only keys of the own sequence"
    _expect_packed(seen["result"], _per_sequence(*args, causal=False), because, n=104)


@task("gqa_varlen", gate=False, holds=("edges", "strides", "unchanged"))
@pytest.mark.parametrize("edges", ["int32", "int64"])
def test_packed_views_of_a_projection(student, rng, edges):
    """q, k and v are parts of one tensor, as a fused projection gives them; nine heads on three.
    Oracle: SDPA in float64, a sequence at a time."""
    kind = getattr(torch, edges)
    q, k, v = normal(rng, 14, 15, 16)[..., ::2].split((9, 3, 3), dim=1)
    cu = torch.tensor([0, 6, 14], dtype=kind)
    got = student.gqa_varlen(q, k, v, cu, cu.clone(), 5, 4, causal=True)
    want = _per_sequence(q, k, v, cu, cu, causal=True)
    _expect_packed(got, want, "strides are not shapes", n=22)


@task("gqa_varlen", holds=("empty", "empty_rows"))
def test_empty_sequences(student, rng):
    """No queries, no keys, neither.   Oracle: o = 0 and lse = -inf where there is no key."""
    args = _packed(rng, [3, 0, 2, 0, 4], [3, 5, 0, 0, 2], 4, 2, 8)
    got = student.gqa_varlen(*args, 2, 2, causal=True)
    because = "an empty sequence moves no one else's rows; a row without keys gives 0, -inf"
    _expect_packed(got, _per_sequence(*args, causal=True), because, n=13)


@task("gqa_varlen", gate=False, holds=("dtypes", "float64", "scale"))
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_packed_dtypes_and_scale(student, rng, dtype):
    """Outputs as q, statistics wide.   Oracle: SDPA in float64, a sequence at a time."""
    kind = getattr(torch, dtype)
    args = _packed(rng, [4, 11], [4, 11], 4, 4, 8, dtype=kind)
    o, lse = values(student.gqa_varlen(*args, 4, 4, scale=0.2), ("o", "lse"))
    oracles.expect_dtype(o, kind, what="o", because="outputs have the dtype of q")
    allowed = WIDE if dtype == "bfloat16" else (torch.float64,)
    oracles.expect_dtype(lse, *allowed, what="lse", because="statistics are float32 or wider")
    want_o, want_lse = _per_sequence(*args, causal=False, scale=0.2)
    wide = "float32" if dtype == "bfloat16" else "float64"
    expect.close(lse, want_lse, because="a given scale counts", n=20, dtype=wide, what="lse")
    n = 20 if dtype == "float64" else 1
    expect.close(o, want_o, because="a given scale counts", n=n, dtype=dtype, what="o")


# --- split_kv_decode ---------------------------------------------------------------------------


@task("split_kv_decode", holds=("workers", "few_or_none", "merged", "groups", "lse"))
@pytest.mark.parametrize("num_splits", [1, 2, 3, 7, 40])
def test_any_number_of_workers_gives_the_unsplit_answer(student, rng, num_splits):
    """Workers with few keys, or none.   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 2, 4, 2, 1, 33, 8)
    want_o, want_lse = oracles.attention(q, k, v)
    o, lse = values(student.split_kv_decode(q, k, v, num_splits), ("o", "lse"))
    because = "each worker's answer weighs exp(lse_worker - lse)"
    expect.close(lse, want_lse, because=because, n=41, dtype="float32", what="lse")
    expect.close(o, want_o, because=because, n=41, dtype="float32", what="o")


@task("split_kv_decode", holds=("own_keys", "n_keys"))
@pytest.mark.parametrize(("S_kv", "num_splits"), [(10, 4), (33, 7), (120, 9), (24, 3), (11, 6)])
def test_each_worker_has_its_own_keys(student, rng, S_kv, num_splits):
    """Every entry of key j and value j is the number j + 1.   Oracle: worker w has the keys w * n
    to (w + 1) * n - 1; the numbers in the operands of each product; SDPA in float64."""
    n, D = -(-S_kv // num_splits), 16
    numbers = (torch.arange(S_kv) + 1.0)[:, None].expand(S_kv, D)[None, None]
    q = normal(rng, 1, 1, 1, D, size=0.02)
    args = (q, numbers.clone(), numbers.clone(), num_splits)
    seen = student.probe.operands("split_kv_decode", args, {"scale": 1.0}, D)
    workers = {tuple(range(first, min(first + n, S_kv))) for first in range(0, S_kv, n)}
    for keys in seen["keys"]:
        expect.true(
            tuple(keys) in workers,
            because=f"each matrix product takes all keys of one worker: {n} neighbouring keys that "
            f"start at a multiple of {n}, or what is left of the {S_kv} at the end",
            observed=f"keys {', '.join(str(key) for key in keys)} in one product",
        )
    o, _ = values(seen["result"], ("o", "lse"))
    want, _ = oracles.attention(q, numbers, numbers, scale=1.0)
    expect.close(o, want, because="merged by lse", n=16 + S_kv, dtype="float32", what="o")


@task("split_kv_decode", holds=("n_keys", "first_workers"))
@pytest.mark.parametrize(("S_kv", "num_splits", "n"), [(120, 5, 24), (33, 7, 5), (9, 40, 1)])
def test_no_worker_sees_the_others_keys(student, rng, S_kv, num_splits, n):
    """No product has more than ceil(S_kv / num_splits) keys.   Oracle: the operator log; SDPA."""
    q, k, v = qkv(rng, 1, 2, 2, 1, S_kv, 16)
    seen = student.probe.widest_product("split_kv_decode", (q, k, v, num_splits), {})
    expect.equal(
        seen["library"],
        [],
        because="the kernel that this task is about is yours to write",
        what="attention kernels of the library that were called",
    )
    if n > 1:  # einsum multiplies elementwise where an axis has length 1
        expect.within(
            seen["largest"],
            n * 16,
            n * 24,
            because=f"a worker holds {n} keys, ceil(S_kv / num_splits)",
            what="largest matrix in a product",
            unit="elements",
        )
        least = 4 * S_kv * 16 * 2 * 9 // 10
        expect.at_least(seen["flops"], least, because=TORCH_ONLY, what="matmul", unit="FLOPs")
    o, _ = values(seen["result"], ("o", "lse"))
    want, _ = oracles.attention(q, k, v)
    expect.close(o, want, because="merged by lse", n=16 + S_kv, dtype="float32", what="o")


@task("split_kv_decode", gate=False, holds=("merged", "scale"))
def test_workers_with_very_different_scores(student, rng):
    """One worker's keys dominate by e^80.   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 1, 1, 1, 1, 24, 8, dtype=torch.float64)
    k[:, :, 8:16] += 40 * q[0, 0, 0] / float(q[0, 0, 0] @ q[0, 0, 0])
    want_o, want_lse = oracles.attention(q, k, v, scale=2.0)
    o, lse = values(student.split_kv_decode(q, k, v, 3, scale=2.0), ("o", "lse"))
    because = "weights are taken from the largest lse"
    expect.close(lse, want_lse, because=because, n=32, what="lse")
    expect.close(o, want_o, because=because, n=32, scale=100.0, what="o")


@task("split_kv_decode", gate=False, holds=("one_rounding",))
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_one_rounding_after_the_merge(student, rng, dtype):
    """Equal scores, seven workers of eight keys, all means between 1 and 2.   Oracle: SDPA in
    float64, and half a unit in the last place."""
    q, k, v = qkv(rng, 1, 1, 1, 1, 56, 128, dtype=getattr(torch, dtype))
    k, v = torch.zeros_like(k), v.clamp(-1, 1).mul(0.5).add(1.5)
    want, _ = oracles.attention(q, k, v)
    o, _ = values(student.split_kv_decode(q, k, v, 7), ("o", "lse"))
    because = "o is divided in float32, and rounded once: to the nearest number of its type"
    expect.close(o, want, because=because, c=0.51, scale=1.0, dtype=dtype, what="o")


@task("split_kv_decode", gate=False, holds=("no_keys",))
def test_no_keys_for_any_worker(student, rng):
    """S_kv = 0.   Oracle: o = 0, lse = -inf by definition."""
    q, k, v = qkv(rng, 2, 4, 2, 1, 0, 8)
    o, lse = values(student.split_kv_decode(q, k, v, 3), ("o", "lse"))
    because = "a query that sees no key: o = 0, lse = -inf"
    expect.close(lse, torch.full((2, 4, 1), -INF), because=because, what="lse")
    expect.close(o, torch.zeros(2, 4, 1, 8), because=because, what="o")


@task("split_kv_decode", gate=False, holds=("strides", "unchanged"))
def test_a_cache_of_another_layout(student, rng):
    """(B, S, H, D) in memory, seen as (B, H, S, D).   Oracle: SDPA in float64."""
    q, k, v = (x.transpose(1, 2) for x in qkv(rng, 2, 1, 21, 4, 2, 8))
    k, v = k[:, :2], v[:, :2]
    q = q[:, :, :1]
    want, _ = oracles.attention(q, k, v)
    o, _ = values(student.split_kv_decode(q, k, v, 4), ("o", "lse"))
    expect.close(o, want, because="strides are not shapes", n=29, dtype="float32", what="o")


@task("split_kv_decode", gate=False, holds=("dtypes", "lse"))
def test_split_low_precision(student, rng):
    """Parts are merged wide, rounded once.   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 1, 2, 1, 1, 40, 16, dtype=torch.bfloat16)
    want_o, want_lse = oracles.attention(q, k, v)
    o, lse = values(student.split_kv_decode(q, k, v, 4), ("o", "lse"))
    oracles.expect_dtype(o, torch.bfloat16, what="o", because="outputs have the dtype of q")
    expect.close(lse, want_lse, because="scores are wide", n=56, dtype="float32", what="lse")
    expect.close(o, want_o, because="one rounding at the end", dtype="bfloat16", what="o")


# --- paged_attention ---------------------------------------------------------------------------


def _paged(rng, lengths, H, H_kv, D, block_size, spare=3, dtype=torch.float32):
    """A pool with NaN wherever no live token lies, a shuffled block table, and the plain K, V."""
    needed = [math.ceil(length / block_size) for length in lengths]
    order = [int(n) for n in rng.permutation(sum(needed) + spare)]
    pool = (len(order), block_size, H_kv, D)
    k_cache, v_cache = (torch.full(pool, math.nan, dtype=dtype) for _ in range(2))
    table = torch.full((len(lengths), max([*needed, 1])), -1, dtype=torch.int32)
    plain = []
    for b, length in enumerate(lengths):
        k, v = (normal(rng, length, H_kv, D, dtype=dtype) for _ in range(2))
        for n in range(needed[b]):
            block = order.pop()
            table[b, n] = block
            part = slice(n * block_size, min((n + 1) * block_size, length))
            k_cache[block, : part.stop - part.start] = k[part]
            v_cache[block, : part.stop - part.start] = v[part]
        plain.append((k, v))
    q = normal(rng, len(lengths), H, D, dtype=dtype, size=2.0)
    return (q, k_cache, v_cache, table, torch.tensor(lengths, dtype=torch.int32)), plain


def _unpaged(q, plain, scale=None):
    rows = []
    for q_b, (k, v) in zip(q, plain, strict=True):
        parts = (q_b[None, :, None], k.transpose(0, 1)[None], v.transpose(0, 1)[None])
        rows.append(oracles.attention(*parts, scale=scale)[0][0, :, 0])
    return torch.stack(rows)


@task("paged_attention", holds=("table", "other_bytes", "groups"))
def test_the_block_table_finds_every_token(student, rng):
    """Shuffled pool, partial last blocks, NaN in every other slot.   Oracle: SDPA, unpaged."""
    args, plain = _paged(rng, [1, 8, 13, 31], 4, 2, 8, block_size=4)
    got = student.paged_attention(*args)
    because = "slots after the last token, and blocks of others, are not this sequence's keys"
    expect.close(got, _unpaged(args[0], plain), because=because, n=39, dtype="float32", what="o")


@task("paged_attention", holds=("memory",))
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_pool_is_not_copied(student, rng, dtype):
    """Only the blocks in use are touched, and only they are cast: a cast of the whole pool copies
    it unless it is in float32 already.   Oracle: the storage meter; SDPA for the same call."""
    kind = getattr(torch, dtype)
    args, plain = _paged(rng, [40, 70], 4, 2, 16, block_size=8, spare=200, dtype=kind)
    seen = student.probe.footprint("paged_attention", args, {})
    expect.at_most(
        seen["largest_bytes"],
        8 * 72 * 4 * 16 * 2,
        because="one sequence's keys in float64 at most, not the pool of 215 blocks",
        what=f"largest allocation {seen['largest_shape']}",
        unit="bytes",
    )
    want = _unpaged(args[0], plain)
    expect.close(seen["result"], want, because="o = softmax(q k^T) v", n=86, dtype=dtype, what="o")


@task(
    "paged_attention",
    gate=False,
    holds=("shared", "minus_one", "integers", "strides", "unchanged"),
)
@pytest.mark.parametrize("integers", ["int32", "int64"])
def test_sequences_share_a_prefix_in_one_pool_of_keys_and_values(student, rng, integers):
    """Two tables begin with the same block, columns of -1 follow; K and V are views of one pool.
    Oracle: SDPA, unpaged."""
    kind = getattr(torch, integers)
    pool = torch.full((6, 2, 4, 3, 8), math.nan)
    k_cache, v_cache = pool[:, 0], pool[:, 1]
    tables, lengths, plain = [[5, 1, -1, -1], [5, 0, 3, -1]], [6, 11], []
    pool[[0, 1, 5]] = normal(rng, 3, 2, 4, 3, 8)
    pool[3, :, :3] = normal(rng, 2, 3, 3, 8)
    pool[1, :, 2:] = math.nan
    for table, length in zip(tables, lengths, strict=True):
        used = torch.tensor(table[: math.ceil(length / 4)])
        plain.append(tuple(x[used].flatten(0, 1)[:length] for x in (k_cache, v_cache)))
    q = normal(rng, 2, 9, 8, size=2.0)
    numbers = (torch.tensor(x, dtype=kind) for x in (tables, lengths))
    want = _unpaged(q, plain)
    got = student.paged_attention(q, k_cache, v_cache, *numbers)
    because = "a block is found by its number, whoever else uses it, wherever K and V lie"
    expect.close(got, want, because=because, n=19, dtype="float32", what="o")


@task("paged_attention", holds=("any_size", "groups"))
def test_heads_whose_scores_are_far_apart(student, rng):
    """Scores of head 0 near 700, of head 1 near -700, and some 1,000 apart within a block.
    Oracle: SDPA in float64, unpaged."""
    args, plain = _paged(rng, [11, 4], 2, 1, 8, block_size=4, dtype=torch.float64)
    q, k_cache, *others = args
    k_cache[..., 0] = 10.0
    for k, _ in plain:
        k[..., 0] = 10.0
    q[:, 0, 0], q[:, 1, 0] = 200.0, -200.0
    q[..., 1] = 2000.0
    got = student.paged_attention(q, k_cache, *others)
    because = "exp is taken of s - m, with the maximum of each head's own row"
    want = _unpaged(q, plain)
    expect.close(got, want, because=because, n=19, scale=20_000.0, what="o")


@task("paged_attention", gate=False, holds=("no_tokens",))
def test_a_sequence_without_tokens_gives_zero(student, rng):
    """context_len = 0.   Oracle: o = 0 by definition."""
    args, plain = _paged(rng, [0, 5], 2, 1, 8, block_size=4)
    want = _unpaged(args[0], plain)
    got = student.paged_attention(*args)
    expect.close(got, want, because="no key, no value: 0", n=13, dtype="float32", what="o")


@task("paged_attention", gate=False, holds=("dtype", "scale"))
def test_paged_dtype_and_scale(student, rng):
    """bf16 pool, a given scale.   Oracle: SDPA in float64."""
    args, plain = _paged(rng, [9, 16], 4, 4, 16, block_size=8, dtype=torch.bfloat16)
    got = student.paged_attention(*args, scale=0.4)
    oracles.expect_dtype(got, torch.bfloat16, what="o", because="outputs have the dtype of q")
    want = _unpaged(args[0], plain, scale=0.4)
    expect.close(got, want, because="one rounding at the end", dtype="bfloat16", what="o")


# --- what several tasks promise -----------------------------------------------------------------


def _one_head(student, name, q, k, v, scale=None, causal=False):
    """o: (1, 1, S, D) of the task's function for one head, by the way that its arguments go."""
    kwargs = {} if scale is None else {"scale": scale}
    if causal:
        kwargs["causal"] = True
    S, S_kv = q.shape[2], k.shape[2]
    if name == "naive_attention":
        return student.naive_attention(q, k, v, **kwargs)
    if name == "flash_forward":
        return values(student.flash_forward(q, k, v, 16, 16, **kwargs), ("o", "lse"))[0]
    if name == "gqa_varlen":
        packed = (x[0].transpose(0, 1) for x in (q, k, v))
        edges = (torch.tensor([0, S]), torch.tensor([0, S_kv]))
        o, _ = values(student.gqa_varlen(*packed, *edges, 16, 16, **kwargs), ("o", "lse"))
        return o.transpose(0, 1)[None]
    if name == "split_kv_decode":  # each row is a sequence of its own, all with the same cache
        rows, *caches = q.transpose(0, 2), *(x.expand(S, -1, -1, -1) for x in (k, v))
        o, _ = values(student.split_kv_decode(rows, *caches, 16, **kwargs), ("o", "lse"))
        return o.transpose(0, 2)
    caches = [x[0, 0].reshape(-1, 8, 1, x.shape[3]) for x in (k, v)]
    table = torch.arange(S_kv // 8).expand(S, -1)
    lengths = torch.full((S,), S_kv)
    o = student.paged_attention(q[0].transpose(0, 1), *caches, table, lengths, **kwargs)
    expect.arrays((o,), "o")
    return o.transpose(0, 1)[None]


FORWARDS = ("naive_attention", "flash_forward", "gqa_varlen", "split_kv_decode", "paged_attention")


@task("flash_forward", "gqa_varlen", holds=("block_k", "no_fewer"))
@pytest.mark.parametrize("block_k", [3, 8, 24])
@pytest.mark.parametrize("causal", [False, True])
def test_a_product_sees_block_k_keys(student, task, rng, block_k, causal):
    """Two rows against 60 keys.   Oracle: block_k * D elements of K in a product; SDPA."""
    q, k, v = qkv(rng, 1, 1, 1, 2, 60, 8)
    args = (q, k, v)
    if task == "gqa_varlen":
        args = (*(x[0].transpose(0, 1) for x in args), torch.tensor([0, 2]), torch.tensor([0, 60]))
    seen = student.probe.widest_product(task, (*args, 2, block_k), {"causal": causal})
    no_library(seen, 4 * 2 * 59 * 8)
    expect.within(
        seen["largest"],
        block_k * 8,
        block_k * 12,
        because=f"a key block has block_k = {block_k} keys of D = 8 elements",
        what="largest matrix in a product",
        unit="elements",
    )
    want_o, _ = oracles.attention(q, k, v, causal)
    o, _ = values(seen["result"], ("o", "lse"))
    got = o.transpose(0, 1)[None] if task == "gqa_varlen" else o
    expect.close(got, want_o, because=EXACT, n=68, dtype="float32", what="o")


@task(*FORWARDS, holds=("wide_scores", "one_rounding", "scale"))
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_scores_of_16_bit_inputs_stay_wide(student, task, rng, dtype, scale):
    """Scores near 60 or 100, 272 keys, no scale that is a power of two.   Oracle: SDPA in float64
    on the same 16-bit numbers."""
    q, k, v = oracles.sensitive(rng, 6, 272, getattr(torch, dtype))
    want, _ = oracles.attention(q, k, v, scale=scale)
    got = _one_head(student, task, q, k, v, scale)
    because = "a score that is rounded to 16 bits, or made of a rounded q * scale, is another score"
    expect.close(got, want, because=because, c=1.0, dtype=dtype, what="o")


@task(*FORWARDS[1:], holds=("wide_sums", "one_rounding"))
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sums_over_blocks_stay_wide(student, task, rng, dtype):
    """Values near 64, then near -64: what is left is small.   Oracle: SDPA in float64 on the same
    16-bit numbers."""
    q, k, v = oracles.cancelling(rng, 5, 128, getattr(torch, dtype))
    want, _ = oracles.attention(q, k, v)
    got = _one_head(student, task, q, k, v)
    because = "sums over blocks, workers or tokens are float32 or wider until the last one is in"
    expect.close(got, want, because=because, c=1.0, dtype=dtype, what="o")


MASKED = FORWARDS[:3]  # the two functions for one decode step know no `causal`


@task(*FORWARDS, gate=False, holds=("any_scale",))
@pytest.mark.parametrize("scale", [0.0, -0.5])
def test_zero_and_negative_numbers_are_scales(student, task, rng, scale):
    """scale = 0 weighs all keys alike, and none that the mask hides.   Oracle: SDPA in float64."""
    q, k, v = qkv(rng, 1, 1, 1, 5, 24, 8)
    want, _ = oracles.attention(q, k, v, scale=scale)
    got = _one_head(student, task, q, k, v, scale)
    because = "1/sqrt(D) is for calls that give no scale: 0 is a scale, too"
    expect.close(got, want, because=because, n=32, dtype="float32", what="o")
    if task in MASKED:
        want, _ = oracles.attention(q, k, v, causal=True, scale=scale)
        got = _one_head(student, task, q, k, v, scale, causal=True)
        because = "a hidden score is -inf after the scale: 0 * -inf is NaN, and -0.5 * -inf is inf"
        expect.close(got, want, because=because, n=32, dtype="float32", what="o, causal")


@task(*FORWARDS[1:], gate=False, holds=("any_size",))
def test_scores_below_any_stand_in_for_minus_infinity(student, task, rng):
    """All scores are -1e10, in float64, and where there is a mask, it hides some of them.   Oracle:
    the mean of the visible values."""
    q, k, v = qkv(rng, 1, 1, 1, 5, 24, 8, dtype=torch.float64)
    q, k = torch.zeros_like(q), torch.zeros_like(k)
    q[..., 0], k[..., 0] = 1e5, -1e5
    causal = task in MASKED
    mask = oracles.visible(5, 24, causal).double()
    want = (mask / mask.sum(dim=1, keepdim=True)) @ v
    got = _one_head(student, task, q, k, v, 1.0, causal)
    because = "a hidden score is -inf, and so is the maximum of nothing: -1e10 is a score"
    # whoever goes through a log-sum-exp near -1e10 has its rounding in o
    expect.close(got, want, because=because, n=24, scale=1e10, what="o")
