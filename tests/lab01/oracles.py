"""Independent oracles of lab 01: shapes listed one by one, and what autograd really keeps.

Nothing here uses the reference. torch is imported by the functions that measure, not before.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from types_lab01 import ModelConfig

PUBLISHED: dict[str, dict[str, Any]] = {
    row["id"]: row
    for row in json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
}

Shapes = dict[str, tuple[int, ...]]


# --- parameters: every tensor of a model, by name and shape ---------------------------------------


def attention_shapes(c: ModelConfig) -> Shapes:
    """The tensors of one layer's attention, as a checkpoint would list them."""
    if c.kv_lora_rank is not None:
        nope, rope, rank = c.qk_nope_head_dim, c.qk_rope_head_dim, c.kv_lora_rank
        shapes: Shapes = {
            "kv_a_proj_with_mqa.weight": (rank + rope, c.hidden_size),
            "kv_a_layernorm.weight": (rank,),
            "kv_b_proj.weight": (c.num_attention_heads * (nope + c.v_head_dim), rank),
            "o_proj.weight": (c.hidden_size, c.num_attention_heads * c.v_head_dim),
        }
        out = c.num_attention_heads * (nope + rope)
        if c.q_lora_rank is None:
            shapes["q_proj.weight"] = (out, c.hidden_size)
        else:
            shapes["q_a_proj.weight"] = (c.q_lora_rank, c.hidden_size)
            shapes["q_a_layernorm.weight"] = (c.q_lora_rank,)
            shapes["q_b_proj.weight"] = (out, c.q_lora_rank)
        return shapes
    shapes = {}
    for name, heads in (
        ("q", c.num_attention_heads),
        ("k", c.num_key_value_heads),
        ("v", c.num_key_value_heads),
    ):
        shapes[f"{name}_proj.weight"] = (heads * c.head_dim, c.hidden_size)
        if c.qkv_bias:
            shapes[f"{name}_proj.bias"] = (heads * c.head_dim,)
    shapes["o_proj.weight"] = (c.hidden_size, c.num_attention_heads * c.head_dim)
    if c.o_bias:
        shapes["o_proj.bias"] = (c.hidden_size,)
    if c.qk_norm:
        shapes["q_norm.weight"] = (c.head_dim,)
        shapes["k_norm.weight"] = (c.head_dim,)
    return shapes


def _mlp_shapes(c: ModelConfig, width: int, prefix: str) -> Shapes:
    shapes: Shapes = {}
    for name in ("gate_proj", "up_proj") if c.gated_mlp else ("up_proj",):
        shapes[f"{prefix}{name}.weight"] = (width, c.hidden_size)
        if c.mlp_bias:
            shapes[f"{prefix}{name}.bias"] = (width,)
    shapes[f"{prefix}down_proj.weight"] = (c.hidden_size, width)
    if c.mlp_bias:
        shapes[f"{prefix}down_proj.bias"] = (c.hidden_size,)
    return shapes


def ffn_shapes(c: ModelConfig, layer: int, active: bool = False) -> Shapes:
    """The tensors of one layer's MLP, experts and router included."""
    if c.num_experts == 0 or layer < c.first_k_dense_replace:
        return _mlp_shapes(c, c.intermediate_size, "")
    shapes: Shapes = {"gate.weight": (c.num_experts, c.hidden_size)}
    if c.router_bias:
        shapes["gate.e_score_correction_bias"] = (c.num_experts,)
    for expert in range(c.num_experts_per_tok if active else c.num_experts):
        shapes |= _mlp_shapes(c, c.moe_intermediate_size, f"experts.{expert}.")
    for expert in range(c.n_shared_experts):
        shapes |= _mlp_shapes(c, c.moe_intermediate_size, f"shared_experts.{expert}.")
    return shapes


def model_shapes(c: ModelConfig, active: bool = False) -> Shapes:
    """Every tensor of the model."""
    shapes: Shapes = {"embed_tokens.weight": (c.vocab_size, c.hidden_size)}
    if c.position_rows:
        shapes["embed_positions.weight"] = (c.position_rows, c.hidden_size)
    for layer in range(c.num_hidden_layers):
        inside = attention_shapes(c) | ffn_shapes(c, layer, active)
        for number in range(c.norms_per_layer):
            inside |= _norm_shapes(c, f"norm_{number}")
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in inside.items()}
    shapes |= _norm_shapes(c, "final_norm")
    if not c.tie_word_embeddings:
        shapes["lm_head.weight"] = (c.vocab_size, c.hidden_size)
    return shapes


def _norm_shapes(c: ModelConfig, name: str) -> Shapes:
    shapes: Shapes = {f"{name}.weight": (c.hidden_size,)}
    if c.norm_bias:
        shapes[f"{name}.bias"] = (c.hidden_size,)
    return shapes


def count(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


# --- configs that nobody has published ------------------------------------------------------------


def random_config(rng: Any, **fixed: Any) -> ModelConfig:
    """A dense grouped-query model whose heads * head_dim is not its hidden size."""
    groups, kv_heads = (int(n) for n in rng.integers(2, 6, 2))
    head_dim = 2 * int(rng.integers(5, 40))
    hidden = groups * kv_heads * head_dim + 2 * int(rng.integers(1, 50))
    fields: dict[str, Any] = {
        "model_type": "random",
        "vocab_size": int(rng.integers(100, 5000)),
        "hidden_size": hidden,
        "num_hidden_layers": int(rng.integers(3, 12)),
        "num_attention_heads": groups * kv_heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": int(rng.integers(hidden, 5 * hidden)),
        "tie_word_embeddings": bool(rng.integers(2)),
    }
    return ModelConfig(**(fields | fixed))


def random_gpt(rng: Any, **fixed: Any) -> ModelConfig:
    """A GPT block: multi-head attention, plain MLP four times as wide, biases everywhere."""
    heads, head_dim = int(rng.integers(2, 9)), 2 * int(rng.integers(4, 20))
    fields: dict[str, Any] = {
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": head_dim,
        "hidden_size": heads * head_dim,
        "intermediate_size": 4 * heads * head_dim,
        "position_rows": int(rng.integers(32, 512)),
        "gated_mlp": False,
        "qkv_bias": True,
        "o_bias": True,
        "mlp_bias": True,
        "norm_bias": True,
    }
    return random_config(rng, **(fields | fixed))


def random_moe(rng: Any, **fixed: Any) -> ModelConfig:
    """Routed and shared experts narrower than the dense MLP of the first layers."""
    experts = int(rng.integers(4, 17))
    fields: dict[str, Any] = {
        "num_experts": experts,
        "num_experts_per_tok": int(rng.integers(1, experts)),
        "moe_intermediate_size": int(rng.integers(16, 200)),
    }
    return random_config(rng, **(fields | fixed))


def random_mla(rng: Any, **fixed: Any) -> ModelConfig:
    """Latent attention with five different widths."""
    fields: dict[str, Any] = {
        "q_lora_rank": int(rng.integers(50, 90)),
        "kv_lora_rank": int(rng.integers(20, 49)),
        "qk_nope_head_dim": int(rng.integers(30, 40)),
        "qk_rope_head_dim": int(rng.integers(8, 19)),
        "v_head_dim": int(rng.integers(41, 60)),
    }
    return random_config(rng, **(fields | fixed))


def kv_bytes_listed(c: ModelConfig, batch: int, seq: int, dtype_bytes: int) -> int:
    """The cache, layer by layer and tensor by tensor."""
    total = 0
    for layer in range(c.num_hidden_layers):
        sliding = bool(c.layer_types) and c.layer_types[layer] == "sliding_attention"
        tokens = min(seq, c.sliding_window or seq) if sliding else seq
        if c.kv_lora_rank is not None:
            tensors = [(batch, tokens, c.kv_lora_rank), (batch, tokens, c.qk_rope_head_dim)]
        else:
            tensors = [(batch, c.num_key_value_heads, tokens, c.head_dim)] * 2
        total += sum(math.prod(shape) * dtype_bytes for shape in tensors)
    return total


# --- what autograd keeps: a GPT layer, measured ---------------------------------------------------


def measured_gpt_layer(
    s: int, b: int, h: int, a: int, attention: str = "eager", recompute: str = "none"
) -> int:
    """Bytes that a bf16 GPT layer without dropout saves for backward on this CPU.

    The layer of Korthikanti et al., section 4.1, built here from torch's own parts and measured
    through `torch.autograd.graph.saved_tensors_hooks`; parameters do not count, nor does what a
    checkpoint computes again.
    """
    import torch
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    make = {"dtype": torch.bfloat16}
    norm1, norm2 = torch.nn.LayerNorm(h, **make), torch.nn.LayerNorm(h, **make)
    qkv, out = torch.nn.Linear(h, 3 * h, **make), torch.nn.Linear(h, h, **make)
    up, down = torch.nn.Linear(h, 4 * h, **make), torch.nn.Linear(4 * h, h, **make)

    def core(q: Any, k: Any, v: Any) -> Any:
        if attention == "sdpa":
            context = F.scaled_dot_product_attention(q, k, v)
        else:
            scores = (q / math.sqrt(h // a)) @ k.transpose(-2, -1)
            context = torch.softmax(scores, dim=-1) @ v
        return context.transpose(1, 2).reshape(b, s, h)

    def layer(x: Any) -> Any:
        parts = qkv(norm1(x)).reshape(b, s, 3, a, h // a).permute(2, 0, 3, 1, 4)
        # Batched matmuls would save contiguous copies; a fused kernel reads the views in place.
        q, k, v = parts if attention == "sdpa" else (part.contiguous() for part in parts)
        if recompute == "selective":
            context = checkpoint(core, q, k, v, use_reentrant=False)
        else:
            context = core(q, k, v)
        x = x + out(context)
        return x + down(F.gelu(up(norm2(x))))

    x = torch.randn(b, s, h, **make, requires_grad=True)
    parts = (norm1, norm2, qkv, out, up, down)
    skip = {p.untyped_storage().data_ptr() for part in parts for p in part.parameters()}
    kept: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in skip:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = checkpoint(layer, x, use_reentrant=False) if recompute == "full" else layer(x)
    total = sum(storage.nbytes() for storage in kept.values())
    del y
    return total


def measured_loss(tokens: int, vocab: int) -> int:
    """Bytes of float32 that a cross-entropy over bf16 logits saves for backward."""
    import torch

    logits = torch.randn(tokens, vocab, dtype=torch.bfloat16, requires_grad=True)
    kept: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        if tensor.dtype == torch.float32 and tensor.numel() > 1:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = torch.nn.functional.cross_entropy(
            logits.float(), torch.zeros(tokens, dtype=torch.int64)
        )
    total = sum(storage.nbytes() for storage in kept.values())
    del loss
    return total


def measured_adamw(dtype_name: str) -> tuple[int, dict[str, int]]:
    """Parameters of a small model, and the bytes of its weights, gradients and AdamW moments after
    one real step in that dtype. The step counter is left out: one number a tensor."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(96, 130), torch.nn.Linear(130, 17))
    model = model.to(getattr(torch, dtype_name))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(4, 96, dtype=getattr(torch, dtype_name))).sum().backward()
    optimizer.step()
    parameters = list(model.parameters())
    moments = [
        value
        for state in optimizer.state.values()
        for name, value in state.items()
        if name != "step"
    ]
    sizes = {
        "weights": sum(p.nbytes for p in parameters),
        "gradients": sum(p.grad.nbytes for p in parameters),
        "optimizer": sum(moment.nbytes for moment in moments),
    }
    return sum(p.numel() for p in parameters), sizes


# --- transformers, where it is installed ----------------------------------------------------------


def transformers_params(hf: dict[str, Any]) -> int:
    """Parameters of the real Hugging Face model, built on the meta device from a config dict."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**hf)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    if config.tie_word_embeddings:
        model.tie_weights()  # a model that loses its tie on the meta device counts the head twice
    total = sum(p.numel() for p in model.parameters())
    # DeepSeek's router bias is in the checkpoint, but a buffer in transformers.
    biases = [t for name, t in model.named_buffers() if name.endswith("e_score_correction_bias")]
    return int(total + sum(t.numel() for t in biases))
