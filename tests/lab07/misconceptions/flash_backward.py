from grader.suite import lines, misconception

ds_without_the_d_term = lines(
    """ds = p * dp lacks D = rowsum(do * o): raising one score lowers every other probability of
    the row, and D is what that costs.""",
    ("ds = p * (dp - delta[..., i:i_stop, None]) * scale", "ds = p * dp * scale"),
)

d_of_the_tile_alone = lines(
    """D is summed over the tile's keys only; it belongs to the whole row, and rowsum(do * o) gives
    it before any tile.""",
    ("dp - delta[..., i:i_stop, None]", "dp - (p * dp).sum(dim=-1, keepdim=True)"),
)

d_in_16_bits = lines(
    """D = rowsum(do * o) is rounded to 16 bits, and then subtracted from dp, which is nearly as
    large; what is left is mostly the rounding.""",
    (
        "delta = (do.to(wide) * o.to(wide)).sum(dim=-1)",
        "delta = (do * o).sum(dim=-1).to(wide)",
    ),
)

scale_is_lost_on_the_way_back = lines(
    """ds is the gradient of the SCALED score; dq and dk need the factor scale once more, by the
    chain rule.""",
    (" * scale\n            dq", "\n            dq"),
)

scale_for_dq_alone = lines(
    """ds is the gradient of the SCALED score; dq and dk need the factor scale once more, by the
    chain rule.""",
    (" * scale\n            dq", "\n            dq"),
    ('"bhgqk,bhkd->bhgqd", ds, k_j)', '"bhgqk,bhkd->bhgqd", ds, k_j) * scale'),
)

scale_for_dk_alone = lines(
    """ds is the gradient of the SCALED score; dq and dk need the factor scale once more, by the
    chain rule.""",
    (" * scale\n            dq", "\n            dq"),
    ('"bhgqk,bhgqd->bhkd", ds, q_i)', '"bhgqk,bhgqd->bhkd", ds, q_i) * scale'),
)

the_scale_of_the_caller_is_ignored = lines(
    """The scale here is always 1/sqrt(D); a scale that the caller gives takes its place, in the
    backward as in the forward.""",
    ("1 / math.sqrt(D) if scale is None else scale", "1 / math.sqrt(D)"),
)

the_tile_is_a_softmax_of_its_own = lines(
    """Each tile is normalised on its own; p of a tile is exp(s - lse) with the lse of the WHOLE
    row, and sums to less than 1.""",
    ("torch.exp(s - lse[..., i:i_stop, None])", "torch.softmax(s, dim=-1).nan_to_num(0.0)"),
)

tiles_overwrite_each_other = lines(
    """A tile assigns its part of the gradients instead of adding it: every key collects from all
    query blocks, every query from all key blocks.""",
    ("dv[:, :, j:j_stop] +=", "dv[:, :, j:j_stop] ="),
    ("dk[:, :, j:j_stop] +=", "dk[:, :, j:j_stop] ="),
)

key_blocks_overwrite_dq = lines(
    """A tile assigns its part of the gradients instead of adding it: every key collects from all
    query blocks, every query from all key blocks.""",
    ("dq[..., i:i_stop, :] +=", "dq[..., i:i_stop, :] ="),
)

backward_without_the_mask = lines(
    """The causal mask is forgotten in the backward: exp(s - lse) of a hidden pair is not 0, it has
    to be masked again.""",
    ("if causal and flash", "if False and flash"),
    ("if causal:", "if False:"),
)

backward_without_the_mask_of_a_tile = lines(
    """The causal mask is forgotten in the backward: exp(s - lse) of a hidden pair is not 0, it has
    to be masked again.""",
    ("if causal:", "if False:"),
)

a_row_without_keys_explodes = lines(
    """A row that sees no key has lse -inf, and exp(s - lse) is then inf or NaN; such a row has no
    probabilities, and adds nothing.""",
    ("lse = lse.masked_fill(lse == -math.inf, math.inf).unflatten", "lse = lse.unflatten"),
)

sums_in_the_dtype_of_the_inputs = lines(
    """dq, dk or dv is summed in the 16 bits of the inputs, so each tile's part is rounded when it
    is added. Sum in float32, and round once, at the end.""",
    ("dk = k.new_zeros(k.shape, dtype=wide)", "dk = k.new_zeros(k.shape)"),
    ("dv = v.new_zeros(v.shape, dtype=wide)", "dv = v.new_zeros(v.shape)"),
)

dq_in_the_dtype_of_the_inputs = lines(
    """dq, dk or dv is summed in the 16 bits of the inputs, so each tile's part is rounded when it
    is added. Sum in float32, and round once, at the end.""",
    ("q_grouped.new_zeros(q_grouped.shape, dtype=wide)", "q_grouped.new_zeros(q_grouped.shape)"),
)

all_sums_in_the_dtype_of_the_inputs = lines(
    """dq, dk or dv is summed in the 16 bits of the inputs, so each tile's part is rounded when it
    is added. Sum in float32, and round once, at the end.""",
    ("q_grouped.new_zeros(q_grouped.shape, dtype=wide)", "q_grouped.new_zeros(q_grouped.shape)"),
    ("dk = k.new_zeros(k.shape, dtype=wide)", "dk = k.new_zeros(k.shape)"),
    ("dv = v.new_zeros(v.shape, dtype=wide)", "dv = v.new_zeros(v.shape)"),
)

the_group_is_averaged = lines(
    """A KV head gets the mean of its query heads' gradients; it is read by all of them, and what is
    used several times adds up.""",
    ('"bhgqk,bhgqd->bhkd", p, do_i)', '"bhgqk,bhgqd->bhkd", p, do_i) / group'),
    ('"bhgqk,bhgqd->bhkd", ds, q_i)', '"bhgqk,bhgqd->bhkd", ds, q_i) / group'),
)

the_forward_is_run_again = lines(
    """The output is computed once more although o and lse are given: D = rowsum(do * o) needs no
    second forward.""",
    (
        "    wide, group = statistics_dtype(q)",
        "    o, lse = flash_forward(q, k, v, block_q, block_k, causal, scale)\n"
        "    wide, group = statistics_dtype(q)",
    ),
)


@misconception()
def all_probabilities_are_kept(q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None):
    """The gradients are right and the S x S probabilities were held to get them; lse is kept so
    that each tile can be made again and thrown away."""
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    group, dtypes = heads_per_group(q, k), (q.dtype, k.dtype, v.dtype)
    q, o, lse, do = (x.to(statistics_dtype(q)) for x in (q, o, lse, do))
    k_all, v_all = (x.to(q.dtype).repeat_interleave(group, 1) for x in (k, v))
    p = torch.exp(q @ k_all.mT * scale - lse[..., None].masked_fill(lse[..., None].isinf(), 1e9))
    p = p.tril(k.shape[2] - q.shape[2]) if causal else p
    ds = p * (do @ v_all.mT - (do * o).sum(-1, keepdim=True)) * scale
    dk, dv = ds.mT @ q, p.mT @ do
    fold = (k.shape[1], group)
    found = (ds @ k_all, dk.unflatten(1, fold).sum(2), dv.unflatten(1, fold).sum(2))
    return tuple(x.to(dtype) for x, dtype in zip(found, dtypes))


@misconception()
def autograd_of_the_naive_forward(q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None):
    """The forward is run again under autograd instead of computing from the given o and lse; that
    saves the S x S probabilities (and more) for its backward."""
    with torch.enable_grad():
        leaves = [x.detach().double().requires_grad_() for x in (q, k, v)]
        out = naive_attention(*leaves, causal, scale)
    return tuple(
        g.to(x.dtype) for g, x in zip(torch.autograd.grad(out, leaves, do.double()), (q, k, v))
    )


products_of_d_in_16_bits = lines(
    """do * o is multiplied in 16 bits and cast to float32 only afterwards: each product that D sums
    is rounded, and D is subtracted from dp, which is nearly as large.""",
    (
        "delta = (do.to(wide) * o.to(wide)).sum(dim=-1)",
        "delta = (do * o).to(wide).sum(dim=-1)",
    ),
)
