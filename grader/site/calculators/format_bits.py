"""Lab 11's bytes: what a model takes in a format, and the least time that a pass takes."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

from grader.site.calculators.declaration import (
    Calculator,
    CalculatorLine,
    CalculatorResult,
    ChoiceInput,
    Labs,
    NumberInput,
    Values,
    WrongInput,
    evaluated,
    number,
    sum_of,
)
from grader.site.calculators.memory_ledgers import KNOWN
from grader.site.calculators.model_input import USES_MODELS, chosen_model, model_inputs

OWN = "own"
MOST_EXPERTS = 50_000
# Names of lab 11's formats, as the choice shows them.
FORMATS = (
    "bf16", "int8 W8A8", "fp8 W8A8", "W4A16 g128", "W4A16 g128 asymmetric", "NF4", "MXFP4", "NVFP4",
)  # fmt: skip
OWN_FORMAT = ("format", OWN)


def linear_shapes(model: Any) -> dict[str, tuple[int, int]]:
    """Every matrix that a format stores: projections, MLPs and experts; a router is not one."""
    d, heads = model.hidden_size, model.num_attention_heads
    if model.is_mla:
        q = heads * (model.qk_nope_head_dim + model.qk_rope_head_dim)
        attention = {"q": (q, d)}
        if model.q_lora_rank is not None:
            attention = {"q_a": (model.q_lora_rank, d), "q_b": (q, model.q_lora_rank)}
        out = heads * model.v_head_dim
        up = heads * (model.qk_nope_head_dim + model.v_head_dim)
        attention |= {
            "kv_a": (model.kv_lora_rank + model.qk_rope_head_dim, d),
            "kv_b": (up, model.kv_lora_rank),
            "o": (d, out),
        }
    else:
        q, kv = heads * model.head_dim, model.num_key_value_heads * model.head_dim
        attention = {"q": (q, d), "k": (kv, d), "v": (kv, d), "o": (d, q)}
    shapes: dict[str, tuple[int, int]] = {}
    for layer in range(model.num_hidden_layers):
        width, copies = model.intermediate_size, 1
        if model.is_moe_layer(layer):
            width, copies = model.moe_intermediate_size, model.num_experts + model.n_shared_experts
        into = ("gate", "up") if model.gated_mlp else ("up",)
        parts = dict(attention)
        for copy in range(copies):
            parts |= {f"{name}.{copy}": (width, d) for name in into}
            parts[f"down.{copy}"] = (d, width)
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in parts.items()}
    return shapes


def format_bits(values: Values, labs: Labs) -> CalculatorResult:
    quantization, types, plans = labs("quantization"), labs("types_lab11"), labs("plans_lab11")
    config = chosen_model(values, labs)
    params = labs("memory_accounting").total_params(config)
    experts = max(1, config.num_experts + config.n_shared_experts)
    if config.num_hidden_layers * experts > MOST_EXPERTS:
        raise WrongInput(
            "config",
            f"This has {config.num_hidden_layers:,} layers of {experts:,} experts; at most "
            f"{MOST_EXPERTS:,} experts in all are counted here.",
        )
    linear = linear_shapes(config)
    head = (config.vocab_size, config.hidden_size)
    stored = sum(map(prod, linear.values()))
    rest = params - stored - prod(head)
    # A tied embedding is the head; the rest is what no format touches.
    model = types.Model("model", linear, head, {"rest": (rest,)})
    known = {one.name: one for one in (*plans.FORMATS, plans.W4A16_ASYM)}
    if values["format"] == OWN:
        fmt = types.Format(
            "own", values["code_bits"], values["group"], values["scale_bits"], values["zero_bits"],
            math=values["math"],
        )  # fmt: skip
    else:
        fmt = known[values["format"]]
    size, bf16 = quantization.plan_bytes(model, fmt), quantization.plan_bytes(model, plans.BF16)
    others = 2 * (prod(head) + rest)
    lines = [
        CalculatorLine(
            "Linear layers", size - others, "bytes",
            "for each matrix N × K: codes, scales, zero points, shared floats; whole bytes each",
            _stored(linear, fmt), "line-by-line", share=(size - others) / size,
        ),
        CalculatorLine(
            "Head and everything else in bf16", others, "bytes",
            "2 bytes × (head + embedding, norms, biases, routers)",
            f"2 * ({head[0]} * {head[1]} + {rest})", "line-by-line", share=others / size,
        ),
        CalculatorLine(
            "Whole model", size, "bytes", "both", f"{size - others} + {others}", "what-to-notice",
            headline=True,
        ),
        CalculatorLine(
            "Bits a weight of a linear layer", 8 * (size - others) / stored, "bits",
            "8 × bytes / weights", f"8 * {size - others} / {stored}",
            "what-is-w4a16-g128-in-memory",
        ),
        CalculatorLine(
            "Bits a parameter", 8 * size / params, "bits", "8 × bytes / all parameters",
            f"8 * {size} / {params}", "what-is-w4a16-g128-in-memory", headline=True,
        ),
        CalculatorLine(
            "Of the model in bf16", size / bf16, "of all", "bytes / bytes in bf16",
            f"{size} / {bf16}", "what-to-notice",
        ),
    ]  # fmt: skip
    notes = ["The activations' precision and the KV cache are not part of these bytes."]
    if config.num_experts:
        notes.append("A pass over experts reads only those that are used: no times are given here.")
        return CalculatorResult(lines, notes)
    for label, tokens in (("Decode: 1 token", 1), ("Prefill", values["tokens"])):
        now = quantization.pass_seconds(model, fmt, plans.H100, tokens)
        before = quantization.pass_seconds(model, plans.BF16, plans.H100, tokens)
        group = "One pass on an H100 SXM, at least"
        label = label if tokens == 1 else f"{label}: {tokens:,} tokens"
        lines += [
            CalculatorLine(
                label, now, "s",
                "for each matrix, the longer of 2 × tokens × N × K FLOPs at the peak and its bytes "
                "at the memory's rate; the head for one token",
                _seconds(linear, head, fmt, plans.H100, tokens), "line-by-line", group,
            ),
            CalculatorLine(
                f"{label.partition(':')[0]}, faster than bf16 by", before / now, "times",
                "bf16's time / this one", f"{before!r} / {now!r}",
                "how-much-faster-are-4-bit-weights", group,
            ),
        ]  # fmt: skip
    notes.append("Times count weights and products alone: no cache, no activations, no launches.")
    return CalculatorResult(lines, notes)


def _matrix(shape: tuple[int, int], fmt: Any) -> str:
    """The bytes of one matrix as an expression."""
    n, k = shape
    scales = n * -(-k // (fmt.group or k))
    shared = f"4 * ceil({scales} / {fmt.nested})" if fmt.nested else "0"
    arrays = [f"ceil({n} * {k} * {fmt.code_bits} / 8)"]
    arrays += [f"ceil({scales} * {bits} / 8)" for bits in (fmt.scale_bits, fmt.zero_bits) if bits]
    return sum_of([*arrays, shared, str(-(-fmt.tensor_bits // 8))])


def _stored(linear: dict[str, tuple[int, int]], fmt: Any) -> str:
    shapes = Counter(linear.values())
    return " + ".join(f"{times} * ({_matrix(shape, fmt)})" for shape, times in shapes.items())


def _seconds(
    linear: dict[str, tuple[int, int]], head: tuple[int, int], fmt: Any, gpu: Any, tokens: int
) -> str:
    peak, rate = number(gpu.flops[fmt.math]), number(gpu.bytes_per_s)
    parts = []
    for shape, times in Counter(linear.values()).items():
        n, k = shape
        stored = evaluated(_matrix(shape, fmt))
        parts.append(f"{times} * max(2 * {tokens} * {n} * {k} / {peak}, {stored} / {rate})")
    last = f"2 * {head[0]} * {head[1]}"
    return " + ".join([*parts, f"max({last} / {number(gpu.flops['bf16'])}, {last} / {rate})"])


FORMAT_BITS = Calculator(
    "format-bits",
    "A format's bytes and bits",
    "lab11",
    "What a model takes in a number format, scales included, and how fast a GPU can read it.",
    (
        *model_inputs(KNOWN, "Llama-3-8B"),
        ChoiceInput(
            "format", "Format", "W4A16 g128",
            (*((name, name) for name in FORMATS), (OWN, "A format of your own")),
        ),
        NumberInput("code_bits", "Bits a weight", "4", 1, 32, shown_if=OWN_FORMAT),
        NumberInput(
            "group", "Weights that share a scale", "128", 1, 1_000_000, empty=True,
            hint="Empty: the whole row.", shown_if=OWN_FORMAT,
        ),
        NumberInput("scale_bits", "Bits a scale", "16", 0, 64, shown_if=OWN_FORMAT),
        NumberInput("zero_bits", "Bits a zero point", "0", 0, 64, shown_if=OWN_FORMAT),
        ChoiceInput(
            "math", "The tensor cores multiply", "bf16",
            (("bf16", "bf16"), ("fp8", "fp8"), ("int8", "int8")), shown_if=OWN_FORMAT,
        ),
        NumberInput("tokens", "Tokens of a prefill", "8192", 2, 100_000_000),
    ),
    {
        **USES_MODELS,
        "memory_accounting": ("total_params",),
        "types_lab11": ("Model", "Format"),
        "plans_lab11": ("BF16", "FORMATS", "W4A16_ASYM", "H100"),
        "quantization": ("plan_bytes", "pass_seconds"),
    },
    format_bits,
)  # fmt: skip
