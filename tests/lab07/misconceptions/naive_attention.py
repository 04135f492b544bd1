from grader.suite import lines, misconception

mask_starts_at_the_first_key = lines(
    """The causal mask is aligned to the first key; with fewer queries than keys (a cache) the
    queries are the last positions, so the diagonal moves right by S_kv - S.""",
    ("tril(diagonal=S_kv - S)", "tril()"),
)

no_scale = lines(
    """The scores are not divided by sqrt(D): a dot product of D terms has variance D, and the
    softmax saturates.""",
    ("1 / math.sqrt(q.shape[3]) if", "1.0 if"),
)

scale_is_one_over_d = lines(
    """The scale is 1/sqrt(D), not 1/D: the standard deviation of a dot product grows with the root
    of its length.""",
    ("1 / math.sqrt(q.shape[3]) if", "1 / q.shape[3] if"),
)

the_given_scale_is_ignored = lines(
    """The scale here is always 1/sqrt(D); a scale that the caller gives takes its place.""",
    ("1 / math.sqrt(q.shape[3]) if scale is None else scale", "1 / math.sqrt(q.shape[3])"),
)

softmax_over_the_queries = lines(
    """The softmax runs over the queries; each row, one query, must sum to 1 over its KEYS, the
    last axis.""",
    ("torch.softmax(s, dim=-1)", "torch.softmax(s, dim=-2)"),
)

mask_after_the_softmax = lines(
    """Hidden keys are zeroed after the softmax, so they still stand in its denominator and a row
    sums to less than 1.""",
    (
        "        s = s.masked_fill(~visible, -math.inf)\n    p = torch.softmax(s, dim=-1)\n",
        "        p = torch.softmax(s, dim=-1)\n        s = s.masked_fill(~visible, -math.inf)\n"
        "    else:\n        p = torch.softmax(s, dim=-1)\n",
    ),
)

hidden_scores_are_zero = lines(
    """A hidden score is set to 0, which is a score like any other (weight exp(0) = 1); weight 0
    needs a score of -inf.""",
    ("s.masked_fill(~visible, -math.inf)", "s.masked_fill(~visible, 0.0)"),
)

heads_in_turn = lines(
    """KV heads are dealt out in turn, h % H_kv; a group is H // H_kv NEIGHBOURING query heads.""",
    ("k.to(wide).repeat_interleave(group, dim=1)", "k.to(wide).repeat(1, group, 1, 1)"),
    ("v.to(wide).repeat_interleave(group, dim=1)", "v.to(wide).repeat(1, group, 1, 1)"),
)

scores_in_16_bits = lines(
    """The scores are kept in the 16 bits of the inputs: near 60, neighbouring bfloat16 numbers are
    1/4 apart, and exp turns 1/4 into a factor of 1.28.""",
    ("wide, group = statistics_dtype(q)", "wide, group = q.dtype"),
)

scale_is_rounded_into_q = lines(
    """q is multiplied by the scale in 16 bits, which rounds it once more before the product;
    multiply the scores, which are float32.""",
    ("q.to(wide), k) * scale", "(q * scale).to(wide), k)"),
)


@misconception()
def library_attention(q, k, v, causal=False, scale=None):
    """The library's attention is called; this task is to write the three steps that it fuses."""
    group, dtype = q.shape[1] // k.shape[1], q.dtype
    q, k, v = q.double(), *(x.double().repeat_interleave(group, 1) for x in (k, v))
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    if causal:
        mask = mask.tril(k.shape[2] - q.shape[2])
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return o.masked_fill(~mask.any(-1)[:, None], 0.0).to(dtype)


zero_counts_as_no_scale = lines(
    """`scale or 1 / sqrt(D)` takes a scale of 0 for none; only None means that no scale was
    given.""",
    ("1 / math.sqrt(q.shape[3]) if scale is None else scale", "scale or 1 / math.sqrt(q.shape[3])"),
    gate=False,
)

mask_before_the_scale_is_applied = lines(
    """Scores are hidden before they are multiplied by the scale: 0 * -inf is NaN, and a negative
    scale makes +inf of it. Scale first, then mask.""",
    ('"bhqd,bhkd->bhqk", q.to(wide), k) * scale', '"bhqd,bhkd->bhqk", q.to(wide), k)'),
    ("p = torch.softmax(s, dim=-1)", "s = s * scale\n    p = torch.softmax(s, dim=-1)"),
    gate=False,
)
