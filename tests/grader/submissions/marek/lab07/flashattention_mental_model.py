"""Lab 07: attention that never stores the S x S matrix, written tile by tile in plain PyTorch.

Shapes throughout: `q: (B, H, S, D)`, `k, v: (B, H_kv, S_kv, D)` with H a multiple of H_kv; query head
h reads KV head `h // (H // H_kv)`. The scale is `1 / sqrt(D)` unless one is given. Causal attention
is aligned to the END: row i sees key j when `j <= i + (S_kv - S)`, so the last query sees the last
key. A row that sees no key has output 0 and lse -inf, never NaN.

Scores, running statistics and accumulators are kept in float32 or wider (float64 input stays
float64, see `statistics_dtype`); outputs have the dtype of `q`. Work with torch operations: the kit
counts matmuls, allocations and reductions, and cannot count what happens outside torch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

State = tuple[Tensor, Tensor, Tensor]
"""A partial softmax over some keys: running maximum m, sum l of exp(s - m), and o = sum of exp(s - m) * v."""


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
    Source: Vaswani et al. 2017, eq. 1; the causal alignment is that of FlashAttention 2.1 and later.
    """
    S, D = q.shape[2], q.shape[3]
    S_kv = k.shape[2]
    group = heads_per_group(q, k)
    dtype = statistics_dtype(q)
    k = k.repeat_interleave(group, dim=1).to(dtype)
    v = v.repeat_interleave(group, dim=1).to(dtype)
    if scale is None:
        scale = 1 / math.sqrt(D)
    s = torch.matmul(q.to(dtype), k.transpose(2, 3)) * scale
    if causal:
        # last query sees the last key
        mask = torch.ones(S, S_kv, dtype=torch.bool).triu(S_kv - S + 1)
        s = s.masked_fill(mask, float("-inf"))
    p = torch.softmax(s, dim=-1)
    return torch.matmul(p, v).to(q.dtype)


# --- 2 -------------------------------------------------------------------------------------------


def online_softmax(x: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax over the last axis, whose maximum and sum come from ONE pass over blocks of it.

    x: (..., N), N >= 1. Returns p: (..., N) in the dtype of x, and m, l: (...) in
    `statistics_dtype(x)`: the maximum of the row and the sum of exp(x - m). The last block may be
    shorter. A row of -inf gives p = 0, m = -inf, l = 0.
    No reduction may look at more than `block` entries of a row at a time: no `torch.softmax`,
    `torch.logsumexp`, `x.max(-1)` or `cumsum` over the whole axis. p is written at the end from m
    and l.
    Source: Milakov and Gimelshein 2018, Algorithm 3.
    """
    dtype = statistics_dtype(x)
    neg_inf = float("-inf")
    m = torch.full(x.shape[:-1], neg_inf, dtype=dtype)
    l = torch.zeros(x.shape[:-1], dtype=dtype)
    for chunk in torch.split(x.to(dtype), block, dim=-1):
        new_m = torch.maximum(m, chunk.max(dim=-1).values)
        # rows with only -inf so far: subtract 0 instead of -inf
        ref = torch.where(new_m == neg_inf, torch.zeros_like(new_m), new_m)
        l = l * torch.exp(m - ref) + torch.exp(chunk - ref[..., None]).sum(dim=-1)
        m = new_m
    ref = torch.where(m == neg_inf, torch.zeros_like(m), m)
    p = torch.exp(x.to(dtype) - ref[..., None])
    p = p / torch.where(l > 0, l, torch.ones_like(l))[..., None]
    return p.to(x.dtype), m, l


# --- 3 -------------------------------------------------------------------------------------------


def merge(a: State, b: State) -> State:
    """The state of the union of two disjoint sets of keys, from the states of the parts.

    A state is (m, l, o): m, l: (...), o: (..., D), with o NOT normalised (the attention output is
    `o / l`). Associative and commutative, with identity (-inf, 0, 0): a part may be empty, or wholly
    masked for some rows and not for others. The arguments are not modified.
    """
    m1, l1, o1 = a
    m2, l2, o2 = b
    m = torch.maximum(m1, m2)
    ref = torch.where(m == float("-inf"), torch.zeros_like(m), m)
    c1 = torch.exp(m1 - ref)
    c2 = torch.exp(m2 - ref)
    l = c1 * l1 + c2 * l2
    o = c1[..., None] * o1 + c2[..., None] * o2
    return m, l, o


# --- 4 and 5 -------------------------------------------------------------------------------------


def flash_forward_skips(
    q_start: int, q_stop: int, k_start: int, k_stop: int, S: int, S_kv: int
) -> bool:
    """True if no row of q[q_start:q_stop] may see any key of k[k_start:k_stop] under the causal mask.

    Plain integers, 0 <= q_start < q_stop <= S and 0 <= k_start < k_stop <= S_kv, mask aligned to the
    end. The task is done when `flash_forward` asks this before it computes a tile: a causal run then
    computes half of the score matmuls, give or take one block row, and never reads a key block that
    it skips. `flash_forward` on its own is right without it.
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
    type is accepted), the natural logarithm of the sum of exp(scores) of the row. The last blocks may be
    shorter; blocks may be larger than S or S_kv; S_kv may be 0.
    Memory, measured: with U = B * H * max(S, S_kv) * max(D, block_k) * 8 bytes, no single allocation
    above U and at most 10 U alive together. That leaves room for float64 copies of everything linear
    in S and for all query blocks at once against ONE key block; not for S x S_kv scores or masks,
    and not for block_q rows against all keys at once. No library attention.
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
    passed in (no second softmax, no autograd). Returns dq: (B, H, S, D) and dk, dv:
    (B, H_kv, S_kv, D) in the dtypes of q, k and v, added up in `statistics_dtype(q)`; a KV head
    collects the gradients of all its query heads. Rows with lse = -inf contribute nothing.
    Memory, measured: as in `flash_forward`. FLOPs, measured: five matmuls a tile.
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
    Source: Dao et al. 2022, Algorithms 0 and 1, Theorem 2. Whole numbers.
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

    q: (T_q, H, D), k, v: (T_k, H_kv, D). cu_seqlens_q, cu_seqlens_k: (N + 1,) integer tensors that
    start at 0: sequence n owns q[cu_seqlens_q[n]:cu_seqlens_q[n + 1]] and the same of k and v.
    Lengths of q and k may differ (causal: aligned to the end, sequence by sequence) and may be 0.
    Returns o: (T_q, H, D) in the dtype of q and lse: (H, T_q) in `statistics_dtype(q)` or wider.
    Memory, measured: K and V are not repeated H // H_kv times. With U = 8 * D * (T_k * H_kv +
    H * block_k) bytes, no single allocation above U and at most 6 U together (T_q being small):
    one key block may be repeated, a sequence may not. FLOPs, measured: no pair of tokens of two
    sequences is multiplied, and no sequence is padded beyond whole blocks.
    Source: the layout is that of `flash_attn_varlen_func` in the flash-attn package.
    """
    # TODO(lab07.gqa_varlen): Packed sequences, shared KV heads
    raise NotImplementedError("lab07.gqa_varlen")


# --- 10 ------------------------------------------------------------------------------------------


def split_kv_decode(
    q: Tensor, k: Tensor, v: Tensor, num_splits: int, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """One decode step, the keys split over `num_splits` workers and their answers merged by LSE.

    q: (B, H, 1, D), k, v: (B, H_kv, S_kv, D). Worker w takes keys [w * n, (w + 1) * n) with
    n = ceil(S_kv / num_splits); the last ones may have few keys or none. Returns o: (B, H, 1, D) in the
    dtype of q and lse: (B, H, 1). No matmul may see more than n keys.
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
    integers: entry [b, n] is the pool block that holds tokens [n * block_size, (n + 1) * block_size)
    of sequence b; entries past the end of a sequence are -1. context_lens: (B,) tokens a sequence,
    possibly 0 (output 0). Slots after the last token hold other people's bytes, NaN included.
    Returns o: (B, H, D) in the dtype of q.
    Source: Kwon et al. 2023 (PagedAttention), section 4.1; cache layout of vLLM's flash backend.
    """
    # TODO(lab07.paged_attention): Keys through a block table
    raise NotImplementedError("lab07.paged_attention")
