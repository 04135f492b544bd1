from grader.suite import lines, misconception

ignored_rows_in_the_mean = lines(
    """The losses are divided by the number of all rows; ignored ones add 0 to the sum and must not
    count below either, or the loss shrinks with every padded token.""",
    ("losses.sum() / (labels != ignore_index).sum()", "losses.mean()"),
)

a_sum_instead_of_the_mean = lines(
    """This is the sum of the losses; the mean divides by the number of rows that count.""",
    ("losses.sum() / (labels != ignore_index).sum()", "losses.sum()"),
)

ignored_label_as_an_index = lines(
    """The logit of the label is loaded for ignored rows, too: -100 is not a column, it lies before
    the row. Switch the load off where the label is ignore_index.""",
    ("label * logits_stride_v, mask=counted, other=0.0)", "label * logits_stride_v)"),
)

only_negative_labels_are_ignored = lines(
    """Negative labels are ignored, whatever ignore_index says; it is an argument, and may be the
    number of a column.""",
    ("counted = label != ignore_index", "counted = label >= 0"),
    ("(labels != ignore_index).sum()", "(labels >= 0).sum()"),
)

ignored_rows_have_a_loss = lines(
    """An ignored row adds its lse to the losses: its label's logit is taken as 0, but nothing of
    such a row belongs into the sum.""",
    ("tl.where(counted, lse - target, 0.0)", "lse - target"),
)

ignored_rows_have_no_lse = lines(
    """lse is stored as 0 for ignored rows; it belongs to the logits and not to the label, and every
    row has one.""",
    ("lse_ptr + row, lse)", "lse_ptr + row, tl.where(counted, lse, 0.0))"),
)

lse_without_the_maximum = lines(
    """ln(d) is measured from the row's maximum; the log-sum-exp is m + ln(d).""",
    ("lse = m + tl.log(d)", "lse = tl.log(d)"),
)

lse_in_base_two = lines(
    """The logarithm is that to base 2; lse and loss are natural logarithms: multiply by ln 2, or
    use tl.log.""",
    ("tl.log(d)", "tl.log2(d)"),
)

loss_has_the_wrong_sign = lines(
    """The loss is -log p = lse - logit of the label, and never negative; this is log p.""",
    ("lse - target", "target - lse"),
)

exp_of_bare_logits = lines(
    """exp is taken of the logits without their maximum: exp(89) is infinite in float32, and logits
    of 200 are not rare before a model is trained.""",
    ('tl.where(m_new == -float("inf"), 0.0, m_new)', "m_new * 0.0"),
    ("m + tl.log(d)", "tl.log(d)"),
    ("d * tl.exp(m - shift)", "d"),
)

loss_sum_not_rescaled = lines(
    """d was measured from the old maximum; when m grows, d must be multiplied by exp(m_old - m_new)
    before the block is added.""",
    ("d = d * tl.exp(m - shift) + ", "d = d + "),
)

logits_read_twice = lines(
    """The logits are read for their maximum and again for the sum; the online loop of task 6 has
    both after one pass.""",
    (
        "        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)\n"
        "        m = m_new\n",
        "        m = m_new\n    for start in range(0, V, BLOCK):\n        at = start + cols\n"
        "        x = tl.load(logits_row + at * logits_stride_v, mask=at < V, "
        'other=-float("inf"))\n'
        "        d = d + tl.sum(tl.exp(x.to(tl.float32) - shift), axis=0)\n",
    ),
)

the_whole_row_of_logits_at_once = lines(
    """The block is as long as the row: a vocabulary of 128,256 is 131,072 lanes, more than the
    registers of a program hold. `block` elements at a time are enough.""",
    ("BLOCK=block", "BLOCK=triton.next_power_of_2(V)"),
)

label_s_column_without_its_stride = lines(
    """The label's logit is looked for `label` elements after the row's beginning; neighbouring
    columns lie logits.stride(1) apart.""",
    ("logits_row + label * logits_stride_v", "logits_row + label"),
)

label_s_logit_of_the_first_row = lines(
    """The label's logit is looked for in row 0, whatever the row: its address begins where the
    program's own row does.""",
    ("logits_row + label *", "logits_ptr + label *"),
)


@misconception()
def library_cross_entropy(logits, labels, ignore_index=-100, block=4096):
    """torch's cross_entropy is called and no kernel of yours is launched: it writes the M x V
    log-probabilities that this task is to save."""
    loss = torch.nn.functional.cross_entropy(logits.float(), labels, ignore_index=ignore_index)
    return loss, torch.logsumexp(logits.float(), -1)


@misconception()
def log_of_the_softmax(logits, labels, ignore_index=-100, block=4096):
    """The probabilities are written and their logarithm taken: M V elements out and back in, and
    log(0) = -inf where a probability underflows. lse - logit needs neither."""
    p = softmax(logits.float())
    counted = labels != ignore_index
    chosen = p.gather(1, labels.clamp(min=0)[:, None])[:, 0]
    losses = torch.where(counted, -torch.log(chosen), 0.0)
    return losses.sum() / counted.sum(), torch.logsumexp(logits.float(), -1)


labels_are_one_apart = lines(
    """Row r's label is taken to lie r elements after the first one; labels have a stride, too: as a
    column of a matrix, or one label for all rows.""",
    ("labels_ptr + row * labels_stride", "labels_ptr + row"),
)

_16_BITS = """The label is held in 16 bits: beyond 32,767 it becomes another column, or lies before
    the row. A vocabulary has 100,000 and more."""

labels_in_16_bits = lines(
    _16_BITS,
    (
        "label = tl.load(labels_ptr + row * labels_stride)",
        "label = tl.load(labels_ptr + row * labels_stride).to(tl.int16)",
    ),
)

labels_in_15_bits = lines(
    _16_BITS,
    ("label * logits_stride_v", "label % 32768 * logits_stride_v"),
)

log_of_the_probability = lines(
    """The probability of the label is computed and its logarithm taken: 100 below the maximum it
    underflows to 0, and -log(0) is infinite. lse - logit is finite.""",
    ("lse - target", "-tl.log(tl.exp(target - lse))"),
)

probability_with_a_floor = lines(
    """1e-12 is added to the probability before the logarithm, so no loss is above 27.6 and its
    gradient there is 0; lse - logit needs no floor.""",
    ("lse - target", "-tl.log(tl.exp(target - lse) + 1e-12)"),
)

loss_maximum_starts_at_minus_1e4 = lines(
    """The running maximum starts at -1e4: in a row of lower logits all exponentials underflow, and
    lse is -inf. The maximum of nothing is -inf.""",
    ('m = -float("inf")\n', "m = -1e4\n"),
)

block_of_4096_always = lines(
    """The block has 4,096 lanes whatever `block` says; it is an argument, and no load is of
    more.""",
    ("BLOCK=block", "BLOCK=4096"),
)

logits_copied_to_be_contiguous = lines(
    """.contiguous() writes the M x V logits once more where they are a view; the kernel can take
    their strides.""",
    ("    M, V = logits.shape\n", "    M, V = logits.shape\n    logits = logits.contiguous()\n"),
)

logits_made_float32_by_torch = lines(
    """logits.float() writes M x V float32 numbers where the logits are of half precision: the
    largest tensor of a training step, twice its size. Convert what the kernel has loaded.""",
    ("    M, V = logits.shape\n", "    M, V = logits.shape\n    logits = logits.float()\n"),
)

loss_in_the_dtype_of_the_logits = lines(
    """Losses and lse are stored in the dtype of the logits: 8 or 11 bits of a loss are too few for
    a mean. Both are float32.""",
    ("dtype=torch.float32", "dtype=logits.dtype"),
)

only_minus_100_is_ignored = lines(
    """-100 is ignored whatever ignore_index says; -100 is only its default.""",
    ("counted = label != ignore_index", "counted = label != -100"),
    ("(labels != ignore_index).sum()", "(labels != -100).sum()"),
)

a_mean_of_nothing_is_zero = lines(
    """Where every row is ignored this divides by 1 and gives 0; as in torch the mean of nothing is
    NaN, which shows that there was nothing to learn from.""",
    ("(labels != ignore_index).sum()", "(labels != ignore_index).sum().clamp(min=1)"),
)

every_label_of_a_column_is_counted = lines(
    """The count of the mean is that of all rows with a label of 0 or more, but the losses are those
    that are not ignored: a column that is ignored still counts.""",
    ("(labels != ignore_index).sum()", "(labels >= 0).sum()"),
)

negative_labels_are_ignored_in_the_kernel = lines(
    """Negative labels are ignored, whatever ignore_index says; it is an argument, and may be the
    number of a column.""",
    ("counted = label != ignore_index", "counted = label >= 0"),
)

ignored_column_0_is_counted = lines(
    """An ignore_index of 0 is taken for none: 0 is false in `ignore_index or -100`, and it may be
    the number of a column.""",
    ("        ignore_index,\n        BLOCK", "        ignore_index or -100,\n        BLOCK"),
    ("(labels != ignore_index)", "(labels != (ignore_index or -100))"),
)

negative_maxima_left_out = lines(
    """A maximum below 0 is not added back: ln(d) is measured from the row's maximum, whatever its
    sign, so the log-sum-exp is m + ln(d).""",
    ("lse = m + tl.log(d)", "lse = tl.maximum(m, 0.0) + tl.log(d)"),
)

everything_in_base_two = lines(
    """The sum's logarithm and the loss are in bits, to base 2; both results are natural
    logarithms.""",
    ("lse = m + tl.log(d)", "lse = (m + tl.log(d)) * 1.4426950408889634"),
    ("lse - target", "lse - target * 1.4426950408889634"),
)

divided_by_the_logits = lines(
    """The sum of the losses is divided by the number of logits; the mean is over rows, those that
    count.""",
    (
        "losses.sum() / (labels != ignore_index).sum()",
        "losses.sum() / ((labels != ignore_index).sum() * V)",
    ),
)

labels_are_narrowed = lines(
    """A label becomes an int32 before it is compared with ignore_index, which may be any int64:
    another number then counts as ignored, or it counts as a column.""",
    (
        "label = tl.load(labels_ptr + row * labels_stride)\n",
        "label = tl.load(labels_ptr + row * labels_stride).to(tl.int32)\n",
    ),
)

losses_have_the_dtype_of_logits = lines(
    """Each row's loss is stored in the dtype of the logits, and the mean is of rounded ones; the
    loss is float32.""",
    (
        "    losses = torch.empty(M, dtype=torch.float32, device=logits.device)\n"
        "    lse = torch.empty_like(losses)\n",
        "    losses = torch.empty(M, dtype=logits.dtype, device=logits.device)\n"
        "    lse = torch.empty(M, dtype=torch.float32, device=logits.device)\n",
    ),
    ("return losses.sum() /", "return losses.float().sum() /"),
)

losses_without_a_mean = lines(
    """These are the losses of the rows; the loss is one number, their mean over the rows that
    count.""",
    ("losses.sum() / (labels != ignore_index).sum()", "losses"),
)

loss_has_an_axis = lines(
    """The loss comes back as a tensor of one axis with one element; it is one number, a tensor
    without axes.""",
    (
        "losses.sum() / (labels != ignore_index).sum()",
        "losses.sum().reshape(1) / (labels != ignore_index).sum()",
    ),
)

loss_and_lse_exchanged = lines(
    """The two results are exchanged: the loss is the first, lse the second.""",
    (
        "return losses.sum() / (labels != ignore_index).sum(), lse",
        "return lse, losses.sum() / (labels != ignore_index).sum()",
    ),
)

loss_alone = lines(
    """Only the loss is returned; there are two results, the loss and the log-sum-exp of every
    row.""",
    (
        "return losses.sum() / (labels != ignore_index).sum(), lse",
        "return losses.sum() / (labels != ignore_index).sum()",
    ),
)


only_the_ignored_count = lines(
    """The comparison is the other way round: the losses of ignored rows are summed, and the others
    are 0.""",
    ("counted = label != ignore_index", "counted = label == ignore_index"),
)

losses_of_zero_are_not_counted = lines(
    """Rows whose loss is 0 are taken for ignored ones; a loss may be 0, as that of every row with a
    single column. Count by the labels.""",
    ("(labels != ignore_index).sum()", "(losses != 0).sum()"),
)


LABEL_LOAD = """The load of the label's logit is switched off only for labels on one side of the
    columns; an ignore_index may be any number, negative or beyond them, so ask for it."""

label_load_off_where_negative = lines(
    LABEL_LOAD,
    ("mask=counted, other=0.0", "mask=label >= 0, other=0.0"),
)

label_load_off_beyond_the_columns = lines(
    LABEL_LOAD,
    ("mask=counted, other=0.0", "mask=label < V, other=0.0"),
)

ignored_losses_are_not_stored = lines(
    """The loss of an ignored row is not stored, but the sum takes it: torch.empty promises no zeros
    there. Store a 0.""",
    (
        "tl.store(losses_ptr + row, tl.where(counted, lse - target, 0.0))",
        "tl.store(losses_ptr + row, lse - target, mask=counted)",
    ),
)

ignored_rows_are_left_out = lines(
    """An ignored row stores neither loss nor lse; its loss is 0, and its lse is that of its logits
    like any other's.""",
    ("tl.store(lse_ptr + row, lse)", "tl.store(lse_ptr + row, lse, mask=counted)"),
)

clamped_before_the_comparison = lines(
    """Negative labels become 0 before they are compared with ignore_index, which is then never
    found: an ignored row has the loss of column 0. Compare first.""",
    (
        "    counted = label != ignore_index\n",
        "    label = tl.maximum(label, 0)\n    counted = label != ignore_index\n",
    ),
)

column_0_is_ignored_too = lines(
    """Label 0 is taken for one that is ignored; it is the first column. Only ignore_index is
    ignored.""",
    ("counted = label != ignore_index", "counted = (label != ignore_index) & (label > 0)"),
    ("(labels != ignore_index).sum()", "((labels != ignore_index) & (labels > 0)).sum()"),
)


loss_without_the_maximum = lines(
    """The loss takes ln(d) for the log-sum-exp; d is measured from the row's maximum, and the
    label's logit is not.""",
    ("lse - target", "tl.log(d) - target"),
)


loss_rescaled_the_wrong_way = lines(
    """The factor is exp(m_old - m_new), at most 1: seen from a larger maximum the old terms are
    smaller.""",
    ("exp(m - shift)", 'where(m == -float("inf"), 0.0, tl.exp(shift - m))'),
)


OTHER_UNITS = """The new block is measured from its own maximum; it has to be measured from the
    larger one of that and the old maximum, or its terms and those of d have different units."""

loss_block_from_its_own_maximum = lines(
    OTHER_UNITS,
    (
        "tl.sum(tl.exp(x - shift), axis=0)",
        'tl.sum(tl.exp(x - tl.where(tl.max(x, axis=0) == -float("inf"), 0.0, tl.max(x, axis=0))), '
        "axis=0)",
    ),
)


loss_maximum_of_the_last_block = lines(
    """The running maximum is that of the newest block alone; it is the larger one of the old
    maximum and the block's, or a lower block makes the factor exp(m_old - m_new) overflow.""",
    ("m_new = tl.maximum(m, tl.max(x, axis=0))", "m_new = tl.max(x, axis=0)"),
)

loss_maximum_starts_at_zero = lines(
    """The running maximum starts at 0: in a row around -200 all exponentials underflow, and lse is
    -inf. The maximum of nothing is -inf.""",
    ('m = -float("inf")\n', "m = 0.0\n"),
)


loss_maximum_of_nothing_subtracted = lines(
    """While a row has shown nothing but -inf, its maximum is -inf and -inf - -inf is NaN, which
    stays in d for ever: subtract 0 instead.""",
    ('tl.where(m_new == -float("inf"), 0.0, m_new)', "m_new"),
)

loss_padding_is_zero = lines(
    """other=0 in the last block: exp(0 - m) joins the sum for each padded lane, and in a row below
    0 the padding is the maximum. It is -inf.""",
    ('at < V, other=-float("inf")', "at < V, other=0.0"),
)


logits_loaded_without_mask = lines(
    """The load of a block has no mask: its lanes beyond the row's end read the next row, and in the
    last row what lies behind the tensor.""",
    (', mask=at < V, other=-float("inf")', ""),
)

loss_last_block_left_out = lines(
    """The loop ends with the last whole block; the rest of the row is a block, too: a masked
    one.""",
    ("range(0, V, BLOCK)", "range(0, V - BLOCK + 1, BLOCK)"),
)


loss_of_the_first_block_only = lines(
    """The first block is all that is read; a vocabulary has many blocks, and the sum is over all of
    them.""",
    ("range(0, V, BLOCK)", "range(0, BLOCK, BLOCK)"),
)

loss_mask_of_lanes = lines(
    """The mask compares the lane with V, not the column: the last block has columns beyond the
    row's end in lanes far below V. It is start + lane < V.""",
    ("mask=at < V", "mask=cols < V"),
)


label_compared_with_the_lane = lines(
    """The label is compared with the lane of a block, so that each block adds a logit of its own;
    the column is start + lane.""",
    (
        "    d = 0.0\n",
        "    d = 0.0\n    target = 0.0\n    label = tl.load(labels_ptr + row * labels_stride)\n",
    ),
    (
        "        m = m_new\n",
        "        m = m_new\n"
        "        target = target + tl.sum(tl.where(cols == label, x, 0.0), axis=0)\n",
    ),
    (
        "    label = tl.load(labels_ptr + row * labels_stride)\n    counted",
        "    counted",
    ),
    (
        "    target = tl.load(logits_row + label * logits_stride_v, mask=counted, other=0.0)"
        ".to(tl.float32)\n",
        "",
    ),
)

rows_of_logits_are_v_apart = lines(
    """Row r of the logits is taken to begin at r * V: that holds for a contiguous matrix only. Pass
    logits.stride(0) and multiply the row with that.""",
    ("row * logits_stride_m", "row * V"),
)


logits_are_taken_for_contiguous = lines(
    """The logits are taken to be contiguous, rows V apart and columns 1 apart; they may be
    transposed or a slice, so pass both of their strides.""",
    ("row * logits_stride_m", "row * V"),
    ("at * logits_stride_v", "at"),
    ("label * logits_stride_v", "label"),
)


torch_picks_the_label_s_logits = lines(
    """torch picks the labels' logits out of the M x V matrix; the program has their row at hand and
    loads one element more.""",
    ("lse - target", "lse"),
    (
        "    return losses.sum() /",
        "    chosen = logits.gather(1, labels.clamp(0, V - 1)[:, None])[:, 0].float()\n"
        "    losses = torch.where(labels != ignore_index, losses - chosen, 0.0)\n"
        "    return losses.sum() /",
    ),
)


loss_exponents_in_half_precision = lines(
    """The maximum is subtracted in the dtype of the logits, which rounds the exponents before exp
    makes that error relative. All arithmetic is in float32.""",
    (
        "tl.sum(tl.exp(x - shift), axis=0)",
        "tl.sum(tl.exp((x - shift).to(logits_ptr.dtype.element_ty).to(tl.float32)), axis=0)",
    ),
)

loss_sum_in_half_precision = lines(
    """The running sum is rounded to the dtype of the logits after each block; maximum and sum are
    float32 whatever the input.""",
    (
        "        m = m_new\n",
        "        d = d.to(logits_ptr.dtype.element_ty).to(tl.float32)\n        m = m_new\n",
    ),
)

loss_block_of_at_most_1024 = lines(
    """The block is never longer than 1,024 logits, though `block` asks for more: it is the caller
    who knows what a program has room for.""",
    ("BLOCK=block", "BLOCK=min(block, 1024)"),
)


no_label_is_an_error = lines(
    """Where no label counts an error is raised; as in torch the mean of nothing is NaN, and lse is
    there all the same.""",
    (
        "    return losses.sum() /",
        "    if not (labels != ignore_index).any():\n"
        '        raise ValueError("no label counts")\n'
        "    return losses.sum() /",
    ),
)
