"""Lab 10's capacity: blocks of the KV cache on a GPU, and how many requests they hold."""

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
    number,
)
from grader.site.calculators.memory_ledgers import DTYPES, GIB, KNOWN
from grader.site.calculators.model_input import PASTED, USES_MODELS, chosen_model, model_inputs

FITTING = tuple(name for name in KNOWN if name != "DeepSeek-V3")


def kv_blocks(values: Values, labs: Labs) -> CalculatorResult:
    serving, types = labs("serving"), labs("types_lab10")
    config = chosen_model(values, labs)
    if config.is_mla:
        raise WrongInput(
            "config" if values["model"] == PASTED else "model",
            "This model has multi-head latent attention; lab 10 counts keys and values of heads. "
            "The inference calculator counts its cache.",
        )
    tp, block, length = values["tp"], values["block"], values["length"]
    heads = config.num_key_value_heads
    params = labs("memory_accounting").total_params(config)
    model = types.Model(
        params * int(values["dtype"]), config.num_hidden_layers, heads, config.head_dim
    )
    gpu = int(values["gpu"] * GIB)
    act, other = int(values["activations"] * GIB), int(values["other"] * GIB)
    kv = int(values["kv_dtype"])
    try:
        found = serving.capacity(
            model, gpu, length, values["utilization"], tp, kv, block, act, other
        )
    except ValueError as refused:
        raise WrongInput("tp", str(refused)) from None
    heads_here = max(1, heads // tp)
    budget = values["utilization"] * gpu
    left = budget - model.weight_bytes / tp - act - other
    blocks = serving.blocks_for(length, block)
    lines = [
        CalculatorLine(
            "Weights on each GPU", model.weight_bytes / tp, "bytes",
            "parameters × bytes / GPUs", f"{params} * {values['dtype']} / {tp}", "line-by-line",
            share=min(1.0, model.weight_bytes / tp / budget),
        ),
        CalculatorLine(
            "Memory that the engine may use", budget, "bytes", "utilization × the GPU's memory",
            f"{number(values['utilization'])} * {gpu}", "line-by-line",
        ),
        CalculatorLine(
            "Left for the cache", left, "bytes", "usable − weights − activations − other",
            f"{number(budget)} - {number(model.weight_bytes / tp)} - {act} - {other}",
            "line-by-line", share=min(1.0, max(0.0, left / budget)),
        ),
        CalculatorLine(
            "Bytes of a block", found.kv_bytes_per_block, "bytes",
            "K and V × layers × key/value heads here × head_dim × bytes × tokens a block",
            f"2 * {config.num_hidden_layers} * {heads_here} * {config.head_dim} * {kv} * {block}",
            "line-by-line",
        ),
        CalculatorLine(
            "Blocks", found.num_blocks, "blocks", "what is left / bytes of a block, rounded down",
            f"max(0, floor({number(left)} / {found.kv_bytes_per_block}))", "what-to-notice",
            headline=True,
        ),
        CalculatorLine(
            "Tokens that fit", found.num_blocks * block, "tokens", "blocks × tokens a block",
            f"{found.num_blocks} * {block}", "what-to-notice",
        ),
        CalculatorLine(
            "Blocks of the longest request", blocks, "blocks",
            "tokens / tokens a block, rounded up", f"ceil({length} / {block})", "what-to-notice",
        ),
        CalculatorLine(
            "Longest requests at once", found.max_concurrency, "requests",
            "blocks / blocks of the longest request", f"{found.num_blocks} / {blocks}",
            "how-many-users-can-this-card-serve", headline=True,
        ),
    ]  # fmt: skip
    notes = []
    if not found.num_blocks:
        notes.append(
            "Nothing is left for the cache: the engine does not start. Use more GPUs, a smaller "
            "dtype or a higher utilization."
        )
    elif found.max_concurrency < 1:
        notes.append(
            f"Not even one request of {length:,} tokens fits: vLLM refuses to start with this "
            f"greatest length."
        )
    if "sliding_attention" in config.layer_types:
        notes.append("Every layer counts as full attention here, windows as well.")
    return CalculatorResult(lines, notes)


KV_BLOCKS = Calculator(
    "kv-blocks",
    "KV blocks and concurrency",
    "lab10",
    "How many KV-cache blocks a serving engine has on each GPU, and how many requests they hold.",
    (
        *model_inputs(FITTING, "Llama-3-8B"),
        ChoiceInput("dtype", "Weights in", "2", DTYPES),
        ChoiceInput("kv_dtype", "Cache in", "2", DTYPES),
        NumberInput("gpu", "Memory of a GPU", "80", 0.01, 100_000, "GiB", whole=False),
        NumberInput(
            "utilization", "gpu_memory_utilization", "0.92", 0.01, 1, whole=False,
            hint="The share of a GPU that the engine may use, all in all.",
        ),
        NumberInput("tp", "GPUs that share the model", "1", 1, 1024, hint="tensor_parallel_size"),
        NumberInput(
            "length", "Longest request", "8192", 1, 100_000_000, "tokens", hint="max_model_len"
        ),
        NumberInput("block", "Tokens a block", "16", 1, 4096, hint="block_size"),
        NumberInput(
            "activations", "Activations of the largest step", "1.5", 0, 10_000, "GiB", whole=False
        ),
        NumberInput("other", "CUDA context, graphs, NCCL", "1", 0, 10_000, "GiB", whole=False),
    ),
    {
        **USES_MODELS,
        "memory_accounting": ("total_params",),
        "types_lab10": ("Model",),
        "serving": ("capacity", "blocks_for"),
    },
    kv_blocks,
)  # fmt: skip
