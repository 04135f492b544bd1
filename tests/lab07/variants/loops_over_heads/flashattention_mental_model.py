"""Everything on two-dimensional matrices, one head at a time, float64 inside, exp2 for exp."""

import math

import torch

LN2 = math.log(2.0)
LOG2E = 1.0 / LN2


def statistics_dtype(x):
    return torch.promote_types(x.dtype, torch.float32)


def _heads(q, k):
    group = q.shape[1] // k.shape[1]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            yield b, h, h // group


def _visible(i, rows, j, keys, S, S_kv):
    last_key = torch.arange(i, i + rows) + S_kv - S
    return torch.arange(j, j + keys)[None, :] <= last_key[:, None]


def naive_attention(q, k, v, causal=False, scale=None):
    S, S_kv, D = q.shape[2], k.shape[2], q.shape[3]
    c = D**-0.5 if scale is None else scale
    out = torch.zeros_like(q)
    if S_kv == 0:
        return out
    for b, h, g in _heads(q, k):
        s = c * (q[b, h].double() @ k[b, g].double().T)
        weights = torch.exp(s - s.max(dim=1, keepdim=True).values)
        if causal:
            s = torch.where(_visible(0, S, 0, S_kv, S, S_kv), s, torch.tensor(-math.inf).double())
            top = s.max(dim=1, keepdim=True).values
            weights = torch.exp(s - torch.where(torch.isinf(top), 0.0, top))
        total = weights.sum(dim=1, keepdim=True)
        out[b, h] = (weights / torch.where(total == 0, 1.0, total) @ v[b, g].double()).to(q.dtype)
    return out


def online_softmax(x, block):
    N, wide = x.shape[-1], x.double()
    m = torch.full(x.shape[:-1], -math.inf, dtype=torch.float64)
    l = torch.zeros(x.shape[:-1], dtype=torch.float64)
    start = 0
    while start < N:
        chunk = wide[..., start : start + block]
        top = chunk.max(dim=-1).values
        grown = torch.where(top > m, top, m)
        base = torch.where(torch.isneginf(grown), torch.zeros_like(grown), grown)
        l = l * torch.exp2((m - base) * LOG2E)
        l = l + torch.exp2((chunk - base.unsqueeze(-1)) * LOG2E).sum(dim=-1)
        m = grown
        start += block
    p = torch.zeros_like(x)
    base = torch.where(torch.isneginf(m), torch.zeros_like(m), m)
    safe = torch.where(l > 0, l, torch.ones_like(l))
    for start in range(0, N, block):
        part = slice(start, start + block)
        p[..., part] = (torch.exp(wide[..., part] - base[..., None]) / safe[..., None]).to(x.dtype)
    stat = statistics_dtype(x)
    return p, m.to(stat), l.to(stat)


def merge(a, b):
    (ma, la, oa), (mb, lb, ob) = a, b
    a_wins = ma >= mb
    m = torch.where(a_wins, ma, mb)
    gap = torch.where(torch.isinf(ma) & torch.isinf(mb), torch.zeros_like(m), -(ma - mb).abs())
    small = torch.exp(gap)
    fa = torch.where(a_wins, torch.ones_like(small), small)
    fb = torch.where(a_wins, small, torch.ones_like(small))
    return m, fa * la + fb * lb, oa * fa.unsqueeze(-1) + ob * fb.unsqueeze(-1)


def flash_forward_skips(q_start, q_stop, k_start, k_stop, S, S_kv):
    furthest_key_seen = q_stop - 1 + S_kv - S
    return furthest_key_seen < k_start


def _one_head(q, k, v, block_q, block_k, causal, c):
    """(S, D), (S_kv, D): o in float64, lse in float64."""
    S, S_kv = len(q), len(k)
    o, lse = torch.zeros(S, v.shape[1]).double(), torch.full((S,), -math.inf).double()
    for i in range(0, S, block_q):
        qi = q[i : i + block_q].double()
        rows = len(qi)
        acc, l2 = torch.zeros(rows, v.shape[1]).double(), torch.full((rows, 1), -math.inf).double()
        for j in range(0, S_kv, block_k):
            if causal and flash_forward_skips(i, i + rows, j, min(j + block_k, S_kv), S, S_kv):
                continue
            kj, vj = k[j : j + block_k].double(), v[j : j + block_k].double()
            s = qi @ kj.T
            s *= c * LOG2E
            if causal:
                s[~_visible(i, rows, j, len(kj), S, S_kv)] = -math.inf
            # every tile is finished on its own, and the average of averages is weighed by lse
            tile = torch.logsumexp(s * LN2, dim=1, keepdim=True) / LN2
            new = torch.logaddexp2(l2, tile)
            safe = torch.where(torch.isinf(new), 0.0, new)
            acc = acc * torch.exp2(l2 - safe) + torch.exp2(s - safe) @ vj
            l2 = new
        o[i : i + rows], lse[i : i + rows] = acc, l2[:, 0] * LN2
    return o, lse


def flash_forward(q, k, v, block_q, block_k, causal=False, scale=None):
    c = q.shape[3] ** -0.5 if scale is None else scale
    o = torch.empty(q.shape, dtype=q.dtype)
    lse = torch.empty(q.shape[:3], dtype=torch.float64)
    for b, h, g in _heads(q, k):
        o_h, lse[b, h] = _one_head(q[b, h], k[b, g], v[b, g], block_q, block_k, causal, c)
        o[b, h] = o_h.to(q.dtype)
    return o, lse


def flash_backward(q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None):
    c = q.shape[3] ** -0.5 if scale is None else scale
    S, S_kv = q.shape[2], k.shape[2]
    dq, dk, dv = (torch.zeros(x.shape, dtype=torch.float64) for x in (q, k, v))
    for b, h, g in _heads(q, k):
        for i in range(0, S, block_q):
            r = slice(i, min(i + block_q, S))
            qi, doi = q[b, h, r].double(), do[b, h, r].double()
            base = lse[b, h, r].double()[:, None]
            D = (doi * o[b, h, r].double()).sum(1, keepdim=True)
            for j in range(0, S_kv, block_k):
                t = slice(j, min(j + block_k, S_kv))
                kj, vj = k[b, g, t].double(), v[b, g, t].double()
                p = torch.exp(c * qi @ kj.T - torch.where(torch.isinf(base), 0.0, base))
                if causal:
                    p = p * _visible(i, len(qi), j, len(kj), S, S_kv)
                dv[b, g, t] += p.T @ doi
                ds = c * p * (doi @ vj.T - D)
                dq[b, h, r] += ds @ kj
                dk[b, g, t] += ds.T @ qi
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


def block_sizes(D, sram_elements):
    bc = sram_elements // (4 * D) + (sram_elements % (4 * D) > 0)
    return (bc, D) if bc > D else (bc, bc)


def io_model(S, D, sram_elements):
    bc, _ = block_sizes(D, sram_elements)
    moved = 0
    for start in range(0, S, bc):
        moved += 2 * (min(start + bc, S) - start) * D + 3 * S * D + 4 * S
    return 4 * S * (S + D), moved


def gqa_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None):
    T, H, D = q.shape
    c = D**-0.5 if scale is None else scale
    o, lse = torch.empty_like(q), torch.empty(H, T, dtype=torch.float64)
    for n in range(len(cu_seqlens_q) - 1):
        a, b = int(cu_seqlens_q[n]), int(cu_seqlens_q[n + 1])
        e, f = int(cu_seqlens_k[n]), int(cu_seqlens_k[n + 1])
        for h in range(H):
            g = h * k.shape[1] // H
            o_h, lse[h, a:b] = _one_head(
                q[a:b, h], k[e:f, g], v[e:f, g], block_q, block_k, causal, c
            )
            o[a:b, h] = o_h.to(q.dtype)
    return o, lse


def split_kv_decode(q, k, v, num_splits, scale=None):
    n = max(1, math.ceil(k.shape[2] / num_splits))
    pieces = [
        flash_forward(q.double(), k_w, v_w, 1, 4096, scale=scale)
        for k_w, v_w in zip(
            k.split(n, dim=2),
            v.split(n, dim=2),
        )
    ]
    outs, lses = (torch.stack(x) for x in zip(*pieces))
    weights = torch.softmax(lses, 0).nan_to_num(0.0)
    return (weights[..., None] * outs).sum(0).to(q.dtype), torch.logsumexp(lses, 0)


def paged_attention(q, k_cache, v_cache, block_table, context_lens, scale=None):
    out = torch.zeros_like(q)
    size = k_cache.shape[1]
    for b in range(len(q)):
        tokens = int(context_lens[b])
        if not tokens:
            continue
        slots = torch.arange(tokens)
        where = (block_table[b].long()[slots // size], slots % size)
        k, v = (cache[where].transpose(0, 1)[None] for cache in (k_cache, v_cache))
        out[b] = naive_attention(q[b][None, :, None], k, v, scale=scale)[0, :, 0]
    return out
