from grader.suite import lines, misconception

padding_keys_score_zero = lines(
    """Keys beyond S_kv are loaded as 0 and then score 0, which is a score like any other: the last
    block needs -inf there, with and without the causal mask.""",
    ("- 1, tl.", "- 1 + BLOCK_K, tl."),
)


def _edited(text, *changes):
    """The reference's text with each (old, new) of `changes` made; old must stand there."""
    for old, new in changes:
        if old not in text:
            raise ValueError(f"the reference has no {old!r}")
        text = text.replace(old, new)
    return text


@misconception(file="flash_kernel.py")
def kernel_mask_starts_at_the_first_key(text):
    """The causal mask is aligned to the first key; the queries are the last positions, so row i
    sees the keys up to i + (S_kv - S)."""
    return _edited(
        text,
        ("rows + (S_kv - S)", "rows"),
        ("1 + (S_kv - S)", "1"),
        ("BLOCK_Q + (S_kv - S)", "BLOCK_Q"),
    )


rows_do_not_see_themselves = lines(
    """The mask hides the diagonal too; with S = S_kv row i sees key i, so the comparison is <=.""",
    ("rows + (S_kv - S)", "rows + (S_kv - S) - 1"),
)

mask_drops_the_diagonal_block = lines(
    """The loop ends before the block that the diagonal cuts; its keys up to the diagonal are
    visible, so it is computed, with a mask.""",
    (
        "minimum(S_kv, first + BLOCK_Q + (S_kv - S))",
        "maximum(tl.minimum(S_kv, first + (S_kv - S)), 0)",
    ),
)

mask_without_skipping = lines(
    """Every program loads all keys and masks most of them; the loop of a causal program can end at
    its last row's last key, which saves nearly half of the loads and products.""",
    ("stop = tl.minimum(S_kv, first + BLOCK_Q + (S_kv - S))", "stop = tl.minimum(S_kv, S_kv)"),
)

kernel_lse_in_base_two = lines(
    """The statistics of a kernel that uses exp2 are in units of log2; lse is a natural logarithm,
    so it takes a factor ln(2) at the end.""",
    ("(m + tl.log2(l_safe)) * 0.6931471805599453", "(m + tl.log2(l_safe))"),
)

exp2_without_log2_e = lines(
    """exp2(x) is not exp(x): exp(x) = exp2(x * log2(e)), and that factor, 1.4427, is missing.""",
    ("(m + tl.log2(l_safe)) * 0.6931471805599453", "(m + tl.log(l_safe))"),
    ("scale * math.log2(math.e)", "scale"),
)

accumulator_is_not_rescaled = lines(
    """l is rescaled when m grows and acc is not; both are sums measured from the old maximum.""",
    ("acc * decay[:, None]", "acc"),
)

the_new_product_is_rescaled_too = lines(
    """The product of a key block is added to acc before acc is rescaled; the new terms are measured
    from the new maximum already.""",
    (
        'acc = tl.dot(p, v.to(OPERAND), acc * decay[:, None], input_precision="tf32x3")',
        'acc = tl.dot(p, v.to(OPERAND), acc, input_precision="tf32x3") * decay[:, None]',
    ),
)

key_blocks_of_a_fixed_size = lines(
    """Keys are read in blocks of a fixed size; the caller says with block_k how many a program
    takes at once.""",
    ("BLOCK_K=block_k", "BLOCK_K=32"),
)

a_call_without_keys_is_left_out = lines(
    """A call without keys returns early with an lse of 0; the logarithm of an empty sum is
    -inf.""",
    (
        "    row_bytes = D",
        "    if k.shape[2] == 0:\n"
        "        return torch.zeros_like(o), torch.zeros_like(lse)\n"
        "    row_bytes = D",
    ),
)

the_accumulator_is_rounded = lines(
    """acc is rounded to 16 bits after each key block; it is float32 until the last one is in.""",
    (
        "    return m_new, l, acc",
        "    acc = acc.to(v.dtype).to(tl.float32)\n    return m_new, l, acc",
    ),
)

kernel_l_is_not_rescaled = lines(
    """acc is rescaled when m grows and l is not; both are sums measured from the old maximum.""",
    ("l = l * decay + tl.sum(p, axis=1)", "l = l + tl.sum(p, axis=1)"),
)

kernel_m_starts_at_zero = lines(
    """The running maximum starts at 0: for scores far below 0 every exp underflows, and l is 0.
    The maximum of nothing is -inf.""",
    ('m = tl.full([BLOCK_Q], -float("inf"), tl.float32)', "m = tl.zeros([BLOCK_Q], tl.float32)"),
)

exp_without_the_maximum = lines(
    """Scores go into exp as they are; without the running maximum a score of 1000 overflows and a
    row of scores near -1000 sums to 0.""",
    ('m = tl.full([BLOCK_Q], -float("inf"), tl.float32)', "m = tl.zeros([BLOCK_Q], tl.float32)"),
    ("m_new = tl.maximum(m, tl.max(s, axis=1) * scale_log2)", "m_new = m"),
)

normalised_in_every_key_block = lines(
    """acc is divided by the l of the moment in each key block; divided numbers cannot be added to
    later ones, so the division comes once, after the last block.""",
    ("o = acc / l_safe[:, None]", "o = acc"),
    ("p = p.to(v.dtype).to(OPERAND)", "p = (p / l[:, None]).to(v.dtype).to(OPERAND)"),
)

kernel_without_a_scale = lines(
    """The scores are not divided by sqrt(D): where no scale is given it is 1/sqrt(D), not 1.""",
    ("1 / math.sqrt(D)", "1.0"),
)

_SCALED_Q = """q is multiplied by the scale and rounded to 16 bits once more before the product,
    which shows in every score; multiply the scores by it, which are float32."""

scale_goes_into_q = lines(
    _SCALED_Q,
    (
        "q = tl.load(q_ptrs, mask=exists[:, None], other=0.0).to(OPERAND)",
        "q = tl.load(q_ptrs, mask=exists[:, None], other=0.0)\n"
        "    q = (q.to(tl.float32) * scale_log2).to(q_ptr.dtype.element_ty).to(OPERAND)",
    ),
    ("(s, axis=1) * scale_log2", "(s, axis=1)"),
    ("p = tl.exp2(s * scale_log2 - shift[:, None])", "p = tl.exp2(s - shift[:, None])"),
)

scale_and_q_in_16_bits = lines(
    _SCALED_Q,
    (
        "q = tl.load(q_ptrs, mask=exists[:, None], other=0.0).to(OPERAND)",
        "q = (tl.load(q_ptrs, mask=exists[:, None], other=0.0) * scale_log2).to(OPERAND)",
    ),
    ("(s, axis=1) * scale_log2", "(s, axis=1)"),
    ("p = tl.exp2(s * scale_log2 - shift[:, None])", "p = tl.exp2(s - shift[:, None])"),
)

strides_of_q_for_all = lines(
    """K and V are read with the strides of q; each tensor has four strides of its own, and with
    grouped heads, a cache or views they differ.""",
    ("k.stride(), *v", "q.stride(), *q"),
)

strides_of_k_for_v = lines(
    """V is read with the strides of k; equal shapes do not make equal strides.""",
    ("v.stride", "k.stride"),
)

rows_lie_one_behind_the_other = lines(
    """Elements of a row are taken to be neighbours; the stride of the last axis is 1 for a
    contiguous tensor only, and any view may have another.""",
    ("[None, :] * stride_qd", "[None, :]"),
    (
        "k_ptrs = k_ptr + keys[None, :] * stride_ks + dims[:, None] * stride_kd\n"
        "    v_ptrs = v_ptr + keys[:, None] * stride_vs + dims[None, :] * stride_vd",
        "k_ptrs = k_ptr + keys[None, :] * stride_ks + dims[:, None]\n"
        "    v_ptrs = v_ptr + keys[:, None] * stride_vs + dims[None, :]",
    ),
)

output_with_the_strides_of_q = lines(
    """o is stored with the strides of q, but lies row by row: a new tensor is contiguous,
    whatever view q is.""",
    (
        "out[:, None] * D + dims[None, :]",
        "batch * stride_qb + head * stride_qh + rows[:, None] * stride_qs + dims[None, :] "
        "* stride_qd",
    ),
)

stores_without_a_mask = lines(
    """The stores have no mask: rows beyond S of the last block land in the next head's rows, or
    beyond the tensor.""",
    (
        "tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=exists[:, None])\n"
        "    tl.store(lse_ptr + out, lse, mask=exists)",
        "tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty))\n    tl.store(lse_ptr + out, lse)",
    ),
)

q_without_a_mask = lines(
    """The load of q has no mask: the last block of rows reads beyond S, in the next head's rows or
    in memory outside of the tensor.""",
    ("q_ptrs, mask=exists[:, None], other=0.0", "q_ptrs"),
)

keys_without_a_mask = lines(
    """The loads of k and v have no mask: a score of -inf for a key that does not exist comes too
    late, it has been read by then.""",
    (
        "k = tl.load(k_ptrs, mask=exists[None, :], other=0.0)\n"
        "        v = tl.load(v_ptrs, mask=exists[:, None], other=0.0)",
        "k = tl.load(k_ptrs)\n        v = tl.load(v_ptrs)",
    ),
)

kv_head_is_the_query_head = lines(
    """Query head h reads KV head h; there are only H_kv of them, and H // H_kv neighbouring query
    heads share one: h // (H // H_kv).""",
    ("(h // group)", "h"),
)

kv_heads_in_turn = lines(
    """KV heads are dealt out in turn, h % H_kv; a group is H // H_kv NEIGHBOURING query heads.""",
    ("// group", "% (tl.num_programs(1) // group)"),
)

kv_heads_are_repeated = lines(
    """KV heads are repeated in memory before the launch, H // H_kv times K and V; the program finds
    its KV head by an index and needs no copy.""",
    (
        "check(q, k, v, scale)",
        "check(q, k, v, scale)\n"
        "    k, v = (x.repeat_interleave(H // x.shape[1], 1) for x in (k, v))",
    ),
)

inputs_made_wide_by_torch = lines(
    """q, k and v are cast to float32 by torch: each is read and written once more, in a wider type,
    and the tensor cores' fast types are lost. Products of 16-bit numbers add up in float32
    anyway.""",
    (
        "o = torch.empty(q.shape, dtype=q.dtype, device=q.device)",
        "kind, q, k, v = q.dtype, q.float(), k.float(), v.float()\n"
        "    o = torch.empty(q.shape, dtype=kind, device=q.device)",
    ),
)

views_are_made_contiguous = lines(
    """The inputs are made contiguous first, which copies every view; the kernel is given their
    strides and needs no copy.""",
    (
        "check(q, k, v, scale)",
        "check(q, k, v, scale)\n    q, k, v = (x.contiguous() for x in (q, k, v))",
    ),
)


@misconception(file="flash_kernel.py")
def q_is_loaded_for_every_key_block(text):
    """The rows of q are loaded anew for every key block; they do not change, and belong in
    registers before the loop."""
    return _edited(
        text,
        (
            "        at = tl.cast(start, tl.int64)\n",
            "        at = tl.cast(start, tl.int64)\n"
            "        q = tl.load(q_ptrs, mask=exists[:, None], other=0.0)"
            ".to(OPERAND)\n",
        ),
    )


@misconception(file="flash_kernel.py")
def a_launch_for_each_head(text):
    """The kernel is launched once for each head; a launch costs microseconds and fills part of the
    GPU only, while heads and batch can be axes of one grid."""
    return _edited(
        text,
        (
            "    grid = (triton.cdiv(S, block_q), H, B)\n",
            "    if B * H > 1:\n"
            "        group = H // k.shape[1]\n"
            "        for b in range(B):\n"
            "            for h in range(H):\n"
            "                heads = (q[b, h], k[b, h // group], v[b, h // group])\n"
            "                one = flash_kernel(*(x[None, None] for x in heads),"
            " causal, scale, block_q, block_k)\n"
            "                o[b, h], lse[b, h] = one[0][0, 0], one[1][0, 0]\n"
            "        return o, lse\n"
            "    grid = (triton.cdiv(S, block_q), H, B)\n",
        ),
    )


@misconception()
def torchs_attention_for_the_kernel(q, k, v, causal=False, scale=None, block_q=128, block_k=64):
    """The library's attention is called; this task is to write the kernel, and no launch of one was
    seen."""
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    check(q, k, v, scale)
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    if causal:
        mask = mask.tril(k.shape[2] - q.shape[2])
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    s = (q @ k.mT).float() * scale
    return o, torch.logsumexp(s.masked_fill(~mask, -math.inf), -1)


statistics_in_the_type_of_q = lines(
    """lse is stored in the type of q; float16 keeps 10 bits of a number, and the backward takes the
    exponential of s - lse.""",
    ("out, lse", "out, lse.to(lse_ptr.dtype.element_ty)"),
    ("torch.float32", "q.dtype"),
)

products_without_tl_dot = lines(
    """Scores are made by multiplying and summing blocks of three axes; only tl.dot reaches the
    tensor cores, which do nearly all of a GPU's FLOPs.""",
    (
        'dot(q, k.to(OPERAND), input_precision="tf32x3")',
        "sum(q.to(tl.float32)[:, :, None] * k.to(tl.float32)[None, :, :], axis=1)",
    ),
)


@misconception(file="flash_kernel.py", gate=False)
def checked_if_there_are_rows(text):
    """A call without rows, keys or sequences returns before `check`; what the kernel is not made
    for is refused whatever the lengths are."""
    return _edited(
        text,
        (
            "    check(q, k, v, scale)\n",
            "    if q.numel() and k.numel():\n        check(q, k, v, scale)\n"
            "    elif not q.numel():\n"
            "        return torch.empty_like(q), q.new_empty((B, H, S)).float()\n",
        ),
    )


l_of_rounded_p = lines(
    """p is rounded to 16 bits before it is summed, so l and lse carry the rounding; round p for its
    product with v alone.""",
    (
        "l = l * decay + tl.sum(p, axis=1)",
        "p = p.to(v.dtype).to(tl.float32)\n    l = l * decay + tl.sum(p, axis=1)",
    ),
    gate=False,
)
