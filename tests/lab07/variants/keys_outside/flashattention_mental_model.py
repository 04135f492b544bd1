"""FlashAttention-1's order: the key loop is outside, all query rows carry a state and are merged.

Query heads of a group are folded into rows; the block of queries plays no part, because every row
is vectorised.
"""

import math

import torch


def statistics_dtype(x):
    return torch.promote_types(x.dtype, torch.float32)


def naive_attention(q, k, v, causal=False, scale=None):
    B, H, S, D = q.shape
    scale = 1 / math.sqrt(D) if scale is None else scale
    wide = statistics_dtype(q)
    group = H // k.shape[1]
    k, v = (
        x.to(wide)[:, :, None].expand(-1, -1, group, -1, -1).reshape(B, H, -1, D) for x in (k, v)
    )
    s = (q.to(wide) * scale) @ k.transpose(-2, -1)
    if causal:
        rows = torch.arange(S)[:, None] + k.shape[2] - S
        s = s + torch.zeros(S, k.shape[2], dtype=wide).masked_fill(
            torch.arange(k.shape[2])[None] > rows, -math.inf
        )
    return (s.softmax(-1).nan_to_num(0.0) @ v).to(q.dtype)


def online_softmax(x, block):
    """The same merge as for attention, with values of width zero."""
    wide = x.to(statistics_dtype(x))
    state = None
    for part in torch.split(wide, block, dim=-1):
        top = torch.amax(part, -1)
        safe = torch.nan_to_num(top, neginf=0.0)
        total = torch.exp(part - safe[..., None]).sum(-1)
        new = (top, total, total.new_zeros(*total.shape, 0))
        state = new if state is None else merge(state, new)
    m, l, _ = state
    p = torch.exp(wide - torch.nan_to_num(m, neginf=0.0)[..., None])
    return torch.div(p, torch.clamp(l, min=1e-30)[..., None]).to(x.dtype), m, l


def merge(a, b):
    m = torch.max(torch.stack([a[0], b[0]]), dim=0).values
    l, o = torch.zeros_like(a[1]), torch.zeros_like(a[2])
    for part in (a, b):
        weight = torch.exp(part[0] - m).nan_to_num(0.0)
        l = l + weight * part[1]
        o = o + weight[..., None] * part[2]
    return m, l, o


def flash_forward_skips(q_start, q_stop, k_start, k_stop, S, S_kv):
    return not any(k_start <= row + S_kv - S for row in range(q_start, q_stop))


def _fold(x, H_kv):
    """(B, H, S, D) -> (B, H_kv, G, S, D)."""
    return x.reshape(x.shape[0], H_kv, -1, *x.shape[2:])


def flash_forward(q, k, v, block_q, block_k, causal=False, scale=None):
    B, H, S, D = q.shape
    H_kv, S_kv = k.shape[1], k.shape[2]
    scale = 1 / math.sqrt(D) if scale is None else scale
    wide = statistics_dtype(q)
    queries = _fold(q.to(wide) * scale, H_kv)
    m = torch.full((B, H_kv, H // H_kv, S), -math.inf, dtype=wide)
    l, o = torch.zeros_like(m), torch.zeros_like(queries)
    for j in range(0, S_kv, block_k):
        # the first row block that sees this key block; every later one does too
        first = 0
        while causal and first < S:
            if not flash_forward_skips(
                first, min(first + block_q, S), j, min(j + block_k, S_kv), S, S_kv
            ):
                break
            first += block_q
        if first >= S:
            continue
        kj, vj = (x[:, :, j : j + block_k].to(wide) for x in (k, v))
        rows = queries[..., first:, :]
        G, n = rows.shape[2], rows.shape[3]
        s = torch.matmul(rows.reshape(B, H_kv, G * n, D), kj.mT).view(B, H_kv, G, n, -1)
        if causal:
            last = torch.arange(first, S) + (S_kv - S)
            s.masked_fill_(torch.arange(j, j + s.shape[-1]) > last[:, None], -math.inf)
        top = s.amax(-1)
        p = s.sub_(top.nan_to_num(neginf=0.0)[..., None]).exp_()
        pv = torch.matmul(p.reshape(B, H_kv, G * n, -1), vj).view(B, H_kv, G, n, D)
        old = (m[..., first:], l[..., first:], o[..., first:, :])
        m[..., first:], l[..., first:], o[..., first:, :] = merge(old, (top, p.sum(-1), pv))
    out = (o / l.clamp(min=1e-37)[..., None]).to(q.dtype)
    return out.reshape(B, H, S, D), (m + l.log()).reshape(B, H, S)


def flash_backward(q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None):
    B, H, S, D = q.shape
    H_kv, S_kv = k.shape[1], k.shape[2]
    scale = 1 / math.sqrt(D) if scale is None else scale
    wide = statistics_dtype(q)
    rows = [_fold(x.to(wide), H_kv).flatten(2, 3) for x in (q, do)]
    lse_rows = _fold(lse.to(wide), H_kv).flatten(2)[..., None]
    delta = (rows[1] * _fold(o.to(wide), H_kv).flatten(2, 3)).sum(-1, keepdim=True)
    dq = torch.zeros_like(rows[0])
    dks, dvs = [rows[0].new_zeros(B, H_kv, 0, D)], [rows[0].new_zeros(B, H_kv, 0, D)]
    last = (torch.arange(S) + S_kv - S).repeat(H // H_kv)[:, None]
    for j in range(0, S_kv, block_k):
        kj, vj = k[:, :, j : j + block_k].to(wide), v[:, :, j : j + block_k].to(wide)
        s = rows[0] @ kj.mT
        s.mul_(scale).sub_(lse_rows).exp_()
        p = s.nan_to_num_(0.0)
        if causal:
            p.masked_fill_(torch.arange(j, j + kj.shape[2]) > last, 0.0)
        dvs.append(p.mT @ rows[1])
        ds = (rows[1] @ vj.mT).sub_(delta).mul_(p.masked_fill_(lse_rows == -math.inf, 0.0))
        dq.add_(ds @ kj)
        dks.append(ds.mT @ rows[0])
    dk, dv = (torch.cat(parts, 2) for parts in (dks, dvs))
    dq = dq.reshape(B, H, S, D) * scale
    return dq.to(q.dtype), (dk * scale).to(k.dtype), dv.to(v.dtype)


def block_sizes(D, sram_elements):
    quarter, rest = divmod(sram_elements, 4 * D)
    columns = quarter + (rest > 0)
    return columns, min(columns, D)


def io_model(S, D, sram_elements):
    columns, _ = block_sizes(D, sram_elements)
    rounds = (S - 1) // columns + 1
    matrices, row_statistics = 3 * S * D, 4 * S
    return 4 * S**2 + 4 * S * D, 2 * S * D + rounds * (matrices + row_statistics)


def gqa_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None):
    """One key block at a time against (H_kv, G * s, D) rows, no call of flash_forward."""
    H, D = q.shape[1:]
    H_kv = k.shape[1]
    scale = 1 / math.sqrt(D) if scale is None else scale
    wide = statistics_dtype(q)
    outs, lses = [], []
    lengths_q, lengths_k = cu_seqlens_q.diff().tolist(), cu_seqlens_k.diff().tolist()
    for q_n, k_n, v_n in zip(q.split(lengths_q), k.split(lengths_k), v.split(lengths_k)):
        s_q, s_k = len(q_n), len(k_n)
        rows = q_n.to(wide).view(s_q, H_kv, H // H_kv, D).permute(1, 2, 0, 3).reshape(H_kv, -1, D)
        m = torch.full(rows.shape[:2], -math.inf, dtype=wide)
        state = (m, torch.zeros_like(m), torch.zeros_like(rows))
        last = (torch.arange(s_q) + s_k - s_q).repeat(H // H_kv)[:, None]
        for j in range(0, s_k, block_k):
            k_j, v_j = k_n[j : j + block_k].to(wide), v_n[j : j + block_k].to(wide)
            s = torch.bmm(rows, k_j.permute(1, 2, 0)) * scale
            if causal:
                s.masked_fill_(torch.arange(j, j + len(k_j)) > last, -math.inf)
            top = s.amax(-1)
            p = torch.exp(s - top.nan_to_num(neginf=0.0)[..., None])
            state = merge(state, (top, p.sum(-1), torch.bmm(p, v_j.transpose(0, 1))))
        m, l, acc = state
        o_n = (acc / l.clamp(min=1e-37)[..., None]).view(H_kv, H // H_kv, s_q, D)
        outs.append(o_n.permute(2, 0, 1, 3).reshape(s_q, H, D))
        lses.append((m + l.log()).view(H, s_q))
    return torch.cat(outs).to(q.dtype), torch.cat(lses, 1)


def split_kv_decode(q, k, v, num_splits, scale=None):
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    B, H, _, D = q.shape
    H_kv, wide = k.shape[1], statistics_dtype(q)
    rows = q.to(wide).view(B, H_kv, H // H_kv, D)
    top = torch.full(rows.shape[:-1], -math.inf, dtype=wide)
    state = (top, torch.zeros_like(top), torch.zeros_like(rows))
    n = math.ceil(k.shape[2] / num_splits)
    for worker in range(num_splits):
        k_w, v_w = (x[:, :, worker * n : (worker + 1) * n].to(wide) for x in (k, v))
        if k_w.shape[2] == 0:
            continue
        s = rows @ k_w.mT * scale
        top = s.amax(-1)
        p = (s - top[..., None]).exp()
        state = merge(state, (top, p.sum(-1), p @ v_w))
    m, l, o = state
    o = o / l.clamp(min=1e-37)[..., None]
    return o.reshape(B, H, 1, D).to(q.dtype), (m + l.log()).reshape(B, H, 1)


def paged_attention(q, k_cache, v_cache, block_table, context_lens, scale=None):
    rows = []
    for q_b, table, tokens in zip(q, block_table.tolist(), context_lens.tolist()):
        used = table[: math.ceil(tokens / k_cache.shape[1])]
        k, v = (
            torch.cat([cache[:0].flatten(0, 1), *(cache[n] for n in used)])[:tokens]
            for cache in (k_cache, v_cache)
        )
        o, _ = flash_forward(
            q_b[None, :, None], k.transpose(0, 1)[None], v.transpose(0, 1)[None], 1, 8, scale=scale
        )
        rows.append(o[0, :, 0])
    return torch.stack(rows)
