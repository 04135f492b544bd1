"""sliced_attention: right at every size, a slice's bytes, and no more products than slices."""

from __future__ import annotations

import numpy as np
import pytest

from grader.suite import expect, task

from . import oracles_offload as oracles

MIB = 2**20


def _qkv(rng, b, h, s, t, d, e, dtype="float32"):
    def draw(*shape):
        return rng.normal(size=shape).astype(dtype)

    return 2 * draw(b, h, s, d), 2 * draw(b, h, t, d), draw(b, h, t, e)


def _tensors(*arrays):
    import torch

    return [torch.from_numpy(array) for array in arrays]


@task("sliced_attention", holds=("attention", "other_width", "rest", "all_of_it"))
def test_every_slice_size_gives_the_same_attention(student, rng):
    """Heads and queries may be cut anywhere.   Oracle: float64 softmax computed in one piece."""
    q, k, v = _qkv(rng, 2, 3, 13, 17, 8, 5)
    want = oracles.attention(q, k, v)
    sizes = ((3, 13), (1, 13), (3, 4), (2, 5), (1, 1), (8, 64))
    rows = [(*_tensors(q, k, v), heads, queries) for heads, queries in sizes]
    for (heads, queries), got in zip(sizes, student.map("sliced_attention", rows), strict=True):
        because = "each row of the scores needs all keys and no other row, so cuts change nothing"
        what = f"heads {heads}, queries {queries}"
        expect.close(got, want, because=because, n=17, dtype="float32", what=what)


@task(
    "sliced_attention",
    holds=("of_heads", "of_queries", "held", "no_fourth", "not_fused", "by_hand"),
)
@pytest.mark.parametrize(
    ("s", "t", "d", "heads", "queries"),
    [(512, 512, 16, 2, 64), (96, 4096, 2, 2, 32), (50, 8192, 2, 3, 20)],
    ids=["512 keys", "4096 keys", "8192 keys"],
)
def test_a_slice_is_all_that_is_held(student, rng, s, t, d, heads, queries):
    """The peak is the output and one slice's tensors: 8 heads of 512 x 512 scores are 8 MiB, two
    heads of 64 queries 0.25 MiB. With many keys and narrow heads scores are nearly all there is, so
    that a fourth tensor of a slice shows.   Oracle: sizes multiplied out, held against two
    meters."""
    b, h = 1, 8
    q, k, v = _qkv(rng, b, h, s, t, d, d)
    got = student.probe.attention(*_tensors(q, k, v), heads, queries)
    expect.equal(got["fused"], [], because="a fused call holds no scores that one could slice")
    scores, out = 4 * b * heads * queries * t, 4 * b * h * s * d
    # Scores, what they were before the scale, and their softmax; inputs that a product copies;
    # results that are collected before they are joined. Beside 4096 or 8192 keys all but the
    # scores is less than a third of one slice's.
    limit = 3 * scores + 2 * out + 4 * (4 * b * heads * t * d)
    because = "one slice at a time, by heads and by queries: three tensors as large as its scores"
    expect.at_most(got["peak_bytes"], limit, because=because, what="peak bytes", unit="bytes")
    expect.at_most(
        got["allocated_bytes"], limit + MIB // 4, because=because, what="allocated", unit="bytes"
    )
    want = oracles.attention(q, k, v)
    for name in ("out", "again"):
        because = "whatever is held, it is attention"
        expect.close(got[name], want, because=because, n=t, dtype="float32")


@task("sliced_attention", holds=("as_large", "rest"))
def test_slices_are_as_large_as_allowed(student, rng):
    """Two products a slice and no work twice: 5 heads by 2 and 50 queries by 16 are 12 slices.
    Oracle: 2 ceil(H / heads) ceil(S / queries) products, 2 B H S T (D + E) FLOPs."""
    b, h, s, t, d, e = 2, 5, 50, 40, 8, 12
    q, k, v = _qkv(rng, b, h, s, t, d, e)
    got = student.probe.attention(*_tensors(q, k, v), 2, 16)
    expect.equal(
        got["flops"], 2 * b * h * s * t * (d + e), because="slicing multiplies nothing twice"
    )
    because = "each slice costs a launch for each operation, so slices are as large as allowed"
    expect.at_most(got["products"], 2 * 3 * 4, because=because, what="matrix products")
    want = oracles.attention(q, k, v)
    expect.close(got["out"], want, because="it is attention", n=t, dtype="float32")


@task("sliced_attention", holds=("as_large", "even", "rest"))
@pytest.mark.parametrize(("heads", "queries"), [(5, 16), (5, 8), (2, 13)])
def test_slices_are_not_evened(student, rng, heads, queries):
    """8 heads and 24 queries of 500 keys: the largest tensor is the scores of a whole slice, also
    where what is left is much less than a slice.   Oracle: heads x queries x keys of 4 bytes; the
    storage meter; float64 softmax computed in one piece."""
    q, k, v = _qkv(rng, 1, 8, 24, 500, 2, 2)
    got = student.probe.attention(*_tensors(q, k, v), heads, queries)
    expect.close(
        got["out"], oracles.attention(q, k, v), because="it is attention", n=500, dtype="float32"
    )
    because = "a slice has as many heads and queries as are allowed, and only the last one fewer"
    whole = 4 * heads * queries * 500
    expect.bytes(got["largest_bytes"], whole, because=because, what="the largest tensor")


@task("sliced_attention", holds=("all_of_it", "as_large"))
@pytest.mark.parametrize(
    ("sizes", "slices"), [((5, 50), 1), ((6, 51), 1), ((99, 16), 4), ((4, 500), 2)]
)
def test_a_size_above_what_there_is_means_all(student, rng, sizes, slices):
    """5 heads and 50 queries in slices of all of them, and of more.   Oracle: two products for each
    slice; float64 softmax computed in one piece."""
    q, k, v = _qkv(rng, 1, 5, 50, 7, 8, 8)
    got = student.probe.attention(*_tensors(q, k, v), *sizes)
    because = "a slice of more heads or queries than there are is one of all of them"
    expect.equal(got["products"], 2 * slices, because=because, what="matrix products")
    want = oracles.attention(q, k, v)
    expect.close(got["out"], want, because="it is attention", n=7, dtype="float32")


@task("sliced_attention", holds=("large_scores",))
def test_large_scores_do_not_overflow(student, rng):
    """Scores of many thousands of both signs, rows in which all of them are far below 0 and rows
    far below others of their slice. They are whole numbers, so every order of sums gives the same.
    Oracle: float64 softmax, which subtracts each row's largest score."""
    b, h, s, t, d = 1, 2, 12, 9, 16
    q = 4 * rng.integers(-8, 9, (b, h, s, d)).astype("float32")
    k = 16 * rng.integers(-8, 9, (b, h, t, d)).astype("float32")
    k[..., 0] = 128
    q[:, :, ::4] = 0
    q[:, :, ::4, 0] = [-400, -40, 400]
    v = rng.normal(size=(b, h, t, d)).astype("float32")
    for sizes in ((1, 4), (2, 12)):
        got = student.sliced_attention(*_tensors(q, k, v), *sizes)
        because = "subtract each row's largest score: exp of the others is between 0 and 1"
        want = oracles.attention(q, k, v)
        expect.close(got, want, because=because, n=t, dtype="float32", what=f"slices of {sizes}")


@task("sliced_attention", gate=False, holds=("dtype",))
def test_torch_agrees_in_every_dtype(student, rng):
    """The output has the inputs' dtype, and is what PyTorch's own attention gives.
    Oracle: scaled_dot_product_attention in float64 on the rounded inputs."""
    import torch
    from torch.nn import functional

    made = _tensors(*_qkv(rng, 2, 4, 31, 33, 16, 16, "float64"))
    for name in ("float64", "float32", "float16", "bfloat16"):
        inputs = [x.to(getattr(torch, name)) for x in made]
        want = functional.scaled_dot_product_attention(*(x.double() for x in inputs))
        got = student.sliced_attention(*inputs, 3, 10)
        expect.dtype(got, name, because="scores and output are in the inputs' dtype")
        # A score of 8 in bfloat16 is off by half a unit in its last place, 3 % of a weight; what
        # is off in single weights averages out in their sum.
        n = 1 if name == "bfloat16" else 33
        because = "PyTorch's attention is the same function"
        expect.close(got.double(), want, because=because, n=n, dtype=name, c=8)


@task("sliced_attention", gate=False, holds=("strides",))
def test_a_view_is_cut_without_changing_it(student, rng):
    """q, k and v may be views of one projection, as in a real block.
    Oracle: the same numbers in arrays of their own."""
    import torch

    packed = torch.from_numpy(rng.normal(size=(2, 21, 3, 4, 8)).astype("float32"))
    q, k, v = packed.permute(2, 0, 3, 1, 4)
    want = oracles.attention(*(np.ascontiguousarray(x.numpy()) for x in (q, k, v)))
    got = student.sliced_attention(q, k, v, 2, 5)
    expect.close(got, want, because="strides are no values", n=21, dtype="float32")


@task("sliced_attention", gate=False, holds=("size_below_one",))
def test_a_slice_of_nothing_is_refused(student, rng):
    """A size below 1 would be no slice: one of the two, both, also where the other one is above
    what there is and where their product or their sum is 1 and more.   Oracle: ValueError."""
    q, k, v = _tensors(*_qkv(rng, 1, 2, 4, 4, 2, 2))
    single = [(0, 4), (2, 0), (-1, 4), (2, -3), (0, 99), (99, 0), (-7, 99), (99, -7)]
    for heads, queries in (*single, (0, 0), (-1, -2), (-3, -3), (0, -1), (-1, 0)):
        with expect.raises(ValueError, because="a slice holds one head and one query at least"):
            student.sliced_attention(q, k, v, heads, queries)


@task("sliced_attention", holds=("scores_dtype", "of_heads"))
def test_scores_of_stable_diffusion(student):
    """With 512, 768 and 1,024 pixels the top layer's scores take 512, 2,592 and 8,192 MiB: 8 heads,
    batch 2 for guidance, fp16. Measured on 8 of the queries; a head at a time takes an eighth.
    Oracle: published.json, sd15_scores_512, _768 and _1024."""
    for pixels in (512, 768, 1024):
        tokens = (pixels // 8) ** 2
        row = oracles.PUBLISHED[f"sd15_scores_{pixels}"]
        for heads in (8, 1):
            largest = student.probe.largest(8, tokens, heads)
            expect.published(tokens // 8 * 8 // heads * largest / MIB, row)


@task("sliced_attention", gate=False, holds=("of_queries",))
def test_a_row_of_scores_of_a_video(student):
    """CogVideoX attends over 17,776 tokens for 49 frames of 480 x 720: each query has as many
    scores.   Oracle: published.json, cogvideox_tokens; latents and patches counted."""
    tokens = oracles.video_tokens(49, 480, 720, 226)
    queries = 64  # who slices the keys by as many has 2,224 slices to be watched, not 17,776
    largest = student.probe.largest(queries, tokens, 1)
    # Batch 2, one head, fp16.
    expect.published(largest / (2 * queries * 2), oracles.PUBLISHED["cogvideox_tokens"])
