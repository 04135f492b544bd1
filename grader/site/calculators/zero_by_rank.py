"""Lab 08's ledger: what one of N ranks holds under ZeRO's stages."""

from __future__ import annotations

from grader.site.calculators.declaration import (
    Calculator,
    CalculatorLine,
    CalculatorResult,
    ChoiceInput,
    Labs,
    NumberInput,
    Values,
    WrongInput,
)
from grader.site.calculators.memory_ledgers import KNOWN
from grader.site.calculators.model_input import COUNTED, USES_MODELS, chosen_model, model_inputs

STAGES = (
    ("0", "0: nothing is sharded (DDP)"),
    ("1", "1: the optimizer's states"),
    ("2", "2: gradients, too"),
    ("3", "3: parameters, too (FSDP)"),
)
RECIPES = (
    ("bf16_mixed", "bf16 with float32 master weights: 2 + 2 + 12"),
    ("bf16_fp32grads", "the same with float32 gradients: 2 + 4 + 12"),
    ("fp16_fp16grads", "16-bit gradients and their float32 copy: 2 + 2 + 16"),
    ("fp32", "everything in float32: 4 + 4 + 8"),
    ("deepspeed", "DeepSpeed's: 2 + 2 + 16, at stage 3 2 + 0 + 16"),
)
PARTS = {"param": "Parameters", "grad": "Gradients", "opt": "Optimizer states"}


def zero_by_rank(values: Values, labs: Labs) -> CalculatorResult:
    zero = labs("zero_memory_accounting")
    ranks, recipe, stage = values["ranks"], values["recipe"], int(values["stage"])
    rank = values["rank"]
    if rank >= ranks:
        raise WrongInput(
            "rank", f"This is {rank}; {ranks:,} ranks have the numbers 0 to {ranks - 1:,}."
        )
    model = None if values["model"] == COUNTED else chosen_model(values, labs)
    params = values["params"]
    if model is not None:
        params = labs("memory_accounting").total_params(model)
    held = [zero.state_bytes(params, ranks, each, recipe) for each in range(4)]
    mine = held[stage]
    lines = [
        CalculatorLine(
            "Elements of a shard", -(-params // ranks), "elements",
            "parameters / ranks, rounded up: the flat buffer is padded",
            f"ceil({params} / {ranks})", "mental-model",
        )
    ]  # fmt: skip
    for part, label in PARTS.items():
        lines.append(
            CalculatorLine(
                label, mine[part], "bytes", "bytes an element × elements",
                _part(part, stage, params, ranks, zero, recipe), "line-by-line",
                share=mine[part] / mine["total"],
            )
        )  # fmt: skip
    lines.append(
        CalculatorLine(
            f"Total of rank {rank} at stage {stage}", mine["total"], "bytes", "all of these",
            " + ".join(str(mine[part]) for part in PARTS), "mental-model", headline=True,
        )
    )  # fmt: skip
    for each, row in enumerate(held):
        lines.append(
            CalculatorLine(
                zero.STAGES[each], row["total"], "bytes", "parameters + gradients + optimizer",
                " + ".join(_part(part, each, params, ranks, zero, recipe) for part in PARTS),
                "what-to-notice", "All stages, a rank", share=row["total"] / held[0]["total"],
            )
        )  # fmt: skip
    lines.append(
        CalculatorLine(
            "Elements that a rank sends a step", zero.TRAFFIC[stage] * params, "elements",
            "2 a parameter, 3 at stage 3 (ZeRO, section 7)",
            f"{zero.TRAFFIC[stage]} * {params}", "what-to-notice", "Traffic",
        )
    )  # fmt: skip
    if model is not None:
        lines += _embedding(model.vocab_size, model.hidden_size, ranks, rank, zero)
    notes = [
        "What is whole only for a while, such as the layer that stage 3 has gathered, is not "
        "counted, nor are activations."
    ]
    return CalculatorResult(lines, notes)


def _part(part: str, stage: int, params: int, ranks: int, zero: object, recipe: str) -> str:
    """Bytes an element times elements; the reference gives both."""
    each = zero.state_bytes(1, 1, stage, recipe)[part]  # type: ignore[attr-defined]
    sharded = stage >= {"opt": 1, "grad": 2, "param": 3}[part]
    return f"{each} * " + (f"ceil({params} / {ranks})" if sharded else str(params))


def _embedding(
    vocab: int, hidden: int, ranks: int, rank: int, zero: object
) -> list[CalculatorLine]:
    rows, _ = zero.dim0_shard((vocab, hidden), ranks, rank)  # type: ignore[attr-defined]
    each = f"ceil({vocab} / {ranks})"
    return [
        CalculatorLine(
            f"Rows of the embedding on rank {rank}", rows, "rows",
            "FSDP2 cuts each parameter along its first dimension, as torch.chunk does: the last "
            "ranks may hold fewer rows, or none",
            f"max(0, min({each}, {vocab} - {rank} * {each}))", "what-to-notice",
            "FSDP2's cut",
        )
    ]  # fmt: skip


ZERO = Calculator(
    "zero-by-rank",
    "ZeRO by rank",
    "lab08",
    "What each of N data-parallel ranks holds of a model's training states, stage by stage.",
    (
        *model_inputs(KNOWN, "Llama-3-8B", counted=True),
        NumberInput("ranks", "Data-parallel ranks", "64", 1, 10_000_000),
        NumberInput("rank", "Look at rank", "0", 0, 9_999_999),
        ChoiceInput("stage", "ZeRO stage", "3", STAGES),
        ChoiceInput("recipe", "Precision of the states", "bf16_mixed", RECIPES),
    ),
    {
        **USES_MODELS,
        "memory_accounting": ("total_params",),
        "zero_memory_accounting": ("state_bytes", "dim0_shard", "STAGES", "TRAFFIC"),
    },
    zero_by_rank,
)
