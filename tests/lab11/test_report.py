"""`plan_bytes`, `pass_seconds` and `report`: against saved files, closed forms and float64.

Perplexities of the shipped model are compared with the same weights run in NumPy, and with each
other; no absolute figure is expected.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from plans_lab11 import BF16, FORMATS, FP8, H100, INT8, LLAMA_31_8B, NF4, W4A16, W4A16_ASYM, llama
from tiny_lm import LINEAR, encode, texts, windows
from types_lab11 import Format, Gpu, Model, Plan

from grader.suite import expect, task

from . import oracles_methods as oracles
from .oracles_methods import PUBLISHED

ODD = Format("odd", 3, 24, 16, zero_bits=3, nested=7, tensor_bits=64)
PAIRS = Format("pairs of scales", 5, 8, 8, nested=2, tensor_bits=32)
# So slow that even one token waits for its FLOPs.
WEAK = Gpu("weak", {"bf16": 2e12, "int8": 9e12}, 3.35e12)
GEMM = "a pass takes its FLOPs at the peak of what is multiplied, or its bytes at the memory's rate"


# -- bytes ----------------------------------------------------------------------------------------


@task("report", holds=("whole_model", "whole_bytes", "parts_of_a_format"))
def test_bytes_are_those_of_a_saved_file(student, tmp_path):
    """Every array of every layer, and what stays in bf16.
    Oracle: the length of a file that safetensors wrote, its header apart."""
    linear = {"a": (13, 48), "b": (5, 144), "c": (7, 96), "d": (3, 3), "e": (1, 27), "f": (9, 1)}
    model = Model("small", linear, (11, 48), {"embed": (11, 48), "norms": (3, 48), "one": (48,)})
    formats = (BF16, INT8, ODD, PAIRS, W4A16_ASYM, NF4, *FORMATS[-2:])
    answers = student.map("plan_bytes", [(model, fmt) for fmt in formats])
    for got, fmt in zip(answers, formats, strict=True):
        want = oracles.saved_bytes(tmp_path, model, fmt)
        because = "codes, scales, zero points and shared floats are stored, and the rest in bf16"
        expect.bytes(got, want, because, what=f"plan_bytes of {fmt.name}")


def _besides(model):
    """What a GPTQ file has besides: an int32 group number an input, an fp16 bias an output."""
    return sum(4 * k + 2 * n for n, k in model.linear.values())


L2_7B = llama("Llama-2-7B", 32, 4096, 4096, 11008, 32000)
L2_13B = llama("Llama-2-13B", 40, 5120, 5120, 13824, 32000)


def _all(params, k=1024):
    """A model of which every tensor is quantized."""
    return Model("all", {"all": (params // k, k)}, (0, 0), {})


def _int(bits, group):
    return Format(f"int{bits} g{group}", bits, group, 16, zero_bits=bits)


GB, GIB = 1e9, 2**30
SIZES = (  # row, model, format, bytes that the file has besides, unit
    ("ggml_l2_13b_Q4_0", _all(13_015_864_320), Format("Q4_0", 4, 32, 16), 0, GB),
    ("ggml_l2_13b_Q5_0", _all(13_015_864_320), Format("Q5_0", 5, 32, 16), 0, GB),
    ("gguf_l31_8b_Q8_0", _all(8_030_261_248), Format("Q8_0", 8, 32, 16), 0, GIB),
    ("gguf_l31_8b_F16", LLAMA_31_8B, BF16, 0, GIB),
    ("gptq_l2_13b_4bit_32g", L2_13B, _int(4, 32), _besides(L2_13B), GB),
    ("gptq_l2_7b_4b_128g", L2_7B, _int(4, 128), _besides(L2_7B), GB),
    ("gptq_l2_7b_4b_64g", L2_7B, _int(4, 64), _besides(L2_7B), GB),
    ("gptq_l2_7b_4b_32g", L2_7B, _int(4, 32), _besides(L2_7B), GB),
    ("gptq_l2_7b_8b_128g", L2_7B, _int(8, 128), _besides(L2_7B), GB),
    ("awq_l2_7b_128g", L2_7B, _int(4, 128), 0, GB),
    ("gptq_175b_326gb", _all(175_000_000_000, 1000), BF16, 0, GIB),
    ("gpt2_fp32_footprint", _all(124_439_808, 768), Format("fp32", 32), 12 * 1024**2 + 12 * 4, 1),
)


@task("report", gate=False, holds=("whole_model", "parts_of_a_format"))
def test_published_file_sizes(student):
    """Checkpoints of Llama-2 and 3.1 in GPTQ, AWQ and GGUF, and two sizes with a wrong unit.
    Oracle: published.json, from model cards, READMEs and papers."""
    answers = student.map("plan_bytes", [(model, fmt) for _row, model, fmt, *_more in SIZES])
    for got, (row, _model, _fmt, more, unit) in zip(answers, SIZES, strict=True):
        expect.at_least(got, 1, "bytes are a number", f"plan_bytes for {row}", unit="bytes")
        because = "codes with their scales and zero points, and what is kept in 16 bits"
        expect.published((got + more) / unit, PUBLISHED[row], because)


# -- time -----------------------------------------------------------------------------------------


@task("report", holds=("longer", "head", "left_out"))
def test_a_pass_takes_the_longer_of_two_times(student):
    """One token, 64 and thousands, for each kind of math.
    Oracle: the roofline in closed form over all linear layers of Llama-3.1-8B."""
    formats = (BF16, W4A16, W4A16_ASYM, INT8, FP8)
    rows = [(LLAMA_31_8B, fmt, H100, tokens) for fmt in formats for tokens in (1, 64, 150, 8192)]
    for got, row in zip(student.map("pass_seconds", rows), rows, strict=True):
        what = f"pass_seconds of {row[1].name}, {row[3]} tokens"
        expect.close(got, oracles.pass_seconds(*row), GEMM, n=300, what=what)


@task("report", holds=("one_after_another", "longer", "head"))
def test_each_matrix_has_its_own_bound(student):
    """Short rows carry more scales, so one matrix waits for memory while another computes.
    Oracle: two matrices by hand."""
    gpu = Gpu("slow", {"bf16": 1000.0, "int8": 4000.0}, 100.0)
    fmt = Format("wide scales", 8, None, 512, math="int8")
    model = Model("two", {"wide": (10, 320), "narrow": (100, 4)}, (5, 10), {"norm": (10,)})
    # wide: 3,200 B of codes, 640 of scales, 38.4 s; 25 tokens are 160,000 operations, 40 s.
    # narrow: 400 + 6,400 B, 68 s; 20,000 operations, 5 s. The head: 100 B, 1 s, and 0.1 s.
    because = "matrices run one after another, and each takes the longer of its own two times"
    expect.close(student.pass_seconds(model, fmt, gpu, 25), 40.0 + 68.0 + 1.0, because, n=9)
    # Here bf16 is so slow that the head waits for its 100 operations, 12.5 s; int8 is as before.
    weak = Gpu("weak", {"bf16": 8.0, "int8": 4000.0}, 100.0)
    because = "the head takes the longer of its two times as well, and is multiplied in bf16"
    expect.close(student.pass_seconds(model, fmt, weak, 25), 40.0 + 68.0 + 12.5, because, n=9)


@task("report", gate=False, holds=("longer",))
def test_weight_only_speeds_up_decode_alone(student):
    """W4A16 gains at one token, nothing at 8,192; FP8 gains in both; more tokens never take less.
    Oracle: what a roofline must do, whatever the shapes."""
    tokens = (1, 16, 128, 1024, 8192)
    rows = [(LLAMA_31_8B, fmt, H100, n) for fmt in (BF16, W4A16, FP8) for n in tokens]
    times = student.map("pass_seconds", rows)
    bf16, w4, fp8 = times[:5], times[5:10], times[10:]
    expect.at_least(bf16[0] / w4[0], 3.0, "batch 1 waits for bytes", "W4A16 at 1 token", unit=None)
    because = "weights shrink, FLOPs do not; batch-1 decode gains, large-batch prefill does not"
    expect.close(bf16[4] / w4[4], 1.0, because, n=300, what="W4A16 at 8,192 tokens")
    because = "FP8 is multiplied at twice the rate"
    expect.at_least(bf16[4] / fp8[4], 1.9, because, "FP8 at 8,192 tokens", unit=None)
    for name, each in (("bf16", bf16), ("W4A16", w4), ("FP8", fp8)):
        rising = all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(each))
        expect.true(rising, f"more tokens take no less time: {name}", observed=each)


@task("report", gate=False, holds=("no_such_math", "no_token"))
def test_what_no_gpu_can_do_is_refused(student):
    """ValueError for a math that is not there, and for no token.   Oracle: the contract."""
    fp4 = Format("NVFP4 W4A4", 4, 16, 8, tensor_bits=32, math="fp4")
    because = "an H100 has no fp4 tensor cores"
    with expect.raises(ValueError, because=because):
        student.pass_seconds(LLAMA_31_8B, fp4, H100, 1)
    for tokens in (0, -1):
        with expect.raises(ValueError, because="a pass has a token at least"):
            student.pass_seconds(LLAMA_31_8B, BF16, H100, tokens)


# -- the table ------------------------------------------------------------------------------------

AS_IS = ("as is", BF16, 0, None)  # name, format, bits, group of the rounding
EIGHT = ("eight", INT8, 8, None)
INTS = tuple((f"int{bits}", Format(f"int{bits}", bits, 32, 16), bits, 32) for bits in (8, 4, 3, 2))


@functools.cache
def _rows(first, last):
    """These rows of the held-out text."""
    return windows(encode(texts(20_000, 60)[1]))[first:last]


@functools.cache
def _stored(bits, group):
    """The linear layers of the shipped model, rounded so, as float32 arrays."""
    weights = oracles.tiny_model()
    linear = [name for name in weights if name.rpartition(".")[2] in LINEAR]
    each = {n: oracles.to_nearest(weights[n], bits, group) if bits else weights[n] for n in linear}
    return {name: w.astype(np.float32) for name, w in each.items()}


@functools.cache
def _quality(bits, group, first, last):
    stored = {name: w.astype(np.float64) for name, w in _stored(bits, group).items()}
    return oracles.quality(oracles.tiny_model(), stored, _rows(first, last).numpy())


def _report(student, how, first, last, tokens, gpu=H100, viewed=False):
    """The learner's rows for these plans; viewed: all weights are transposed views."""

    def tensor(w):
        w = torch.tensor(w, dtype=torch.float32)
        return w.T.contiguous().T if viewed and w.dim() == 2 else w

    weights = {n: tensor(w) for n, w in oracles.tiny_model().items()}
    plans = [
        Plan(name, fmt, {n: tensor(w) for n, w in _stored(bits, group).items()})
        for name, fmt, bits, group in how
    ]
    got = student.report(weights, plans, _rows(first, last), gpu, tokens)
    because = "report returns a list, a row for each plan"
    got = expect.sequence(got, because, "Row", "rows")
    expect.equal(len(got), len(how), because)
    return got


REASONS = {
    "sqnr_db": "10 log10 of the sum of w squared over that of the differences, all layers together",
    "output_sqnr_db": "the same of x @ w.T, with x of the unquantized model",
    "ppl": "exp of the mean loss of the model with the plan's weights",
}


@task(
    "report",
    holds=(
        "in_order",
        "in_their_place",
        "sqnr",
        "of_outputs",
        "no_noise",
        "perplexity",
        "speed_ups",
    ),
)
@pytest.mark.parametrize("case", ["three plans", "two plans"])
def test_a_row_for_each_plan(student, case):
    """Bytes, bits, both SQNRs, perplexity and both predictions, in the order of the plans.
    Oracle: a saved file's size, the closed roofline, and the model run in NumPy in float64."""
    how, first, last, tokens, gpu = {
        "three plans": ((AS_IS, INTS[2], EIGHT), 0, 4, 4096, H100),
        "two plans": ((EIGHT, AS_IS), 4, 7, 96, WEAK),
    }[case]
    got = _report(student, how, first, last, tokens, gpu)
    weights = oracles.tiny_model()
    params = sum(w.size for w in weights.values())
    shapes = {name: w.shape for name, w in _stored(0, None).items()}
    linear = sum(math.prod(shape) for shape in shapes.values())
    model = Model("tiny", shapes, weights["head"].shape, {})
    for row, (name, fmt, bits, group) in zip(got, how, strict=True):
        expect.equal(row.name, name, "rows come in the order of the plans")
        scales = sum(n * k // (fmt.group or k) for n, k in shapes.values())
        size = (linear * fmt.code_bits + scales * fmt.scale_bits) // 8 + 2 * (params - linear)
        expect.bytes(row.bytes, size, "the whole model, as it is stored", what=name)
        because = "8 bytes over all parameters, embedding and norms among them"
        what = f"{name}: bits_per_param"
        expect.close(row.bits_per_param, 8 * size / params, because, what=what)
        for field, want in zip(REASONS, _quality(bits, group, first, last), strict=True):
            _measure(row, field, want, name)
        for field, n in (("decode_speedup_pred", 1), ("prefill_speedup_pred", tokens)):
            times = [oracles.pass_seconds(model, each, gpu, n) for each in (BF16, fmt)]
            because = f"bf16's time over the plan's, for {n:,} tokens"
            expect.close(
                getattr(row, field), times[0] / times[1], because, n=50, what=f"{name}: {field}"
            )


def _measure(row, field, want, name):
    got = getattr(row, field)
    if math.isinf(want):
        expect.equal(got, want, "no noise is an infinite ratio", what=f"{name}: {field}")
    else:
        expect.close(got, want, REASONS[field], floor=2e-3, what=f"{name}: {field}")


@task("report", gate=False, holds=("any_strides", "sqnr", "of_outputs"))
def test_weights_may_be_views(student):
    """The plan's weights and the model's own as transposed views of tensors.
    Oracle: the same rows as of their copies, which are compared with NumPy above."""
    how, because = (INTS[1],), "a view is a matrix as well as its copy is"
    [plain], [viewed] = (_report(student, how, 0, 2, 64, viewed=viewed) for viewed in (False, True))
    for field in ("bytes", "bits_per_param", "decode_speedup_pred", "prefill_speedup_pred"):
        expect.close(getattr(viewed, field), getattr(plain, field), because, n=50, what=field)
    for field, want in zip(REASONS, _quality(INTS[1][2], INTS[1][3], 0, 2), strict=True):
        expect.close(getattr(viewed, field), want, because, floor=2e-3, what=field)


@task("report", gate=False, holds=("sqnr", "perplexity"))
def test_fewer_bits_predict_worse(student):
    """8, 4, 3 and 2 bits on the shipped model: SQNR falls by 2 dB a bit at least, perplexity rises.
    Oracle: the order of the formats, with wide margins."""
    got = _report(student, (AS_IS, *INTS), 0, 16, 4096)
    ppl = [row.ppl for row in got]
    expect.within(ppl[0], 1.0, 2.0, "the shipped model has learnt its text", "perplexity of bf16")
    near = abs(ppl[1] / ppl[0] - 1) < 0.02
    expect.true(near, "8 bits a weight are as good as 16 here", observed=ppl)
    rising = ppl[1] < ppl[2] < ppl[3] < ppl[4] and ppl[4] > 2 * ppl[2]
    expect.true(rising, "each bit less predicts worse, and 2 bits fail", observed=ppl)
    for field in ("sqnr_db", "output_sqnr_db"):
        each = [getattr(row, field) for row in got[1:]]
        falls = all(
            a - b >= 2 * bits
            for (a, b), bits in zip(itertools.pairwise(each), (4, 1, 1), strict=True)
        )
        expect.true(falls, f"a bit is worth 6 dB, and 2 at least: {field}", observed=each)
