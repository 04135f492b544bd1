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
    # TODO(lab07.naive_attention): Scores, softmax, weighted sum
    raise NotImplementedError("lab07.naive_attention")


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
    wide = statistics_dtype(x)
    m = torch.full(x.shape[:-1], -math.inf, dtype=wide, device=x.device)
    l = torch.zeros(x.shape[:-1], dtype=wide, device=x.device)
    shift = torch.zeros_like(l)
    for start in range(0, x.shape[-1], block):
        part = x[..., start : start + block].to(wide)
        m_new = torch.maximum(m, part.amax(dim=-1))
        shift = torch.where(m_new == -math.inf, 0.0, m_new)
        l = l * torch.exp(m - shift) + torch.exp(part - shift[..., None]).sum(dim=-1)
        m = m_new
    divisor = torch.where(l == 0, 1.0, l)
    p = torch.exp(x.to(wide) - shift[..., None]) / divisor[..., None]
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
    base = torch.where(m == -math.inf, 0.0, m)
    w_a = torch.exp(m_a - base)
    w_b = torch.exp(m_b - base)
    return m, w_a * l_a + w_b * l_b, w_a[..., None] * o_a + w_b[..., None] * o_b


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
    return k_start > q_stop - 1 + S_kv - S


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
    g = heads_per_group(q, k)
    wide = statistics_dtype(q)
    B, H, S, D = q.shape
    H_kv, S_kv = k.shape[1], k.shape[2]
    if scale is None:
        scale = 1 / math.sqrt(D)
    o = torch.zeros((B, H, S, D), dtype=q.dtype, device=q.device)
    lse = torch.full((B, H, S), -math.inf, dtype=wide, device=q.device)
    for i0 in range(0, S, block_q):
        i1 = min(i0 + block_q, S)
        rows = torch.arange(i0, i1, device=q.device).repeat(g)
        qi = q[:, :, i0:i1].to(wide).reshape(B, H_kv, len(rows), D)
        m = torch.full((B, H_kv, len(rows)), -math.inf, dtype=wide, device=q.device)
        l = torch.zeros_like(m)
        acc = torch.zeros_like(qi)
        for j0 in range(0, S_kv, block_k):
            j1 = min(j0 + block_k, S_kv)
            if causal and flash_forward_skips(i0, i1, j0, j1, S, S_kv):
                continue
            s = scale * (qi @ k[:, :, j0:j1].to(wide).mT)
            if causal:
                keys = torch.arange(j0, j1, device=q.device)
                s.masked_fill_(keys > rows[:, None] + (S_kv - S), -math.inf)
            m_new = torch.maximum(m, s.amax(dim=-1))
            stand = torch.where(m_new == -math.inf, 0.0, m_new)
            p = torch.exp(s - stand[..., None])
            old = torch.exp(m - stand)
            l = old * l + p.sum(dim=-1)
            acc = old[..., None] * acc + p @ v[:, :, j0:j1].to(wide)
            m = m_new
        safe = torch.where(l == 0, 1.0, l)
        o[:, :, i0:i1] = (acc / safe[..., None]).reshape(B, H, i1 - i0, D).to(q.dtype)
        lse[:, :, i0:i1] = (m + torch.log(safe)).reshape(B, H, i1 - i0)
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
    g = heads_per_group(q, k)
    wide = statistics_dtype(q)
    B, H, S, D = q.shape
    H_kv, S_kv = k.shape[1], k.shape[2]
    if scale is None:
        scale = 1 / math.sqrt(D)
    dq = torch.zeros((B, H, S, D), dtype=wide, device=q.device)
    dk = torch.zeros((B, H_kv, S_kv, D), dtype=wide, device=q.device)
    dv = torch.zeros((B, H_kv, S_kv, D), dtype=wide, device=q.device)
    for i0 in range(0, S, block_q):
        i1 = min(i0 + block_q, S)
        lines = torch.arange(i0, i1, device=q.device).repeat(g)
        count = len(lines)
        q_i = q[:, :, i0:i1].to(wide).reshape(B, H_kv, count, D)
        do_i = do[:, :, i0:i1].to(wide).reshape(B, H_kv, count, D)
        o_i = o[:, :, i0:i1].to(wide).reshape(B, H_kv, count, D)
        lse_i = lse[:, :, i0:i1].to(wide).reshape(B, H_kv, count, 1)
        lse_i = torch.where(lse_i == -math.inf, math.inf, lse_i)
        delta = (do_i * o_i).sum(dim=-1, keepdim=True)
        dq_i = torch.zeros_like(q_i)
        for j0 in range(0, S_kv, block_k):
            j1 = min(j0 + block_k, S_kv)
            if causal and j0 > i1 - 1 + S_kv - S:
                break
            k_j = k[:, :, j0:j1].to(wide)
            v_j = v[:, :, j0:j1].to(wide)
            prob = torch.exp(scale * (q_i @ k_j.mT) - lse_i)
            if causal:
                seen = torch.arange(j0, j1, device=q.device) <= lines[:, None] + (S_kv - S)
                prob = torch.where(seen, prob, 0.0)
            ds = prob * (do_i @ v_j.mT - delta) * scale
            dv[:, :, j0:j1] += prob.mT @ do_i
            dk[:, :, j0:j1] += ds.mT @ q_i
            dq_i += ds @ k_j
        dq[:, :, i0:i1] = dq_i.reshape(B, H, i1 - i0, D)
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


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
    columns, _ = block_sizes(D, sram_elements)
    rounds = -(-S // columns)
    standard = 4 * S * D + 4 * S * S
    flash = 2 * S * D + rounds * (3 * S * D + 4 * S)
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
    H * block_k) bytes, no single allocation above U and at most 3 U together (T_q being small):
    one key block may be repeated, a sequence may not. FLOPs, measured: no pair of tokens of two
    sequences is multiplied, and no sequence is padded beyond whole blocks.
    Source: the layout is that of `flash_attn_varlen_func` in the flash-attn package.
    """
    o = torch.zeros_like(q, memory_format=torch.contiguous_format)
    H, T_q = q.shape[1], q.shape[0]
    lse = torch.full((H, T_q), -math.inf, dtype=statistics_dtype(q), device=q.device)
    ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for n in range(len(ends_q) - 1):
        mine = slice(ends_q[n], ends_q[n + 1])
        its = slice(ends_k[n], ends_k[n + 1])
        q_n = q[mine].transpose(0, 1)[None]
        k_n = k[its].transpose(0, 1)[None]
        v_n = v[its].transpose(0, 1)[None]
        o_n, lse_n = flash_forward(q_n, k_n, v_n, block_q, block_k, causal=causal, scale=scale)
        o[mine] = o_n[0].transpose(0, 1)
        lse[:, mine] = lse_n[0]
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
    g = heads_per_group(q, k)
    wide = statistics_dtype(q)
    B, H, _, D = q.shape
    H_kv, S_kv = k.shape[1], k.shape[2]
    scale = 1 / math.sqrt(D) if scale is None else scale
    n = -(-S_kv // num_splits)
    queries = q.to(wide).reshape(B, H_kv, g, D)
    empty = torch.zeros((B, H_kv, g), dtype=wide, device=q.device)
    state = (empty - math.inf, empty, torch.zeros_like(queries))
    for w in range(num_splits):
        first, last = w * n, min((w + 1) * n, S_kv)
        if first >= last:
            continue
        score = scale * (queries @ k[:, :, first:last].to(wide).mT)
        high = score.amax(dim=-1)
        weight = torch.exp(score - high[..., None])
        part = (high, weight.sum(dim=-1), weight @ v[:, :, first:last].to(wide))
        state = merge(state, part)
    m, l, total = state
    norm = torch.where(l == 0, 1.0, l)
    out = (total / norm[..., None]).reshape(B, H, 1, D).to(q.dtype)
    return out, (m + torch.log(norm)).reshape(B, H, 1)


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
    B, H, D = q.shape
    size, H_kv = k_cache.shape[1], k_cache.shape[2]
    wide = statistics_dtype(q)
    scale = 1 / math.sqrt(D) if scale is None else scale
    result = torch.zeros((B, H, D), dtype=q.dtype, device=q.device)
    for b, length in enumerate(context_lens.tolist()):
        if length == 0:
            continue
        blocks = block_table[b, : -(-length // size)].long()
        found_k = k_cache[blocks].reshape(-1, H_kv, D)[:length].to(wide).permute(1, 0, 2)
        found_v = v_cache[blocks].reshape(-1, H_kv, D)[:length].to(wide).permute(1, 0, 2)
        query = q[b].to(wide).reshape(H_kv, H // H_kv, D)
        attention = torch.softmax(scale * (query @ found_k.mT), dim=-1)
        result[b] = (attention @ found_v).reshape(H, D).to(q.dtype)
    return result
