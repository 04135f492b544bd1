"""A correct solution in closed forms over floats, with NumPy where others loop."""

import contextlib
import math

import numpy as np
from types_lab01 import Finding, Ledger


def simple_ledger(
    layers, hidden, ffn_multiplier, vocab, batch, seq, heads, head_dim, precision_bytes, adam_bytes
):
    params = float(hidden) * (layers * hidden * (ffn_multiplier + 4) + vocab)
    return Ledger(
        params=params,
        weights=precision_bytes * params,
        gradients=precision_bytes * params,
        optimizer=adam_bytes * params,
        kv_cache=2.0 * precision_bytes * layers * heads * head_dim * batch * seq,
    )


def simple_activation_bytes(batch, seq, layers, hidden, precision_bytes=2, scale=7.0):
    return float(np.prod([scale, precision_bytes, hidden, layers, seq, batch]))


def attention_params(config):
    c, d, heads = config, config.hidden_size, config.num_attention_heads
    if c.kv_lora_rank is None:
        q, kv = heads * c.head_dim, c.num_key_value_heads * c.head_dim
        return float(
            2 * d * (q + kv) + c.qkv_bias * (q + 2 * kv) + c.o_bias * d + 2 * c.qk_norm * c.head_dim
        )
    r, nope, rope, v = c.kv_lora_rank, c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim
    q = heads * (nope + rope)
    down = c.q_lora_rank
    queries = d * q if down is None else down * (d + 1 + q)
    return float(queries + d * (r + rope) + r * (1 + heads * (nope + v)) + heads * v * d)


def ffn_params(config, layer=0, active=False):
    c, d = config, config.hidden_size
    n = 3 if c.gated_mlp else 2
    moe = c.num_experts and layer >= c.first_k_dense_replace
    width = c.moe_intermediate_size if moe else c.intermediate_size
    one = n * d * width + c.mlp_bias * ((n - 1) * width + d)
    if not moe:
        return float(one)
    experts = (c.num_experts_per_tok if active else c.num_experts) + c.n_shared_experts
    return float(experts * one + c.num_experts * (d + c.router_bias))


def total_params(config, active=False):
    c, d, layers = config, config.hidden_size, config.num_hidden_layers
    dense = min(layers, c.first_k_dense_replace) if c.num_experts else layers
    mlps = dense * ffn_params(c, 0) + (layers - dense) * ffn_params(c, layers - 1, active)
    norms = (layers * c.norms_per_layer + 1) * (1 + c.norm_bias) * d
    tables = ((2 - c.tie_word_embeddings) * c.vocab_size + c.position_rows) * d
    return tables + layers * attention_params(c) + mlps + norms


def training_state_bytes(n_params, recipe):
    table = {
        "fp32": [4, 4, 8],
        "bf16_mixed": [2, 2, 12],
        "bf16_fp32grads": [2, 4, 12],
        "bf16_pure": [2, 2, 4],
        "adam8bit": [2, 2, 2],
    }
    if recipe not in table:
        raise ValueError(f"{recipe!r} is none of {sorted(table)}")
    weights, gradients, optimizer = (float(x) for x in np.array(table[recipe]) * float(n_params))
    scales = 8 * math.ceil(n_params / 256) if recipe == "adam8bit" else 0
    return Ledger(n_params, weights, gradients, optimizer + scales)


def kv_bytes_per_token(config, dtype_bytes=2):
    mla = config.kv_lora_rank is not None
    a = config.kv_lora_rank + config.qk_rope_head_dim if mla else 0
    b = 0 if mla else 2 * config.num_key_value_heads * config.head_dim
    return float(dtype_bytes * config.num_hidden_layers * (a + b))


def kv_cache_bytes(config, batch, seq, dtype_bytes=2):
    tokens = np.full(config.num_hidden_layers, seq)
    if config.layer_types:
        slides = np.array(config.layer_types) == "sliding_attention"
        tokens[slides] = np.minimum(tokens[slides], config.sliding_window)
    return float(kv_bytes_per_token(config, dtype_bytes) * batch * tokens.mean())


def activation_bytes(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    modes = (["eager", "sdpa"].index(attention), ["none", "selective", "full"].index(recompute))
    s, b, h, a = seq, batch, config.hidden_size, config.num_attention_heads
    t = tp if sp else 1
    whole, square = (10, 5) if dropout else (8, 2)
    core = [square * a * s / h, 4 * a / h][modes[0]]
    per_unit = [whole / t + (24 + core) / tp, whole / t + 24 / tp, 2 / t][modes[1]]
    total = config.num_hidden_layers * per_unit * s * b * h
    if logits:
        total += 4 * b * s * config.vocab_size / tp
    return total


def inference_ledger(config, batch, seq, dtype_bytes=2, overhead_bytes=0):
    params = total_params(config)
    return Ledger(
        params,
        params * dtype_bytes,
        kv_cache=kv_cache_bytes(config, batch, seq, dtype_bytes),
        other=float(overhead_bytes + batch * config.vocab_size * 4),
    )


def max_batch(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    room = gpu_bytes - overhead_bytes - dtype_bytes * total_params(config)
    each = kv_cache_bytes(config, 1, seq, dtype_bytes) + 4 * config.vocab_size
    return math.floor(room / each) if room > 0 else 0


class SavedBytes(contextlib.AbstractContextManager):
    def __init__(self, exclude=None):
        self.known = {}
        for tensor in exclude or ():
            storage = tensor.untyped_storage()
            self.known[storage.data_ptr()] = (0, storage)
        self.stack = contextlib.ExitStack()

    def see(self, tensor):
        storage = tensor.untyped_storage()
        self.known.setdefault(storage.data_ptr(), (len(storage), storage))
        return tensor

    @property
    def bytes(self):
        return sum(size for size, _ in self.known.values())

    def __enter__(self):
        import torch

        hooks = torch.autograd.graph.saved_tensors_hooks(self.see, torch.nn.Identity())
        self.stack.enter_context(hooks)
        return self

    def __exit__(self, *error):
        self.stack.close()


def bottleneck(ledger):
    names = ["weights", "gradients", "optimizer", "activations", "kv_cache", "other"]
    sizes = np.array([getattr(ledger, name) for name in names], dtype=float)
    if not sizes.any():
        raise ValueError("nothing is in memory")
    levers = ["ZeRO", "ZeRO", "ZeRO", "checkpointing", "GQA", "chunking"]
    if ledger.gradients == 0 == ledger.optimizer:
        levers[0] = "quantization"
    best = int(sizes.argmax())
    return (names[best], levers[best])


def audit(notebook):
    n = notebook
    w = n.params * n.precision_bytes / 2**30
    k = 2 * n.precision_bytes * n.heads * n.head_dim * n.layers * n.batch * n.seq / 2**30
    act = n.activation_scale * n.precision_bytes * n.hidden * n.layers * n.batch * n.seq / 2**30
    formulas = {
        "training_gib": lambda: n.state_bytes / n.precision_bytes * w + act,
        "inference_gib": lambda: w + k,
        "context_doubling": lambda: 1 + k / (w + k),
        "int4_weight_fraction": lambda: 0.5 / n.precision_bytes,
    }
    if bad := [c.quantity for c in n.claims if c.quantity not in formulas]:
        raise ValueError(bad)
    pairs = [(c, formulas[c.quantity]()) for c in n.claims]
    return [
        Finding(quantity=c.quantity, low=c.low, high=c.high, actual=x)
        for c, x in pairs
        if x < c.low or c.high < x
    ]


def fits_where(ledger, gpu_bytes, at_least_bytes=0):
    s = ledger.weights + ledger.gradients + ledger.optimizer
    w = ledger.total - s
    if not at_least_bytes <= w <= gpu_bytes if s == 0 else w >= gpu_bytes:
        return None
    if s == 0:
        return (1, None)
    first = max(1, math.ceil(s / (gpu_bytes - w)))
    last = math.inf if w >= at_least_bytes else math.floor(s / (at_least_bytes - w))
    if last < first:
        return None
    return (first, None if last == math.inf else last)
