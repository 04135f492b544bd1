"""Lab 01: Transformer memory accounting.

Turn a model's config into a ledger of bytes: first in one line, then exactly, then against what
autograd really saves. Everything is in bytes; only printing uses GiB (1024**3 bytes) and says so.
No torch is needed to import this file.

    python exercises/lab01/memory_accounting.py --params 6.74e9 --layers 32 --hidden 4096
    python exercises/lab01/memory_accounting.py --model Llama-3-8B --batch 1 --plot kv.png
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Any

from types_lab01 import CONFIGS, GIB, Finding, Ledger, ModelConfig, Notebook, real_config

# --- the ledger in one line ----------------------------------------------------------------------


def simple_ledger(
    layers: int,
    hidden: int,
    ffn_multiplier: float,
    vocab: int,
    batch: int,
    seq: int,
    heads: int,
    head_dim: int,
    precision_bytes: float,
    adam_bytes: float,
) -> Ledger:
    """The first script that everybody writes: parameters, their states, and the KV cache.

    A layer has `4 hidden^2` attention parameters (Q, K, V and output projection) and
    `ffn_multiplier * hidden^2` in its MLP; the model has one embedding of `vocab * hidden`. No
    norms, no biases, no separate head.

    Returns a `Ledger` with `params`, and in bytes: `weights` and `gradients` at `precision_bytes`
    a parameter, `optimizer` at `adam_bytes` a parameter, `kv_cache` with one K and one V of
    `heads * head_dim` values at `precision_bytes` for each of `batch * seq` tokens and each layer.
    `activations` and `other` stay 0: the first script has no line for them.
    """
    # BEGIN SOLUTION simple_ledger
    attention = 4 * hidden**2
    ffn = ffn_multiplier * hidden**2
    params = layers * (attention + ffn) + vocab * hidden
    return Ledger(
        params=params,
        weights=params * precision_bytes,
        gradients=params * precision_bytes,
        optimizer=params * adam_bytes,
        kv_cache=batch * seq * layers * heads * head_dim * 2 * precision_bytes,
    )
    # END SOLUTION


def simple_activation_bytes(
    batch: int,
    seq: int,
    layers: int,
    hidden: int,
    precision_bytes: float = 2,
    scale: float = 7.0,
) -> float:
    """Activations by the notebook's rule, in bytes, for the whole model.

    Every token keeps `scale` vectors of `hidden` values in every layer, each value of
    `precision_bytes`. The notebook's scale is 7.0; ZeRO (section 3.2, footnote 3) uses 12.
    """
    # BEGIN SOLUTION simple_activation_bytes
    return batch * seq * layers * hidden * precision_bytes * scale
    # END SOLUTION


# --- parameters, exactly -------------------------------------------------------------------------


def attention_params(config: ModelConfig) -> int:
    """Parameters of one layer's attention: every projection, bias and norm *inside* it.

    - Queries and the output have `num_attention_heads * head_dim` channels, keys and values
      `num_key_value_heads * head_dim`; neither product need be `hidden_size`.
    - `qkv_bias` gives q, k and v one bias each, `o_bias` the output projection.
    - `qk_norm` adds a weight of `head_dim` for queries and one for keys, shared by the heads.
    - Multi-head latent attention (`config.is_mla`; DeepSeek-V2, section 2.1; no biases there):
      queries go down to `q_lora_rank`, through an RMSNorm of that size, and up to
      `num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)`; with `q_lora_rank` None they
      take one matrix. One matrix brings the input down to `kv_lora_rank + qk_rope_head_dim`; the
      first part has an RMSNorm of `kv_lora_rank` and one matrix up to
      `num_attention_heads * (qk_nope_head_dim + v_head_dim)`. The output projection reads
      `num_attention_heads * v_head_dim`.

    The norms before and after attention belong to the layer, not to this count.
    """
    # BEGIN SOLUTION attention_params
    d, heads = config.hidden_size, config.num_attention_heads
    if config.is_mla:
        return _mla_params(config)
    q_channels = heads * config.head_dim
    kv_channels = config.num_key_value_heads * config.head_dim
    params = d * q_channels + 2 * d * kv_channels + q_channels * d
    if config.qkv_bias:
        params += q_channels + 2 * kv_channels
    if config.o_bias:
        params += d
    if config.qk_norm:
        params += 2 * config.head_dim
    return params


def _mla_params(config: ModelConfig) -> int:
    d, heads = config.hidden_size, config.num_attention_heads
    q_rank, kv_rank = config.q_lora_rank, config.kv_lora_rank
    q_channels = heads * (config.qk_nope_head_dim + config.qk_rope_head_dim)
    queries = d * q_channels
    if q_rank is not None:
        queries = d * q_rank + q_rank + q_rank * q_channels
    down = d * (kv_rank + config.qk_rope_head_dim) + kv_rank
    up = kv_rank * heads * (config.qk_nope_head_dim + config.v_head_dim)
    output = heads * config.v_head_dim * d
    return queries + down + up + output
    # END SOLUTION


def ffn_params(config: ModelConfig, layer: int = 0, active: bool = False) -> int:
    """Parameters of the MLP of layer number `layer`, experts and router included.

    - A gated MLP (`gated_mlp`) has gate, up and down: three matrices between `hidden_size` and
      `intermediate_size`. A plain one has two. `mlp_bias` gives every matrix a bias as long as its
      output.
    - A layer with `config.is_moe_layer(layer)` has `num_experts` routed experts and
      `n_shared_experts` shared ones, each an MLP of `moe_intermediate_size`, a router matrix of
      `hidden_size * num_experts`, and with `router_bias` one more number an expert. Experts have
      the same kind of MLP as a dense layer.
    - `active=True` counts what one token uses: `num_experts_per_tok` routed experts in place of
      all, the shared ones, and the whole router.
    """
    # BEGIN SOLUTION ffn_params
    if not config.is_moe_layer(layer):
        return _mlp_params(config, config.intermediate_size)
    routed = config.num_experts_per_tok if active else config.num_experts
    experts = routed + config.n_shared_experts
    router = config.hidden_size * config.num_experts
    if config.router_bias:
        router += config.num_experts
    return experts * _mlp_params(config, config.moe_intermediate_size) + router


def _mlp_params(config: ModelConfig, width: int) -> int:
    into = 2 if config.gated_mlp else 1
    params = (into + 1) * config.hidden_size * width
    if config.mlp_bias:
        params += into * width + config.hidden_size
    return params
    # END SOLUTION


def total_params(config: ModelConfig, active: bool = False) -> int:
    """Parameters of the whole model, exact to the unit.

    The embedding; the head, unless `tie_word_embeddings`; a learned position table of
    `position_rows`; for every layer its attention, its MLP and `norms_per_layer` norms; one last
    norm. A norm has a weight of `hidden_size`, and with `norm_bias` a bias of the same size.

    `active=True` leaves out the experts that a token does not use and nothing else: embedding
    and head both count.
    """
    # BEGIN SOLUTION total_params
    d = config.hidden_size
    norm = 2 * d if config.norm_bias else d
    embeddings = (1 if config.tie_word_embeddings else 2) * config.vocab_size * d
    positions = config.position_rows * d
    layers = sum(
        attention_params(config) + ffn_params(config, layer, active) + config.norms_per_layer * norm
        for layer in range(config.num_hidden_layers)
    )
    return embeddings + positions + layers + norm
    # END SOLUTION


# --- what training keeps for every parameter -----------------------------------------------------


def training_state_bytes(n_params: float, recipe: str) -> Ledger:
    """Weights, gradients and Adam's states of `n_params` parameters: a `Ledger` in bytes.

    Recipes, in bytes a parameter (weights + gradients + optimizer):
    - `fp32`: everything in float32, two moments (4 + 4 + 8)
    - `bf16_mixed`: bf16 weights and gradients; the optimizer holds a float32 master copy of the
      weights and two float32 moments. The rule of ZeRO, section 3.1.
    - `bf16_fp32grads`: the same with gradients in float32, as Megatron-LM accumulates them
    - `bf16_pure`: `torch.optim.AdamW` on bf16 parameters: its moments have the parameters' dtype
    - `adam8bit`: bf16 weights and gradients, no master copy, two moments of one byte, and for each
      moment one float32 scale a block of 256 values, the last block perhaps not full
      (bitsandbytes' block-wise states; Dettmers et al. 2022, section 2)

    Raises `ValueError` for another recipe and names those there are.
    """
    # BEGIN SOLUTION training_state_bytes
    per_param = {
        "fp32": (4, 4, 4 + 4),
        "bf16_mixed": (2, 2, 4 + 4 + 4),
        "bf16_fp32grads": (2, 4, 4 + 4 + 4),
        "bf16_pure": (2, 2, 2 + 2),
        "adam8bit": (2, 2, 1 + 1),
    }
    if recipe not in per_param:
        raise ValueError(f"recipe is {recipe!r}; it must be one of {', '.join(per_param)}.")
    weights, gradients, optimizer = (size * n_params for size in per_param[recipe])
    if recipe == "adam8bit":
        blocks = -(-n_params // 256)
        optimizer += 2 * 4 * blocks
    return Ledger(params=n_params, weights=weights, gradients=gradients, optimizer=optimizer)
    # END SOLUTION


# --- the KV cache --------------------------------------------------------------------------------


def kv_bytes_per_token(config: ModelConfig, dtype_bytes: int = 2) -> int:
    """Bytes that one more token adds to the cache of one sequence, in all layers together.

    A layer keeps K and V of every *key/value* head. With multi-head latent attention
    (`config.is_mla`) it keeps one vector of `kv_lora_rank + qk_rope_head_dim` in place of both.
    The sequence is short enough for every layer to grow: windows are `kv_cache_bytes`' business.
    """
    # BEGIN SOLUTION kv_bytes_per_token
    if config.is_mla:
        values = config.kv_lora_rank + config.qk_rope_head_dim
    else:
        values = 2 * config.num_key_value_heads * config.head_dim
    return config.num_hidden_layers * values * dtype_bytes
    # END SOLUTION


def kv_cache_bytes(config: ModelConfig, batch: int, seq: int, dtype_bytes: int = 2) -> int:
    """Bytes of the KV cache of `batch` sequences of `seq` tokens.

    A layer whose `config.window(layer)` is a positive number keeps at most that many tokens; the
    others (None) keep them all.
    """
    # BEGIN SOLUTION kv_cache_bytes
    layers = config.num_hidden_layers
    per_layer = kv_bytes_per_token(config, dtype_bytes) // layers
    windows = (config.window(layer) for layer in range(layers))
    tokens = sum(seq if window is None else min(seq, window) for window in windows)
    return batch * tokens * per_layer
    # END SOLUTION


# --- activations ---------------------------------------------------------------------------------


def activation_bytes(
    config: ModelConfig,
    batch: int,
    seq: int,
    attention: str = "eager",
    dropout: bool = True,
    recompute: str = "none",
    tp: int = 1,
    sp: bool = False,
    logits: bool = False,
) -> float:
    """Bytes that autograd keeps for backward in all layers of a GPT, in 16-bit; one rank's share.

    The layer is the one of Korthikanti et al. 2022, section 4.1: an MLP of 4 hidden_size with
    GELU, two LayerNorms, dropout on the attention probabilities and on both residual branches.
    That holds whatever `head_dim`, `num_key_value_heads` and `intermediate_size` say: of `config`
    only `hidden_size`, `num_attention_heads`, `num_hidden_layers` and `vocab_size` count here.
    With s = seq, b = batch, h = hidden_size, a = num_attention_heads, t = tp, one layer keeps

    - `s b h (34 + 5 a s / h)` bytes with dropout (equation 1); a dropout mask is one byte a value.
    - `dropout=False` means p = 0 in training: no masks, and the probabilities are kept once,
      because what dropout would return is the same tensor. Work out what is left.
    - `attention="sdpa"` (a fused kernel) keeps nothing of size s x s, but a float32 log-sum-exp
      for each query and head: `4 a b s`.
    - `recompute="selective"` recomputes what lies between Q, K, V and the output projection's
      input (section 5): with either `attention` nothing of size s x s and no log-sum-exp is kept.
      `recompute="full"` keeps each layer's 16-bit input only.
    - `tp > 1` splits heads, the MLP's inside and everything of size s x s over the ranks; inputs
      of the two LayerNorms, inputs of the two blocks and the residual dropouts' masks stay whole
      (table 2). `sp=True` (sequence parallelism) splits those too, and with full recomputation
      the layer's input. `sp` changes nothing at `tp=1`.

    `logits=True` adds the model's end: the float32 log-probabilities that the loss keeps,
    `4 b s vocab_size` bytes, split by `tp`. No recomputation of layers frees them.

    Not counted: the LayerNorms' statistics (two numbers a token and norm), weights, the embedding.
    `tp` divides whatever it splits. Raises `ValueError` for another `attention` or `recompute`,
    also where the figure would not depend on it.
    """
    # BEGIN SOLUTION activation_bytes
    if attention not in ("eager", "sdpa"):
        raise ValueError(f"attention is {attention!r}; it must be 'eager' or 'sdpa'.")
    if recompute not in ("none", "selective", "full"):
        raise ValueError(f"recompute is {recompute!r}; it must be 'none', 'selective' or 'full'.")
    heads = config.num_attention_heads
    sbh = seq * batch * config.hidden_size
    mask = 1 if dropout else 0
    outside = tp if sp else 1  # ranks that share what tensor parallelism leaves whole

    if recompute == "full":
        layer = 2 * sbh / outside
    else:
        # Whole on every rank: two LayerNorm inputs, the inputs of QKV and of the MLP, two masks.
        whole = (2 + 2 + 2 + 2 + 2 * mask) * sbh
        # Split by heads or by MLP columns: Q, K, V, the input of the output projection, and the
        # inputs of GELU and of the second linear, which are four times as wide.
        split = (2 + 2 + 2 + 2 + 8 + 8) * sbh
        if recompute == "none" and attention == "eager":
            # Softmax's output; with dropout also a mask and dropout's own output.
            split += (2 + 3 * mask) * heads * seq * seq * batch
        if recompute == "none" and attention == "sdpa":
            split += 4 * heads * batch * seq
        layer = whole / outside + split / tp
    total = config.num_hidden_layers * layer
    if logits:
        total += 4 * batch * seq * config.vocab_size / tp
    return total
    # END SOLUTION


# --- inference -----------------------------------------------------------------------------------


def inference_ledger(
    config: ModelConfig,
    batch: int,
    seq: int,
    dtype_bytes: int = 2,
    overhead_bytes: int = 0,
) -> Ledger:
    """What a GPU holds while it decodes `batch` sequences that have reached `seq` tokens.

    `weights`: all parameters (of all experts) at `dtype_bytes`; `kv_cache`: as `kv_cache_bytes`;
    `other`: float32 logits of the last position of every sequence, `4 * batch * vocab_size`, and
    the fixed `overhead_bytes` (CUDA context, workspaces). `params` is the count.
    """
    # BEGIN SOLUTION inference_ledger
    params = total_params(config)
    return Ledger(
        params=params,
        weights=params * dtype_bytes,
        kv_cache=kv_cache_bytes(config, batch, seq, dtype_bytes),
        other=4 * batch * config.vocab_size + overhead_bytes,
    )
    # END SOLUTION


def max_batch(
    config: ModelConfig,
    gpu_bytes: float,
    seq: int,
    dtype_bytes: int = 2,
    overhead_bytes: int = 0,
) -> int:
    """The largest batch whose `inference_ledger` fits: its `total` is at most `gpu_bytes`.

    0 when not even one sequence fits, never negative. `gpu_bytes` (finite) is what may be used: a
    caller who wants to leave a tenth of the GPU free passes nine tenths of it.
    """
    # BEGIN SOLUTION max_batch
    empty = inference_ledger(config, 0, seq, dtype_bytes, overhead_bytes).total
    one = inference_ledger(config, 1, seq, dtype_bytes, overhead_bytes).total
    return max(0, int((gpu_bytes - empty) // (one - empty)))
    # END SOLUTION


# --- what autograd really saves ------------------------------------------------------------------


class SavedBytes:
    """Context manager: the bytes that autograd saves for backward while it is open.

        with SavedBytes(exclude=model.parameters()) as saved:
            loss = model(x).sum()
        print(saved.bytes)

    `exclude`: tensors (or an iterator of them) that are in memory anyway; a saved tensor that
    shares their storage does not count. `bytes`: an int, the sum over *storages*, each once and
    whole: views and repeated saves of one tensor share its storage, and a view of half a tensor
    keeps all of it alive. An operation in place writes to a storage and makes no new one. `bytes`
    counts everything that was saved while the block was open, also for
    a graph that is gone again, and can be read inside the block (so far) and after it. Gradients
    are what they are without it, and an exception in the block comes out.
    See `torch.autograd.graph.saved_tensors_hooks`.
    """

    def __init__(self, exclude: Iterable[Any] = ()) -> None:
        # BEGIN SOLUTION SavedBytes
        self._excluded = {tensor.untyped_storage().data_ptr() for tensor in exclude}
        self._storages: dict[int, Any] = {}
        self.bytes = 0
        # END SOLUTION

    def __enter__(self) -> SavedBytes:
        # BEGIN SOLUTION SavedBytes
        import torch

        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda saved: saved)
        self._hooks.__enter__()
        return self

    def _pack(self, tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address not in self._excluded and address not in self._storages:
            # Holding the storage keeps its address from being given to another tensor.
            self._storages[address] = storage
            self.bytes += storage.nbytes()
        return tensor
        # END SOLUTION

    def __exit__(self, *error: object) -> None:
        # BEGIN SOLUTION SavedBytes
        self._hooks.__exit__(*error)
        self._storages.clear()
        # END SOLUTION


# --- reading a ledger ----------------------------------------------------------------------------


def bottleneck(ledger: Ledger) -> tuple[str, str]:
    """The name of the largest term of a ledger, and the lever that shrinks it.

    The levers, by the name that is returned:
    - `"ZeRO"`: shard what every data-parallel rank holds a copy of
    - `"quantization"`: fewer bits for weights that no longer change
    - `"checkpointing"`: drop what backward can compute again
    - `"GQA"`: fewer key/value heads (`"paging"`, no room reserved for tokens that never come, is
      as good an answer for the same term)
    - `"chunking"`: never hold the logits of all positions at once

    A ledger with gradients or optimizer states is a training run. Terms are compared in bytes;
    of equal ones the first in the order of `Ledger.terms()` counts. Raises `ValueError` when
    every term is 0.
    """
    # BEGIN SOLUTION bottleneck
    terms = ledger.terms()
    name = max(terms, key=terms.__getitem__)
    if terms[name] <= 0:
        raise ValueError("Every term of this ledger is 0: there is nothing to shrink.")
    training = ledger.gradients > 0 or ledger.optimizer > 0
    levers = {
        "weights": "ZeRO" if training else "quantization",
        "gradients": "ZeRO",
        "optimizer": "ZeRO",
        "activations": "checkpointing",
        "kv_cache": "GQA",
        "other": "chunking",
    }
    return name, levers[name]
    # END SOLUTION


def audit(notebook: Notebook) -> list[Finding]:
    """The claims of a notebook's prose that its own inputs contradict, in the claims' order.

    `notebook.claims` says that a `quantity` lies in [low, high], ends included; `Claim` and
    `Notebook` (types_lab01.py) say what each quantity is and how the notebook's ledger counts it.
    A claim that holds gives no `Finding`; a `Finding` carries the claim's quantity, low and high
    and the `actual` figure. Raises `ValueError` for a quantity that is not known.
    """
    # BEGIN SOLUTION audit
    n = notebook
    weights = n.params * n.precision_bytes
    tokens = n.batch * n.seq
    kv = tokens * n.layers * n.heads * n.head_dim * 2 * n.precision_bytes
    activations = tokens * n.layers * n.hidden * n.precision_bytes * n.activation_scale
    actual = {
        "training_gib": (n.params * n.state_bytes + activations) / GIB,
        "inference_gib": (weights + kv) / GIB,
        "context_doubling": (weights + 2 * kv) / (weights + kv),
        "int4_weight_fraction": 0.5 / n.precision_bytes,
    }
    findings = []
    for claim in n.claims:
        if claim.quantity not in actual:
            raise ValueError(f"Claim about {claim.quantity!r}; known are {', '.join(actual)}.")
        value = actual[claim.quantity]
        if not claim.low <= value <= claim.high:
            findings.append(Finding(claim.quantity, claim.low, claim.high, value))
    return findings
    # END SOLUTION


def fits_where(
    ledger: Ledger, gpu_bytes: float, at_least_bytes: float = 0
) -> tuple[int, int | None] | None:
    """For which numbers N of FSDP ranks a rank's memory is in [at_least_bytes, gpu_bytes] (finite).

    FSDP divides weights, gradients and optimizer states by N; every other term stays whole on
    every rank. Returns (smallest N, largest N); the largest is None when every larger N is in the
    range too; None alone when no N >= 1 is. Without anything to shard, every N needs the same.
    """
    # BEGIN SOLUTION fits_where
    sharded = ledger.weights + ledger.gradients + ledger.optimizer
    whole = ledger.total - sharded
    if sharded == 0:
        return (1, None) if at_least_bytes <= whole <= gpu_bytes else None
    if whole >= gpu_bytes:
        return None
    first = int(-(-sharded // (gpu_bytes - whole)))
    if at_least_bytes <= whole:
        return first, None
    last = int(sharded // (at_least_bytes - whole))
    return (first, last) if first <= last else None
    # END SOLUTION


# --- given: the command --------------------------------------------------------------------------

CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Print a memory ledger; without arguments, the Llama-2-7B notebook's shape.",
    )
    add = parser.add_argument
    add("--model", metavar="NAME", help="a real config: " + ", ".join(CONFIGS))
    add("--params", type=float, help="parameter count; left out, it is counted from the shape")
    add("--layers", type=int, default=32)
    add("--hidden", type=int, default=4096)
    add("--ffn-multiplier", type=float, default=8.0625, help="n_mlp * ffn / hidden")
    add("--vocab", type=int, default=32000)
    add("--heads", type=int, default=32, help="heads in the KV cache")
    add("--head-dim", type=int, default=128)
    add("--batch", type=int, default=4)
    add("--seq", type=int, default=4096)
    add("--recipe", default="bf16_mixed", help="as in training_state_bytes")
    add("--plot", metavar="PNG", help="draw KV cache against context length")
    return parser.parse_args(argv)


def _kv_of(args: argparse.Namespace, seq: int) -> float:
    if args.model:
        return kv_cache_bytes(real_config(args.model), args.batch, seq)
    return _simple(args, seq).kv_cache


def _simple(args: argparse.Namespace, seq: int) -> Ledger:
    return simple_ledger(
        layers=args.layers,
        hidden=args.hidden,
        ffn_multiplier=args.ffn_multiplier,
        vocab=args.vocab,
        batch=args.batch,
        seq=seq,
        heads=args.heads,
        head_dim=args.head_dim,
        precision_bytes=2,
        adam_bytes=12,
    )


def _print_ledgers(args: argparse.Namespace) -> None:
    if args.model:
        config = real_config(args.model)
        layers, hidden = config.num_hidden_layers, config.hidden_size
        params = args.params or total_params(config)
    else:
        layers, hidden = args.layers, args.hidden
        params = args.params or _simple(args, args.seq).params
    states = training_state_bytes(params, args.recipe)
    activations = simple_activation_bytes(args.batch, args.seq, layers, hidden)
    training = Ledger(
        params=params,
        weights=states.weights,
        gradients=states.gradients,
        optimizer=states.optimizer,
        activations=activations,
    )
    inference = Ledger(params=params, weights=2 * params, kv_cache=_kv_of(args, args.seq))
    print(f"{params / 1e9:.2f} B parameters, batch {args.batch}, {args.seq} tokens")
    print(f"\nTraining ({args.recipe}; states {states.total / GIB:.1f} GiB)\n{training}")
    print(f"\nInference (16-bit weights and KV cache)\n{inference}")


def _plot(args: argparse.Namespace) -> None:
    sizes = [_kv_of(args, seq) / GIB for seq in CONTEXTS]
    print("\nKV cache against context length")
    for seq, size in zip(CONTEXTS, sizes, strict=True):
        print(f"  {seq:>6} tokens {size:>9.2f} GiB")
    try:
        import matplotlib
    except ImportError:
        print(f"\nmatplotlib is not installed, so {args.plot} was not drawn: the table has it all.")
        print("To draw it: pip install 'infralens-labs[plots]'.")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.plot(CONTEXTS, sizes, marker="o")
    axes.set(xlabel="context length (tokens)", ylabel="KV cache (GiB)")
    axes.set_title(f"{args.model or 'KV cache'}, batch {args.batch}, 16-bit")
    figure.savefig(args.plot)
    print(f"\nDrawn: {args.plot}")


def main(argv: list[str] | None = None) -> int:
    """Print the ledgers; 1 when a task that they need is not written yet, 2 for a bad value."""
    args = _arguments(argv)
    try:
        _print_ledgers(args)
        if args.plot:
            _plot(args)
    except NotImplementedError as missing:
        task = str(missing)
        print(f"This command needs `{task}`, which is not written yet: look for")
        print(f"TODO({task}) in {__file__}")
        return 1
    except ValueError as wrong:
        print(wrong, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
