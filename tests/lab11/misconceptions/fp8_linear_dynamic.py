from grader.suite import lines

multiplies_by_the_scale = lines(
    """Values are multiplied by their scale before the cast instead of divided by it, so a
    large row becomes larger still and saturates. Divide before, multiply after.""",
    (
        "x_codes, w_codes = to_e4m3(x / x_scale), to_e4m3(w / w_scale)",
        "x_codes, w_codes = to_e4m3(x * x_scale), to_e4m3(w * w_scale)",
    ),
)

casts_without_a_scale = lines(
    """Values are cast as they are, without the scale: what is small falls among the
    subnormals, and what is above 448 is cut. Divide by the scale first.""",
    (
        "x_codes, w_codes = to_e4m3(x / x_scale), to_e4m3(w / w_scale)",
        "x_codes, w_codes = to_e4m3(x), to_e4m3(w)",
    ),
)

one_scale_for_all_tokens = lines(
    """All tokens share one scale. A padding token and an outlier then have the same step;
    dynamic per token means a maximum over K for each row of x.""",
    (
        "x_scale = x.abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX",
        "x_scale = x.abs().amax().expand(x.shape[0], 1).clamp(min=1e-12) / E4M3_MAX",
    ),
)

one_scale_for_the_whole_weight = lines(
    """The weight has one scale for all of its output channels, so the largest channel rules
    the others. Take a maximum for each row of w.""",
    (
        "w_scale = w.abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX",
        "w_scale = w.abs().amax().expand(w.shape[0], 1).clamp(min=1e-12) / E4M3_MAX",
    ),
)

the_weights_scale_is_forgotten = lines(
    """The sums are multiplied by the tokens' scales only, so each output channel is off by its
    own factor. Both sides were divided; undo both.""",
    ("y = (sums * x_scale * w_scale.T).bfloat16()", "y = (sums * x_scale).bfloat16()"),
)

the_tokens_scale_is_forgotten = lines(
    """The sums are multiplied by the channels' scales only, so each token's output is off by
    its own factor. Both sides were divided; undo both.""",
    ("y = (sums * x_scale * w_scale.T).bfloat16()", "y = (sums * w_scale.T).bfloat16()"),
)

divides_the_sums_again = lines(
    """The sums are divided by the scales once more; to get back what was divided, multiply.""",
    (
        "y = (sums * x_scale * w_scale.T).bfloat16()",
        "y = (sums / x_scale / w_scale.T).bfloat16()",
    ),
)

hands_back_the_reciprocal = lines(
    """The scales that are handed back are 448 / amax, with which values were multiplied;
    whoever stores them and multiplies again gets 448^2 / amax^2 times too much. A scale is
    what a code is multiplied by.""",
    (
        "return Fp8Product(y, x_codes, x_scale, w_codes, w_scale.T)",
        "return Fp8Product(y, x_codes, 1 / x_scale, w_codes, 1 / w_scale.T)",
    ),
)

as_if_e4m3_ended_at_240 = lines(
    """The largest of a row is put on 240, the end of an E4M3 with infinities, so almost one
    exponent of range is never used. This E4M3 ends at 448.""",
    (
        "x_scale = x.abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX",
        "x_scale = x.abs().amax(1, keepdim=True).clamp(min=1e-12) / 240",
    ),
)

multiplies_the_bytes = lines(
    """The bytes are multiplied as whole numbers, but a byte of E4M3 is a code: 0x38 is 1.0,
    and no 56. Decode them, or give them to a kernel that does.""",
    (
        "sums = from_e4m3(x_codes) @ from_e4m3(w_codes).T",
        "sums = x_codes.float() @ w_codes.float().T",
    ),
)

does_not_use_the_codes = lines(
    """y is the product of the original values: the codes are made and never multiplied, so
    what is measured is not FP8 at all. Multiply what was stored.""",
    (
        "sums = from_e4m3(x_codes) @ from_e4m3(w_codes).T",
        "sums = (x / x_scale) @ (w / w_scale).T",
    ),
)

activations_are_not_rounded = lines(
    """The activations are multiplied as they were, not as their codes: that is a product with FP8
    weights only. Multiply what was stored, on both sides.""",
    (
        "sums = from_e4m3(x_codes) @ from_e4m3(w_codes).T",
        "sums = (x / x_scale) @ from_e4m3(w_codes).T",
    ),
)

sums_are_bfloat16 = lines(
    """The sums are bfloat16 before they are scaled, and rounded once more behind it. Keep products,
    sums and scales in float32; the result alone is bfloat16.""",
    ("y = (sums * x_scale", "sums = sums.bfloat16().float()\n    y = (sums * x_scale"),
)

the_floor_is_under_the_scale = lines(
    """1e-12 is the floor of amax, not of the scale: max(amax, 1e-12) / 448. Under the scale it is
    448 times as high, and small rows lose bits.""",
    (
        "x_scale = x.abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX",
        "x_scale = (x.abs().amax(1, keepdim=True) / E4M3_MAX).clamp(min=1e-12)",
    ),
    (
        "w_scale = w.abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX",
        "w_scale = (w.abs().amax(1, keepdim=True) / E4M3_MAX).clamp(min=1e-12)",
    ),
)

the_floor_is_under_the_tokens_scale = lines(
    """1e-12 is the floor of amax, not of the scale: max(amax, 1e-12) / 448. Under the scale it is
    448 times as high, and small rows lose bits.""",
    (
        "x_scale = x.abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX",
        "x_scale = (x.abs().amax(1, keepdim=True) / E4M3_MAX).clamp(min=1e-12)",
    ),
)

zeros_divide_by_zero_in_fp8 = lines(
    """A row of zeros has the scale 0, and 0 / 0 is NaN in its codes and outputs. Take max(amax,
    1e-12) before you divide by 448.""",
    (
        "x_scale = x.abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX",
        "x_scale = x.abs().amax(1, keepdim=True) / E4M3_MAX",
    ),
    (
        "w_scale = w.abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX",
        "w_scale = w.abs().amax(1, keepdim=True) / E4M3_MAX",
    ),
)

only_zeros_have_the_floor = lines(
    """1e-12 stands in for rows of zeros only. A row whose largest lies between 0 and 1e-12 gets a
    smaller scale than max(amax, 1e-12) / 448.""",
    (
        "x_scale = x.abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX",
        "x_scale = x.abs().amax(1, keepdim=True)\n"
        "    x_scale = torch.where(x_scale == 0, 1e-12, x_scale) / E4M3_MAX",
    ),
    (
        "w_scale = w.abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX",
        "w_scale = w.abs().amax(1, keepdim=True)\n"
        "    w_scale = torch.where(w_scale == 0, 1e-12, w_scale) / E4M3_MAX",
    ),
)

scales_in_bfloat16 = lines(
    """The scales are computed in the dtype of x and w. Those of bfloat16 have eight bits of
    significand, and every code of their row follows them. Convert to float32 first.""",
    ("    x, w = x.float(), w.float()\n", ""),
    (
        "x_codes, w_codes = to_e4m3(x / x_scale), to_e4m3(w / w_scale)",
        "x, w, x_scale, w_scale = x.float(), w.float(), x_scale.float(), w_scale.float()\n"
        "    x_codes, w_codes = to_e4m3(x / x_scale), to_e4m3(w / w_scale)",
    ),
    gate=False,
)

a_channel_of_zeros_has_the_scale_zero = lines(
    """An output channel of zeros has the scale 0 here; max(amax, 1e-12) / 448 holds for rows of
    zeros too, on both sides.""",
    (
        "w_scale = w.abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX",
        "w_amax = w.abs().amax(1, keepdim=True)\n"
        "    w_scale = torch.where(w_amax == 0, 0, w_amax.clamp(min=1e-12)) / E4M3_MAX",
    ),
    ("to_e4m3(w / w_scale)", "to_e4m3(w / torch.where(w_scale == 0, 1, w_scale))"),
)
