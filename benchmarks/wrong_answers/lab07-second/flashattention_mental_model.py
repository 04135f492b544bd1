"""Lab 07: attention that never stores the S x S matrix, written tile by tile in plain PyTorch.

Shapes throughout: `q: (B, H, S, D)`, `k, v: (B, H_kv, S_kv, D)` with H a multiple of H_kv; query
head h reads KV head `h // (H // H_kv)`. The scale is `1 / sqrt(D)` unless one is given. Causal
attention is aligned to the END: row i sees key j when `j <= i + (S_kv - S)`, so the last query sees
the last key. A row that sees no key has output 0 and lse -inf, never NaN.

Scores, running statistics and accumulators are kept in float32 or wider (float64 input stays
float64, see `statistics_dtype`); outputs have the dtype of `q`. Work with torch operations: the kit
counts matmuls, allocations and reductions, and cannot count what happens outside torch.
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
    group, t = heads_per_group(q, k), statistics_dtype(q)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    k, v = (x.to(t).repeat_interleave(group, dim=1) for x in (k, v))
    scores = q.to(t) @ k.transpose(-1, -2) * scale
    if causal:
        s, s_kv = scores.shape[-2:]
        hidden = torch.arange(s_kv) > torch.arange(s)[:, None] + (s_kv - s)
        scores = scores.masked_fill(hidden, -math.inf)
        return (scores.softmax(-1).masked_fill(hidden, 0.0) @ v).to(q.dtype)
    return (scores.softmax(-1) @ v).to(q.dtype)


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
    t = statistics_dtype(x)
    m = torch.full(x.shape[:-1], -math.inf, dtype=t)
    l = torch.zeros(x.shape[:-1], dtype=t)  # noqa: E741
    for start in range(0, x.shape[-1], block):
        part = x[..., start : start + block].to(t)
        higher = torch.maximum(m, part.amax(-1))
        shift = torch.where(higher == -math.inf, 0.0, higher)
        l = l * torch.exp(m - shift) + torch.exp(part - shift[..., None]).sum(-1)  # noqa: E741
        m = higher
    shift = torch.where(m == -math.inf, 0.0, m)
    whole = torch.where(l == 0, 1.0, l)
    p = torch.exp(x.to(t) - shift[..., None]) / whole[..., None]
    return p.to(x.dtype), m, l


# --- 3 -------------------------------------------------------------------------------------------


def merge(a: State, b: State) -> State:
    """The state of the union of two disjoint sets of keys, from the states of the parts.

    A state is (m, l, o): m, l: (...), o: (..., D), with o NOT normalised (the attention output is
    `o / l`). Associative and commutative, with identity (-inf, 0, 0): a part may be empty, or
    wholly masked for some rows and not for others. The arguments are not modified.
    """
    m_a, l_a, o_a = a
    m_b, l_b, o_b = b
    m = torch.maximum(m_a, m_b)
    shift = torch.where(m == -math.inf, torch.zeros_like(m), m)
    w_a = torch.exp(m_a - shift)
    w_b = torch.exp(m_b - shift)
    l = w_a * l_a + w_b * l_b  # noqa: E741
    o = w_a[..., None] * o_a + w_b[..., None] * o_b
    return m, l, o


# --- 4 and 5 -------------------------------------------------------------------------------------


def flash_forward_skips(
    q_start: int, q_stop: int, k_start: int, k_stop: int, S: int, S_kv: int
) -> bool:
    """True if no row of q[q_start:q_stop] sees any key of k[k_start:k_stop] in causal attention.

    Plain integers, 0 <= q_start < q_stop <= S and 0 <= k_start < k_stop <= S_kv, mask aligned to
    the end. The task is done when `flash_forward` asks this before it computes a tile: a causal run
    then computes half of the score matmuls, give or take one block row, and never reads a key block
    that it skips. `flash_forward` on its own is right without it.
    """
    return k_start > q_stop - 1 + (S_kv - S)


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
    Memory, measured: with U = B * H * max(S, S_kv) * max(D, block_k) * 8 bytes, no single
    allocation above U and at most 10 U alive together. That leaves room for float64 copies of
    everything linear in S and for all query blocks at once against ONE key block; not for S x S_kv
    scores or masks, and not for block_q rows against all keys at once. No library attention.
    Source: FlashAttention-2 (Dao 2023), Algorithm 1.
    """
    group, t = heads_per_group(q, k), statistics_dtype(q)
    b, h, s, d = q.shape
    s_kv, h_kv = k.shape[2], k.shape[1]
    scale = 1 / math.sqrt(d) if scale is None else scale
    o = torch.empty(b, h, s, d, dtype=q.dtype)
    lse = torch.empty(b, h, s, dtype=t)
    for i in range(0, s, block_q):
        stop = min(i + block_q, s)
        rows = q[:, :, i:stop].to(t).unflatten(1, (h_kv, group))
        m = torch.full(rows.shape[:-1], -math.inf, dtype=t)
        l = torch.zeros(rows.shape[:-1], dtype=t)  # noqa: E741
        acc = torch.zeros(rows.shape, dtype=t)
        for j in range(0, s_kv, block_k):
            end = min(j + block_k, s_kv)
            if causal and flash_forward_skips(i, stop, j, end, s, s_kv):
                continue
            keys = k[:, :, None, j:end].to(t)
            scores = rows @ keys.transpose(-1, -2) * scale
            if causal:
                last = torch.arange(i, stop)[:, None] + (s_kv - s)
                scores = scores.masked_fill(torch.arange(j, end) > last, -math.inf)
            higher = torch.maximum(m, scores.amax(-1))
            shift = torch.where(higher == -math.inf, 0.0, higher)
            p = torch.exp(scores - shift[..., None])
            w = torch.exp(m - shift)
            l = w * l + p.sum(-1)  # noqa: E741
            acc = w[..., None] * acc + p @ v[:, :, None, j:end].to(t)
            m = higher
        whole = torch.where(l == 0, 1.0, l)
        o[:, :, i:stop] = (acc / whole[..., None]).flatten(1, 2).to(q.dtype)
        lse[:, :, i:stop] = (torch.where(m == -math.inf, 0.0, m) + l.log()).flatten(1, 2)
    return o, lse


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
    group, t = heads_per_group(q, k), statistics_dtype(q)
    s, d = q.shape[2:]
    s_kv, h_kv = k.shape[2], k.shape[1]
    scale = 1 / math.sqrt(d) if scale is None else scale
    dq = torch.zeros(q.shape, dtype=t)
    dk = torch.zeros(k.shape, dtype=t)
    dv = torch.zeros(v.shape, dtype=t)
    for i in range(0, s, block_q):
        stop = min(i + block_q, s)
        rows = q[:, :, i:stop].to(t).unflatten(1, (h_kv, group))
        up = do[:, :, i:stop].to(t).unflatten(1, (h_kv, group))
        out = o[:, :, i:stop].to(t).unflatten(1, (h_kv, group))
        norm = lse[:, :, i:stop].to(t).unflatten(1, (h_kv, group))[..., None]
        norm = torch.where(norm == -math.inf, math.inf, norm)
        delta = (up * out).sum(-1, keepdim=True)
        collected = torch.zeros(rows.shape, dtype=t)
        for j in range(0, s_kv, block_k):
            end = min(j + block_k, s_kv)
            if causal and flash_forward_skips(i, stop, j, end, s, s_kv):
                continue
            keys, values = k[:, :, None, j:end].to(t), v[:, :, None, j:end].to(t)
            scores = rows @ keys.transpose(-1, -2) * scale
            if causal:
                last = torch.arange(i, stop)[:, None] + (s_kv - s)
                scores = scores.masked_fill(torch.arange(j, end) > last, -math.inf)
            p = torch.exp(scores - norm)
            dv[:, :, j:end] += (p.transpose(-1, -2) @ up).sum(2)
            dp = up @ values.transpose(-1, -2)
            ds = p * (dp - delta) * scale
            collected += ds @ keys
            dk[:, :, j:end] += (ds.transpose(-1, -2) @ rows).sum(2)
        dq[:, :, i:stop] = collected.flatten(1, 2)
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


# --- 7 -------------------------------------------------------------------------------------------


def block_sizes(D: int, sram_elements: int) -> tuple[int, int]:
    """(Bc, Br) of FlashAttention's Algorithm 1, line 1: Bc = ceil(M / 4D), Br = min(Bc, D).

    M = sram_elements counts ELEMENTS of on-chip memory, not bytes: 192 KiB of fp16 is M = 98,304.
    """
    columns = -(-sram_elements // (4 * D))
    return columns, min(columns, D)


def io_model(S: int, D: int, sram_elements: int) -> tuple[int, int]:
    """HBM elements that one head's forward reads and writes, as (standard, flash).

    standard, Algorithm 0: Q, K in, scores out; scores in, probabilities out; probabilities, V in,
    O out. flash, Algorithm 1: the outer loop loads each block of K and V once; each of its
    Tc = ceil(S / Bc) rounds reads all of Q and O and the statistics l and m, and writes O, l and m.
    Source: Dao et al. 2022, Algorithms 0 and 1, Theorem 2. Whole numbers.
    """
    standard = 4 * S * D + 4 * S * S
    rounds = -(-S // block_sizes(D, sram_elements)[0])
    return standard, 2 * S * D + rounds * (3 * S * D + 4 * S)


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
    H * block_k) bytes, no single allocation above U and at most 3 U together (T_q being small):
    one key block may be repeated, a sequence may not. FLOPs, measured: no pair of tokens of two
    sequences is multiplied, and no sequence is padded beyond whole blocks.
    Source: the layout is that of `flash_attn_varlen_func` in the flash-attn package.
    """
    o = torch.zeros_like(q)
    lse = torch.full((q.shape[1], q.shape[0]), -math.inf, dtype=statistics_dtype(q))
    ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for n in range(len(ends_q) - 1):
        own = slice(ends_q[n], ends_q[n + 1])
        theirs = slice(ends_k[n], ends_k[n + 1])
        if own.stop == own.start:
            continue
        one_q, one_k, one_v = (
            x.transpose(0, 1)[None] for x in (q[own], k[theirs], v[theirs])
        )
        part, norm = flash_forward(one_q, one_k, one_v, block_q, block_k, causal, scale)
        o[own] = part[0].transpose(0, 1)
        lse[:, own] = norm[0]
    return o, lse


# --- 10 ------------------------------------------------------------------------------------------


def split_kv_decode(
    q: Tensor, k: Tensor, v: Tensor, num_splits: int, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """One decode step, the keys split over `num_splits` workers and their answers merged by LSE.

    q: (B, H, 1, D), k, v: (B, H_kv, S_kv, D). Worker w takes keys [w * n, (w + 1) * n) with
    n = ceil(S_kv / num_splits); the last ones may have few keys or none. Returns o: (B, H, 1, D) in
    the dtype of q and lse: (B, H, 1). No matmul may see more than n keys.
    Source: Flash-Decoding (Dao, Haziza, Massa, Sizov 2023).
    """
    group, t = heads_per_group(q, k), statistics_dtype(q)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    s_kv = k.shape[2]
    n = -(-s_kv // num_splits)
    rows = q.to(t).unflatten(1, (k.shape[1], group))
    state = (
        torch.full(rows.shape[:-1], -math.inf, dtype=t),
        torch.zeros(rows.shape[:-1], dtype=t),
        torch.zeros(rows.shape, dtype=t),
    )
    for w in range(num_splits):
        keys, values = (x[:, :, None, w * n : (w + 1) * n].to(t) for x in (k, v))
        if not keys.shape[3]:
            continue
        scores = rows @ keys.transpose(-1, -2) * scale
        m = scores.amax(-1)
        p = torch.exp(scores - m[..., None])
        state = merge(state, (m, p.sum(-1), p @ values))
    m, l, o = state  # noqa: E741
    lse = torch.where(m == -math.inf, 0.0, m) + l.log()
    whole = torch.where(l == 0, 1.0, l)
    return (o / whole[..., None]).flatten(1, 2).to(q.dtype), lse.flatten(1, 2)


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
    (n + 1) * block_size - 1 of sequence b; entries past the end of a sequence are -1. context_lens:
    (B,) tokens a sequence, possibly 0 (output 0). Slots after the last token hold other people's
    bytes, NaN included. Memory, measured: the blocks of a sequence may be gathered, even repeated
    for the query heads; the pool may not be copied or cast. Returns o: (B, H, D) in the dtype of q.
    Source: Kwon et al. 2023 (PagedAttention), section 4.1; cache layout of vLLM's flash backend.
    """
    t = statistics_dtype(q)
    size, h_kv = k_cache.shape[1:3]
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    out = torch.zeros_like(q)
    for b, length in enumerate(context_lens.tolist()):
        if not length:
            continue
        blocks = block_table[b, : -(-length // size)].long()
        keys = k_cache[blocks].flatten(0, 1)[:length].to(t).permute(1, 2, 0)
        values = v_cache[blocks].flatten(0, 1)[:length].to(t).transpose(0, 1)
        rows = q[b].to(t).unflatten(0, (h_kv, -1))
        p = torch.softmax(rows @ keys * scale, dim=-1)
        out[b] = (p @ values).flatten(0, 1).to(q.dtype)
    return out
