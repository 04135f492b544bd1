from grader.suite import misconception


@misconception()
def heads_are_dealt_in_turn(
    q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None
):
    """Query head h is given KV head h % H_kv; groups are NEIGHBOURING heads, h // (H // H_kv)."""
    o, lse = torch.zeros_like(q), q.new_full((q.shape[1], q.shape[0]), -math.inf)
    H_kv = k.shape[1]
    a, b = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for n in range(len(a) - 1):
        for h in range(q.shape[1]):
            parts = (
                q[a[n] : a[n + 1], h],
                k[b[n] : b[n + 1], h % H_kv],
                v[b[n] : b[n + 1], h % H_kv],
            )
            o_n, lse_n = flash_forward(
                *(x[None, None] for x in parts), block_q, block_k, causal, scale
            )
            o[a[n] : a[n + 1], h], lse[h, a[n] : a[n + 1]] = o_n[0, 0], lse_n[0, 0]
    return o, lse


@misconception()
def heads_are_repeated(
    q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None
):
    """K and V are repeated H // H_kv times in memory (repeat_interleave, or expand and then a
    matmul that copies): the saving of grouped heads is gone."""
    o, lse = torch.zeros_like(q), q.new_full((q.shape[1], q.shape[0]), -math.inf)
    a, b = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    group = q.shape[1] // k.shape[1]
    for n in range(len(a) - 1):
        k_n, v_n = (x[b[n] : b[n + 1]].repeat_interleave(group, 1) for x in (k, v))
        parts = (x.transpose(0, 1)[None] for x in (q[a[n] : a[n + 1]], k_n, v_n))
        o_n, lse_n = flash_forward(*parts, block_q, block_k, causal, scale)
        o[a[n] : a[n + 1]], lse[:, a[n] : a[n + 1]] = o_n[0].transpose(0, 1), lse_n[0]
    return o, lse


@misconception()
def the_pack_is_one_sequence(
    q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None
):
    """The pack is treated as one long sequence: its members attend to each other; cu_seqlens are
    walls."""
    o, lse = flash_forward(
        *(x.transpose(0, 1)[None] for x in (q, k, v)), block_q, block_k, causal, scale
    )
    return o[0].transpose(0, 1), lse[0]


@misconception()
def keys_are_cut_like_queries(
    q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None
):
    """Keys are cut with cu_seqlens_q; with a cache a sequence has more keys than queries and its
    own edges, cu_seqlens_k."""
    o, lse = torch.zeros_like(q), q.new_full((q.shape[1], q.shape[0]), -math.inf)
    a = cu_seqlens_q.tolist()
    for n in range(len(a) - 1):
        rows = slice(a[n], a[n + 1])
        parts = (x[rows].transpose(0, 1)[None] for x in (q, k, v))
        o_n, lse_n = flash_forward(*parts, block_q, block_k, causal, scale)
        o[rows], lse[:, rows] = o_n[0].transpose(0, 1), lse_n[0]
    return o, lse


@misconception()
def packed_mask_starts_at_the_first_key(
    q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None
):
    """Each sequence's mask is aligned to its first key; new tokens after a cache are the last
    positions of their sequence."""
    o, lse = torch.zeros_like(q), q.new_full((q.shape[1], q.shape[0]), -math.inf)
    a, b = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for n in range(len(a) - 1):
        rows = slice(a[n], a[n + 1])
        keys = slice(b[n], min(b[n + 1], b[n] + a[n + 1] - a[n]) if causal else b[n + 1])
        parts = (x.transpose(0, 1)[None] for x in (q[rows], k[keys], v[keys]))
        o_n, lse_n = flash_forward(*parts, block_q, block_k, causal, scale)
        o[rows], lse[:, rows] = o_n[0].transpose(0, 1), lse_n[0]
    return o, lse


@misconception()
def sequences_are_padded(
    q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None
):
    """Every sequence is padded to the longest: the padding is masked away and paid for in full,
    which is what packing avoids."""
    o, lse = torch.zeros_like(q), q.new_full((q.shape[1], q.shape[0]), -math.inf)
    a, b = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    H, H_kv = q.shape[1], k.shape[1]
    longest_q = int(cu_seqlens_q.diff().max())
    longest_k = int(cu_seqlens_k.diff().max())
    scale = scale or 1 / math.sqrt(q.shape[2])
    for n in range(len(a) - 1):
        S, S_kv = a[n + 1] - a[n], b[n + 1] - b[n]
        q_n = q.new_zeros(longest_q, H, q.shape[2])
        k_n, v_n = (k.new_zeros(longest_k, H_kv, q.shape[2]) for _ in range(2))
        q_n[:S], k_n[:S_kv], v_n[:S_kv] = q[a[n] : a[n + 1]], k[b[n] : b[n + 1]], v[b[n] : b[n + 1]]
        grouped = q_n.transpose(0, 1).unflatten(0, (H_kv, H // H_kv))
        s = torch.einsum("hgqd,khd->hgqk", grouped, k_n) * scale
        hidden = torch.ones(longest_q, longest_k, dtype=torch.bool)
        seen = torch.ones(S, S_kv, dtype=torch.bool)
        hidden[:S, :S_kv] = ~(seen.tril(S_kv - S) if causal else seen)
        s = s.masked_fill(hidden, -math.inf)
        p = torch.softmax(s, -1).nan_to_num(0.0)
        o[a[n] : a[n + 1]] = (
            torch.einsum("hgqk,khd->hgqd", p, v_n).flatten(0, 1)[:, :S].transpose(0, 1)
        )
        lse[:, a[n] : a[n + 1]] = torch.logsumexp(s, -1).flatten(0, 1)[:, :S]
    return o, lse


@misconception()
def one_mask_over_the_whole_pack(
    q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None
):
    """One block-diagonal mask over all tokens of the pack: right, but every pair of strangers is
    multiplied before it is hidden."""
    H, H_kv = q.shape[1], k.shape[1]
    grouped = q.transpose(0, 1).unflatten(0, (H_kv, H // H_kv))
    s = torch.einsum("hgqd,khd->hgqk", grouped, k) * (scale or 1 / math.sqrt(q.shape[2]))
    hidden = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool)
    a, b = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for n in range(len(a) - 1):
        seen = torch.ones(a[n + 1] - a[n], b[n + 1] - b[n], dtype=torch.bool)
        seen = seen.tril(seen.shape[1] - seen.shape[0]) if causal else seen
        hidden[a[n] : a[n + 1], b[n] : b[n + 1]] = ~seen
    s = s.masked_fill(hidden, -math.inf)
    o = torch.einsum("hgqk,khd->hgqd", torch.softmax(s, -1).nan_to_num(0.0), v)
    return o.flatten(0, 1).transpose(0, 1), torch.logsumexp(s, -1).flatten(0, 1)
