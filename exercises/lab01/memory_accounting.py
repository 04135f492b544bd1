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
    # TODO(lab01.simple_ledger): The ledger in one line
    raise NotImplementedError("lab01.simple_ledger")


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
    # TODO(lab01.simple_activation_bytes): The notebook's rule for activations
    raise NotImplementedError("lab01.simple_activation_bytes")


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
    # TODO(lab01.attention_params): One layer's attention, exactly
    raise NotImplementedError("lab01.attention_params")


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
    # TODO(lab01.ffn_params): One layer's MLP, experts included
    raise NotImplementedError("lab01.ffn_params")


def total_params(config: ModelConfig, active: bool = False) -> int:
    """Parameters of the whole model, exact to the unit.

    The embedding; the head, unless `tie_word_embeddings`; a learned position table of
    `position_rows`; for every layer its attention, its MLP and `norms_per_layer` norms; one last
    norm. A norm has a weight of `hidden_size`, and with `norm_bias` a bias of the same size.

    `active=True` leaves out the experts that a token does not use and nothing else: embedding
    and head both count.
    """
    # TODO(lab01.total_params): The whole model, exact to the unit
    raise NotImplementedError("lab01.total_params")


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
    # TODO(lab01.training_state_bytes): Weights, gradients and Adam by recipe
    raise NotImplementedError("lab01.training_state_bytes")


# --- the KV cache --------------------------------------------------------------------------------


def kv_bytes_per_token(config: ModelConfig, dtype_bytes: int = 2) -> int:
    """Bytes that one more token adds to the cache of one sequence, in all layers together.

    A layer keeps K and V of every *key/value* head. With multi-head latent attention
    (`config.is_mla`) it keeps one vector of `kv_lora_rank + qk_rope_head_dim` in place of both.
    The sequence is short enough for every layer to grow: windows are `kv_cache_bytes`' business.
    """
    # TODO(lab01.kv_bytes_per_token): What one more token adds to the cache
    raise NotImplementedError("lab01.kv_bytes_per_token")


def kv_cache_bytes(config: ModelConfig, batch: int, seq: int, dtype_bytes: int = 2) -> int:
    """Bytes of the KV cache of `batch` sequences of `seq` tokens.

    A layer whose `config.window(layer)` is a positive number keeps at most that many tokens; the
    others (None) keep them all.
    """
    # TODO(lab01.kv_cache_bytes): The cache of a batch, windows included
    raise NotImplementedError("lab01.kv_cache_bytes")


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
    # TODO(lab01.activation_bytes): Activations of a GPT, in every mode
    raise NotImplementedError("lab01.activation_bytes")


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
    # TODO(lab01.inference_ledger): What a GPU holds while it decodes
    raise NotImplementedError("lab01.inference_ledger")


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
    # TODO(lab01.max_batch): The largest batch that fits
    raise NotImplementedError("lab01.max_batch")


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
        # TODO(lab01.SavedBytes): Measure what autograd saves
        raise NotImplementedError("lab01.SavedBytes")

    def __enter__(self) -> SavedBytes:
        # TODO(lab01.SavedBytes): Measure what autograd saves
        raise NotImplementedError("lab01.SavedBytes")

    def __exit__(self, *error: object) -> None:
        # TODO(lab01.SavedBytes): Measure what autograd saves
        raise NotImplementedError("lab01.SavedBytes")


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
    # TODO(lab01.bottleneck): The largest term and its lever
    raise NotImplementedError("lab01.bottleneck")


def audit(notebook: Notebook) -> list[Finding]:
    """The claims of a notebook's prose that its own inputs contradict, in the claims' order.

    `notebook.claims` says that a `quantity` lies in [low, high], ends included; `Claim` and
    `Notebook` (types_lab01.py) say what each quantity is and how the notebook's ledger counts it.
    A claim that holds gives no `Finding`; a `Finding` carries the claim's quantity, low and high
    and the `actual` figure. Raises `ValueError` for a quantity that is not known.
    """
    # TODO(lab01.audit): Catch a notebook contradicting itself
    raise NotImplementedError("lab01.audit")


def fits_where(
    ledger: Ledger, gpu_bytes: float, at_least_bytes: float = 0
) -> tuple[int, int | None] | None:
    """For which numbers N of FSDP ranks a rank's memory is in [at_least_bytes, gpu_bytes] (finite).

    FSDP divides weights, gradients and optimizer states by N; every other term stays whole on
    every rank. Returns (smallest N, largest N); the largest is None when every larger N is in the
    range too; None alone when no N >= 1 is. Without anything to shard, every N needs the same.
    """
    # TODO(lab01.fits_where): How many ranks make it fit
    raise NotImplementedError("lab01.fits_where")


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
