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

false_and_padding_become_minus_1e9 = lines(
    """Hidden logits get -1e9 instead of -inf, and so do the lanes beyond the row, whose mask is
    loaded as 0: in a row that sees nothing all of them are equally far down, and the lanes beyond
    it share the weight, too.""",
    ('s = tl.where(mask != 0, s, -float("inf"))', "s = tl.where(mask != 0, s, -1e9)"),
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


divided_by_the_scale = lines(
    """x is divided by the scale; the logits are scale * x.""",
    (").to(tl.float32) * scale", ").to(tl.float32) / scale"),
)

scaled_by_the_length_as_well = lines(
    """Beside the scale there is a factor 1 / sqrt(N); what attention divides by is in `scale`
    already, and N is the number of keys.""",
    ("        scale,\n        KIND=kind", "        scale / math.sqrt(N),\n        KIND=kind"),
)

probabilities_are_scaled = lines(
    """The scale is multiplied with the probabilities, so a row sums to scale; it belongs to the
    logits, before the softmax.""",
    (").to(tl.float32) * scale", ").to(tl.float32)"),
    (
        "p = e / tl.where(total == 0.0, 1.0, total)",
        "p = scale * e / tl.where(total == 0.0, 1.0, total)",
    ),
)


MASKED_BEFORE_THE_SCALE = """Hidden logits are set to -inf before the scale: a negative scale makes
    them +inf, and a scale of 0 NaN. Scale first, then mask."""

masked_before_the_scale = lines(
    MASKED_BEFORE_THE_SCALE,
    (").to(tl.float32) * scale", ").to(tl.float32)"),
    (
        "    # a negative scale would turn the padding's -inf into +inf\n"
        '    s = tl.where(inside, s, -float("inf"))\n',
        '    if KIND != 1:\n        s = s * scale\n    s = tl.where(inside, s, -float("inf"))\n',
    ),
    (
        '            s = tl.where(mask != 0, s, -float("inf"))\n',
        '            s = tl.where(mask != 0, s, -float("inf")) * scale\n'
        '            s = tl.where(inside, s, -float("inf"))\n',
    ),
)

mask_is_subtracted = lines(
    """The float mask is subtracted; it is added, and its -inf stands for a logit that is
    hidden.""",
    ("s + mask.to(tl.float32)", "s - mask.to(tl.float32)"),
)

mask_is_multiplied = lines(
    """The float mask is multiplied with the logits, as if it were made of zeros and ones; it is
    added: 0 leaves a logit as it is, -inf hides it.""",
    ("s = s + mask.to(tl.float32)", 's = tl.where(inside, s * mask.to(tl.float32), -float("inf"))'),
)

only_minus_inf_of_the_mask = lines(
    """Of a float mask only -inf is looked at; its other numbers are biases that are added to the
    logits.""",
    ("s = s + mask.to(tl.float32)", 's = tl.where(mask == -float("inf"), mask, s)'),
)


booleans_are_added = lines(
    """A boolean mask is added like one of floats: True becomes 1 and False 0, which hides nothing.
    False needs -inf.""",
    ('s = tl.where(mask != 0, s, -float("inf"))', "s = s + mask.to(tl.float32)"),
)


HIDDEN_ROW = """A row that sees nothing shares its weight out equally; there is nothing to share it
    with, and such a row is all zeros."""

hidden_row_is_uniform = lines(
    HIDDEN_ROW,
    (
        "p = e / tl.where(total == 0.0, 1.0, total)",
        "p = tl.where(total == 0.0, 1.0 / N, e / tl.where(total == 0.0, 1.0, total))",
    ),
)


hidden_row_is_not_stored = lines(
    """A row that sees nothing is not stored, so the result keeps there whatever was in its memory:
    torch.empty promises no zeros.""",
    ("element_ty), mask=inside)", 'element_ty), mask=inside & (top > -float("inf")))'),
)

torch_replaces_nan = lines(
    """torch replaces the NaN of rows that see nothing afterwards, a pass more over the whole
    result; the program knows already that such a row's maximum is -inf.""",
    ('tl.where(top == -float("inf"), 0.0, top)', "top"),
    ("tl.where(total == 0.0, 1.0, total)", "total"),
    ("    )\n    return out\n", "    )\n    return torch.nan_to_num(out)\n"),
)

masked_maximum_not_subtracted = lines(
    """exp is taken of the logits without their maximum: exp(89) is infinite in float32, and inf /
    inf is NaN.""",
    ('s - tl.where(top == -float("inf"), 0.0, top)', "s"),
)

masked_log_sum_added_to_the_maximum = lines(
    """max + ln(sum) is rounded before it is subtracted from the logits: beside a maximum of 20,000
    a logarithm has 3 digits, beside 1e30 none. Subtract the maximum first, or divide by the
    sum.""",
    (
        "p = e / tl.where(total == 0.0, 1.0, total)",
        'p = tl.where(total == 0.0, 0.0, tl.exp(s - (tl.where(top == -float("inf"), 0.0, top) + '
        "tl.log(total))))",
    ),
)


logits_in_half_precision = lines(
    """scale * x is rounded to the dtype of x before the mask is added and the maximum subtracted.
    All arithmetic is in float32, and only what is stored is rounded.""",
    (
        "top = tl.max(s, axis=0)\n    # -inf",
        "s = s.to(x_ptr.dtype.element_ty).to(tl.float32)\n    top = tl.max(s, axis=0)\n    # -inf",
    ),
)

NOT_EXPANDED = """A broadcast mask is read with strides that it has before it is expanded: an axis
    of length 1 keeps its stride then, and the next row or column lies beyond the mask. Expanded it
    has 0."""

mask_is_not_expanded = lines(
    NOT_EXPANDED,
    ("else mask.expand(M, N)", "else mask.reshape(-1, mask.shape[-1])"),
)

mask_expanded_along_the_rows_only = lines(
    """A mask of one column, (M, 1) or (1,), is read as if it had N: along the axis that it lacks
    its stride must be 0, for columns as for rows.""",
    ("else mask.expand(M, N)", "else mask.expand(M, mask.shape[-1])"),
)

mask_expanded_along_the_columns_only = lines(
    """A mask of one row, (1, N) or (N,), is read as if it had M: along the axis that it lacks its
    stride must be 0, for rows as for columns.""",
    (
        "else mask.expand(M, N)",
        "else mask.reshape(-1, mask.shape[-1]).expand(-1, N)",
    ),
)

MASK_OF_THE_ROWS = """A mask of one axis is taken to have an element a row; axes are matched from
    the last one on, so it has one a column."""

mask_of_one_axis_is_for_the_rows = lines(
    MASK_OF_THE_ROWS,
    ("else mask.expand(M, N)", "else (mask[:, None] if mask.dim() == 1 else mask).expand(M, N)"),
)

mask_of_one_axis_is_for_the_rows_if_it_fits = lines(
    MASK_OF_THE_ROWS,
    (
        "else mask.expand(M, N)",
        "else (mask[:, None] if mask.dim() == 1 and len(mask) == M else mask).expand(M, N)",
    ),
)


rows_of_the_mask_are_n_apart = lines(
    """Row r of the mask is taken to begin at r * N; that holds for a contiguous (M, N) only. A
    broadcast mask has one row or one column, and stride 0 along the axis that it lacks.""",
    ("row * mask_stride_m", "row * N"),
)

masked_rows_of_x_are_n_apart = lines(
    """Row r of x is taken to begin at r * N: that holds for a contiguous matrix only. Pass
    x.stride(0) and multiply the row with that.""",
    ("row * x_stride_m", "row * N"),
)

masked_load_without_mask = lines(
    """x is loaded without a mask for the row's end: lanes beyond it read the next row, and in the
    last row what lies behind the tensor.""",
    (', mask=inside, other=-float("inf")).to', ").to"),
)

mask_loaded_without_mask = lines(
    """The load of the mask has no mask of its own: lanes beyond the row's end read the next row of
    it, and in the last row what lies behind the tensor.""",
    (", mask=inside, other=0)", ")"),
)

masked_store_without_mask = lines(
    """The store has no mask: lanes beyond the row's end write into the next row, and behind the
    tensor in the last one.""",
    ("element_ty), mask=inside)", "element_ty))"),
)

only_visible_lanes_are_stored = lines(
    """The attention mask stands in the store as well, so hidden elements are never written and keep
    what was in their memory; they are 0, and have to be stored like others.""",
    ("element_ty), mask=inside)", 'element_ty), mask=inside & (s > -float("inf")))'),
)

no_mask_is_a_mask_of_ones = lines(
    """Without a mask one of True is made and read: M N elements that say nothing. The kernel can
    leave the load out, KIND is a constant of its compilation.""",
    (
        "    kind = 0 if mask is None else",
        "    mask = torch.ones(1, 1, dtype=torch.bool) if mask is None else mask\n"
        "    kind = 0 if mask is None else",
    ),
)

mask_of_booleans_made_additive = lines(
    """torch turns the boolean mask into 0 and -inf first: M N float32 numbers to write and to read.
    The kernel can load booleans.""",
    (
        "    kind = 0 if mask is None else",
        "    if mask is not None and mask.dtype == torch.bool:\n"
        "        mask = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)\n"
        "    kind = 0 if mask is None else",
    ),
)

x_copied_to_be_contiguous = lines(
    """.contiguous() reads and writes x once more before the kernel has begun; a kernel that is
    given the strides needs no copy.""",
    ("    M, N = x.shape\n", "    x = x.contiguous()\n    M, N = x.shape\n"),
)

masked_result_strided_like_x = lines(
    """torch.empty_like(x) of a transposed x is transposed, too, and the kernel stores rows of N one
    after another: make the result with torch.empty(M, N, ...), or pass its strides as well.""",
    ("torch.empty(M, N, dtype=x.dtype, device=x.device)", "torch.empty_like(x)"),
)

masked_result_is_float32 = lines(
    """The result is made in float32; a result has the dtype of x, or the next operation moves twice
    the bytes.""",
    ("dtype=x.dtype", "dtype=torch.float32"),
)

masked_result_filled_with_zeros = lines(
    """torch.zeros writes M N zeros, which the kernel then overwrites, those of hidden rows with
    zeros again: that is a pass more. torch.empty writes nothing.""",
    (
        "torch.empty(M, N, dtype=x.dtype, device=x.device)",
        "torch.zeros(M, N, dtype=x.dtype, device=x.device)",
    ),
)

masked_empty_tensors_are_launched = lines(
    """A tensor without elements is not looked at by itself: there is no block of 0 lanes and no
    grid of 0 programs. It gives an empty result of its shape and dtype, without a launch.""",
    ("    if x.numel() == 0:\n        return out\n", ""),
    gate=False,
)
