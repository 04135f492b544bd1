"""Lab 07: attention that never stores the S x S matrix, written tile by tile in plain PyTorch.

Shapes throughout: `q: (B, H, S, D)`, `k, v: (B, H_kv, S_kv, D)` with H a multiple of H_kv; query
head h reads KV head `h // (H // H_kv)`. Tensors may have any strides. The scale is `1 / sqrt(D)`
unless one is given, and 0 or a negative number is a scale like any other. Causal attention is
aligned to the END: row i sees key j when `j <= i + (S_kv - S)`, so the last query sees the last
key. A row that sees no key has output 0 and lse -inf, never NaN; S_kv may be 0.

Scores, running statistics and accumulators are kept in float32 or wider (float64 input stays
float64, see `statistics_dtype`), and an output is rounded once, to the dtype of `q`. Only p, and ds
in the backward, may be rounded to the inputs' dtype before a product, as tensor cores need; l is
the sum of the p that are not rounded. -1e10 is a score like any other, and no mask. No function
writes into its arguments. Work with torch operations: the kit counts matmuls, allocations and
reductions, and cannot count what happens outside torch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

State = tuple[Tensor, Tensor, Tensor]
"""A softmax over some keys: maximum m, l = sum of exp(s - m), o = sum of exp(s - m) * v."""


def statistics_dtype(x: Tensor) -> torch.dtype:
    """float32 for float16, bfloat16 and float32; float64 for float64."""
    return torch.promote_types(x.dtype, torch.float32)


def heads_per_group(q: Tensor, k: Tensor) -> int:
    """How many query heads share one KV head; ValueError if they do not divide evenly."""
    H, H_kv = q.shape[1], k.shape[1]
    if H_kv == 0 or H % H_kv:
        raise ValueError(f"{H} query heads cannot share {H_kv} KV heads evenly.")
    return H // H_kv


# --- 1 -------------------------------------------------------------------------------------------


def naive_attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None
) -> Tensor:
    """Attention as the formula says it: all scores, softmax, weighted sum.

    Returns o: (B, H, S, D) in the dtype of q. This one may hold the S x S_kv scores, call
    `torch.softmax` and repeat KV heads; it may not call a library attention.
    Source: Vaswani et al. 2017, eq. 1; the causal alignment is that of flash-attn 2.1 and later.
    """
    # TODO(lab07.naive_attention): Scores, softmax, weighted sum
    raise NotImplementedError("lab07.naive_attention")


# --- 2 -------------------------------------------------------------------------------------------


def online_softmax(x: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax over the last axis, whose maximum and sum come from ONE pass over blocks of it.

    x: (..., N), N >= 1. Returns p: (..., N) in the dtype of x, and m, l: (...) in
    `statistics_dtype(x)` (a wider type is accepted): the maximum of the row and the sum of
    exp(x - m). The last block may be shorter. A row of -inf gives p = 0, m = -inf, l = 0.
    No reduction may look at more than `block` entries of a row at a time: no `torch.softmax`,
    `torch.logsumexp`, `x.max(-1)` or `cumsum` over the whole axis. A loop over the blocks for m and
    then another one for l is two passes. p is written at the end from m and l, is as wide as they
    are until then, and is rounded once.
    Source: Milakov and Gimelshein 2018, Algorithm 3.
    """
    # TODO(lab07.online_softmax): Softmax in one pass
    raise NotImplementedError("lab07.online_softmax")


# --- 3 -------------------------------------------------------------------------------------------


def merge(a: State, b: State) -> State:
    """The state of the union of two disjoint sets of keys, from the states of the parts.

    A state is (m, l, o): m, l: (...), o: (..., D), with o NOT normalised (the attention output is
    `o / l`). Associative and commutative, with identity (-inf, 0, 0): a part may be empty, or
    wholly masked for some rows and not for others, and a maximum may be any finite number. The
    result has the dtype of the parts and their precision, and the arguments are not modified.
    """
    # TODO(lab07.merge): Two partial softmaxes become one
    raise NotImplementedError("lab07.merge")


# --- 4 and 5 -------------------------------------------------------------------------------------


def flash_forward_skips(
    q_start: int, q_stop: int, k_start: int, k_stop: int, S: int, S_kv: int
) -> bool:
    """True if no row of q[q_start:q_stop] sees any key of k[k_start:k_stop] in causal attention.

    Plain integers, 0 <= q_start < q_stop <= S and 0 <= k_start < k_stop <= S_kv, mask aligned to
    the end. The task is done when `flash_forward` asks this before it touches a tile: a causal run
    then computes no tile without a visible pair, whatever S and S_kv. For S = S_kv that is half of
    the score matmuls, give or take one block row. It never reads a key block that it skips: no
    product sees it and no cast copies it, unless all of K and V is cast once, before the walk.
    `flash_forward` on its own is right without it.
    """
    # TODO(lab07.flash_forward_skips): Tiles above the diagonal are never computed
    raise NotImplementedError("lab07.flash_forward_skips")


def flash_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block_q: int,
    block_k: int,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention in tiles of block_q rows by block_k keys, with the online softmax.

    Returns o: (B, H, S, D) in the dtype of q, and lse: (B, H, S) in `statistics_dtype(q)` (a wider
    type is accepted), the natural logarithm of the sum of exp(scores) of the row. The last blocks
    may be shorter; blocks may be larger than S or S_kv; S_kv may be 0.
    Products, measured: a product sees no more than block_k keys and, where there are as many, no
    fewer; each tile has two, so K and V pass once. A block of rows may be larger than block_q.
    Memory, measured: with U = B * H * max(S, S_kv) * max(D, block_k) * 8 bytes, no single
    allocation above U and at most 10 U alive together. That leaves room for float64 copies of
    everything linear in S and for all query blocks at once against ONE key block; not for S x S_kv
    scores or masks, and not for block_q rows against all keys at once. No library attention.
    Source: FlashAttention-2 (Dao 2023), Algorithm 1.
    """
    # TODO(lab07.flash_forward): Attention in tiles, with the log-sum-exp
    raise NotImplementedError("lab07.flash_forward")


# --- 6 -------------------------------------------------------------------------------------------


def flash_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    do: Tensor,
    block_q: int,
    block_k: int,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of attention from what the forward kept: q, k, v, o and lse, with do = dLoss/do.

    Each tile of probabilities is computed again as `exp(scale * q k^T - lse)` from the lse that is
    passed in (no second softmax, no autograd), and D = rowsum(do * o) comes from the o that is
    passed in. Returns dq: (B, H, S, D) and dk, dv: (B, H_kv, S_kv, D) in the dtypes of q, k and v,
    which may differ, added up in `statistics_dtype(q)` or wider; a KV head collects the gradients
    of all its query heads. Rows that see no key, whose lse is -inf, contribute nothing.
    Memory, measured: as in `flash_forward`. FLOPs, measured: five matmuls a tile. Whether tiles
    above the diagonal are skipped is not judged here.
    Source: FlashAttention-2 (Dao 2023), Algorithm 2.
    """
    # TODO(lab07.flash_backward): Gradients from the log-sum-exp
    raise NotImplementedError("lab07.flash_backward")


# --- 7 -------------------------------------------------------------------------------------------


def block_sizes(D: int, sram_elements: int) -> tuple[int, int]:
    """(Bc, Br) of FlashAttention's Algorithm 1, line 1: Bc = ceil(M / 4D), Br = min(Bc, D).

    M = sram_elements counts ELEMENTS of on-chip memory, not bytes: 192 KiB of fp16 is M = 98,304.
    """
    # TODO(lab07.io_model): HBM traffic, counted
    raise NotImplementedError("lab07.io_model")


def io_model(S: int, D: int, sram_elements: int) -> tuple[int, int]:
    """HBM elements that one head's forward reads and writes, as (standard, flash).

    standard, Algorithm 0: Q, K in, scores out; scores in, probabilities out; probabilities, V in,
    O out. flash, Algorithm 1: the outer loop loads each block of K and V once; each of its
    Tc = ceil(S / Bc) rounds reads all of Q and O and the statistics l and m, and writes O, l and m.
    Both are ints and exact, however large. Source: Dao et al. 2022, Algorithms 0 and 1, Theorem 2.
    """
    # TODO(lab07.io_model): HBM traffic, counted
    raise NotImplementedError("lab07.io_model")


# --- 8 -------------------------------------------------------------------------------------------


def gqa_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    block_q: int,
    block_k: int,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of N sequences packed one after the other, with grouped KV heads, without padding.

    q: (T_q, H, D), k, v: (T_k, H_kv, D). cu_seqlens_q, cu_seqlens_k: (N + 1,) tensors of int32 or
    int64 that start at 0: sequence n owns q[cu_seqlens_q[n]:cu_seqlens_q[n + 1]] and the same of k
    and v. Lengths of q and k may differ (causal: aligned to the end, sequence by sequence) and may
    be 0.
    Returns o: (T_q, H, D) in the dtype of q and lse: (H, T_q) in `statistics_dtype(q)` or wider.
    Memory, measured: K and V are not repeated H // H_kv times. With U = 8 * D * (T_k * H_kv +
    H * block_k) bytes, no single allocation above U and at most 3 U together (T_q being small):
    one key block may be repeated, a sequence may not. Products, measured: a product sees no more
    than block_k keys of a head and, where there are as many, no fewer. FLOPs, measured: no pair of
    tokens of two sequences is multiplied, and no sequence is padded beyond whole blocks.
    Source: the layout is that of `flash_attn_varlen_func` in the flash-attn package.
    """
    # TODO(lab07.gqa_varlen): Packed sequences, shared KV heads
    raise NotImplementedError("lab07.gqa_varlen")


# --- 10 ------------------------------------------------------------------------------------------


def split_kv_decode(
    q: Tensor, k: Tensor, v: Tensor, num_splits: int, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """One decode step, the keys split over `num_splits` workers and their answers merged by LSE.

    q: (B, H, 1, D), k, v: (B, H_kv, S_kv, D). Worker w takes keys w * n to (w + 1) * n - 1, as far
    as there are any, with n = ceil(S_kv / num_splits): 10 keys for 4 workers are 3, 3, 3 and 1, and
    9 keys leave the last one with none. Returns o: (B, H, 1, D) in the dtype of q and lse:
    (B, H, 1) in `statistics_dtype(q)` or wider; parts are merged before they are rounded.
    Measured: a product sees the keys of one worker, and all of them.
    Source: Flash-Decoding (Dao, Haziza, Massa, Sizov 2023).
    """
    # TODO(lab07.split_kv_decode): One query, many workers
    raise NotImplementedError("lab07.split_kv_decode")


# --- 11 ------------------------------------------------------------------------------------------


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    context_lens: Tensor,
    scale: float | None = None,
) -> Tensor:
    """One decode step whose keys lie in blocks of a shared pool, found through a block table.

    q: (B, H, D). k_cache, v_cache: (num_blocks, block_size, H_kv, D). block_table: (B, max_blocks)
    integers: entry [b, n] is the pool block that holds tokens n * block_size to
    (n + 1) * block_size - 1 of sequence b; entries past the end of a sequence are -1, and one block
    may serve several sequences (a shared prefix). context_lens: (B,) integers, the tokens of each
    sequence, possibly 0 (output 0). Slots after the last token hold other people's bytes, NaN
    included. Memory, measured: the blocks of a sequence may be gathered, even repeated
    for the query heads; the pool may not be copied or cast. Returns o: (B, H, D) in the dtype of q.
    Source: Kwon et al. 2023 (PagedAttention), section 4.1; cache layout of vLLM's flash backend.
    """
    # TODO(lab07.paged_attention): Keys through a block table
    raise NotImplementedError("lab07.paged_attention")
