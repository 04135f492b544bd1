"""activation_bytes: closed forms of Korthikanti et al., held against what autograd keeps."""

import itertools
from fractions import Fraction

import pytest
from types_lab01 import ModelConfig, real_config

from grader.suite import expect, task

from . import oracles

GIB = 1024**3


def _gpt(h, a, layers=1, vocab=1000):
    """A GPT's shape; biases and tables do not matter to activations."""
    return ModelConfig(
        model_type="gpt2",
        vocab_size=vocab,
        hidden_size=h,
        num_hidden_layers=layers,
        num_attention_heads=a,
        num_key_value_heads=a,
        head_dim=h // a,
        intermediate_size=4 * h,
        gated_mlp=False,
    )


def _random_shape(rng):
    a = 8 * int(rng.integers(1, 8))
    h = a * 8 * int(rng.integers(1, 9))
    return 8 * int(rng.integers(3, 60)), int(rng.integers(2, 9)), h, a, int(rng.integers(2, 50))


@task("activation_bytes", holds=("with_dropout", "every_layer", "not_counted"))
def test_equation_1(student, rng):
    """With dropout a layer keeps s b h (34 + 5 a s / h) bytes.
    Oracle: published.json, act_korthikanti_p01; Korthikanti et al., equation 1, for any shape."""
    got = student.activation_bytes(_gpt(512, 8), 1, 256)
    expect.published(got / (256 * 512), oracles.PUBLISHED["act_korthikanti_p01"])
    for _ in range(5):
        s, b, h, a, layers = _random_shape(rng)
        want = layers * (34 * s * b * h + 5 * a * s * s * b)
        got = student.activation_bytes(_gpt(h, a, layers), b, s)
        because = "34 vectors' bytes a token, and 5 for each query, key and head, in every layer"
        expect.close(got, want, because, n=9, unit="bytes")


@task("activation_bytes", holds=("gpt_whatever",))
def test_the_layer_is_a_gpt_s_whatever_the_config_s_widths(student, rng):
    """Grouped heads, a head_dim of their own and another MLP width change nothing: s, b, h and a
    are all that the formula knows.
    Oracle: Korthikanti et al., equation 1, for configs of other shapes."""
    gemma = real_config("Gemma-7B")  # 16 heads of 256 on a width of 3,072, an MLP of 24,576
    for config in (gemma, oracles.random_config(rng), oracles.random_moe(rng)):
        s, b = 8 * int(rng.integers(3, 60)), int(rng.integers(2, 9))
        h, a, layers = config.hidden_size, config.num_attention_heads, config.num_hidden_layers
        because = "an MLP of 4 h, and Q, K, V of h each, whatever the config's own are"
        got = student.activation_bytes(config, b, s)
        want = layers * (34 * s * b * h + 5 * a * s * s * b)
        expect.close(got, want, because, n=9, what="eager", unit="bytes")
        got = student.activation_bytes(config, b, s, attention="sdpa", dropout=False)
        want = layers * (32 * s * b * h + 4 * a * s * b)
        expect.close(got, want, because, n=9, what="sdpa, no dropout", unit="bytes")


@task("activation_bytes", holds=("without_dropout", "not_counted"))
def test_without_dropout_it_is_what_autograd_keeps(student):
    """dropout=False plus the norms' statistics is the measured layer, byte for byte.
    Oracle: a real bf16 layer on this CPU, measured through saved_tensors_hooks: 32 + 2as/h, and
    8 bytes a token of LayerNorm statistics (two norms, mean and rstd in bf16)."""
    s, b, h, a = 256, 1, 512, 8
    statistics = 8 * s * b
    got = student.activation_bytes(_gpt(h, a), b, s, dropout=False) + statistics
    expect.published(got / (s * b * h), oracles.PUBLISHED["act_autograd_p0_a"])
    for s, b, h, a in ((33, 2, 96, 3), (70, 3, 64, 8)):
        got = student.activation_bytes(_gpt(h, a), b, s, dropout=False)
        want = oracles.measured_gpt_layer(s, b, h, a) - 8 * s * b
        because, what = "no masks, and the probabilities once", f"s {s} b {b} h {h} a {a}"
        expect.close(got, want, because, n=9, what=what, unit="bytes")


@task("activation_bytes", holds=("selective", "full", "every_layer"))
def test_recomputation(student, rng):
    """Selective recomputation drops what is s x s; full keeps 2sbh a layer.
    Oracle: Korthikanti et al., table 2 and section 5; published.json."""
    for _ in range(3):
        s, b, h, a, layers = _random_shape(rng)
        config = _gpt(h, a, layers)
        for attention in ("eager", "sdpa"):
            got = student.activation_bytes(config, b, s, attention, recompute="selective")
            want = layers * 34 * s * b * h
            expect.close(got, want, "only what is inside attention goes", n=9, unit="bytes")
            got = student.activation_bytes(config, b, s, attention, recompute="full")
            want = layers * 2 * s * b * h
            expect.close(got, want, "every layer's input stays", n=9, unit="bytes")
    got = student.activation_bytes(_gpt(512, 8), 1, 256, recompute="full") / (256 * 512)
    expect.published(got, oracles.PUBLISHED["act_full_ckpt"])


@task("activation_bytes", holds=("sdpa",))
def test_a_fused_kernel_keeps_a_log_sum_exp(student, rng):
    """attention="sdpa" keeps 34sbh and four bytes for each query and head, nothing quadratic.
    Oracle: the closed form; twice the context doubles it."""
    for _ in range(4):
        s, b, h, a, layers = _random_shape(rng)
        config = _gpt(h, a, layers)
        got = student.activation_bytes(config, b, s, attention="sdpa")
        want = layers * (34 * s * b * h + 4 * a * b * s)
        expect.close(got, want, "no s x s, but a float32 a query and head", n=9, unit="bytes")
        twice = student.activation_bytes(config, b, 2 * s, attention="sdpa")
        expect.close(twice, 2 * got, "nothing grows with the square of s", n=9, unit="bytes")


@task("activation_bytes", holds=("logits", "logits_stay"))
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_recomputation_does_not_free_the_logits(student, rng, recompute):
    """logits=True adds 4 b s V bytes, whatever the layers recompute.
    Oracle: the float32 log-probabilities' shape, (b, s, V)."""
    s, b, h, a, layers = _random_shape(rng)
    vocab = 8 * int(rng.integers(100, 9000))
    config = _gpt(h, a, layers, vocab)
    bare = student.activation_bytes(config, b, s, recompute=recompute)
    got = student.activation_bytes(config, b, s, recompute=recompute, logits=True)
    expect.close(
        got - bare,
        4 * b * s * vocab,
        "the loss is not inside a checkpointed layer",
        n=9,
        scale=got,
        unit="bytes",
    )


@task("activation_bytes", holds=("tp_splits", "tp_leaves_whole", "one_rank", "sp"))
@pytest.mark.parametrize(
    ("row", "sp", "recompute"),
    [
        ("act_175b_tp8", False, "none"),
        ("act_175b_tp8_sp", True, "none"),
        ("act_175b_tp8_sp_selective", True, "selective"),
        ("act_175b_full", False, "full"),
    ],
)
def test_gpt_3_on_eight_ranks(student, row, sp, recompute):
    """Table 2 for GPT-3 175B on eight tensor-parallel ranks.
    Oracle: published.json, Korthikanti et al., table 2."""
    config = _gpt(12288, 96)
    got = student.activation_bytes(config, 1, 2048, tp=8, sp=sp, recompute=recompute)
    expect.published(got / GIB, oracles.PUBLISHED[row])


@task(
    "activation_bytes",
    gate=False,
    holds=("tp_splits", "tp_leaves_whole", "one_rank", "sp", "logits_split"),
)
def test_what_tensor_parallelism_leaves_whole(student, rng):
    """Any t: 10 + 24/t + 5as/(ht) with dropout, 8 + 24/t + 2as/(ht) without; with sp all over t.
    Oracle: Korthikanti et al., table 2; without dropout, less the masks and the second copy."""
    for t in (2, 4, 8):
        s, b, h, a, layers = _random_shape(rng)
        config = _gpt(h, a, layers, 8000)
        sbh, square = s * b * h, a * s * s * b
        for dropout, whole, share in ((True, 10, 5), (False, 8, 2)):
            got = student.activation_bytes(config, b, s, dropout=dropout, tp=t)
            want = layers * (whole * sbh + (24 * sbh + share * square) / t)
            expect.close(got, want, "norms' and blocks' inputs and masks stay whole", n=9)
            got = student.activation_bytes(config, b, s, dropout=dropout, tp=t, sp=True)
            want = layers * ((whole + 24) * sbh + share * square) / t
            expect.close(got, want, "sequence parallelism splits those too", n=9)
        got = student.activation_bytes(config, b, s, "sdpa", tp=t, logits=True)
        want = layers * (10 * sbh + (24 * sbh + 4 * a * b * s) / t) + 4 * b * s * 8000 / t
        expect.close(got, want, "heads are split, and the vocabulary", n=9)
        got = student.activation_bytes(config, b, s, recompute="full", tp=t, sp=True)
        expect.close(got, layers * 2 * sbh / t, "a rank keeps its slice of each input", n=9)


# What a layer keeps, in bytes a value: (size, its unit, split by tp, a dropout mask, or what only
# dropout makes). The table of section 4.1; "square" is a s s b values, "row" a s b.
_KEPT = [
    *[("the inputs of the two norms", 2, "sbh", False, False)] * 2,
    *[("the inputs of the two blocks", 2, "sbh", False, False)] * 2,
    *[("the residual masks", 1, "sbh", False, True)] * 2,
    *[("Q, K and V", 2, "sbh", True, False)] * 3,
    ("the output projection's input", 2, "sbh", True, False),
    *[("the inputs of GELU and of the second linear", 2 * 4, "sbh", True, False)] * 2,
    ("the probabilities", 2, "square", True, False),
    ("their mask", 1, "square", True, True),
    ("what dropout makes of them", 2, "square", True, True),
    ("the log-sum-exp", 4, "row", True, False),
]


def _listed(config, b, s, mode):
    """What one rank keeps in a mode, tensor by tensor, as a fraction."""
    sbh, row = s * b * config.hidden_size, config.num_attention_heads * s * b
    values = {"sbh": sbh, "square": row * s, "row": row}
    t, total = mode["tp"], Fraction(0)
    inside = {"eager": "square", "sdpa": "row"}[mode["attention"]]
    for _name, size, unit, split, by_dropout in _KEPT:
        recomputed = mode["recompute"] != "none" and unit != "sbh"
        if unit in ("sbh", inside) and not recomputed and (mode["dropout"] or not by_dropout):
            total += Fraction(size * values[unit], t if split or mode["sp"] else 1)
    if mode["recompute"] == "full":
        total = Fraction(2 * sbh, t if mode["sp"] else 1)
    end = Fraction(4 * b * s * config.vocab_size, t) if mode["logits"] else 0
    return float(config.num_hidden_layers * total + end)


@task(
    "activation_bytes",
    gate=False,
    holds=("without_dropout", "sdpa", "selective", "full", "sp", "sp_alone", "logits_split"),
)
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_any_combination_of_modes(student, rng, attention, recompute):
    """Dropout or none, one rank or several, with and without sp and logits, in each combination.
    Oracle: the table of Korthikanti et al., section 4.1, tensor by tensor; table 2 says which of
    them tensor and sequence parallelism split."""
    s, b, h, a, layers = _random_shape(rng)
    config = _gpt(h, a, layers, 8 * int(rng.integers(100, 9000)))
    flags = itertools.product((1, 2, 8), (True, False), (True, False), (True, False))
    for tp, sp, dropout, logits in flags:
        mode = {"attention": attention, "recompute": recompute, "tp": tp, "sp": sp}
        mode |= {"dropout": dropout, "logits": logits}
        got = student.activation_bytes(config, b, s, **mode)
        because = "each tensor is kept or not, and split or not, by itself"
        what = ", ".join(f"{name} {value}" for name, value in mode.items())
        expect.close(got, _listed(config, b, s, mode), because, n=9, what=what, unit="bytes")


@task("activation_bytes", gate=False, holds=("sp_alone",))
def test_sequence_parallelism_on_one_rank_is_nothing(student, rng):
    """sp=True at tp=1 changes no figure.
    Oracle: table 2 at t = 1."""
    s, b, h, a, layers = _random_shape(rng)
    for recompute in ("none", "selective", "full"):
        one, two = (
            student.activation_bytes(_gpt(h, a, layers), b, s, recompute=recompute, sp=sp)
            for sp in (False, True)
        )
        expect.close(two, one, "there is nobody to split the sequence with", n=9, unit="bytes")


@task("activation_bytes", gate=False, holds=("without_dropout", "sdpa", "selective", "full"))
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_every_mode_against_autograd(student, attention, recompute):
    """Six combinations of attention and recomputation, to the byte.
    Oracle: a real bf16 layer on this CPU, measured; 8 bytes a token are the norms' statistics."""
    s, b, h, a = 48, 2, 96, 4
    got = student.activation_bytes(_gpt(h, a), b, s, attention, dropout=False, recompute=recompute)
    statistics = 0 if recompute == "full" else 8 * s * b
    want = oracles.measured_gpt_layer(s, b, h, a, attention, recompute) - statistics
    what = f"{attention}, {recompute}"
    expect.close(got, want, "this is what the layer keeps", n=9, what=what, unit="bytes")


@task("activation_bytes", gate=False, holds=("logits",))
def test_the_loss_against_autograd(student):
    """What a cross-entropy keeps in float32 is what logits=True adds.
    Oracle: torch's cross_entropy over bf16 logits, measured."""
    config = _gpt(64, 4, 2, vocab=333)
    bare = student.activation_bytes(config, 3, 16)
    got = student.activation_bytes(config, 3, 16, logits=True) - bare
    want = oracles.measured_loss(48, 333)
    because = "log-softmax keeps its float32 output"
    expect.close(got, want, because, n=9, scale=100 * want, unit="bytes")


@task("activation_bytes", gate=False, holds=("selective", "masks"))
def test_selective_recomputation_saves_70_and_65_percent(student):
    """GPT-3 and MT-NLG lose 70 % and 65 % of their activations.
    Oracle: published.json, Korthikanti et al., section 5, to the printed two digits."""
    got = []
    for h, a in ((12288, 96), (20480, 128)):
        config = _gpt(h, a)
        kept = student.activation_bytes(config, 1, 2048, recompute="selective")
        got.append(1 - kept / student.activation_bytes(config, 1, 2048))
    expect.published(got, oracles.PUBLISHED["act_selective_saving"])


@task("activation_bytes", gate=False, holds=("unknown", "unknown_and_unused"))
@pytest.mark.parametrize(
    "wrong",
    [
        {"attention": "flash"},
        {"attention": ""},
        {"attention": "SDPA"},
        {"attention": "flash", "recompute": "full"},
        {"attention": "flash", "recompute": "selective"},
        {"recompute": "some"},
        {"recompute": ""},
        {"recompute": "Full"},
        {"recompute": "some", "attention": "sdpa"},
    ],
    ids=lambda wrong: "-".join(value or "empty" for value in wrong.values()),
)
def test_an_unknown_mode_is_refused(student, wrong):
    """A mode that is not listed is a ValueError, not a guess.
    Oracle: the contract."""
    with expect.raises(ValueError, because="a guessed mode gives a wrong figure in silence"):
        student.activation_bytes(_gpt(64, 4), 1, 8, **wrong)


@task("activation_bytes", extra=("gpu",))
def test_one_training_step_on_a_gpu(student):
    """A real step's peak is the ledger: bf16 states and what 32 fused-attention layers keep.
    Oracle: torch.cuda.max_memory_allocated, within 5 %: one layer's gradients come on top."""
    layers, heads, hidden, vocab, batch, seq = 32, 16, 1024, 512, 8, 1024
    config = _gpt(hidden, heads, layers, vocab)
    kept = student.activation_bytes(config, batch, seq, "sdpa", dropout=False, logits=True)
    peak, params = student.probe.gpu_step(layers, heads, hidden, vocab, batch, seq)
    states = (2 + 2 + 4) * params
    ratio = peak / (kept + states)
    expect.within(ratio, 0.95, 1.05, "these are all the terms there are", "measured / ledger")
