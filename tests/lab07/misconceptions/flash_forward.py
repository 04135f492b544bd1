from grader.suite import lines, misconception

lse_in_base_2 = lines(
    """lse is in base 2; a kernel that works with exp2 multiplies by ln 2 before it returns lse,
    because the backward uses exp.""",
    ("= m + torch.log(l)", "= m / math.log(2) + torch.log2(l)"),
)

lse_without_the_maximum = lines(
    """lse is ln(l) alone; l is measured from m, so the logarithm of the whole sum is m + ln(l).""",
    ("= m + torch.log(l)", "= torch.log(l)"),
)

o_is_normalised_in_every_block = lines(
    """The accumulator is divided by l after every key block and again at the end; until the last
    block it must stay a sum that is not normalised.""",
    (
        "            m = m_new\n",
        "            m = m_new\n            acc = acc / l.masked_fill(l == 0, 1.0)[..., None]\n",
    ),
)

o_is_normalised_in_every_block_and_not_at_the_end = lines(
    """Every block's output is divided by the l of that moment and then added; outputs of blocks
    are averages with different weights and cannot simply be summed.""",
    (
        "            m = m_new\n",
        "            m = m_new\n            acc = acc / l.masked_fill(l == 0, 1.0)[..., None]\n",
    ),
    ("= acc / l.masked_fill(l == 0, 1.0)[..., None]\n        lse", "= acc\n        lse"),
)

l_is_rescaled_but_not_the_accumulator = lines(
    """When m grows, l is rescaled and the accumulator is not; both are measured from m and need
    the same factor exp(m_old - m_new).""",
    ("acc = decay[..., None] * acc +", "acc = acc +"),
)

the_accumulator_is_rescaled_but_not_l = lines(
    """When m grows, the accumulator is rescaled and l is not; both are measured from m and need the
    same factor exp(m_old - m_new).""",
    ("l = decay * l +", "l = l +"),
)

padded_keys_score_zero = lines(
    """The last key block is filled up with zeros and not masked; a key of zeros scores 0 and takes
    weight exp(0 - m) from the real ones.""",
    (
        "k_j, v_j = k[:, :, j:j_stop].to(wide), v[:, :, j:j_stop].to(wide)",
        "k_j, v_j = (\n"
        "                torch.nn.functional.pad(\n"
        "                    x[:, :, j:j_stop].to(wide), (0, 0, 0, j + block_k - j_stop)\n"
        "                )\n"
        "                for x in (k, v)\n"
        "            )",
    ),
    ("torch.arange(j, j_stop) > row", "torch.arange(j, j + block_k) > row"),
)

ragged_last_block_is_dropped = lines(
    """Only whole key blocks are visited: S_kv // block_k of them forget the last, shorter one;
    range(0, S_kv, block_k) does not.""",
    ("range(0, S_kv, block_k)", "range(0, S_kv // block_k * block_k, block_k)"),
)

tiles_are_masked_from_the_first_key = lines(
    """The mask of a tile compares row i with key j and forgets S_kv - S: with fewer queries than
    keys the queries are the last positions.""",
    ("[:, None] + (S_kv - S)", "[:, None]"),
)

the_scale_of_the_call_is_ignored = lines(
    """The scale here is always 1/sqrt(D); a scale that the caller gives takes its place.""",
    ("1 / math.sqrt(D) if scale is None else scale", "1 / math.sqrt(D)"),
)

query_heads_in_turn = lines(
    """KV heads are dealt out in turn, h % H_kv; a group is H // H_kv NEIGHBOURING query heads.""",
    (
        "q.unflatten(1, (H // group, group))",
        "q.unflatten(1, (group, H // group)).transpose(1, 2)",
    ),
    (
        "return o.flatten(1, 2), lse.flatten(1, 2)",
        "return o.transpose(1, 2).flatten(1, 2), lse.transpose(1, 2).flatten(1, 2)",
    ),
)

a_row_without_keys_divides_by_zero = lines(
    """A row that sees no key comes out as NaN: its l is 0 and its m is -inf, so acc / l and m - m
    need a guard; o is 0 there, and lse is -inf.""",
    ("= acc / l.masked_fill(l == 0, 1.0)[..., None]", "= acc / l[..., None]"),
)

a_hidden_tile_subtracts_infinities = lines(
    """A row that sees no key comes out as NaN: its l is 0 and its m is -inf, so acc / l and m - m
    need a guard; o is 0 there, and lse is -inf.""",
    ("shift = m_new.masked_fill(m_new == -math.inf, 0.0)", "shift = m_new"),
)

the_accumulator_has_the_dtype_of_q = lines(
    """The accumulator is rounded to the type of q after each key block; it stays float32 until the
    last one is in, and is rounded once.""",
    (
        "            m = m_new\n",
        "            m = m_new\n            acc = acc.to(q.dtype).to(wide)\n",
    ),
)

tiles_in_16_bits = lines(
    """Scores and statistics are kept in the 16 bits of the inputs: near 60, neighbouring bfloat16
    numbers are 1/4 apart, and exp turns 1/4 into a factor of 1.28.""",
    ("wide, group = statistics_dtype(q)", "wide, group = q.dtype"),
)

scale_is_rounded_into_the_rows = lines(
    """q is multiplied by the scale in 16 bits, which rounds it once more before the product;
    multiply the scores, which are float32.""",
    (
        "q_i = q_grouped[..., i:i_stop, :].to(wide)",
        "q_i = (q_grouped[..., i:i_stop, :] * scale).to(wide)",
    ),
    ('"bhgqd,bhkd->bhgqk", q_i, k_j) * scale', '"bhgqd,bhkd->bhgqk", q_i, k_j)'),
)

one_block_of_rows_against_all_keys = lines(
    """Query rows are tiled and keys are not: block_q x S_kv scores at once need no online softmax,
    and on a chip they do not fit.""",
    ("range(0, S_kv, block_k)", "range(0, S_kv, max(S_kv, 1))"),
    ("j_stop = min(j + block_k, S_kv)", "j_stop = S_kv"),
)

key_blocks_of_a_size_of_their_own = lines(
    """Keys are read in blocks of a fixed size; the caller says with block_k how many fit on the
    chip.""",
    (
        "    for i in range(0, S, block_q):\n",
        "    block_k = 64\n    for i in range(0, S, block_q):\n",
    ),
)

the_whole_mask_is_built_first = lines(
    """The scores are tiled but the mask is not: S x S booleans are still quadratic; a tile makes
    its own from its row and key numbers.""",
    (
        "    for i in range(0, S, block_q):\n",
        "    hidden = torch.ones(S, S_kv, dtype=torch.bool).triu(S_kv - S + 1)\n"
        "    for i in range(0, S, block_q):\n",
    ),
    ("torch.arange(j, j_stop) > row", "hidden[i:i_stop, j:j_stop]"),
)


@misconception()
def all_scores_at_once(q, k, v, block_q, block_k, causal=False, scale=None):
    """The answer is right and the S x S scores were held to get it: that matrix is the very thing
    that tiling removes."""
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    wide, group = statistics_dtype(q), heads_per_group(q, k)
    s = q.to(wide) @ k.to(wide).repeat_interleave(group, 1).mT * scale
    if causal:
        hidden = ~torch.ones(s.shape[-2:], dtype=torch.bool).tril(s.shape[-1] - s.shape[-2])
        s = s.masked_fill(hidden, -math.inf)
    p = torch.softmax(s, -1).nan_to_num(0.0)
    o = p @ v.to(wide).repeat_interleave(group, 1)
    return o.to(q.dtype), torch.logsumexp(s, -1)


@misconception()
def library_kernel_is_called(q, k, v, block_q, block_k, causal=False, scale=None):
    """The library's flash kernel is called; this task is to write what it does."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    group = heads_per_group(q, k)
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    mask = None
    if causal and q.shape[2] != k.shape[2]:
        mask = torch.full((q.shape[2], k.shape[2]), -math.inf, dtype=q.dtype)
        mask = mask.triu(k.shape[2] - q.shape[2] + 1)
    return kernel(q, k, v, 0.0, causal and mask is None, attn_mask=mask, scale=scale)


a_scale_of_zero_is_replaced = lines(
    """`scale or 1 / sqrt(D)` takes a scale of 0 for none; only None means that no scale was
    given.""",
    ("1 / math.sqrt(D) if scale is None else scale", "scale or 1 / math.sqrt(D)"),
    gate=False,
)

tiles_are_masked_before_the_scale = lines(
    """Scores are hidden before they are multiplied by the scale: 0 * -inf is NaN, and a negative
    scale makes +inf of it. Scale first, then mask.""",
    ('"bhgqd,bhkd->bhgqk", q_i, k_j) * scale', '"bhgqd,bhkd->bhgqk", q_i, k_j)'),
    ("            m_new = torch.max", "            s = s * scale\n            m_new = torch.max"),
    gate=False,
)

hidden_scores_are_the_lowest_number = lines(
    """Hidden scores get the lowest finite number instead of -inf; a row that sees no key then takes
    it for its maximum, and gives every hidden key of the tile weight exp(0) = 1.""",
    (
        "torch.arange(j, j_stop) > row, -math.inf",
        "torch.arange(j, j_stop) > row, torch.finfo(wide).min",
    ),
)

l_of_rounded_weights = lines(
    """p is rounded to 16 bits before it is summed, so l and lse carry the rounding; round p for its
    product with v alone.""",
    (
        "p = torch.exp(s - shift[..., None])",
        "p = torch.exp(s - shift[..., None]).to(v.dtype).to(wide)",
    ),
    gate=False,
)
