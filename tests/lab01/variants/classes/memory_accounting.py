"""Another way: the parts of a model are objects that count themselves; modes are enums."""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from types_lab01 import GIB, Finding, Ledger, ModelConfig, Notebook

# --- parts of a model ----------------------------------------------------------------------------


class Part(ABC):
    @abstractmethod
    def count(self, active: bool = False) -> int: ...


@dataclass(frozen=True)
class Linear(Part):
    reads: int
    writes: int
    bias: bool = False

    def count(self, active=False):
        return self.reads * self.writes + (self.writes if self.bias else 0)


@dataclass(frozen=True)
class Norm(Part):
    width: int
    bias: bool = False

    def count(self, active=False):
        return self.width * (2 if self.bias else 1)


@dataclass(frozen=True)
class Group(Part):
    parts: tuple[Part, ...]

    def count(self, active=False):
        return sum(part.count(active) for part in self.parts)


@dataclass(frozen=True)
class Copies(Part):
    part: Part
    held: int
    used: int

    def count(self, active=False):
        return (self.used if active else self.held) * self.part.count(active)


@dataclass(frozen=True)
class Attention(Group):
    cached_values: int

    @classmethod
    def of(cls, config: ModelConfig) -> Attention:
        return cls.latent(config) if config.is_mla else cls.grouped(config)

    @classmethod
    def grouped(cls, config):
        hidden, head = config.hidden_size, config.head_dim
        queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
        to_keys = Linear(hidden, keys, config.qkv_bias)
        to_queries = Linear(hidden, queries, config.qkv_bias)
        out = Linear(queries, hidden, config.o_bias)
        norms = (Norm(head), Norm(head)) if config.qk_norm else ()
        return cls((to_queries, to_keys, to_keys, out, *norms), cached_values=keys + keys)

    @classmethod
    def latent(cls, config):
        rank, rope = config.kv_lora_rank, config.qk_rope_head_dim
        heads, values = config.num_attention_heads, config.v_head_dim
        parts = (
            *cls._latent_queries(config),
            Linear(config.hidden_size, rank + rope),
            Norm(rank),
            Linear(rank, heads * (config.qk_nope_head_dim + values)),
            Linear(heads * values, config.hidden_size),
        )
        return cls(parts, cached_values=rank + rope)

    @staticmethod
    def _latent_queries(config) -> Iterator[Part]:
        per_head = config.qk_nope_head_dim + config.qk_rope_head_dim
        reads = config.hidden_size
        if config.q_lora_rank is not None:
            yield Linear(reads, config.q_lora_rank)
            yield Norm(config.q_lora_rank)
            reads = config.q_lora_rank
        yield Linear(reads, config.num_attention_heads * per_head)


def _mlp(config: ModelConfig, width: int) -> Part:
    into = Linear(config.hidden_size, width, config.mlp_bias)
    out = Linear(width, config.hidden_size, config.mlp_bias)
    return Group((into, into, out) if config.gated_mlp else (into, out))


def _feed_forward(config: ModelConfig, layer: int) -> Part:
    if not config.is_moe_layer(layer):
        return _mlp(config, config.intermediate_size)
    expert = _mlp(config, config.moe_intermediate_size)
    return Group(
        (
            Linear(config.hidden_size, config.num_experts, config.router_bias),
            Copies(expert, held=config.num_experts, used=config.num_experts_per_tok),
            Copies(expert, held=config.n_shared_experts, used=config.n_shared_experts),
        )
    )


def _model(config: ModelConfig) -> Part:
    hidden, layers = config.hidden_size, config.num_hidden_layers
    norm = Norm(hidden, config.norm_bias)
    table = Linear(hidden, config.vocab_size)
    # Equal parts are equal objects, so that layers of one kind are counted together.
    mlps = Counter(_feed_forward(config, layer) for layer in range(layers))
    norms = layers * config.norms_per_layer + 1
    return Group(
        (
            table,
            *([] if config.tie_word_embeddings else [table]),
            Linear(hidden, config.position_rows),
            Copies(Attention.of(config), layers, layers),
            *(Copies(mlp, times, times) for mlp, times in mlps.items()),
            Copies(norm, norms, norms),
        )
    )


def attention_params(config):
    return Attention.of(config).count()


def ffn_params(config, layer=0, active=False):
    return _feed_forward(config, layer).count(active)


def total_params(config, active=False):
    return _model(config).count(active)


# --- the simple rules ----------------------------------------------------------------------------


@dataclass(frozen=True)
class SimpleModel:
    layers: int
    hidden: int
    heads: int
    head_dim: int

    def params(self, ffn_multiplier, vocab):
        of_width = ffn_multiplier + 4
        return (self.layers * of_width * self.hidden + vocab) * self.hidden

    def cached_values(self, tokens):
        return tokens * self.layers * (self.heads * self.head_dim) * len(("K", "V"))

    def kept_values(self, tokens, scale):
        return tokens * self.layers * self.hidden * scale


def simple_ledger(
    layers, hidden, ffn_multiplier, vocab, batch, seq, heads, head_dim, precision_bytes, adam_bytes
):
    model = SimpleModel(layers, hidden, heads, head_dim)
    params = model.params(ffn_multiplier, vocab)
    return Ledger(
        params=params,
        weights=params * precision_bytes,
        gradients=params * precision_bytes,
        optimizer=params * adam_bytes,
        kv_cache=model.cached_values(batch * seq) * precision_bytes,
    )


def simple_activation_bytes(batch, seq, layers, hidden, precision_bytes=2, scale=7.0):
    model = SimpleModel(layers, hidden, heads=0, head_dim=0)
    return model.kept_values(batch * seq, scale) * precision_bytes


# --- what training keeps -------------------------------------------------------------------------


@dataclass(frozen=True)
class Format:
    """A number's bytes, and those of the scale that a block of numbers shares."""

    each: int
    block: int = 0
    scale: int = 4

    def of(self, numbers):
        scales = math.ceil(numbers / self.block) if self.block else 0
        return numbers * self.each + scales * self.scale


FLOAT32, BFLOAT16, BLOCKWISE8 = Format(4), Format(2), Format(1, block=256)


class Choice(enum.Enum):
    """An enum that says what there is when it is asked for something else."""

    @classmethod
    def _missing_(cls, value):
        names = ", ".join(str(member.value) for member in cls)
        raise ValueError(f"{value!r} is no {cls.__name__.lower()}; there are {names}.")


class Recipe(Choice):
    FP32 = "fp32", FLOAT32, FLOAT32, False, FLOAT32
    BF16_MIXED = "bf16_mixed", BFLOAT16, BFLOAT16, True, FLOAT32
    BF16_FP32GRADS = "bf16_fp32grads", BFLOAT16, FLOAT32, True, FLOAT32
    BF16_PURE = "bf16_pure", BFLOAT16, BFLOAT16, False, BFLOAT16
    ADAM8BIT = "adam8bit", BFLOAT16, BFLOAT16, False, BLOCKWISE8

    def __new__(cls, name, weight, gradient, master, moment):
        self = object.__new__(cls)
        self._value_ = name
        self.weight, self.gradient, self.moment = weight, gradient, moment
        self.states = [moment, moment, *([FLOAT32] if master else [])]
        return self

    def ledger(self, params):
        return Ledger(
            params=params,
            weights=self.weight.of(params),
            gradients=self.gradient.of(params),
            optimizer=sum(state.of(params) for state in self.states),
        )


def training_state_bytes(n_params, recipe):
    return Recipe(recipe).ledger(n_params)


# --- the cache -----------------------------------------------------------------------------------


@dataclass
class LayerCache:
    """The cache of one layer and one sequence."""

    token_bytes: int
    window: int | None

    def at(self, tokens):
        if self.window is not None and self.window < tokens:
            tokens = self.window
        return self.token_bytes * tokens


def _caches(config, dtype_bytes) -> Iterator[LayerCache]:
    token_bytes = Attention.of(config).cached_values * dtype_bytes
    for layer in range(config.num_hidden_layers):
        yield LayerCache(token_bytes, config.window(layer))


def kv_bytes_per_token(config, dtype_bytes=2):
    return sum(cache.token_bytes for cache in _caches(config, dtype_bytes))


def kv_cache_bytes(config, batch, seq, dtype_bytes=2):
    return batch * sum(cache.at(seq) for cache in _caches(config, dtype_bytes))


# --- activations ---------------------------------------------------------------------------------


class Kernel(Choice):
    EAGER = "eager"
    SDPA = "sdpa"


class Recompute(Choice):
    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


@dataclass
class GptLayer:
    """Bytes of one layer: what every rank of tensor parallelism holds, and what they share."""

    seq: int
    batch: int
    hidden: int
    heads: int
    dropout: bool
    whole: int = field(default=0, init=False)
    shared: int = field(default=0, init=False)

    @property
    def vectors(self):
        return self.seq * self.batch * self.hidden

    def keep_input(self):
        self.whole += 2 * self.vectors

    def keep_attention_block(self):
        self.whole += 2 * self.vectors  # what QKV reads
        self.shared += 2 * 3 * self.vectors  # Q, K and V
        self.shared += 2 * self.vectors  # what the output projection reads
        self.whole += self.vectors if self.dropout else 0

    def keep_mlp_block(self):
        self.whole += 2 * 2 * self.vectors  # what the norm reads, what the MLP reads
        self.shared += 2 * 2 * 4 * self.vectors  # what GELU reads, what the second linear reads
        self.whole += self.vectors if self.dropout else 0

    def keep_core(self, kernel):
        rows = self.seq * self.batch * self.heads
        match kernel, self.dropout:
            case Kernel.SDPA, _:
                self.shared += 4 * rows
            case Kernel.EAGER, False:
                self.shared += 2 * rows * self.seq
            case Kernel.EAGER, _:
                self.shared += (2 + 1 + 2) * rows * self.seq

    def on_rank(self, tp, sp):
        return (self.whole + self.shared) / tp if sp else self.whole + self.shared / tp


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
    kernel, mode = Kernel(attention), Recompute(recompute)
    layer = GptLayer(seq, batch, config.hidden_size, config.num_attention_heads, bool(dropout))
    layer.keep_input()
    if mode is not Recompute.FULL:
        layer.keep_attention_block()
        layer.keep_mlp_block()
    if mode is Recompute.NONE:
        layer.keep_core(kernel)
    end = Format(4).of(batch * seq * config.vocab_size) / tp if logits else 0
    return layer.on_rank(tp, sp) * config.num_hidden_layers + end


# --- inference -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Serving:
    """Decoding at a context: what is there in any case, and what each sequence adds."""

    params: int
    weights: int
    overhead: int
    cache: int
    logits: int

    @classmethod
    def of(cls, config, seq, dtype_bytes, overhead_bytes):
        params = total_params(config)
        return cls(
            params=params,
            weights=params * dtype_bytes,
            overhead=overhead_bytes,
            cache=kv_cache_bytes(config, 1, seq, dtype_bytes),
            logits=FLOAT32.of(config.vocab_size),
        )

    def ledger(self, batch):
        return Ledger(
            params=self.params,
            weights=self.weights,
            kv_cache=batch * self.cache,
            other=batch * self.logits + self.overhead,
        )

    def most(self, room):
        left = Fraction(room) - self.weights - self.overhead
        return max(0, left // (self.cache + self.logits))


def inference_ledger(config, batch, seq, dtype_bytes=2, overhead_bytes=0):
    return Serving.of(config, seq, dtype_bytes, overhead_bytes).ledger(batch)


def max_batch(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    return Serving.of(config, seq, dtype_bytes, overhead_bytes).most(gpu_bytes)


# --- what autograd saves -------------------------------------------------------------------------


class Storages(dict):
    """Storages by the object that stands for them, each with its bytes when it was first met."""

    def meet(self, tensor):
        storage = tensor.untyped_storage()
        # While this dict holds the object, torch hands out the same one for that memory.
        self.setdefault(id(storage), (storage, storage.nbytes()))
        return tensor

    def __sub__(self, other):
        return [size for key, (_, size) in self.items() if key not in other]


class SavedBytes:
    def __init__(self, exclude=()):
        self.outside, self.saved = Storages(), Storages()
        for tensor in exclude:
            self.outside.meet(tensor)

    def __enter__(self):
        from torch.autograd.graph import saved_tensors_hooks

        self.hooks = saved_tensors_hooks(self.saved.meet, lambda tensor: tensor)
        self.hooks.__enter__()
        return self

    def __exit__(self, *error):
        self.hooks.__exit__(*error)

    @property
    def bytes(self):
        return sum(self.saved - self.outside)


# --- reading a ledger ----------------------------------------------------------------------------


class Lever(enum.StrEnum):
    SHARD = "ZeRO"
    QUANTIZE = "quantization"
    RECOMPUTE = "checkpointing"
    SHARE_HEADS = "GQA"
    CHUNK = "chunking"


def bottleneck(ledger):
    sizes = Counter(ledger.terms())
    ((name, size),) = sizes.most_common(1)  # of equal ones the first that was put in
    match name:
        case _ if not size:
            raise ValueError("There is nothing to shrink: every term is 0.")
        case "weights" if not ledger.gradients and not ledger.optimizer:
            lever = Lever.QUANTIZE
        case "weights" | "gradients" | "optimizer":
            lever = Lever.SHARD
        case "activations":
            lever = Lever.RECOMPUTE
        case "kv_cache":
            lever = Lever.SHARE_HEADS
        case _:
            lever = Lever.CHUNK
    return name, lever.value


class Figures:
    """What a notebook's inputs come to: a method for each quantity, named after it."""

    def __init__(self, notebook: Notebook):
        self.inputs = notebook
        self.model = SimpleModel(
            notebook.layers, notebook.hidden, notebook.heads, notebook.head_dim
        )

    def __getitem__(self, quantity):
        figure = getattr(self, f"figure_{quantity}", None)
        if figure is None:
            raise ValueError(f"A notebook has no quantity {quantity!r}.")
        return figure()

    def check(self, claim) -> Finding | None:
        actual = self[claim.quantity]
        if claim.low <= actual <= claim.high:
            return None
        return Finding(claim.quantity, claim.low, claim.high, actual)

    def _decoding(self, seq):
        cached = self.model.cached_values(self.inputs.batch * seq)
        return (self.inputs.params + cached) * self.inputs.precision_bytes

    def figure_training_gib(self):
        n = self.inputs
        values = self.model.kept_values(n.batch * n.seq, n.activation_scale)
        return (n.params * n.state_bytes + values * n.precision_bytes) / GIB

    def figure_inference_gib(self):
        return self._decoding(self.inputs.seq) / GIB

    def figure_context_doubling(self):
        return self._decoding(2 * self.inputs.seq) / self._decoding(self.inputs.seq)

    def figure_int4_weight_fraction(self):
        return 0.5 / self.inputs.precision_bytes


def audit(notebook):
    return list(filter(None, map(Figures(notebook).check, notebook.claims)))


@dataclass(frozen=True)
class Ranks:
    """Numbers of ranks from `first` to `last`, or without an end."""

    first: int = 1
    last: int | None = None

    @classmethod
    def at_most(cls, whole, sharded, limit):
        """Where `whole + sharded / ranks` is at most the limit; None where it never is."""
        if whole > limit or (whole == limit and sharded):
            return None
        return cls(first=max(1, math.ceil(sharded / (limit - whole))) if sharded else 1)

    @classmethod
    def at_least(cls, whole, sharded, limit):
        if whole >= limit:
            return cls()
        last = math.floor(sharded / (limit - whole))
        return cls(last=last) if last else None

    def __and__(self, other):
        first = max(self.first, other.first)
        last = min((end for end in (self.last, other.last) if end is not None), default=None)
        return Ranks(first, last) if last is None or first <= last else None


def fits_where(ledger, gpu_bytes, at_least_bytes=0):
    terms = {name: Fraction(size) for name, size in ledger.terms().items()}
    sharded = sum(terms.pop(name) for name in ("weights", "gradients", "optimizer"))
    whole = sum(terms.values())
    small = Ranks.at_most(whole, sharded, Fraction(gpu_bytes))
    large = Ranks.at_least(whole, sharded, Fraction(at_least_bytes))
    ranks = small and large and small & large
    return (ranks.first, ranks.last) if ranks else None
