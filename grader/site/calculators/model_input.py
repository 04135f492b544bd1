"""A model as an input: one that the labs know, or a pasted `config.json`.

Lab 01's own reader (`ModelConfig.from_hf`) reads the file. What is checked before it is what that
reader may take for granted: that numbers are numbers of a size that a model can have.
"""

from __future__ import annotations

import json
from typing import Any

from grader.site.calculators.declaration import (
    AnyInput,
    ChoiceInput,
    Labs,
    NumberInput,
    TextInput,
    Values,
    WrongInput,
)

PASTED = "config.json"
COUNTED = "count"
USES_MODELS = {"types_lab01": ("CONFIGS", "ModelConfig")}
LONGEST_FILE, DEEPEST, MOST_LAYERS, LARGEST = 200_000, 20, 2_000, 100_000_000

# A whole number in a config, with the least that it may be. `null` is a number left out.
_AT_LEAST_1 = [
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "n_embd",
    "n_head",
    "n_layer",
    "n_inner",
    "n_positions",
    "max_position_embeddings",
    "ffn_dim",
    "word_embed_proj_dim",
    "q_lora_rank",
    "kv_lora_rank",
    "v_head_dim",
    "num_local_experts",
    "n_routed_experts",
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "moe_layer_freq",
    "decoder_sparse_step",
    "qk_nope_head_dim",
]
_AT_LEAST_0 = [
    "n_shared_experts",
    "first_k_dense_replace",
    "qk_rope_head_dim",
    "sliding_window",
    "max_window_layers",
]
_SWITCHES = [
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
    "use_sliding_window",
    "do_layer_norm_before",
    "enable_bias",
]
_LAYERS = ("num_hidden_layers", "n_layer")
_KINDS_OF_LAYER = ("full_attention", "sliding_attention")


def model_inputs(names: tuple[str, ...], default: str, counted: bool = False) -> list[AnyInput]:
    """Inputs for a model: the names, the pasted file and, if asked for, a number of parameters."""
    choices = [(name, name) for name in names]
    choices.append((PASTED, "Paste a config.json"))
    if counted:
        choices.append((COUNTED, "A number of parameters"))
    inputs: list[AnyInput] = [
        ChoiceInput("model", "Model", default, tuple(choices)),
        TextInput(
            "config",
            "config.json",
            hint="As it stands beside the weights on Hugging Face. It stays on this page.",
            shown_if=("model", PASTED),
        ),
    ]
    if counted:
        inputs.append(
            NumberInput(
                "params", "Parameters", "7.5e9", 1, 10**15, hint="Such as 7.5e9 or 70,553,706,496.",
                shown_if=("model", COUNTED),
            )
        )  # fmt: skip
    return inputs


def chosen_model(values: Values, labs: Labs) -> Any:
    """Lab 01's `ModelConfig` of the model that was picked or pasted; raises WrongInput."""
    types = labs("types_lab01")
    if values["model"] != PASTED:
        return types.ModelConfig.from_hf(types.CONFIGS[values["model"]])
    config = parsed(values["config"])
    try:
        model = types.ModelConfig.from_hf(config)
    except ValueError as refused:
        raise WrongInput("config", str(refused)) from None
    if model.num_experts_per_tok > model.num_experts:
        raise WrongInput(
            "config",
            f"num_experts_per_tok is {model.num_experts_per_tok} and there are "
            f"{model.num_experts} experts; a token cannot go to more than there are.",
        )
    return model


def parsed(text: str) -> dict[str, Any]:
    """A pasted config.json as a dict whose known fields have their types; raises WrongInput."""
    if not text.strip():
        raise WrongInput("config", "Paste the text of a config.json here.")
    if len(text) > LONGEST_FILE:
        raise WrongInput(
            "config",
            f"This has {len(text):,} characters; a config.json has at most {LONGEST_FILE:,}.",
        )
    # The parser recurses, and a browser's stack is small.
    if max(text.count("["), text.count("{")) > DEEPEST and _depth(text) > DEEPEST:
        raise WrongInput("config", f"This is nested more than {DEEPEST} deep; is it a config.json?")
    try:
        config = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as wrong:
        raise WrongInput(
            "config",
            f"This is not JSON: {wrong.msg}, at line {wrong.lineno}, column {wrong.colno}.",
        ) from None
    except ValueError as wrong:
        raise WrongInput("config", f"This is not a config.json: {wrong}") from None
    if not isinstance(config, dict):
        raise WrongInput(
            "config", 'This is JSON, but not an object; a config.json begins with "{".'
        )
    if isinstance(config.get("text_config"), dict) and "vocab_size" not in config:
        raise WrongInput(
            "config",
            "This is the config of a model with several parts; paste what stands under "
            "`text_config` alone.",
        )
    for name, value in config.items():
        _check_field(name, value)
    types = config.get("layer_types")
    # Other families' readers do not look at it.
    if config.get("model_type") == "gemma2" and types is not None:
        _check_layer_types(types)
    return config


def _check_layer_types(types: Any) -> None:
    if not (
        isinstance(types, list)
        and len(types) <= MOST_LAYERS
        and all(kind in _KINDS_OF_LAYER for kind in types)
    ):
        known = " or ".join(_KINDS_OF_LAYER)
        raise WrongInput("config", f"layer_types must be a list with {known} for each layer.")


def _check_field(name: str, value: Any) -> None:
    if value is None:
        return
    if name in _AT_LEAST_1 or name in _AT_LEAST_0:
        least = 1 if name in _AT_LEAST_1 else 0
        most = MOST_LAYERS if name in _LAYERS else LARGEST
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            said = json.dumps(value)[:40]
            raise WrongInput(
                "config",
                f"{name} is {said}; it must be a whole number from {least:,} to {most:,}.",
            )
    elif name in _SWITCHES and not isinstance(value, bool):
        raise WrongInput("config", f"{name} is {json.dumps(value)[:40]}; it must be true or false.")
    elif name == "model_type" and not (isinstance(value, str) and len(value) <= 60):
        raise WrongInput("config", 'model_type must be a name such as "llama".')
    elif name == "mlp_only_layers" and not isinstance(value, list):
        raise WrongInput("config", "mlp_only_layers must be a list.")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} stands in it, which JSON does not have.")


def _depth(text: str) -> int:
    """How deep brackets are nested, those in strings included."""
    depth = deepest = 0
    for letter in text:
        if letter in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif letter in "]}":
            depth -= 1
    return deepest
