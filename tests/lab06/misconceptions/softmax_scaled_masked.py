from grader.suite import lines, misconception

hidden_row_is_nan = lines(
    """A row that sees nothing has maximum -inf, -inf - -inf is NaN, and 0 / 0 is NaN again:
    subtract 0 instead of such a maximum, and do not divide by a sum of 0.""",
    ('tl.where(top == -float("inf"), 0.0, top)', "top"),
    ("tl.where(total == 0.0, 1.0, total)", "total"),
)

hidden_logits_get_minus_1e9 = lines(
    """Hidden logits get -1e9 instead of -inf: beside visible ones that is as good, but in a row
    that sees nothing all are equally far down, and each gets 1 / N.""",
    ('s = tl.where(mask != 0, s, -float("inf"))', "s = tl.where(inside & (mask == 0), -1e9, s)"),
    ("s = s + mask.to(tl.float32)", "s = s + tl.maximum(mask.to(tl.float32), -1e9)"),
)

maximum_before_the_mask = lines(
    """The maximum is taken over hidden logits, too: where those are the largest, all visible ones
    underflow. Mask first, then the maximum.""",
    ("    if KIND != 0:", "    top = tl.max(s, axis=0)\n    if KIND != 0:"),
    ("    top = tl.max(s, axis=0)\n    # -inf", "    # -inf"),
)

scale_after_the_maximum = lines(
    """The maximum is taken of x and subtracted from scale * x: with a scale of 3 the exponent is up
    to 2 max above 0, and exp overflows. The logits are scale * x, so scale before the maximum.""",
    (").to(tl.float32) * scale", ").to(tl.float32)"),
    (
        "    if KIND != 0:",
        "    top = tl.max(s, axis=0)\n    s = s * scale\n"
        '    s = tl.where(inside, s, -float("inf"))\n    if KIND != 0:',
    ),
    ("    top = tl.max(s, axis=0)\n    # -inf", "    # -inf"),
)

padding_times_a_negative_scale = lines(
    """The padding's -inf is multiplied with the scale: a negative one makes it +inf, which is the
    maximum then. Put -inf into the padding after the scale.""",
    ('    s = tl.where(inside, s, -float("inf"))\n', ""),
)

scale_is_ignored = lines(
    """The logits are scale * x; here the scale is not applied at all.""",
    (").to(tl.float32) * scale", ").to(tl.float32)"),
)

mask_is_scaled_too = lines(
    """The mask is added before the scale and so is scaled with x; attention computes
    scale * x + mask.""",
    ("s + mask.to(tl.float32)", "s + mask.to(tl.float32) * scale"),
)

hidden_logits_are_zero = lines(
    """A hidden logit is set to 0, which is a logit like any other, with weight exp(0 - max); weight
    0 needs -inf.""",
    ('tl.where(mask != 0, s, -float("inf"))', "tl.where(mask != 0, s, 0.0)"),
)

true_means_hidden = lines(
    """True is taken to hide a logit; in scaled_dot_product_attention, and here, True takes
    part.""",
    ("tl.where(mask != 0, s", "tl.where(mask == 0, s"),
)

mask_after_the_softmax = lines(
    """The probabilities are masked, not the logits: what is hidden still stands in the denominator,
    and a row sums to less than 1.""",
    ('s = tl.where(mask != 0, s, -float("inf"))', "seen = mask != 0"),
    (
        "p = e / tl.where(total == 0.0, 1.0, total)",
        "p = e / tl.where(total == 0.0, 1.0, total)\n    if KIND == 1:\n"
        "        p = tl.where(seen, p, 0.0)",
    ),
)

added_mask_taken_for_boolean = lines(
    """A float mask is added to the logits; here it only tells zero from other numbers.""",
    ("s = s + mask.to(tl.float32)", 's = tl.where(mask != 0, s, -float("inf"))'),
)

mask_spread_out_in_memory = lines(
    """.contiguous() writes the broadcast mask out, M N elements that hold N different ones; expand
    alone gives strides of 0, and the kernel reads the same elements again.""",
    ("mask.expand(M, N)", "mask.expand(M, N).contiguous()"),
)

strides_of_the_mask_are_those_of_x = lines(
    """The mask is read with the strides of x: a broadcast mask has no elements there. Its own,
    after expand, are 0 along the axis that it lacks.""",
    ("*mask.stride()", "*x.stride()"),
)


@misconception()
def torch_makes_the_logits(x, scale=1.0, mask=None):
    """torch scales and masks before the kernel runs: two more passes over memory for what the
    program could do with the row that it has loaded."""
    s = x.float() * scale
    if mask is not None:
        mask = mask.expand(x.shape)
        s = s.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else s + mask
    hidden = (s == -math.inf).all(-1, keepdim=True)
    p = softmax(s.masked_fill(hidden, 0.0)).masked_fill(hidden, 0.0)
    return p.to(x.dtype)


low_masks_hide = lines(
    """A very low number in a float mask is taken for -inf. It hides a logit beside others, but a
    row of nothing else has equal weights, not zeros: only -inf hides.""",
    ("s = s + mask.to(tl.float32)", 's = tl.where(mask > -1e9, s + mask, -float("inf"))'),
)

first_row_of_the_mask = lines(
    """Each row reads the first row of the mask: the mask's stride along the rows is missing.""",
    ("mask_ptr + row * mask_stride_m", "mask_ptr"),
)

columns_of_the_mask_are_one_apart = lines(
    """Neighbouring columns of the mask are taken to be neighbours in memory; in a transposed or
    broadcast mask they are mask.stride(1) elements apart.""",
    ("mask_row + cols * mask_stride_n", "mask_row + cols"),
)

columns_of_x_are_one_apart = lines(
    """Neighbouring columns of x are taken to be neighbours in memory; in a transposed matrix they
    are x.stride(1) elements apart.""",
    ("x_row + cols * x_stride_n", "x_row + cols"),
)

no_scale_at_zero = lines(
    """A scale of 0 is taken for none: 0 is false in `scale or 1.0`. With scale 0 all logits are
    equal.""",
    ("        scale,\n        KIND=kind", "        scale or 1.0,\n        KIND=kind"),
)

a_little_in_the_denominator = lines(
    """1e-5 is added to each sum against a division by 0, so no row sums to 1 any more; a row that
    sees something has a sum of at least 1, and only the others need care.""",
    ("tl.where(total == 0.0, 1.0, total)", "(total + 1e-5)"),
)

mask_made_into_numbers = lines(
    """torch turns the mask into integers first: M N numbers more to write and to read. The kernel
    can load booleans.""",
    (
        "else mask.expand(M, N)",
        "else mask.expand(M, N).to(torch.int8 if kind == 1 else mask.dtype)",
    ),
)

scores_made_float32_by_torch = lines(
    """x.float() writes the whole of half precision scores once more, as float32; convert what the
    kernel has loaded.""",
    ("        x,\n        mask,\n", "        x.float(),\n        mask,\n"),
    ("*x.stride(),", "*x.float().stride(),"),
)

masked_block_of_1024 = lines(
    """The block has 1,024 lanes whatever the row: a longer row is cut. BLOCK is the number of
    elements, next_power_of_2(N).""",
    ("triton.next_power_of_2(N)", "1024"),
)

lowest_number_instead_of_inf = lines(
    """Hidden logits get -1e30 instead of -inf: visible ones may be as low, and then the hidden ones
    have weight.""",
    ('s = tl.where(mask != 0, s, -float("inf"))', "s = tl.where(inside & (mask == 0), -1e30, s)"),
    (
        "    top = tl.max(s, axis=0)\n",
        '    top = tl.max(s, axis=0)\n    top = tl.where(top == -1e30, -float("inf"), top)\n',
    ),
)

rows_of_low_logits_are_hidden = lines(
    """A row whose largest logit is -1e30 or below is taken for one that sees nothing, and gets
    zeros; only -inf hides. Low logits have weights like any others.""",
    (
        "    p = e / tl.where(total == 0.0, 1.0, total)\n"
        "    tl.store(out_ptr + row * N + cols, p.to",
        "    p = tl.where(top <= -1e30, 0.0, e / tl.where(total == 0.0, 1.0, total))\n"
        "    tl.store(out_ptr + row * N + cols, p.to",
    ),
)

lowest_masks_hide = lines(
    """A very low number in a float mask is taken for -inf. It hides a logit beside others, but a
    row of nothing else has equal weights, not zeros: only -inf hides.""",
    ("s = s + mask.to(tl.float32)", 's = tl.where(mask > -1e29, s + mask, -float("inf"))'),
)

false_becomes_minus_1e9 = lines(
    """Hidden logits get -1e9 instead of -inf: beside visible ones that is as good, but in a row
    that sees nothing all are equally far down, and each gets 1 / N.""",
    ('s = tl.where(mask != 0, s, -float("inf"))', "s = tl.where(inside & (mask == 0), -1e9, s)"),
)

low_rows_see_nothing = lines(
    """A row whose maximum is very low is taken for one that sees nothing; only a maximum of -inf
    says that, and any other is subtracted.""",
    ('tl.where(top == -float("inf"), 0.0, top)', "tl.where(top < -1e20, 0.0, top)"),
)

rows_below_minus_1e9_see_nothing = lines(
    """A row whose maximum is very low is taken for one that sees nothing; only a maximum of -inf
    says that, and any other is subtracted.""",
    ('tl.where(top == -float("inf"), 0.0, top)', "tl.where(top < -1e9, 0.0, top)"),
)

mask_is_rounded_to_the_dtype_of_x = lines(
    """An additive mask of float32 is rounded to the dtype of x before it is added; all arithmetic
    is in float32.""",
    (
        "            s = s + mask.to(tl.float32)\n",
        "            s = s + mask.to(x_ptr.dtype.element_ty).to(tl.float32)\n",
    ),
)
