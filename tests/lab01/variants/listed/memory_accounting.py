"""A correct solution that lists tensors and tries numbers instead of writing formulas down."""

from bisect import bisect_right
from itertools import count
from math import prod

from types_lab01 import GIB, Finding, Ledger


def simple_ledger(
    layers, hidden, ffn_multiplier, vocab, batch, seq, heads, head_dim, precision_bytes, adam_bytes
):
    sizes = [vocab * hidden]
    for _ in range(layers):
        sizes += [hidden * hidden] * 4
        sizes.append(ffn_multiplier * hidden * hidden)
    params = sum(sizes)
    cached = [(batch, seq, heads, head_dim)] * 2 * layers
    return Ledger(
        params,
        weights=params * precision_bytes,
        gradients=params * precision_bytes,
        optimizer=params * adam_bytes,
        kv_cache=sum(map(prod, cached)) * precision_bytes,
    )


def simple_activation_bytes(batch, seq, layers, hidden, precision_bytes=2, scale=7.0):
    vector = hidden * precision_bytes
    return sum(scale * vector * batch * seq for _ in range(layers))


def _attention(c):
    if c.is_mla:
        wide = c.qk_nope_head_dim + c.qk_rope_head_dim
        yield c.num_attention_heads * c.v_head_dim, c.hidden_size
        yield c.hidden_size, c.kv_lora_rank
        yield c.hidden_size, c.qk_rope_head_dim
        yield (c.kv_lora_rank,)
        yield c.kv_lora_rank, c.num_attention_heads, c.qk_nope_head_dim
        yield c.kv_lora_rank, c.num_attention_heads, c.v_head_dim
        if c.q_lora_rank is not None:
            yield c.hidden_size, c.q_lora_rank
            yield (c.q_lora_rank,)
            yield c.q_lora_rank, c.num_attention_heads, wide
        else:
            yield c.hidden_size, c.num_attention_heads, wide
        return
    for heads in (c.num_attention_heads, c.num_key_value_heads, c.num_key_value_heads):
        yield c.hidden_size, heads, c.head_dim
        if c.qkv_bias:
            yield heads, c.head_dim
    yield c.num_attention_heads, c.head_dim, c.hidden_size
    if c.o_bias:
        yield (c.hidden_size,)
    if c.qk_norm:
        yield from [(c.head_dim,), (c.head_dim,)]


def attention_params(config):
    return sum(prod(shape) for shape in _attention(config))


def _mlp(c, width):
    for _ in range(1 + c.gated_mlp):
        yield c.hidden_size, width
        if c.mlp_bias:
            yield (width,)
    yield width, c.hidden_size
    if c.mlp_bias:
        yield (c.hidden_size,)


def _ffn(c, layer, active):
    if not c.is_moe_layer(layer):
        yield from _mlp(c, c.intermediate_size)
        return
    yield c.hidden_size, c.num_experts
    if c.router_bias:
        yield (c.num_experts,)
    routed = range(c.num_experts)
    for _ in [*routed[: c.num_experts_per_tok if active else None], *range(c.n_shared_experts)]:
        yield from _mlp(c, c.moe_intermediate_size)


def ffn_params(config, layer=0, active=False):
    return sum(prod(shape) for shape in _ffn(config, layer, active))


def total_params(config, active=False):
    c = config
    tensors = [(c.vocab_size, c.hidden_size), (c.position_rows, c.hidden_size)]
    if not c.tie_word_embeddings:
        tensors.append((c.vocab_size, c.hidden_size))
    norms = 1
    for layer in range(c.num_hidden_layers):
        tensors += _attention(c)
        tensors += _ffn(c, layer, active)
        norms += c.norms_per_layer
    tensors += [(c.hidden_size,)] * norms * (2 if c.norm_bias else 1)
    return sum(map(prod, tensors))


_WIDTH = {"fp32": 4, "bf16": 2, "int8": 1}
_RECIPES = {
    "fp32": ["w:fp32", "g:fp32", "o:fp32", "o:fp32"],
    "bf16_mixed": ["w:bf16", "g:bf16", "o:fp32", "o:fp32", "o:fp32"],
    "bf16_fp32grads": ["w:bf16", "g:fp32", "o:fp32", "o:fp32", "o:fp32"],
    "bf16_pure": ["w:bf16", "g:bf16", "o:bf16", "o:bf16"],
    "adam8bit": ["w:bf16", "g:bf16", "o:int8", "o:int8"],
}


def training_state_bytes(n_params, recipe):
    try:
        tensors = _RECIPES[recipe]
    except KeyError:
        raise ValueError(f"no recipe {recipe} in {list(_RECIPES)}") from None
    sizes = {"w": 0, "g": 0, "o": 0}
    for tensor in tensors:
        kind, dtype = tensor.split(":")
        sizes[kind] += _WIDTH[dtype] * n_params
        if dtype == "int8":
            full, rest = divmod(n_params, 256)
            sizes[kind] += 4 * (full + (rest > 0))
    return Ledger(n_params, sizes["w"], sizes["g"], sizes["o"])


def _cached(c):
    if c.is_mla:
        return [c.kv_lora_rank, c.qk_rope_head_dim]
    return [c.head_dim] * c.num_key_value_heads * 2


def kv_bytes_per_token(config, dtype_bytes=2):
    return sum(dtype_bytes * sum(_cached(config)) for _ in range(config.num_hidden_layers))


def kv_cache_bytes(config, batch, seq, dtype_bytes=2):
    total = 0
    for layer in range(config.num_hidden_layers):
        window = config.window(layer)
        tokens = len(range(seq)[-window:]) if window else seq
        total += tokens * sum(_cached(config)) * dtype_bytes * batch
    return total


# What a layer keeps: (bytes per element of s b h, split by tp, a mask).
_KEPT = [
    ("first norm's input", 2, False, False),
    ("QKV's input", 2, False, False),
    ("Q", 2, True, False),
    ("K", 2, True, False),
    ("V", 2, True, False),
    ("output projection's input", 2, True, False),
    ("first residual mask", 1, False, True),
    ("second norm's input", 2, False, False),
    ("MLP's input", 2, False, False),
    ("GELU's input", 8, True, False),
    ("second linear's input", 8, True, False),
    ("second residual mask", 1, False, True),
]
_SQUARE = [("softmax", 2, False), ("mask", 1, True), ("dropout's output", 2, True)]


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
    if attention not in {"eager", "sdpa"} or recompute not in {"none", "selective", "full"}:
        raise ValueError((attention, recompute))
    c = config
    unit = seq * batch * c.hidden_size
    kept = 0
    for _ in range(c.num_hidden_layers):
        if recompute == "full":
            kept += 2 * unit / (tp if sp else 1)
            continue
        for _name, size, split, mask in _KEPT:
            if dropout or not mask:
                kept += size * unit / (tp if split or sp else 1)
        if recompute == "selective":
            continue
        if attention == "sdpa":
            kept += c.num_attention_heads / tp * seq * batch * 4
        else:
            for _name, size, needs_dropout in _SQUARE:
                if dropout or not needs_dropout:
                    kept += size * c.num_attention_heads / tp * seq * seq * batch
    return kept + (4 * batch * seq * c.vocab_size / tp if logits else 0)


def inference_ledger(config, batch, seq, dtype_bytes=2, overhead_bytes=0):
    logits = sum(4 * config.vocab_size for _ in range(batch))
    count_ = total_params(config)
    return Ledger(
        count_,
        weights=count_ * dtype_bytes,
        kv_cache=kv_cache_bytes(config, batch, seq, dtype_bytes),
        other=logits + overhead_bytes,
    )


class _Totals:
    """Ledger totals by batch, for bisection."""

    def __init__(self, *args):
        self.config, self.seq, self.dtype_bytes, self.overhead = args
        self.weights = total_params(self.config) * self.dtype_bytes

    def __len__(self):
        return 1 << 20

    def __getitem__(self, batch):
        cache = kv_cache_bytes(self.config, batch, self.seq, self.dtype_bytes)
        return self.weights + cache + 4 * batch * self.config.vocab_size + self.overhead


def max_batch(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    totals = _Totals(config, seq, dtype_bytes, overhead_bytes)
    return max(0, bisect_right(totals, gpu_bytes) - 1)


class SavedBytes:
    def __init__(self, exclude=()):
        self.exclude = [tensor.untyped_storage() for tensor in exclude]
        self.tensors = []

    @property
    def bytes(self):
        known = {storage.data_ptr() for storage in self.exclude}
        total = 0
        for tensor in self.tensors:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in known:
                known.add(storage.data_ptr())
                total += storage.size()
        return total

    def __enter__(self):
        from torch.autograd.graph import saved_tensors_hooks

        def pack(tensor):
            self.tensors.append(tensor.detach())
            return tensor

        self.hooks = saved_tensors_hooks(pack, lambda tensor: tensor)
        self.hooks.__enter__()
        return self

    def __exit__(self, kind, error, trace):
        self.hooks.__exit__(kind, error, trace)
        return False


def bottleneck(ledger):
    name, size = sorted(ledger.terms().items(), key=lambda item: -item[1])[0]
    if not size:
        raise ValueError("all terms are 0")
    if name in ("gradients", "optimizer"):
        return name, "ZeRO"
    if name == "weights":
        return name, "ZeRO" if ledger.gradients + ledger.optimizer else "quantization"
    return name, {"activations": "checkpointing", "kv_cache": "paging"}.get(name, "chunking")


def audit(notebook):
    n = notebook

    def inference(seq):
        cache = 2 * n.batch * seq * n.layers * n.heads * n.head_dim
        return (n.params + cache) * n.precision_bytes

    found = []
    for claim in n.claims:
        if claim.quantity == "training_gib":
            values = n.activation_scale * n.batch * n.seq * n.layers * n.hidden
            actual = (n.params * n.state_bytes + values * n.precision_bytes) / GIB
        elif claim.quantity == "inference_gib":
            actual = inference(n.seq) / GIB
        elif claim.quantity == "context_doubling":
            actual = inference(2 * n.seq) / inference(n.seq)
        elif claim.quantity == "int4_weight_fraction":
            actual = 4 / (8 * n.precision_bytes)
        else:
            raise ValueError(claim.quantity)
        if actual < claim.low or actual > claim.high:
            found.append(Finding(claim.quantity, claim.low, claim.high, actual))
    return found


def fits_where(ledger, gpu_bytes, at_least_bytes=0):
    sharded = ledger.weights + ledger.gradients + ledger.optimizer
    whole = ledger.activations + ledger.kv_cache + ledger.other
    if whole > gpu_bytes or (whole == gpu_bytes and sharded):
        return None
    first = next(n for n in count(1) if sharded <= n * (gpu_bytes - whole))
    if whole >= at_least_bytes:
        return first, None
    last = first - 1
    while sharded >= (last + 1) * (at_least_bytes - whole):
        last += 1
    return (first, last) if last >= first else None
