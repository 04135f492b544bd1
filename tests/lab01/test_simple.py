"""simple_ledger and simple_activation_bytes: the ledger in one line."""

from fractions import Fraction

from grader.suite import expect, task

from . import oracles

GIB = 1024**3
LLAMA2_7B = {
    "layers": 32,
    "hidden": 4096,
    "ffn_multiplier": 8.0625,
    "vocab": 32000,
    "batch": 4,
    "seq": 4096,
    "heads": 32,
    "head_dim": 128,
    "precision_bytes": 2,
    "adam_bytes": 12,
}


def _random_shape(rng):
    return {
        "layers": int(rng.integers(2, 60)),
        "hidden": 8 * int(rng.integers(10, 900)),
        "ffn_multiplier": int(rng.integers(8, 40)) / 4,
        "vocab": int(rng.integers(100, 90000)),
        "batch": int(rng.integers(2, 40)),
        "seq": int(rng.integers(100, 9000)),
        "heads": int(rng.integers(3, 50)),
        "head_dim": 4 * int(rng.integers(5, 40)),
        "precision_bytes": int(rng.choice([1, 2, 4])),
        "adam_bytes": int(rng.choice([6, 8, 12])),
    }


_TERMS = ("one_layer", "one_embedding", "states", "cache", "nothing_else", "no_line")


@task("simple_ledger", holds=_TERMS)
def test_llama_2_7b_by_hand(student):
    """Llama-2-7B comes out as a pocket calculator says.
    Oracle: figures worked out by hand; 6,607,077,376 is the published total less head and norms."""
    ledger = student.simple_ledger(**LLAMA2_7B)
    params = 6_738_415_616 - 131_072_000 - 266_240
    expect.equal(
        ledger.params, params, "a layer is 4d^2 + 8.0625 d^2, the model adds one V d", "params"
    )
    expect.bytes(ledger.weights, 2 * params, "weights take precision_bytes each", "weights")
    expect.bytes(ledger.gradients, 2 * params, "a gradient is as large as its weight", "gradients")
    expect.bytes(ledger.optimizer, 12 * params, "Adam takes adam_bytes each", "optimizer")
    expect.bytes(
        ledger.kv_cache,
        8 * GIB,
        "each of 4 x 4,096 tokens keeps K and V of 4,096 values in 32 layers",
        "kv_cache",
    )
    expect.bytes(ledger.activations, 0, "the first script has no line for them", "activations")
    expect.bytes(ledger.other, 0, "the first script has no line for it", "other")


@task("simple_ledger", holds=_TERMS)
def test_any_shape_by_hand(student, rng):
    """Every term of any shape is what its line says.
    Oracle: a model's weights listed matrix by matrix, a cache tensor by tensor."""
    for _ in range(6):
        shape = _random_shape(rng)
        ledger = student.simple_ledger(**shape)
        d, tokens = shape["hidden"], shape["batch"] * shape["seq"]
        matrices = [d * d] * 4 + [shape["ffn_multiplier"] * d * d]
        params = shape["vocab"] * d
        cache = 0
        for _layer in range(shape["layers"]):
            params += sum(matrices)
            cache += 2 * tokens * shape["heads"] * shape["head_dim"] * shape["precision_bytes"]
        expect.close(ledger.params, params, "the count follows from the shape", n=9, what="params")
        expect.close(
            (ledger.weights, ledger.gradients, ledger.optimizer),
            (
                params * shape["precision_bytes"],
                params * shape["precision_bytes"],
                params * shape["adam_bytes"],
            ),
            "these three scale with the parameters and nothing else",
            n=9,
            what="weights, gradients, optimizer",
        )
        expect.close(
            ledger.kv_cache,
            cache,
            "heads * head_dim need not be hidden",
            n=9,
            what="kv_cache",
            unit="bytes",
        )
        rest = (ledger.activations, ledger.other)
        expect.close(rest, (0, 0), "the first script has no line for them", what="the rest")


@task("simple_ledger", gate=False, holds=("fractions",))
def test_a_parameter_may_take_a_fraction_of_a_byte(student, rng):
    """Four-bit weights take half a byte each, 8-bit Adam with its scales 2.03125.
    Oracle: the products in exact fractions."""
    shape = _random_shape(rng) | {"ffn_multiplier": 43 / 16, "hidden": 64}
    layer = Fraction(4 * 64**2) + Fraction(43, 16) * 64**2
    params = shape["layers"] * layer + shape["vocab"] * 64
    tokens = shape["batch"] * shape["seq"] * shape["layers"]
    for size, adam in ((Fraction(1, 2), Fraction(65, 32)), (Fraction(9, 16), Fraction(193, 32))):
        ledger = student.simple_ledger(
            **shape | {"precision_bytes": float(size), "adam_bytes": float(adam)}
        )
        cache = 2 * tokens * shape["heads"] * shape["head_dim"] * size
        for name, want in (
            ("params", params),
            ("weights", params * size),
            ("gradients", params * size),
            ("optimizer", params * adam),
            ("kv_cache", cache),
        ):
            because = f"{float(size)} and {float(adam)} bytes are what was asked for"
            expect.close(getattr(ledger, name), float(want), because, n=9, what=name)


@task("simple_ledger", gate=False, holds=("cache", "one_embedding"))
def test_only_the_cache_grows_with_the_batch(student, rng):
    """Twice the batch or twice the context doubles the cache and leaves the rest alone.
    Oracle: linearity."""
    shape = _random_shape(rng)
    once = student.simple_ledger(**shape)
    for name in ("batch", "seq"):
        twice = student.simple_ledger(**(shape | {name: 2 * shape[name]}))
        expect.close(twice.kv_cache, 2 * once.kv_cache, f"the cache is linear in {name}", n=9)
        expect.close(
            twice.total - twice.kv_cache,
            once.total - once.kv_cache,
            f"parameters and their states do not depend on {name}",
            n=9,
        )


@task("simple_ledger", gate=False, holds=("one_layer",))
def test_quadratic_in_the_width_linear_in_the_depth(student, rng):
    """Layers add, widths square: the rest of the model is the embedding.
    Oracle: differences of the count in one argument at a time."""
    shape = _random_shape(rng) | {"vocab": 1}

    def layers_only(**changed):
        new = shape | changed
        return student.simple_ledger(**new).params - new["hidden"]

    base = layers_only()
    expect.close(
        layers_only(layers=3 * shape["layers"]), 3 * base, "a layer is a layer", n=9, what="params"
    )
    expect.close(
        layers_only(hidden=2 * shape["hidden"]), 4 * base, "each matrix has d^2", n=9, what="params"
    )


@task("simple_ledger", gate=False, holds=("cache",))
def test_the_notebook_s_inference_total(student):
    """16-bit weights of 6.74e9 parameters and this cache make the notebook's 20.6 GiB.
    Oracle: published.json, infer_seed_total."""
    cache = student.simple_ledger(**LLAMA2_7B).kv_cache
    expect.published((2 * 6.74e9 + cache) / GIB, oracles.PUBLISHED["infer_seed_total"])


@task("simple_activation_bytes", holds=("notebook",))
def test_the_notebook_s_training_total(student):
    """The notebook's activations are 28.0 GiB, and with 16 bytes a parameter 128.4 GiB.
    Oracle: published.json, act_seed_total."""
    got = student.simple_activation_bytes(4, 4096, 32, 4096)
    expect.bytes(got, 28 * GIB, "7 vectors of 4,096 two-byte values a token and layer")
    expect.published((16 * 6.74e9 + got) / GIB, oracles.PUBLISHED["act_seed_total"])


@task("simple_activation_bytes", holds=("every_token", "bytes_each"))
def test_any_shape_and_scale(student, rng):
    """Linear in every argument, the precision and the scale included.
    Oracle: the product in exact integers."""
    for size in (1, 4, 0.5) * 2:
        batch, seq, layers, hidden = (int(n) for n in rng.integers(3, 900, 4))
        scale = int(rng.integers(8, 60)) + 0.5
        got = student.simple_activation_bytes(
            batch, seq, layers, hidden, precision_bytes=size, scale=scale
        )
        want = sum(hidden * size for _ in range(layers)) * batch * seq * scale
        expect.close(got, want, "tokens x layers x hidden x bytes x scale", n=9, unit="bytes")


@task("simple_activation_bytes", gate=False, holds=("zero",))
def test_zero_s_rule_is_the_same_with_another_scale(student):
    """ZeRO's "about 60 GB" for GPT-2 1.5B is this rule with scale 12.
    Oracle: published.json, zero_gpt2_15b_act."""
    got = student.simple_activation_bytes(32, 1024, 48, 1600, scale=12)
    expect.published(got / 1e9, oracles.PUBLISHED["zero_gpt2_15b_act"])
