from grader.suite import lines, misconception

heads_are_dealt_in_turn = lines(
    """Query head h is given KV head h % H_kv; groups are NEIGHBOURING heads, h // (H // H_kv).""",
    (
        "o_n, lse_n = flash_forward(q_n, k_n, v_n, block_q, block_k, causal, scale)",
        "heads = torch.arange(q.shape[1]).view(-1, k.shape[1]).T.flatten()\n"
        "        o_n, lse_n = flash_forward(\n"
        "            q_n[:, heads], k_n, v_n, block_q, block_k, causal, scale\n"
        "        )\n"
        "        o_n, lse_n = o_n[:, heads.argsort()], lse_n[:, heads.argsort()]",
    ),
)

heads_are_repeated = lines(
    """K and V are repeated H // H_kv times in memory (repeat_interleave, or expand and then a
    matmul that copies): the saving of grouped heads is gone.""",
    (
        "        o_n, lse_n = flash",
        "        group = q.shape[1] // k.shape[1]\n"
        "        k_n, v_n = (x.repeat_interleave(group, 1) for x in (k_n, v_n))\n"
        "        o_n, lse_n = flash",
    ),
)

the_pack_is_one_sequence = lines(
    """The pack is treated as one long sequence: its members attend to each other; no token sees
    beyond its own sequence, from one edge in cu_seqlens to the next.""",
    (
        "    for n in range(len(q_edges) - 1):",
        "    q_edges, k_edges = [0, q_edges[-1]], [0, k_edges[-1]]\n"
        "    for n in range(len(q_edges) - 1):",
    ),
)

the_last_sequence_is_left_out = lines(
    """The last sequence is left out: N sequences have N + 1 edges, and each pair of neighbours is
    one.""",
    ("range(len(q_edges) - 1)", "range(len(q_edges) - 2)"),
)

keys_are_cut_like_queries = lines(
    """Keys are cut with cu_seqlens_q; with a cache a sequence has more keys than queries and its
    own edges, cu_seqlens_k.""",
    ("slice(k_edges[n], k_edges[n + 1])", "slice(q_edges[n], q_edges[n + 1])"),
)

packed_mask_starts_at_the_first_key = lines(
    """Each sequence's mask is aligned to its first key; new tokens after a cache are the last
    positions of their sequence.""",
    (
        "        # (s, H, D)",
        "        if causal:\n"
        "            end = keys.start + rows.stop - rows.start\n"
        "            keys = slice(keys.start, min(keys.stop, end))\n"
        "        # (s, H, D)",
    ),
)

lse_without_keys_is_zero = lines(
    """A sequence without keys is passed over, and its lse stays 0: the logarithm of an empty sum is
    -inf.""",
    ("-math.inf, dtype=statistics_dtype(q)", "0.0, dtype=statistics_dtype(q)"),
    (
        "        # (s, H, D)",
        "        if keys.start == keys.stop:\n            continue\n        # (s, H, D)",
    ),
)


@misconception()
def sequences_are_padded(
    q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None
):
    """Every sequence is padded to the longest: the padding is masked away and paid for in full,
    which is what packing avoids."""
    kind, q, k, v = q.dtype, *(x.to(statistics_dtype(x)) for x in (q, k, v))
    o, lse = torch.zeros_like(q), q.new_full((q.shape[1], q.shape[0]), -math.inf)
    a, b = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    H, H_kv = q.shape[1], k.shape[1]
    longest_q = int(cu_seqlens_q.diff().max())
    longest_k = int(cu_seqlens_k.diff().max())
    scale = 1 / math.sqrt(q.shape[2]) if scale is None else scale
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
    return o.to(kind), lse


@misconception()
def one_mask_over_the_whole_pack(
    q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None
):
    """One block-diagonal mask over all tokens of the pack: the values are right, but queries and
    keys of different sequences are multiplied before they are hidden."""
    H, H_kv = q.shape[1], k.shape[1]
    scale = 1 / math.sqrt(q.shape[2]) if scale is None else scale
    kind, q, k, v = q.dtype, *(x.to(statistics_dtype(x)) for x in (q, k, v))
    grouped = q.transpose(0, 1).unflatten(0, (H_kv, H // H_kv))
    s = torch.einsum("hgqd,khd->hgqk", grouped, k) * scale
    hidden = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool)
    a, b = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for n in range(len(a) - 1):
        seen = torch.ones(a[n + 1] - a[n], b[n + 1] - b[n], dtype=torch.bool)
        seen = seen.tril(seen.shape[1] - seen.shape[0]) if causal else seen
        hidden[a[n] : a[n + 1], b[n] : b[n + 1]] = ~seen
    s = s.masked_fill(hidden, -math.inf)
    o = torch.einsum("hgqk,khd->hgqd", torch.softmax(s, -1).nan_to_num(0.0), v)
    return o.flatten(0, 1).transpose(0, 1).to(kind), torch.logsumexp(s, -1).flatten(0, 1)
