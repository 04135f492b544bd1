from grader.suite import lines

a_scale_for_each_input_column = lines(
    """Per channel means one scale for each output row; you took one for each input column. A
    sum over inputs cannot take such a scale out of itself, so no integer product can use
    it.""",
    (
        "for length, size in zip(x.shape, block, strict=True):",
        "for length, size in zip(x.shape, block[::-1], strict=True):",
    ),
)

one_scale_for_everything = lines(
    """One scale is made from the whole tensor, whatever `block` says, so the largest channel's
    step rules all others. Take the maximum inside of each block only.""",
    (
        "        sizes = blocks.abs().amax(inside)\n",
        "        sizes = blocks.abs().amax(inside)\n"
        "        sizes = torch.full_like(sizes, float(sizes.max()))\n",
    ),
)

divides_by_eight_always = lines(
    """Symmetric codes that must reach amax end at 2^(b-1) - 1; with 2^(b-1) the largest
    positive value needs a code that an int does not have, and is clipped by a whole step.
    Divide by 7, or 127, under "amax/7".""",
    ('"amax/7": 2 ** (bits - 1) - 1', '"amax/7": 2 ** (bits - 1)'),
)

seven_and_a_half_is_rounded_down = lines(
    """ "amax/7.5" is half of all 2^b - 1 steps, 7.5 of 15; a whole-number division makes it 7,
    and the scale is 7 % too large. That is another convention than torchao's.""",
    ("(2**bits - 1) / 2,", "(2**bits - 1) // 2,"),
)

largest_value_instead_of_size = lines(
    """The maximum is taken without the sign removed, so a block whose largest size is negative
    gets a scale that is too small, and is clipped. Take max |x|.""",
    (
        "        sizes = blocks.abs().amax(inside)\n",
        "        sizes = blocks.amax(inside).abs()\n",
    ),
)

zeros_divide_by_zero = lines(
    """A block of zeros gets the scale 0, and 0 / 0 is NaN in everything that it touches. Keep
    scales at TINY or above.""",
    ("scale = (sizes / steps[conv]).clamp(min=TINY)", "scale = sizes / steps[conv]"),
)

the_range_leaves_zero_out = lines(
    """The range goes from the smallest to the largest value even where both have one sign, so
    0 has no code: padding and ReLU's zeros come back as something else. Stretch the range to
    contain 0.""",
    (
        "blocks.amin(inside).clamp(max=0), blocks.amax(inside).clamp(min=0)",
        "blocks.amin(inside), blocks.amax(inside)",
    ),
)

the_zero_point_is_cut_off = lines(
    """The zero point is cut off instead of rounded, which shifts every value of the block by
    up to a step. Round -low / scale to the nearest whole number.""",
    (
        "return scale, torch.round(-low / scale).to(torch.int32)",
        "return scale, torch.floor(-low / scale).to(torch.int32)",
    ),
)

as_many_steps_as_codes = lines(
    """2^b codes have 2^b - 1 steps between them, as a fence has one gap fewer than posts; with
    2^b steps the largest value needs a code too many. Divide the range by 2^b - 1.""",
    (
        "scale = ((high - low) / (2**bits - 1)).clamp(min=TINY)",
        "scale = ((high - low) / 2**bits).clamp(min=TINY)",
    ),
)

quant_cuts_off = lines(
    """A conversion to int cuts off towards zero, which is wrong by up to a whole step and
    always in one direction. Round to the nearest code.""",
    (
        "codes = (torch.round(x.float() / scale) + zero).clamp(low, high)",
        "codes = (torch.trunc(x.float() / scale) + zero).clamp(low, high)",
    ),
)

halves_go_up = lines(
    """floor(x + 1/2) sends every half up, so their errors add up instead of cancelling, and no
    library's bytes agree. Round half to even, as torch.round does.""",
    (
        "codes = (torch.round(x.float() / scale) + zero).clamp(low, high)",
        "codes = (torch.floor(x.float() / scale + 0.5) + zero).clamp(low, high)",
    ),
)

codes_wrap_around = lines(
    """Codes are cut to their lowest b bits instead of being clamped: 9 steps up is -7 in four bits,
    so the largest values change their sign. Clamp to the ends.""",
    (
        "codes = (torch.round(x.float() / scale) + zero).clamp(low, high)",
        "codes = ((torch.round(x.float() / scale) + zero).long() - low) % (high - low + 1) + low",
    ),
)

scale_is_multiplied = lines(
    """x is multiplied by its scale where it must be divided: a scale is the size of a step,
    and a code counts steps.""",
    (
        "codes = (torch.round(x.float() / scale) + zero).clamp(low, high)",
        "codes = (torch.round(x.float() * scale) + zero).clamp(low, high)",
    ),
)

zero_point_after_the_scale = lines(
    """The zero point is a code and has no unit; taken off after the multiplication it shifts
    the block by zero times one, not by zero steps. Subtract it, then multiply.""",
    ("return (q.to(torch.int32) - zero) * scale", "return q.to(torch.int32) * scale - zero"),
)

the_zero_point_stays = lines(
    """The codes are multiplied by the scale with the zero point still in them, so everything
    is too large by zero steps. Take off what `quant` added.""",
    ("return (q.to(torch.int32) - zero) * scale", "return q.to(torch.int32) * scale"),
)

seven_and_a_half_at_any_bits = lines(
    """ "amax/7.5" divides by 7.5 whatever the bits. It is half of all steps, (2^b - 1) / 2: 7.5 for
    4 bits, 127.5 for 8.""",
    ("(2**bits - 1) / 2,", "7.5,"),
)

the_zero_point_is_added_first = lines(
    """The zero point is added before rounding, so a half goes to an even sum, not to an even
    quotient. Round x / scale, then add.""",
    ("(torch.round(x.float() / scale) + zero)", "torch.round(x.float() / scale + zero)"),
)

times_the_reciprocal = lines(
    """x is multiplied by 1 / scale. That product is rounded twice and falls beside a half that x /
    scale is exactly; the bytes of a few values differ. Divide.""",
    ("torch.round(x.float() / scale)", "torch.round(x.float() * (1 / scale))"),
)

no_lowest_code = lines(
    """Codes end at -(2^(b-1) - 1), so -8 is never used. Under "amax/7.5" and "amax/8" the lowest
    code is needed: clamp to [-2^(b-1), 2^(b-1) - 1].""",
    (
        "low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if sym",
        "low, high = (1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1) if sym",
    ),
)

bfloat16_is_not_converted = lines(
    """The scale is computed in the dtype of x: a bfloat16 has eight bits of significand, and so
    has the scale of everybody. Convert to float32 first.""",
    ("blocks = x.float().reshape(split)", "blocks = x.reshape(split)"),
)

the_maximum_is_the_range = lines(
    """Without sym the range goes from 0 to the largest value; what is below 0 is cut. low is
    min(0, min x).""",
    ("blocks.amin(inside).clamp(max=0)", "torch.zeros_like(blocks.amin(inside))"),
)

codes_are_not_clamped = lines(
    """Codes are not clamped at all, so four bits get a 9, which no nibble holds. Clamp to the first
    and the last code of b bits.""",
    (
        "+ zero).clamp(low, high)\n    return codes",
        "+ zero)\n    return codes",
    ),
)

clamped_after_the_conversion = lines(
    """Codes become int8 or uint8 first and are clamped afterwards. What does not fit into eight
    bits has wrapped around by then. Clamp, then convert.""",
    (
        "+ zero).clamp(low, high)\n    return codes.to(torch.int8 if sym else torch.uint8)",
        "+ zero).to(torch.int8 if sym else torch.uint8)\n    return codes.clamp(low, high)",
    ),
)

small_scales_stay_small = lines(
    """Only a scale of 0 became TINY. One between 0 and TINY stays, a subnormal with few bits: no
    scale is below TINY, so take the larger of the two.""",
    (
        "scale = (sizes / steps[conv]).clamp(min=TINY)",
        "scale = sizes / steps[conv]\n        scale = torch.where(scale == 0, TINY, scale)",
    ),
    (
        "scale = ((high - low) / (2**bits - 1)).clamp(min=TINY)",
        "scale = (high - low) / (2**bits - 1)\n    scale = torch.where(scale == 0, TINY, scale)",
    ),
    gate=False,
)

codes_in_memory_order = lines(
    """`view` needs a tensor that lies in memory row by row, and a transposed one does not;
    `reshape` copies where it must.""",
    ("(q.to(torch.int32) - zero)", "(q.view(-1).view(q.shape).to(torch.int32) - zero)"),
    gate=False,
)
