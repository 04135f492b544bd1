"""Lab 01's two ledgers: what training keeps, and what inference keeps."""

from __future__ import annotations

from collections import Counter
from typing import Any

from grader.site.calculators.declaration import (
    Calculator,
    CalculatorLine,
    CalculatorResult,
    ChoiceInput,
    Labs,
    NumberInput,
    SwitchInput,
    Values,
    number,
    sum_of,
)
from grader.site.calculators.model_input import USES_MODELS, chosen_model, model_inputs

GIB = 1024**3
KNOWN = (
    "Llama-2-7B", "Llama-2-13B", "Llama-2-70B", "Llama-3-8B", "Llama-3-70B", "Llama-3.1-405B",
    "Llama-3.2-1B", "Mistral-7B-v0.1", "Mistral-7B-v0.3", "Mixtral-8x7B", "Qwen2.5-0.5B",
    "Qwen2.5-7B", "Qwen3-8B", "Qwen3-30B-A3B", "Gemma-7B", "Gemma-2-9B", "GPT-2", "GPT-2-XL",
    "Pythia-1B", "Pythia-6.9B", "Pythia-12B", "GPT-NeoX-20B", "OPT-13B", "DeepSeek-V3",
)  # fmt: skip
RECIPES = (
    ("bf16_mixed", "bf16 with float32 master weights: 2 + 2 + 12"),
    ("bf16_fp32grads", "the same with float32 gradients: 2 + 4 + 12"),
    ("fp32", "everything in float32: 4 + 4 + 8"),
    ("bf16_pure", "everything in bf16: 2 + 2 + 4"),
    ("adam8bit", "bf16 with 8-bit Adam: 2 + 2 + about 2"),
)
DTYPES = (("2", "bf16 or fp16: 2 bytes"), ("1", "fp8 or int8: 1 byte"), ("4", "fp32: 4 bytes"))
TERMS = {
    "weights": "Weights",
    "gradients": "Gradients",
    "optimizer": "Optimizer states",
    "activations": "Activations",
    "kv_cache": "KV cache",
    "other": "Logits and overhead",
}
BATCH = NumberInput("batch", "Sequences at once (batch)", "4", 1, 1_000_000)
SEQ = NumberInput("seq", "Tokens a sequence", "4096", 1, 100_000_000)


def parameter_lines(model: Any, labs: Labs) -> list[CalculatorLine]:
    """The model's parameters, with the sum that gives them."""
    count = labs("memory_accounting")
    lines = [
        CalculatorLine(
            "Parameters",
            count.total_params(model),
            "parameters",
            "layers × (attention + MLP + norms) + embedding + head + positions + last norm",
            _parameter_sum(model, labs, active=False),
            "line-by-line",
        )
    ]
    if model.num_experts:
        lines.append(
            CalculatorLine(
                "Active parameters",
                count.total_params(model, active=True),
                "parameters",
                "the same with the experts alone that one token uses",
                _parameter_sum(model, labs, active=True),
                "line-by-line",
            )
        )
    return lines


def _parameter_sum(model: Any, labs: Labs, active: bool) -> str:
    count, d = labs("memory_accounting"), model.hidden_size
    norm = 2 * d if model.norm_bias else d
    attention = count.attention_params(model)
    mlps = Counter(
        count.ffn_params(model, layer, active) for layer in range(model.num_hidden_layers)
    )
    layers = [
        f"{times} * ({attention} + {mlp} + {model.norms_per_layer} * {norm})"
        for mlp, times in mlps.items()
    ]
    tables = 1 if model.tie_word_embeddings else 2
    positions = f"{model.position_rows} * {d}" if model.position_rows else "0"
    return sum_of([*layers, f"{tables} * {model.vocab_size} * {d}", positions, str(norm)])


def _ledger_lines(ledger: Any, filled: dict[str, tuple[str, str, str]]) -> list[CalculatorLine]:
    """A line for each term that is not 0, and their sum."""
    terms = {name: size for name, size in ledger.terms().items() if size}
    lines = [
        CalculatorLine(
            TERMS[name],
            size,
            "bytes",
            *filled[name],
            share=size / ledger.total,
        )
        for name, size in terms.items()
    ]
    total = " + ".join(number(size) for size in terms.values())
    return [
        *lines,
        CalculatorLine(
            "Total", ledger.total, "bytes", "all of these", total, "mental-model", headline=True
        ),
    ]


def training(values: Values, labs: Labs) -> CalculatorResult:
    count = labs("memory_accounting")
    model = chosen_model(values, labs)
    batch, seq, recipe = values["batch"], values["seq"], values["recipe"]
    params = count.total_params(model)
    states = count.training_state_bytes(params, recipe)
    act = count.activation_bytes(
        model, batch, seq, values["attention"], values["dropout"], values["recompute"],
        logits=values["logits"],
    )  # fmt: skip
    ledger = labs("types_lab01").Ledger(
        params=params,
        weights=states.weights,
        gradients=states.gradients,
        optimizer=states.optimizer,
        activations=act,
    )
    each = "{} bytes a parameter".format
    optimizer = f"{number(states.optimizer // params)} * {params}"
    words = each(number(states.optimizer // params))
    if recipe == "adam8bit":
        optimizer = f"2 * {params} + 2 * 4 * ceil({params} / 256)"
        words = "2 bytes a parameter, and two float32 scales a block of 256"
    weights, gradients = states.weights // params, states.gradients // params
    filled = {
        "weights": (each(weights), f"{weights} * {params}", "line-by-line"),
        "gradients": (each(gradients), f"{gradients} * {params}", "line-by-line"),
        "optimizer": (words, optimizer, "line-by-line"),
        "activations": _activations(model, values),
    }
    term, lever = count.bottleneck(ledger)
    lines = parameter_lines(model, labs) + _ledger_lines(ledger, filled)
    lines.append(
        CalculatorLine(
            "What would shrink it most",
            f"{TERMS[term]}: {lever}",
            words="the largest term, and the lever for it",
            section="what-to-notice",
        )
    )
    notes = [
        "Activations are those of the GPT layer of Korthikanti et al. 2022 (an MLP of 4 × hidden, "
        "two LayerNorms): of the model, its width, heads, layers and vocabulary count.",
        "On one GPU, nothing sharded. Temporary buffers and fragmentation are not counted.",
    ]
    return CalculatorResult(lines, notes)


def _activations(model: Any, values: Values) -> tuple[str, str, str]:
    batch, seq, h, heads = (
        values["batch"],
        values["seq"],
        model.hidden_size,
        model.num_attention_heads,
    )
    mask = 1 if values["dropout"] else 0
    if values["recompute"] == "full":
        layer, words = f"2 * {seq} * {batch} * {h}", "layers × 2 s b h"
    else:
        first = 32 + 2 * mask
        layer, words = f"{first} * {seq} * {batch} * {h}", f"layers × ({first} s b h"
        if values["recompute"] == "none" and values["attention"] == "eager":
            layer += f" + {2 + 3 * mask} * {heads} * {seq} * {seq} * {batch}"
            words += f" + {2 + 3 * mask} a s² b"
        elif values["recompute"] == "none":
            layer += f" + 4 * {heads} * {seq} * {batch}"
            words += " + 4 a s b"
        words += ")"
    filled = f"{model.num_hidden_layers} * ({layer})"
    if values["logits"]:
        filled += f" + 4 * {batch} * {seq} * {model.vocab_size}"
        words += " + 4 b s vocab"
    return words + "; s tokens, b sequences, h hidden, a heads", filled, "appendix"


def inference(values: Values, labs: Labs) -> CalculatorResult:
    count = labs("memory_accounting")
    model = chosen_model(values, labs)
    batch, seq, dtype = values["batch"], values["seq"], int(values["dtype"])
    overhead = int(values["overhead"] * GIB)
    usable = values["gpu"] * GIB * values["usable"]
    ledger = count.inference_ledger(model, batch, seq, dtype, overhead)
    token = count.kv_bytes_per_token(model, dtype)
    layers = model.num_hidden_layers
    if model.is_mla:
        one = f"({model.kv_lora_rank} + {model.qk_rope_head_dim})"
        token_words = "layers × (kv_lora_rank + qk_rope_head_dim) × bytes"
    else:
        one = f"2 * {model.num_key_value_heads} * {model.head_dim}"
        token_words = "layers × 2 (K and V) × key/value heads × head_dim × bytes"
    windows = Counter(model.window(layer) for layer in range(layers))
    lengths = [
        f"{times} * {seq if window is None else f'min({seq}, {window})'}"
        for window, times in windows.items()
    ]
    cache = f"{batch} * {seq} * {token}"
    if set(windows) != {None}:
        cache = f"{batch} * ({' + '.join(lengths)}) * {token // layers}"
    filled = {
        "weights": ("parameters × bytes", f"{ledger.params} * {dtype}", "line-by-line"),
        "kv_cache": ("sequences × tokens × bytes a token", cache, "what-to-notice"),
        "other": (
            "float32 logits of each sequence's last token, and the overhead",
            f"4 * {batch} * {model.vocab_size} + {overhead}",
            "line-by-line",
        ),
    }
    empty = count.inference_ledger(model, 0, seq, dtype, overhead).total
    one_more = count.inference_ledger(model, 1, seq, dtype, overhead).total - empty
    lines = [
        *parameter_lines(model, labs),
        CalculatorLine(
            "KV cache a token", token, "bytes", token_words, f"{layers} * {one} * {dtype}",
            "what-to-notice",
        ),
        *_ledger_lines(ledger, filled),
        CalculatorLine(
            "Memory that may be used", usable, "bytes", "the GPU's memory × the usable share",
            f"{number(values['gpu'])} * {GIB} * {number(values['usable'])}", "mental-model",
        ),
        CalculatorLine(
            "Largest batch that fits", count.max_batch(model, usable, seq, dtype, overhead),
            "sequences", "(usable − what an empty batch takes) / what a sequence adds",
            f"max(0, floor(({number(usable)} - {empty}) / {one_more}))", "tasks", headline=True,
        ),
    ]  # fmt: skip
    notes = []
    if model.layer_types and "sliding_attention" in model.layer_types:
        notes.append(
            f"{windows[model.sliding_window]} of {layers} layers keep at most "
            f"{model.sliding_window:,} tokens; the figure a token is for the others' growth."
        )
    return CalculatorResult(lines, notes)


_COUNTS = ("total_params", "attention_params", "ffn_params")
TRAINING = Calculator(
    "training-memory",
    "Training memory",
    "lab01",
    "What one GPU holds while it trains a model: weights, gradients, optimizer and activations.",
    (
        *model_inputs(KNOWN, "Llama-2-7B"),
        BATCH,
        SEQ,
        ChoiceInput("recipe", "Precision of the states", "bf16_mixed", RECIPES),
        ChoiceInput(
            "attention",
            "Attention",
            "sdpa",
            (("sdpa", "fused (FlashAttention)"), ("eager", "eager: scores in memory")),
        ),
        ChoiceInput(
            "recompute",
            "Recomputation",
            "none",
            (("none", "none"), ("selective", "selective (attention)"), ("full", "full")),
        ),
        SwitchInput("dropout", "Dropout"),
        SwitchInput("logits", "Count the loss's logits", "true"),
    ),
    {
        **USES_MODELS,
        "types_lab01": (*USES_MODELS["types_lab01"], "Ledger"),
        "memory_accounting": (*_COUNTS, "training_state_bytes", "activation_bytes", "bottleneck"),
    },
    training,
)
INFERENCE = Calculator(
    "inference-memory",
    "Inference memory",
    "lab01",
    "What one GPU holds while it decodes, and how many sequences fit.",
    (
        *model_inputs(KNOWN, "Llama-3-8B"),
        BATCH,
        SEQ,
        ChoiceInput("dtype", "Weights and cache in", "2", DTYPES),
        NumberInput("gpu", "Memory of the GPU", "80", 0.01, 100_000, "GiB", whole=False),
        NumberInput("usable", "Usable share of it", "0.9", 0.01, 1, whole=False),
        NumberInput(
            "overhead", "CUDA, workspaces", "1", 0, 10_000, "GiB", whole=False
        ),
    ),
    {
        **USES_MODELS,
        "memory_accounting": (
            *_COUNTS, "inference_ledger", "kv_bytes_per_token", "max_batch",
        ),
    },
    inference,
)  # fmt: skip
