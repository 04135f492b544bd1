"""Another way: real modules and tensors on torch's meta device are counted; searches double."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from types import SimpleNamespace

from types_lab01 import GIB, Finding, Ledger


def _numel(*shape):
    import torch

    return torch.empty(*shape, device="meta").numel()


def _parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def simple_ledger(
    layers, hidden, ffn_multiplier, vocab, batch, seq, heads, head_dim, precision_bytes, adam_bytes
):
    square = _numel(hidden, hidden)
    params = _numel(vocab, hidden) + _numel(layers, 4, hidden, hidden)
    params += layers * square * ffn_multiplier
    return Ledger(
        params=params,
        weights=params * precision_bytes,
        gradients=params * precision_bytes,
        optimizer=params * adam_bytes,
        kv_cache=_numel(2, layers, batch, heads, seq, head_dim) * precision_bytes,
    )


def simple_activation_bytes(batch, seq, layers, hidden, precision_bytes=2, scale=7.0):
    return _numel(layers, batch, seq, hidden) * precision_bytes * scale


def _attention(c):
    from torch import nn

    d = c.hidden_size
    if not c.is_mla:
        queries, keys = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
        return nn.ModuleDict(
            {
                "q_proj": nn.Linear(d, queries, bias=c.qkv_bias),
                "k_proj": nn.Linear(d, keys, bias=c.qkv_bias),
                "v_proj": nn.Linear(d, keys, bias=c.qkv_bias),
                "o_proj": nn.Linear(queries, d, bias=c.o_bias),
                "q_norm": nn.RMSNorm(c.head_dim) if c.qk_norm else nn.Identity(),
                "k_norm": nn.RMSNorm(c.head_dim) if c.qk_norm else nn.Identity(),
            }
        )
    heads, rank = c.num_attention_heads, c.kv_lora_rank
    queries = heads * (c.qk_nope_head_dim + c.qk_rope_head_dim)
    parts = {
        "kv_down": nn.Linear(d, rank + c.qk_rope_head_dim, bias=False),
        "kv_norm": nn.RMSNorm(rank),
        "kv_up": nn.Linear(rank, heads * (c.qk_nope_head_dim + c.v_head_dim), bias=False),
        "o_proj": nn.Linear(heads * c.v_head_dim, d, bias=False),
    }
    if c.q_lora_rank is None:
        parts["q_proj"] = nn.Linear(d, queries, bias=False)
    else:
        parts["q_down"] = nn.Linear(d, c.q_lora_rank, bias=False)
        parts["q_norm"] = nn.RMSNorm(c.q_lora_rank)
        parts["q_up"] = nn.Linear(c.q_lora_rank, queries, bias=False)
    return nn.ModuleDict(parts)


@lru_cache(maxsize=256)
def attention_params(config):
    import torch

    with torch.device("meta"):
        return _parameters(_attention(config))


def _mlp(c, width):
    from torch import nn

    inward = [nn.Linear(c.hidden_size, width, bias=c.mlp_bias) for _ in range(1 + c.gated_mlp)]
    return nn.ModuleList([*inward, nn.Linear(width, c.hidden_size, bias=c.mlp_bias)])


@lru_cache(maxsize=256)
def _ffn_params(config, routes, active):
    import torch

    c = config
    with torch.device("meta"):
        if not routes:
            return _parameters(_mlp(c, c.intermediate_size))
        router = torch.nn.Linear(c.hidden_size, c.num_experts, bias=c.router_bias)
        expert = _mlp(c, c.moe_intermediate_size)
    experts = c.n_shared_experts + (c.num_experts_per_tok if active else c.num_experts)
    return _parameters(router) + experts * _parameters(expert)


def ffn_params(config, layer=0, active=False):
    return _ffn_params(config, config.is_moe_layer(layer), bool(active))


def total_params(config, active=False):
    import torch
    from torch import nn

    c = config
    with torch.device("meta"):
        norm = nn.LayerNorm(c.hidden_size, bias=c.norm_bias)
        embedding = nn.Embedding(c.vocab_size, c.hidden_size)
        head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        positions = torch.empty(c.position_rows, c.hidden_size)
    if c.tie_word_embeddings:
        head.weight = embedding.weight  # `parameters()` yields a shared parameter once
    count = _parameters(nn.ModuleList([embedding, head, norm])) + positions.numel()
    for layer in range(c.num_hidden_layers):
        count += attention_params(c) + ffn_params(c, layer, active)
        count += c.norms_per_layer * _parameters(norm)
    return count


# The dtypes of weights, of gradients and of each optimizer state.
_RECIPES = {
    "fp32": ("float32", "float32", ["float32"] * 2),
    "bf16_mixed": ("bfloat16", "bfloat16", ["float32"] * 3),
    "bf16_fp32grads": ("bfloat16", "float32", ["float32"] * 3),
    "bf16_pure": ("bfloat16", "bfloat16", ["bfloat16"] * 2),
    "adam8bit": ("bfloat16", "bfloat16", ["uint8"] * 2),
}


def training_state_bytes(n_params, recipe):
    import torch

    if recipe not in _RECIPES:
        raise ValueError(f"There is no recipe {recipe!r}, only {', '.join(sorted(_RECIPES))}.")
    weight, gradient, states = _RECIPES[recipe]
    optimizer = sum(n_params * getattr(torch, state).itemsize for state in states)
    if "uint8" in states:
        optimizer += len(states) * torch.float32.itemsize * -(-n_params // 256)
    return Ledger(
        params=n_params,
        weights=n_params * getattr(torch, weight).itemsize,
        gradients=n_params * getattr(torch, gradient).itemsize,
        optimizer=optimizer,
    )


def _cached(c, batch, tokens):
    """The cache of one layer, as tensors without memory."""
    import torch

    if c.is_mla:
        shapes = [(batch, tokens, c.kv_lora_rank + c.qk_rope_head_dim)]
    else:
        shapes = [(batch, c.num_key_value_heads, tokens, c.head_dim)] * 2
    return [torch.empty(shape, device="meta") for shape in shapes]


def kv_bytes_per_token(config, dtype_bytes=2):
    return kv_cache_bytes(config, 1, 1, dtype_bytes)  # no window is shorter than one token


def kv_cache_bytes(config, batch, seq, dtype_bytes=2):
    values = 0
    for layer in range(config.num_hidden_layers):
        window = config.window(layer)
        tokens = seq if window is None else min(window, seq)
        values += sum(tensor.numel() for tensor in _cached(config, batch, tokens))
    return values * dtype_bytes


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
    import torch

    if attention not in ("eager", "sdpa"):
        raise ValueError(f"No attention {attention!r}: eager or sdpa.")
    if recompute not in ("none", "selective", "full"):
        raise ValueError(f"No recomputation {recompute!r}: none, selective or full.")
    h, a = config.hidden_size, config.num_attention_heads

    def half(*shape):
        return torch.empty(batch, seq, *shape, dtype=torch.bfloat16, device="meta")

    def single(*shape):
        return torch.empty(batch, seq, *shape, dtype=torch.float32, device="meta")

    def mask(*shape):
        return torch.empty(batch, seq, *shape, dtype=torch.bool, device="meta")

    if recompute == "full":
        layer = SimpleNamespace(whole=[half(h)], split=[])
    else:
        layer = SimpleNamespace(
            whole=[half(h), half(h), half(h), half(h)],
            split=[half(3, h), half(h), half(4 * h), half(4 * h)],
        )
        if dropout:
            layer.whole += [mask(h), mask(h)]
        if recompute == "none" and attention == "sdpa":
            layer.split += [single(a)]
        elif recompute == "none":
            layer.split += [half(a, seq)]
            if dropout:
                layer.split += [mask(a, seq), half(a, seq)]
    whole = sum(tensor.nbytes for tensor in layer.whole)
    split = sum(tensor.nbytes for tensor in layer.split)
    end = single(config.vocab_size).nbytes if logits else 0
    if sp:
        whole, split = 0, whole + split
    return config.num_hidden_layers * (whole + split / tp) + end / tp


def inference_ledger(config, batch, seq, dtype_bytes=2, overhead_bytes=0):
    params = total_params(config)
    return Ledger(
        params=params,
        weights=params * dtype_bytes,
        kv_cache=kv_cache_bytes(config, batch, seq, dtype_bytes),
        other=_numel(batch, config.vocab_size) * 4 + overhead_bytes,
    )


def _last(holds):
    """The largest number >= 0 with `holds(number)`, which is true up to it and false above.

    0 where it never holds.
    """
    step = 1
    while holds(step):
        step *= 2
    number = 0
    while step:
        if holds(number + step):
            number += step
        step //= 2
    return number


def max_batch(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    def fits(batch):
        ledger = inference_ledger(config, batch, seq, dtype_bytes, overhead_bytes)
        return ledger.total <= gpu_bytes

    return _last(fits)


class SavedBytes:
    def __init__(self, exclude=()):
        from torch.multiprocessing.reductions import StorageWeakRef

        # A weak reference does not keep the memory, but no new storage can take its identity.
        self._reference = StorageWeakRef
        self._seen = {StorageWeakRef(tensor.untyped_storage()) for tensor in exclude}
        self.bytes = 0

    def _count(self, tensor):
        storage = tensor.untyped_storage()
        before = len(self._seen)
        self._seen.add(self._reference(storage))
        if len(self._seen) > before:
            self.bytes += storage.nbytes()
        return tensor

    def __enter__(self):
        from torch.autograd import graph

        self._hooks = graph.saved_tensors_hooks(self._count, lambda tensor: tensor)
        self._hooks.__enter__()
        return self

    def __exit__(self, *error):
        return self._hooks.__exit__(*error)


def bottleneck(ledger):
    terms = ledger.terms()
    largest = max(terms, key=terms.get)  # the first of equal ones
    if terms[largest] == 0:
        raise ValueError("The ledger is empty.")
    trains = any((ledger.gradients, ledger.optimizer))
    if largest in {"weights", "gradients", "optimizer"}:
        return largest, "ZeRO" if trains else "quantization"
    if largest == "activations":
        return largest, "checkpointing"
    return largest, "GQA" if largest == "kv_cache" else "chunking"


def _training_gib(n):
    activations = simple_activation_bytes(
        n.batch, n.seq, n.layers, n.hidden, n.precision_bytes, n.activation_scale
    )
    return (n.params * n.state_bytes + activations) / GIB


def _inference_gib(n, times=1):
    values = _numel(2, n.layers, n.batch, n.heads, n.seq * times, n.head_dim)
    return (n.params + values) * n.precision_bytes / GIB


_QUANTITIES = {
    "training_gib": _training_gib,
    "inference_gib": _inference_gib,
    "context_doubling": lambda n: _inference_gib(n, 2) / _inference_gib(n),
    "int4_weight_fraction": lambda n: 4 / (8 * n.precision_bytes),
}


def audit(notebook):
    def findings():
        for claim in notebook.claims:
            if claim.quantity not in _QUANTITIES:
                raise ValueError(f"{claim.quantity!r} is none of {', '.join(_QUANTITIES)}.")
            actual = _QUANTITIES[claim.quantity](notebook)
            if not claim.low <= actual <= claim.high:
                yield Finding(claim.quantity, claim.low, claim.high, actual)

    return list(findings())


def fits_where(ledger, gpu_bytes, at_least_bytes=0):
    terms = {name: Fraction(size) for name, size in ledger.terms().items()}
    sharded = terms["weights"] + terms["gradients"] + terms["optimizer"]
    whole = sum(terms.values()) - sharded

    def memory(ranks):
        return whole + sharded / ranks

    if whole > gpu_bytes or (whole == gpu_bytes and sharded):
        return None
    first = 1 + _last(lambda ranks: memory(ranks) > gpu_bytes)
    if memory(first) < at_least_bytes:
        return None
    if whole >= at_least_bytes:
        return first, None
    return first, _last(lambda ranks: memory(ranks) >= at_least_bytes)
