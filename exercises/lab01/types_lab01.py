"""Given: the records of lab 01 and the real model configs that it counts.

Nothing here is a task. `ModelConfig` describes a decoder-only transformer, `Ledger` a memory
footprint, `Notebook`, `Claim` and `Finding` belong to the `audit` task. No torch is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

GIB = 1024**3


@dataclass(frozen=True)
class ModelConfig:
    """A decoder-only transformer, in Hugging Face's field names where Hugging Face has one.

    The fields after `tie_word_embeddings` say in data what `config.json` leaves to the model's
    code: a family's biases, norms and position table. `from_hf` fills them in.

    Shapes: the embedding is `(vocab_size, hidden_size)`; an untied model has a second matrix of
    that shape, its head. A query projection is `(num_attention_heads * head_dim, hidden_size)`:
    the product need not be `hidden_size`.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    tie_word_embeddings: bool = False
    # What the family's code adds.
    gated_mlp: bool = True  # gate, up and down (SwiGLU, GeGLU); otherwise up and down (GPT)
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False  # one bias a matrix of a plain or gated MLP
    norm_bias: bool = False  # LayerNorm has a weight and a bias, RMSNorm a weight only
    norms_per_layer: int = 2  # of hidden_size each; one more follows the last layer
    qk_norm: bool = False  # one norm weight of head_dim for queries, one for keys
    position_rows: int = 0  # rows of a learned position table; 0 for rotary models
    # Mixture of experts: 0 experts is a dense model.
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0  # of one routed expert
    n_shared_experts: int = 0  # always on, moe_intermediate_size wide each
    first_k_dense_replace: int = 0  # the first k layers have a dense MLP of intermediate_size
    router_bias: bool = False  # one number an expert, beside the router's matrix
    # Multi-head latent attention (DeepSeek): kv_lora_rank is None elsewhere.
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    # "full_attention" or "sliding_attention" for each layer; () means full everywhere.
    sliding_window: int | None = None
    layer_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "intermediate_size",
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                raise ValueError(f"{name} is {value!r}; it must be a whole number above 0.")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"{self.num_attention_heads} query heads cannot share "
                f"{self.num_key_value_heads} key/value heads evenly."
            )
        if self.layer_types and len(self.layer_types) != self.num_hidden_layers:
            raise ValueError(
                f"layer_types names {len(self.layer_types)} layers, "
                f"num_hidden_layers is {self.num_hidden_layers}."
            )

    @property
    def is_mla(self) -> bool:
        """Whether attention is multi-head latent attention (a compressed KV cache)."""
        return self.kv_lora_rank is not None

    def is_moe_layer(self, layer: int) -> bool:
        """Whether layer number `layer` (0 is the first) routes tokens to experts."""
        return self.num_experts > 0 and layer >= self.first_k_dense_replace

    def window(self, layer: int) -> int | None:
        """Tokens that layer number `layer` can look back at, or None for all of them."""
        if self.layer_types and self.layer_types[layer] == "sliding_attention":
            return self.sliding_window
        return None

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> ModelConfig:
        """Read a `config.json` that was loaded into a dict.

        Raises `ValueError` for a family that this lab does not know, for a field that the family
        needs and the dict lacks, and for a variant of a family whose parameters differ.
        """
        family = config.get("model_type")
        if family is None:
            raise ValueError("The config has no `model_type`; it says which family to read it as.")
        if family not in _FAMILIES:
            known = ", ".join(sorted(_FAMILIES))
            raise ValueError(f"model_type {family!r} is not one of the families here: {known}.")
        return _FAMILIES[family](_Fields(str(family), config))


@dataclass(frozen=True)
class Ledger:
    """Bytes by name; a term that does not apply is 0. `params` is a count, not part of `total`."""

    params: float = 0
    weights: float = 0
    gradients: float = 0
    optimizer: float = 0
    activations: float = 0
    kv_cache: float = 0
    other: float = 0

    @property
    def total(self) -> float:
        """Bytes of all terms together."""
        return sum(self.terms().values())

    def terms(self) -> dict[str, float]:
        """Name to bytes, without the parameter count."""
        names = ("weights", "gradients", "optimizer", "activations", "kv_cache", "other")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        rows = [(name, size) for name, size in self.terms().items() if size]
        lines = [f"  {name.replace('_', ' '):<12}{size / GIB:>9.1f} GiB" for name, size in rows]
        return "\n".join([*lines, f"  {'total':<12}{self.total / GIB:>9.1f} GiB"])


@dataclass(frozen=True)
class Claim:
    """A sentence of the notebook as a number: the prose says that `quantity` is in [low, high].

    `quantity` is one of
    - `training_gib`: weights, gradients, optimizer states and activations together, GiB
    - `inference_gib`: weights and KV cache together, GiB
    - `context_doubling`: inference memory at twice the context, divided by that at the context
    - `int4_weight_fraction`: 4-bit weights, as a fraction of the notebook's weights (no scales)
    """

    quantity: str
    low: float
    high: float
    text: str = ""


@dataclass(frozen=True)
class Notebook:
    """The inputs of a memory notebook and what its prose claims about them.

    Its ledger is the simple one: `precision_bytes` a weight, `state_bytes` a parameter for
    weights, gradients and optimizer together, `activation_scale` values of `precision_bytes` for
    each token, layer and hidden unit, one K and one V of `heads * head_dim` a token and layer.
    """

    params: float
    layers: int
    hidden: int
    heads: int
    head_dim: int
    batch: int
    seq: int
    precision_bytes: int = 2
    state_bytes: int = 16
    activation_scale: float = 7.0
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Finding:
    """A claim that the notebook's own inputs contradict: `actual` is outside [low, high]."""

    quantity: str
    low: float
    high: float
    actual: float


NOTEBOOK = Notebook(
    params=6.74e9,
    layers=32,
    hidden=4096,
    heads=32,
    head_dim=128,
    batch=4,
    seq=4096,
    claims=(
        Claim("training_gib", 30.0, 35.0, "Training needs 30-35 GiB a GPU."),
        Claim("inference_gib", 24.5, 25.5, "Inference (batch 4, 4k) needs about 25 GiB."),
        Claim("context_doubling", 1.9, 2.1, "Doubling the context doubles inference memory."),
        Claim("int4_weight_fraction", 0.75, 0.75, "4-bit weights cut the weight term by 1/4."),
    ),
)


# --- reading a config.json -----------------------------------------------------------------------


class _Fields:
    """A family's view of a config dict: missing fields become sentences, not KeyErrors."""

    def __init__(self, family: str, config: Mapping[str, Any]) -> None:
        self.family, self.config = family, config

    def need(self, name: str) -> Any:
        if self.config.get(name) is None:
            raise ValueError(f"A {self.family} config needs `{name}`, which is missing.")
        return self.config[name]

    def get(self, name: str, default: Any) -> Any:
        value = self.config.get(name)
        return default if value is None else value

    def refuse(self, name: str, plain: Any) -> None:
        if self.get(name, plain) != plain:
            raise ValueError(
                f"A {self.family} config with {name} = {self.config[name]!r} has other parameters "
                f"than this lab counts ({plain!r} only)."
            )

    def common(self, tied: bool = False) -> dict[str, Any]:
        heads = self.need("num_attention_heads")
        return {
            "model_type": self.family,
            "vocab_size": self.need("vocab_size"),
            "hidden_size": self.need("hidden_size"),
            "num_hidden_layers": self.need("num_hidden_layers"),
            "num_attention_heads": heads,
            "num_key_value_heads": self.get("num_key_value_heads", heads),
            "head_dim": self.get("head_dim", self.need("hidden_size") // heads),
            "intermediate_size": self.need("intermediate_size"),
            "tie_word_embeddings": self.get("tie_word_embeddings", tied),
        }

    def sliding(self, layer_types: list[str]) -> dict[str, Any]:
        if "sliding_attention" not in layer_types:
            return {}
        return {"sliding_window": self.need("sliding_window"), "layer_types": tuple(layer_types)}


def _llama(fields: _Fields) -> ModelConfig:
    bias = fields.get("attention_bias", False)
    mlp_bias = fields.get("mlp_bias", False)
    return ModelConfig(**fields.common(), qkv_bias=bias, o_bias=bias, mlp_bias=mlp_bias)


def _mistral(fields: _Fields) -> ModelConfig:
    layers = fields.need("num_hidden_layers")
    kind = "sliding_attention" if fields.get("sliding_window", 0) else "full_attention"
    return ModelConfig(**fields.common(), **fields.sliding([kind] * layers))


def _mixtral(fields: _Fields) -> ModelConfig:
    layers = fields.need("num_hidden_layers")
    kind = "sliding_attention" if fields.get("sliding_window", 0) else "full_attention"
    return ModelConfig(
        **fields.common(),
        num_experts=fields.need("num_local_experts"),
        num_experts_per_tok=fields.need("num_experts_per_tok"),
        moe_intermediate_size=fields.need("intermediate_size"),
        **fields.sliding([kind] * layers),
    )


def _qwen_layer_types(fields: _Fields) -> list[str]:
    # `sliding_window` stands in these configs even where `use_sliding_window` is false.
    layers = fields.need("num_hidden_layers")
    if not fields.get("use_sliding_window", False):
        return ["full_attention"] * layers
    first = fields.get("max_window_layers", layers)
    return ["sliding_attention" if i >= first else "full_attention" for i in range(layers)]


def _qwen2(fields: _Fields) -> ModelConfig:
    types = _qwen_layer_types(fields)
    return ModelConfig(**fields.common(), qkv_bias=True, **fields.sliding(types))


def _qwen3(fields: _Fields) -> ModelConfig:
    bias = fields.get("attention_bias", False)
    fields.need("head_dim")
    types = _qwen_layer_types(fields)
    return ModelConfig(
        **fields.common(), qkv_bias=bias, o_bias=bias, qk_norm=True, **fields.sliding(types)
    )


def _qwen3_moe(fields: _Fields) -> ModelConfig:
    fields.refuse("decoder_sparse_step", 1)
    fields.refuse("mlp_only_layers", [])
    bias = fields.get("attention_bias", False)
    fields.need("head_dim")
    return ModelConfig(
        **fields.common(),
        qkv_bias=bias,
        o_bias=bias,
        qk_norm=True,
        num_experts=fields.need("num_experts"),
        num_experts_per_tok=fields.need("num_experts_per_tok"),
        moe_intermediate_size=fields.need("moe_intermediate_size"),
    )


def _gemma(fields: _Fields) -> ModelConfig:
    fields.need("head_dim")
    return ModelConfig(**fields.common(tied=True))


def _gemma2(fields: _Fields) -> ModelConfig:
    fields.need("head_dim")
    layers = fields.need("num_hidden_layers")
    alternate = ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)]
    types = fields.get("layer_types", alternate)
    return ModelConfig(**fields.common(tied=True), norms_per_layer=4, **fields.sliding(types))


_GPT_BIASES = {"qkv_bias": True, "o_bias": True, "mlp_bias": True, "norm_bias": True}


def _gpt2(fields: _Fields) -> ModelConfig:
    hidden, heads = fields.need("n_embd"), fields.need("n_head")
    return ModelConfig(
        model_type="gpt2",
        vocab_size=fields.need("vocab_size"),
        hidden_size=hidden,
        num_hidden_layers=fields.need("n_layer"),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        intermediate_size=fields.get("n_inner", 4 * hidden),
        tie_word_embeddings=fields.get("tie_word_embeddings", True),
        gated_mlp=False,
        position_rows=fields.need("n_positions"),
        **_GPT_BIASES,
    )


def _gpt_neox(fields: _Fields) -> ModelConfig:
    fields.refuse("attention_bias", True)
    return ModelConfig(**fields.common(), gated_mlp=False, **_GPT_BIASES)


def _opt(fields: _Fields) -> ModelConfig:
    hidden, heads = fields.need("hidden_size"), fields.need("num_attention_heads")
    fields.refuse("word_embed_proj_dim", hidden)
    fields.refuse("do_layer_norm_before", True)
    fields.refuse("enable_bias", True)
    return ModelConfig(
        model_type="opt",
        vocab_size=fields.need("vocab_size"),
        hidden_size=hidden,
        num_hidden_layers=fields.need("num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        intermediate_size=fields.need("ffn_dim"),
        tie_word_embeddings=fields.get("tie_word_embeddings", True),
        gated_mlp=False,
        # Positions start at 2, an inheritance from fairseq's padding index.
        position_rows=fields.need("max_position_embeddings") + 2,
        **_GPT_BIASES,
    )


def _deepseek_v3(fields: _Fields) -> ModelConfig:
    fields.refuse("attention_bias", False)
    fields.refuse("moe_layer_freq", 1)
    nope, rope = fields.need("qk_nope_head_dim"), fields.need("qk_rope_head_dim")
    return ModelConfig(
        **{**fields.common(), "head_dim": nope + rope},
        num_experts=fields.need("n_routed_experts"),
        num_experts_per_tok=fields.need("num_experts_per_tok"),
        moe_intermediate_size=fields.need("moe_intermediate_size"),
        n_shared_experts=fields.get("n_shared_experts", 0),
        first_k_dense_replace=fields.get("first_k_dense_replace", 0),
        router_bias=True,
        q_lora_rank=fields.get("q_lora_rank", None),
        kv_lora_rank=fields.need("kv_lora_rank"),
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        v_head_dim=fields.need("v_head_dim"),
    )


_FAMILIES: dict[str, Callable[[_Fields], ModelConfig]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "opt": _opt,
    "deepseek_v3": _deepseek_v3,
}


# --- real models: the fields of their config.json that say how large they are ---------------------


def _llama_like(
    family: str,
    hidden: int,
    ffn: int,
    layers: int,
    heads: int,
    kv_heads: int,
    vocab: int,
    tied: bool = False,
    **more: Any,
) -> dict[str, Any]:
    return {
        "model_type": family,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "tie_word_embeddings": tied,
        **more,
    }


def _neox_like(hidden: int, layers: int, heads: int, vocab: int) -> dict[str, Any]:
    return {
        "model_type": "gpt_neox",
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": vocab,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
    }


def _gpt2_like(hidden: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "n_embd": hidden,
        "n_layer": layers,
        "n_head": heads,
        "n_positions": 1024,
        "vocab_size": 50257,
    }


CONFIGS: dict[str, dict[str, Any]] = {
    "Llama-2-7B": _llama_like("llama", 4096, 11008, 32, 32, 32, 32000),
    "Llama-2-13B": _llama_like("llama", 5120, 13824, 40, 40, 40, 32000),
    "Llama-2-70B": _llama_like("llama", 8192, 28672, 80, 64, 8, 32000),
    "Llama-3-8B": _llama_like("llama", 4096, 14336, 32, 32, 8, 128256),
    "Llama-3-70B": _llama_like("llama", 8192, 28672, 80, 64, 8, 128256),
    "Llama-3.1-405B": _llama_like("llama", 16384, 53248, 126, 128, 8, 128256),
    "Llama-3.2-1B": _llama_like("llama", 2048, 8192, 16, 32, 8, 128256, True, head_dim=64),
    "Mistral-7B-v0.1": _llama_like("mistral", 4096, 14336, 32, 32, 8, 32000, sliding_window=4096),
    "Mistral-7B-v0.3": _llama_like("mistral", 4096, 14336, 32, 32, 8, 32768, sliding_window=None),
    "Mixtral-8x7B": _llama_like(
        "mixtral", 4096, 14336, 32, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2
    ),
    "Qwen2.5-0.5B": _llama_like(
        "qwen2", 896, 4864, 24, 14, 2, 151936, True, use_sliding_window=False, sliding_window=32768
    ),
    "Qwen2.5-7B": _llama_like(
        "qwen2", 3584, 18944, 28, 28, 4, 152064, use_sliding_window=False, sliding_window=131072
    ),
    "Qwen3-8B": _llama_like("qwen3", 4096, 12288, 36, 32, 8, 151936, head_dim=128),
    "Qwen3-30B-A3B": _llama_like(
        "qwen3_moe",
        2048,
        6144,
        48,
        32,
        4,
        151936,
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        decoder_sparse_step=1,
        mlp_only_layers=[],
    ),
    "Gemma-7B": _llama_like("gemma", 3072, 24576, 28, 16, 16, 256000, True, head_dim=256),
    "Gemma-2-9B": _llama_like(
        "gemma2", 3584, 14336, 42, 16, 8, 256000, True, head_dim=256, sliding_window=4096
    ),
    "GPT-2": _gpt2_like(768, 12, 12),
    "GPT-2-XL": _gpt2_like(1600, 48, 25),
    "Pythia-1B": _neox_like(2048, 16, 8, 50304),
    "Pythia-6.9B": _neox_like(4096, 32, 32, 50432),
    "Pythia-12B": _neox_like(5120, 36, 40, 50688),
    "GPT-NeoX-20B": _neox_like(6144, 44, 64, 50432),
    "OPT-13B": {
        "model_type": "opt",
        "hidden_size": 5120,
        "ffn_dim": 20480,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 5120,
        "do_layer_norm_before": True,
    },
    "DeepSeek-V3": _llama_like(
        "deepseek_v3",
        7168,
        18432,
        61,
        128,
        128,
        129280,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        n_routed_experts=256,
        num_experts_per_tok=8,
        n_shared_experts=1,
        moe_intermediate_size=2048,
        first_k_dense_replace=3,
        moe_layer_freq=1,
    ),
}


def real_config(name: str) -> ModelConfig:
    """The `ModelConfig` of a model in `CONFIGS`; `ValueError` lists the names there are."""
    if name not in CONFIGS:
        raise ValueError(f"No model named {name!r} here; there are: {', '.join(CONFIGS)}.")
    return ModelConfig.from_hf(CONFIGS[name])
