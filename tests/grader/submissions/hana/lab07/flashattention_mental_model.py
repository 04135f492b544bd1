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


def _finite(m: Tensor) -> Tensor:
    """m where it is finite, 0 for rows that have seen nothing: -inf - -inf is nan."""
    return torch.where(m == -math.inf, torch.zeros_like(m), m)


def _no_zero(l: Tensor) -> Tensor:
    return torch.where(l == 0, torch.ones_like(l), l)


def _scores(qi, kj, scale, causal, q0, k0, offset):
    """One tile of scaled scores, -inf where the causal mask hides a key."""
    s = (qi @ kj.transpose(-1, -2)) * scale
    if causal:
        i = torch.arange(q0, q0 + s.shape[-2]).unsqueeze(-1)
        j = torch.arange(k0, k0 + s.shape[-1])
        s = s.masked_fill(j > i + offset, -math.inf)
    return s


# --- 1 -------------------------------------------------------------------------------------------


def naive_attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None
) -> Tensor:
    """Attention as the formula says it: all scores, softmax, weighted sum.

    Returns o: (B, H, S, D) in the dtype of q. This one may hold the S x S_kv scores, call
    `torch.softmax` and repeat KV heads; it may not call a library attention.
    Source: Vaswani et al. 2017, eq. 1; the causal alignment is that of FlashAttention 2.1 and later.
    """
    B, H, S, D = q.shape
    S_kv = k.shape[2]
    if S_kv == 0:
        return torch.zeros_like(q)
    if scale is None:
        scale = D ** -0.5
    acc = statistics_dtype(q)
    g = heads_per_group(q, k)
    kk = k.to(acc).repeat_interleave(g, dim=1)
    vv = v.to(acc).repeat_interleave(g, dim=1)

    scores = (q.to(acc) @ kk.transpose(-1, -2)) * scale
    if causal:
        rows = torch.arange(S).unsqueeze(1) + (S_kv - S)
        cols = torch.arange(S_kv).unsqueeze(0)
        scores = torch.where(cols <= rows, scores, -math.inf)
    biggest = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - torch.where(biggest.isinf(), 0.0, biggest))
    total = weights.sum(-1, keepdim=True)
    weights = weights / torch.where(total == 0, 1.0, total)
    return (weights @ vv).to(q.dtype)


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
    xs = x.to(statistics_dtype(x))
    N = x.shape[-1]
    m = torch.full(x.shape[:-1], -math.inf, dtype=xs.dtype)
    l = torch.zeros(x.shape[:-1], dtype=xs.dtype)
    for start in range(0, N, block):
        part = xs[..., start : start + block]
        m_new = torch.maximum(m, part.amax(-1))
        safe = _finite(m_new)
        l = l * torch.exp(m - safe) + torch.exp(part - safe.unsqueeze(-1)).sum(-1)
        m = m_new
    p = torch.exp(xs - _finite(m).unsqueeze(-1)) / _no_zero(l).unsqueeze(-1)
    return p.to(x.dtype), m, l


# --- 3 -------------------------------------------------------------------------------------------


def merge(a: State, b: State) -> State:
    """The state of the union of two disjoint sets of keys, from the states of the parts.

    A state is (m, l, o): m, l: (...), o: (..., D), with o NOT normalised (the attention output is
    `o / l`). Associative and commutative, with identity (-inf, 0, 0): a part may be empty, or wholly
    masked for some rows and not for others. The arguments are not modified.
    """
    (ma, la, oa), (mb, lb, ob) = a, b
    m = torch.maximum(ma, mb)
    base = _finite(m)
    fa, fb = (ma - base).exp(), (mb - base).exp()
    return m, fa * la + fb * lb, fa.unsqueeze(-1) * oa + fb.unsqueeze(-1) * ob


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
    last_row = q_stop - 1
    last_visible_key = last_row + S_kv - S
    return last_visible_key < k_start


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
    B, H, S, D = q.shape
    H_kv, S_kv = k.shape[1], k.shape[2]
    scale = D ** -0.5 if scale is None else scale
    acc = statistics_dtype(q)
    g = heads_per_group(q, k)
    qg = q.reshape(B, H_kv, g, S, D)
    o = torch.zeros(B, H_kv, g, S, D, dtype=q.dtype)
    lse = torch.full((B, H_kv, g, S), -math.inf, dtype=acc)

    for q0 in range(0, S, block_q):
        q1 = min(q0 + block_q, S)
        qi = qg[:, :, :, q0:q1].to(acc)
        stats = (B, H_kv, g, q1 - q0)
        state = (
            torch.full(stats, -math.inf, dtype=acc),
            torch.zeros(stats, dtype=acc),
            torch.zeros(*stats, D, dtype=acc),
        )
        for k0 in range(0, S_kv, block_k):
            k1 = min(k0 + block_k, S_kv)
            if causal and flash_forward_skips(q0, q1, k0, k1, S, S_kv):
                continue
            kj = k[:, :, None, k0:k1].to(acc)
            vj = v[:, :, None, k0:k1].to(acc)
            s = _scores(qi, kj, scale, causal, q0, k0, S_kv - S)
            mj = s.amax(-1)
            pj = torch.exp(s - _finite(mj).unsqueeze(-1))
            state = merge(state, (mj, pj.sum(-1), pj @ vj))
        m, l, acc_o = state
        o[:, :, :, q0:q1] = (acc_o / _no_zero(l).unsqueeze(-1)).to(q.dtype)
        lse[:, :, :, q0:q1] = m + l.log()
    return o.reshape(B, H, S, D), lse.reshape(B, H, S)


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
    B, H, S, D = q.shape
    H_kv, S_kv = k.shape[1], k.shape[2]
    scale = D ** -0.5 if scale is None else scale
    acc = statistics_dtype(q)
    g = heads_per_group(q, k)
    qg, dog = q.reshape(B, H_kv, g, S, D), do.reshape(B, H_kv, g, S, D)
    rowsum = (do.to(acc) * o.to(acc)).sum(-1).reshape(B, H_kv, g, S)
    # rows without keys: exp(s - inf) = 0
    lse = torch.where(lse == -math.inf, math.inf, lse).reshape(B, H_kv, g, S)

    dq = torch.zeros(B, H_kv, g, S, D, dtype=acc)
    dk = torch.zeros(k.shape, dtype=acc)
    dv = torch.zeros(v.shape, dtype=acc)
    for q0 in range(0, S, block_q):
        q1 = min(q0 + block_q, S)
        qi = qg[:, :, :, q0:q1].to(acc)
        doi = dog[:, :, :, q0:q1].to(acc)
        for k0 in range(0, S_kv, block_k):
            k1 = min(k0 + block_k, S_kv)
            if causal and flash_forward_skips(q0, q1, k0, k1, S, S_kv):
                continue
            kj = k[:, :, None, k0:k1].to(acc)
            vj = v[:, :, None, k0:k1].to(acc)
            s = _scores(qi, kj, scale, causal, q0, k0, S_kv - S)
            p = torch.exp(s - lse[:, :, :, q0:q1, None])
            dp = doi @ vj.transpose(-1, -2)
            ds = p * (dp - rowsum[:, :, :, q0:q1, None])
            dq[:, :, :, q0:q1] += scale * (ds @ kj)
            # the query heads of a group add up in their KV head
            dk[:, :, k0:k1] += scale * (ds.transpose(-1, -2) @ qi).sum(2)
            dv[:, :, k0:k1] += (p.transpose(-1, -2) @ doi).sum(2)
    return dq.reshape(q.shape).to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


# --- 7 -------------------------------------------------------------------------------------------


def block_sizes(D: int, sram_elements: int) -> tuple[int, int]:
    """(Bc, Br) of FlashAttention's Algorithm 1, line 1: Bc = ceil(M / 4D), Br = min(Bc, D).

    M = sram_elements counts ELEMENTS of on-chip memory, not bytes: 192 KiB of fp16 is M = 98,304.
    """
    Bc = -(-sram_elements // (4 * D))
    return Bc, min(Bc, D)


def io_model(S: int, D: int, sram_elements: int) -> tuple[int, int]:
    """HBM elements that one head's forward reads and writes, as (standard, flash).

    standard, Algorithm 0: Q, K in, scores out; scores in, probabilities out; probabilities, V in,
    O out. flash, Algorithm 1: the outer loop loads each block of K and V once; each of its
    Tc = ceil(S / Bc) rounds reads all of Q and O and the statistics l and m, and writes O, l and m.
    Source: Dao et al. 2022, Algorithms 0 and 1, Theorem 2. Whole numbers.
    """
    # standard: Q, K, V, O once each; the S x S matrix is written, read, written and read
    standard = 4 * S * D + 4 * S * S

    Bc, _ = block_sizes(D, sram_elements)
    Tc = -(-S // Bc)
    reads_per_round = S * D + S * D + 2 * S  # Q, O, l, m
    writes_per_round = S * D + 2 * S  # O, l, m
    flash = 2 * S * D + Tc * (reads_per_round + writes_per_round)
    return standard, flash


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
    T_q, H, D = q.shape
    out = torch.zeros_like(q)
    lse = torch.full((H, T_q), -math.inf, dtype=statistics_dtype(q))
    starts = zip(cu_seqlens_q.tolist(), cu_seqlens_k.tolist())
    ends = zip(cu_seqlens_q.tolist()[1:], cu_seqlens_k.tolist()[1:])
    for (q0, k0), (q1, k1) in zip(starts, ends):
        if q1 == q0:
            continue
        o_n, lse_n = flash_forward(
            q[q0:q1].permute(1, 0, 2).unsqueeze(0),
            k[k0:k1].permute(1, 0, 2).unsqueeze(0),
            v[k0:k1].permute(1, 0, 2).unsqueeze(0),
            block_q,
            block_k,
            causal=causal,
            scale=scale,
        )
        out[q0:q1] = o_n.squeeze(0).permute(1, 0, 2)
        lse[:, q0:q1] = lse_n.squeeze(0)
    return out, lse


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
    B, H, _, D = q.shape
    H_kv, S_kv = k.shape[1], k.shape[2]
    scale = D ** -0.5 if scale is None else scale
    acc = statistics_dtype(q)
    g = heads_per_group(q, k)
    qg = q.to(acc).reshape(B, H_kv, g, D)  # the g queries of a KV head as one small matrix

    state = (
        torch.full((B, H_kv, g), -math.inf, dtype=acc),
        torch.zeros(B, H_kv, g, dtype=acc),
        torch.zeros(B, H_kv, g, D, dtype=acc),
    )
    n = math.ceil(S_kv / num_splits)
    for worker in range(num_splits):
        ks, vs = k[:, :, worker * n : (worker + 1) * n], v[:, :, worker * n : (worker + 1) * n]
        if ks.shape[2] == 0:
            continue
        s = (qg @ ks.to(acc).transpose(-1, -2)) * scale
        m = s.amax(-1)
        p = torch.exp(s - m.unsqueeze(-1))
        state = merge(state, (m, p.sum(-1), p @ vs.to(acc)))
    m, l, o = state
    o = o / _no_zero(l).unsqueeze(-1)
    return o.reshape(B, H, 1, D).to(q.dtype), (m + l.log()).reshape(B, H, 1)


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
    B, H, D = q.shape
    block_size, H_kv = k_cache.shape[1], k_cache.shape[2]
    scale = D ** -0.5 if scale is None else scale
    acc = statistics_dtype(q)
    g = H // H_kv
    o = torch.zeros_like(q)
    for b in range(B):
        length = int(context_lens[b])
        if length == 0:
            continue
        blocks = block_table[b, : math.ceil(length / block_size)].long()
        # (n, block_size, H_kv, D) -> (H_kv, length, D), without the slots past the end
        ks = k_cache[blocks].reshape(-1, H_kv, D)[:length].transpose(0, 1).to(acc)
        vs = v_cache[blocks].reshape(-1, H_kv, D)[:length].transpose(0, 1).to(acc)
        s = (q[b].to(acc).reshape(H_kv, g, D) @ ks.transpose(-1, -2)) * scale
        o[b] = (torch.softmax(s, -1) @ vs).reshape(H, D).to(q.dtype)
    return o
