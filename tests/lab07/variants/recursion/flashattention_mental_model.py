"""Keys are halved until a block is left, and halves are merged: a tree instead of a loop."""

import math
from functools import partial, reduce

import torch


def statistics_dtype(x):
    return torch.promote_types(x.dtype, torch.float32)


def _weights(m, like):
    return torch.exp(torch.where(m == -math.inf, m, m - like))


def _state_of(s, v):
    """Of a tile of scores (..., R, N) and values (..., N, D)."""
    m = s.amax(-1)
    p = torch.exp(s - m.clamp(min=torch.finfo(s.dtype).min)[..., None])
    return m, p.sum(-1), p @ v


def _finished(state, dtype):
    m, l, o = state
    seen = l > 0
    o = torch.where(seen[..., None], o / torch.where(seen, l, 1.0)[..., None], 0.0)
    return o.to(dtype), torch.where(seen, m + torch.log(l), -math.inf)


def naive_attention(q, k, v, causal=False, scale=None):
    S, S_kv = q.shape[2], k.shape[2]
    t = statistics_dtype(q)
    o = torch.zeros_like(q)
    if S_kv == 0:
        return o
    for h in range(q.shape[1]):
        g = h // (q.shape[1] // k.shape[1])
        s = torch.einsum("bqd,bkd->bqk", q[:, h].to(t), k[:, g].to(t))
        s = s / math.sqrt(q.shape[3]) if scale is None else s * scale
        if causal:
            for i in range(S):
                s[:, i, max(0, i + S_kv - S + 1) :] = -math.inf
        o[:, h] = _finished(_state_of(s, v[:, g].to(t)), q.dtype)[0]
    return o


def online_softmax(x, block):
    t = statistics_dtype(x)

    def statistics(part):
        if part.shape[-1] <= block:
            m, l, _ = _state_of(part[..., None, :], part.new_zeros(part.shape[-1], 0))
            return m[..., 0], l[..., 0], part.new_zeros(*m.shape[:-1], 0)
        middle = -(-(part.shape[-1] // 2) // block) * block
        return merge(statistics(part[..., :middle]), statistics(part[..., middle:]))

    m, l, _ = statistics(x.to(t))
    p = torch.exp(x.to(t) - m.clamp(min=torch.finfo(t).min)[..., None])
    return (
        torch.where(x == -math.inf, 0.0, p / torch.where(l > 0, l, 1.0)[..., None]).to(x.dtype),
        m,
        l,
    )


def merge(a, b):
    (m_a, l_a, o_a), (m_b, l_b, o_b) = a, b
    m = torch.where(m_a > m_b, m_a, m_b)
    w_a, w_b = _weights(m_a, m), _weights(m_b, m)
    return m, l_a * w_a + l_b * w_b, o_a * w_a[..., None] + o_b * w_b[..., None]


def flash_forward_skips(q_start, q_stop, k_start, k_stop, S, S_kv):
    return k_start >= S_kv - S + q_stop


def flash_forward(q, k, v, block_q, block_k, causal=False, scale=None):
    (_, H, S, D), S_kv, t = q.shape, k.shape[2], statistics_dtype(q)
    scale = 1 / math.sqrt(D) if scale is None else scale
    G = H // k.shape[1]
    parts = [(q[:, :, :0], q[:, :, :0, 0].to(t))]
    for i in range(0, S, block_q):
        stop = min(i + block_q, S)
        rows = q[:, :, i:stop].to(t).unflatten(1, (k.shape[1], G)).flatten(2, 3) * scale
        last = torch.arange(i, stop).repeat(G)[:, None] + (S_kv - S)
        empty = rows.new_full(rows.shape[:-1], -math.inf)

        def walk(blocks, rows=rows, last=last, i=i, stop=stop):
            if len(blocks) > 1:
                middle = len(blocks) // 2
                return merge(walk(blocks[:middle]), walk(blocks[middle:]))
            j, end = blocks[0], min(blocks[0] + block_k, S_kv)
            s = rows @ k[:, :, j:end].to(t).mT
            if causal and end - 1 > i + (S_kv - S):
                s = s.masked_fill(torch.arange(j, end) > last, -math.inf)
            return _state_of(s, v[:, :, j:end].to(t))

        blocks = [
            j
            for j in range(0, S_kv, block_k)
            if not (causal and flash_forward_skips(i, stop, j, min(j + block_k, S_kv), S, S_kv))
        ]
        state = walk(blocks) if blocks else (empty, torch.zeros_like(empty), 0 * rows)
        o, lse = _finished(state, q.dtype)
        parts.append(
            (o.unflatten(2, (G, stop - i)).flatten(1, 2), lse.unflatten(2, (G, -1)).flatten(1, 2))
        )
    return tuple(torch.cat(column, dim=2) for column in zip(*parts))


def flash_backward(q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None):
    """One KV head at a time; a tile's five products in a function of its own."""
    scale = q.shape[3] ** -0.5 if scale is None else scale
    S, S_kv, G = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    t = statistics_dtype(q)
    dq, dk, dv = (torch.zeros(x.shape, dtype=t) for x in (q, k, v))

    def tile(b, h, i, j):
        rows, keys = slice(i, min(i + block_q, S)), slice(j, min(j + block_k, S_kv))
        if causal and flash_forward_skips(i, rows.stop, j, keys.stop, S, S_kv):
            return
        q_i, do_i, k_j, v_j = (
            x.to(t) for x in (q[b, h, rows], do[b, h, rows], k[b, h // G, keys], v[b, h // G, keys])
        )
        p = torch.exp(torch.addmm(-lse[b, h, rows, None].to(t), q_i, k_j.T, alpha=scale))
        if causal:
            p = p.tril(S_kv - S + i - j)
        p = torch.where(torch.isinf(lse[b, h, rows, None]), 0.0, p)
        delta = (do_i * o[b, h, rows].to(t)).sum(-1, keepdim=True)
        ds = torch.mul(p, torch.addmm(-delta, do_i, v_j.T)).mul_(scale)
        dv[b, h // G, keys].addmm_(p.T, do_i)
        dk[b, h // G, keys].addmm_(ds.T, q_i)
        dq[b, h, rows].addmm_(ds, k_j)

    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(0, S, block_q):
                for j in range(0, S_kv, block_k):
                    tile(b, h, i, j)
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


def block_sizes(D, sram_elements):
    bc = len(range(0, sram_elements, 4 * D))
    return bc, sorted((bc, D))[0]


def io_model(S, D, sram_elements):
    scores, matrix, statistics = S * S, S * D, 2 * S
    standard = sum([2 * matrix, scores, scores, scores, scores, matrix, matrix])
    tc = len(range(0, S, block_sizes(D, sram_elements)[0]))
    reads = tc * (2 * matrix + statistics)
    writes = tc * (matrix + statistics)
    return standard, 2 * matrix + reads + writes


def gqa_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None):
    """KV head by KV head: its query heads are the batch of a call with one key head."""
    o = torch.zeros_like(q)
    lse = torch.full((q.shape[1], q.shape[0]), -math.inf, dtype=statistics_dtype(q))
    G = q.shape[1] // k.shape[1]
    for n in range(cu_seqlens_q.numel() - 1):
        rows = slice(*cu_seqlens_q[n : n + 2].tolist())
        keys = slice(*cu_seqlens_k[n : n + 2].tolist())
        for g in range(k.shape[1]):
            heads = slice(g * G, (g + 1) * G)
            call = partial(flash_forward, block_q=block_q, block_k=block_k, causal=causal)
            o_n, lse_n = call(
                q[rows, heads].transpose(0, 1)[None],
                k[None, None, keys, g],
                v[None, None, keys, g],
                scale=scale,
            )
            o[rows, heads] = o_n[0].transpose(0, 1)
            lse[heads, rows] = lse_n[0]
    return o, lse


def split_kv_decode(q, k, v, num_splits, scale=None):
    t, n = statistics_dtype(q), max(1, math.ceil(k.shape[2] / num_splits))
    G = q.shape[1] // k.shape[1]
    rows = q[:, :, 0].to(t).unflatten(1, (k.shape[1], G))
    scale = q.shape[3] ** -0.5 if scale is None else scale
    top = rows.new_full(rows.shape[:-1], -math.inf)
    empty = (top, torch.zeros_like(top), torch.zeros_like(rows))
    workers = [
        _state_of(scale * rows @ k_w.to(t).mT, v_w.to(t))
        for k_w, v_w in zip(k.split(n, 2), v.split(n, 2))
        if k_w.shape[2]
    ]
    o, lse = _finished(reduce(merge, workers, empty), q.dtype)
    return o.flatten(1, 2)[:, :, None], lse.flatten(1, 2)[:, :, None]


def paged_attention(q, k_cache, v_cache, block_table, context_lens, scale=None):
    t, H_kv = statistics_dtype(q), k_cache.shape[2]
    size = k_cache.shape[1]
    o = torch.zeros_like(q)
    for b in range(q.shape[0]):
        rows = q[b].to(t).unflatten(0, (H_kv, -1)) * (
            q.shape[2] ** -0.5 if scale is None else scale
        )
        left, states = int(context_lens[b]), []
        for block in block_table[b].tolist():
            if left <= 0:
                break
            k_n, v_n = (
                c[block, : min(left, size)].to(t).transpose(0, 1) for c in (k_cache, v_cache)
            )
            states.append(_state_of(rows @ k_n.mT, v_n))
            left -= size
        if states:
            o[b] = _finished(reduce(merge, states), q.dtype)[0].flatten(0, 1)
    return o
