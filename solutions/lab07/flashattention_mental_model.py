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
    # BEGIN SOLUTION naive_attention
    S, S_kv = q.shape[2], k.shape[2]
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    wide, group = statistics_dtype(q), heads_per_group(q, k)
    k = k.to(wide).repeat_interleave(group, dim=1)
    v = v.to(wide).repeat_interleave(group, dim=1)
    s = torch.einsum("bhqd,bhkd->bhqk", q.to(wide), k) * scale
    if causal:
        visible = torch.ones(S, S_kv, dtype=torch.bool).tril(diagonal=S_kv - S)
        s = s.masked_fill(~visible, -math.inf)
    p = torch.softmax(s, dim=-1)
    # softmax of a row of -inf is 0/0
    p = p.masked_fill(s == -math.inf, 0.0)
    return torch.einsum("bhqk,bhkd->bhqd", p, v).to(q.dtype)
    # END SOLUTION


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
    # BEGIN SOLUTION online_softmax
    x_wide = x.to(statistics_dtype(x))
    m = torch.full(x.shape[:-1], -math.inf, dtype=x_wide.dtype)
    l = torch.zeros_like(m)
    for x_j in x_wide.split(block, dim=-1):
        m_new = torch.maximum(m, x_j.amax(dim=-1))
        # -inf - -inf is NaN; any finite shift serves a row that has seen no finite logit
        shift = m_new.masked_fill(m_new == -math.inf, 0.0)
        l = l * torch.exp(m - shift) + torch.exp(x_j - shift[..., None]).sum(dim=-1)
        m = m_new
    shift = m.masked_fill(m == -math.inf, 0.0)
    p = torch.exp(x_wide - shift[..., None]) / l.masked_fill(l == 0, 1.0)[..., None]
    return p.to(x.dtype), m, l
    # END SOLUTION


# --- 3 -------------------------------------------------------------------------------------------


def merge(a: State, b: State) -> State:
    """The state of the union of two disjoint sets of keys, from the states of the parts.

    A state is (m, l, o): m, l: (...), o: (..., D), with o NOT normalised (the attention output is
    `o / l`). Associative and commutative, with identity (-inf, 0, 0): a part may be empty, or
    wholly masked for some rows and not for others, and a maximum may be any finite number. The
    result has the dtype of the parts and their precision, and the arguments are not modified.
    """
    # BEGIN SOLUTION merge
    m_a, l_a, o_a = a
    m_b, l_b, o_b = b
    m = torch.maximum(m_a, m_b)
    shift = m.masked_fill(m == -math.inf, 0.0)
    w_a, w_b = torch.exp(m_a - shift), torch.exp(m_b - shift)
    l = w_a * l_a + w_b * l_b
    o = w_a[..., None] * o_a + w_b[..., None] * o_b
    return m, l, o
    # END SOLUTION


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
    # BEGIN SOLUTION flash_forward_skips
    return k_start > (q_stop - 1) + (S_kv - S)
    # END SOLUTION


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
    # BEGIN SOLUTION flash_forward
    H, S, D = q.shape[1:]
    S_kv = k.shape[2]
    scale = 1 / math.sqrt(D) if scale is None else scale
    wide, group = statistics_dtype(q), heads_per_group(q, k)
    # Query heads that share a KV head become one more axis: K and V are never repeated.
    q_grouped = q.unflatten(1, (H // group, group))
    o = q_grouped.new_zeros(q_grouped.shape)
    lse = q_grouped.new_full(q_grouped.shape[:-1], -math.inf, dtype=wide)
    for i in range(0, S, block_q):
        i_stop = min(i + block_q, S)
        q_i = q_grouped[..., i:i_stop, :].to(wide)
        m = q_i.new_full(q_i.shape[:-1], -math.inf)
        l = torch.zeros_like(m)
        acc = torch.zeros_like(q_i)
        for j in range(0, S_kv, block_k):
            j_stop = min(j + block_k, S_kv)
            if causal and flash_forward_skips(i, i_stop, j, j_stop, S, S_kv):
                break
            k_j, v_j = k[:, :, j:j_stop].to(wide), v[:, :, j:j_stop].to(wide)
            s = torch.einsum("bhgqd,bhkd->bhgqk", q_i, k_j) * scale
            if causal:
                row = torch.arange(i, i_stop)[:, None] + (S_kv - S)
                s = s.masked_fill(torch.arange(j, j_stop) > row, -math.inf)
            m_new = torch.maximum(m, s.amax(dim=-1))
            shift = m_new.masked_fill(m_new == -math.inf, 0.0)
            p = torch.exp(s - shift[..., None])
            decay = torch.exp(m - shift)
            l = decay * l + p.sum(dim=-1)
            acc = decay[..., None] * acc + torch.einsum("bhgqk,bhkd->bhgqd", p, v_j)
            m = m_new
        o[..., i:i_stop, :] = acc / l.masked_fill(l == 0, 1.0)[..., None]
        lse[..., i:i_stop] = m + torch.log(l)
    return o.flatten(1, 2), lse.flatten(1, 2)
    # END SOLUTION


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
    # BEGIN SOLUTION flash_backward
    D, S, S_kv = q.shape[3], q.shape[2], k.shape[2]
    scale = 1 / math.sqrt(D) if scale is None else scale
    wide, group = statistics_dtype(q), heads_per_group(q, k)
    split = (k.shape[1], group)
    q_grouped, do_grouped = q.unflatten(1, split), do.unflatten(1, split)
    # rowsum(do * o) = rowsum(p * dp): the one number a row that couples its scores in the softmax
    delta = (do.to(wide) * o.to(wide)).sum(dim=-1).unflatten(1, split)
    # a row that saw no key: exp(s - inf) = 0
    lse = lse.masked_fill(lse == -math.inf, math.inf).unflatten(1, split)
    dq = q_grouped.new_zeros(q_grouped.shape, dtype=wide)
    dk = k.new_zeros(k.shape, dtype=wide)
    dv = v.new_zeros(v.shape, dtype=wide)
    for j in range(0, S_kv, block_k):
        j_stop = min(j + block_k, S_kv)
        k_j, v_j = k[:, :, j:j_stop].to(wide), v[:, :, j:j_stop].to(wide)
        for i in range(0, S, block_q):
            i_stop = min(i + block_q, S)
            if causal and flash_forward_skips(i, i_stop, j, j_stop, S, S_kv):
                continue
            q_i = q_grouped[..., i:i_stop, :].to(wide)
            do_i = do_grouped[..., i:i_stop, :].to(wide)
            s = torch.einsum("bhgqd,bhkd->bhgqk", q_i, k_j) * scale
            if causal:
                row = torch.arange(i, i_stop)[:, None] + (S_kv - S)
                s = s.masked_fill(torch.arange(j, j_stop) > row, -math.inf)
            p = torch.exp(s - lse[..., i:i_stop, None])
            dv[:, :, j:j_stop] += torch.einsum("bhgqk,bhgqd->bhkd", p, do_i)
            dp = torch.einsum("bhgqd,bhkd->bhgqk", do_i, v_j)
            ds = p * (dp - delta[..., i:i_stop, None]) * scale
            dq[..., i:i_stop, :] += torch.einsum("bhgqk,bhkd->bhgqd", ds, k_j)
            dk[:, :, j:j_stop] += torch.einsum("bhgqk,bhgqd->bhkd", ds, q_i)
    return dq.flatten(1, 2).to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)
    # END SOLUTION


# --- 7 -------------------------------------------------------------------------------------------


def block_sizes(D: int, sram_elements: int) -> tuple[int, int]:
    """(Bc, Br) of FlashAttention's Algorithm 1, line 1: Bc = ceil(M / 4D), Br = min(Bc, D).

    M = sram_elements counts ELEMENTS of on-chip memory, not bytes: 192 KiB of fp16 is M = 98,304.
    """
    # BEGIN SOLUTION io_model
    bc = -(-sram_elements // (4 * D))
    return bc, min(bc, D)
    # END SOLUTION


def io_model(S: int, D: int, sram_elements: int) -> tuple[int, int]:
    """HBM elements that one head's forward reads and writes, as (standard, flash).

    standard, Algorithm 0: Q, K in, scores out; scores in, probabilities out; probabilities, V in,
    O out. flash, Algorithm 1: the outer loop loads each block of K and V once; each of its
    Tc = ceil(S / Bc) rounds reads all of Q and O and the statistics l and m, and writes O, l and m.
    Both are ints and exact, however large. Source: Dao et al. 2022, Algorithms 0 and 1, Theorem 2.
    """
    # BEGIN SOLUTION io_model
    standard = (2 * S * D + S * S) + (S * S + S * S) + (S * S + S * D + S * D)
    bc, _ = block_sizes(D, sram_elements)
    rounds = -(-S // bc)
    flash = 2 * S * D + rounds * (3 * S * D + 4 * S)
    return standard, flash
    # END SOLUTION


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
    # BEGIN SOLUTION gqa_varlen
    o = torch.zeros_like(q)
    lse = q.new_full((q.shape[1], q.shape[0]), -math.inf, dtype=statistics_dtype(q))
    q_edges, k_edges = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for n in range(len(q_edges) - 1):
        rows, keys = slice(q_edges[n], q_edges[n + 1]), slice(k_edges[n], k_edges[n + 1])
        # (s, H, D) -> (1, H, s, D): views, nothing is copied
        q_n, k_n, v_n = (x.transpose(0, 1)[None] for x in (q[rows], k[keys], v[keys]))
        o_n, lse_n = flash_forward(q_n, k_n, v_n, block_q, block_k, causal, scale)
        o[rows] = o_n[0].transpose(0, 1)
        lse[:, rows] = lse_n[0]
    return o, lse
    # END SOLUTION


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
    # BEGIN SOLUTION split_kv_decode
    S_kv = k.shape[2]
    n = -(-S_kv // num_splits)
    wide = statistics_dtype(q)
    parts = []
    for w in range(num_splits):
        keys = slice(min(w * n, S_kv), min((w + 1) * n, S_kv))
        o_w, lse_w = flash_forward(
            q.to(wide), k[:, :, keys], v[:, :, keys], 1, max(n, 1), scale=scale
        )
        # A finished part is the state (lse, 1, o): its sum is 1 when measured from its own lse.
        parts.append((lse_w, torch.ones_like(lse_w), o_w))
    state = parts[0]
    for part in parts[1:]:
        state = merge(state, part)
    m, l, o = state
    return (o / l.masked_fill(l == 0, 1.0)[..., None]).to(q.dtype), m + torch.log(l)
    # END SOLUTION


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
    # BEGIN SOLUTION paged_attention
    block_size, H_kv, D = k_cache.shape[1:]
    scale = 1 / math.sqrt(D) if scale is None else scale
    wide = statistics_dtype(q)
    q_grouped = q.to(wide).unflatten(1, (H_kv, q.shape[1] // H_kv))
    o = torch.zeros_like(q_grouped)
    for b, length in enumerate(context_lens.tolist()):
        m = q_grouped.new_full(q_grouped.shape[1:3], -math.inf)
        state = (m, torch.zeros_like(m), torch.zeros_like(q_grouped[b]))
        for n in range(-(-length // block_size)):
            block = int(block_table[b, n])
            filled = min(length - n * block_size, block_size)
            k_n, v_n = k_cache[block, :filled].to(wide), v_cache[block, :filled].to(wide)
            s = torch.einsum("hgd,khd->hgk", q_grouped[b], k_n) * scale
            m_n = s.amax(dim=-1)
            p = torch.exp(s - m_n[..., None])
            state = merge(state, (m_n, p.sum(dim=-1), torch.einsum("hgk,khd->hgd", p, v_n)))
        _, l, acc = state
        o[b] = acc / l.masked_fill(l == 0, 1.0)[..., None]
    return o.flatten(1, 2).to(q.dtype)
    # END SOLUTION
