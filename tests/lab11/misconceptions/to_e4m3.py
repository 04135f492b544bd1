from grader.suite import lines

ties_go_away_from_zero = lines(
    """A value in the middle of two codes always goes up. Half of what is dropped, less one,
    plus the lowest bit that stays, sends it to the even code.""",
    (
        "kept = significand + (torch.ones_like(shift) << (shift - 1)) - 1 + odd >> shift",
        "kept = significand + (torch.ones_like(shift) << (shift - 1)) >> shift",
    ),
)

drops_without_rounding = lines(
    """Bits are dropped without a look at them, so every value moves towards zero, by up to a
    whole step. Add half of what is dropped first.""",
    (
        "kept = significand + (torch.ones_like(shift) << (shift - 1)) - 1 + odd >> shift",
        "kept = significand >> shift",
    ),
)

subnormals_are_flushed = lines(
    """What is below 2^-6 becomes 0, but E4M3 has seven subnormals down to 2^-9, and small
    weights live there. Drop one bit more for each power of two below 2^-6.""",
    (
        "code = (8 * (exponent - 121).clamp(min=0) + kept).clamp(max=0x7E)",
        "code = (8 * (exponent - 121).clamp(min=0) + kept).clamp(max=0x7E) * "
        "(exponent >= 121).int()",
    ),
)

overflow_is_nan = lines(
    """What rounds to more than 448 becomes NaN, as older versions of torch did it (0x7F is no
    480): one value above the range spoils a whole sum. Saturate to 0x7E.""",
    (
        "    code = torch.where(magnitude > 0x7F800000, 0x7F, code)\n",
        "    code = torch.where(magnitude > 0x43E80000, 0x7F, code)\n",
    ),
)

infinity_is_nan = lines(
    """Infinity becomes NaN; E4M3 has no infinity, and a cast that saturates sends it to 448 as
    everything else above the range. Only NaN is NaN: magnitude > 0x7F800000.""",
    (
        "    code = torch.where(magnitude > 0x7F800000, 0x7F, code)\n",
        "    code = torch.where(magnitude >= 0x7F800000, 0x7F, code)\n",
    ),
)

rounds_twice = lines(
    """The value is rounded to bfloat16 first and then again: what was just above a middle
    falls onto it, and then to the even side. Round once, from the float32.""",
    ("bits = x.float().view(torch.int32)", "bits = x.bfloat16().float().view(torch.int32)"),
)

ends_at_240 = lines(
    """240 is the largest value of a float with four exponent bits whose last exponent is kept
    for infinity, as IEEE's formats do. E4M3 (fn) uses that exponent for numbers up to 448.""",
    ("+ kept).clamp(max=0x7E)", "+ kept).clamp(max=0x77)"),
)

bias_of_eight = lines(
    """The exponent's bias is 8 here, so every byte stands for half of its value; that is AMD's
    fnuz variant. E4M3 has bias 7: 2^-6 is its smallest normal number.""",
    (
        "shift = (20 + (121 - exponent).clamp(min=0)).clamp(max=25)",
        "exponent = exponent + 1\n    shift = (20 + (121 - exponent).clamp(min=0)).clamp(max=25)",
    ),
)

the_carry_is_lost = lines(
    """Rounding 1.96 up gives 2.0, which is the next exponent; here the carry falls off the
    three bits of mantissa, and 1.96 becomes 1.0. Add the rounded significand to the exponent,
    do not put it beside it.""",
    (
        "code = (8 * (exponent - 121).clamp(min=0) + kept).clamp(max=0x7E)",
        "code = (8 * (exponent - 120).clamp(min=0) + kept % 8).clamp(max=0x7E)",
    ),
)

the_sign_is_lost = lines(
    """Bit 7 is the sign, and here it is never set. Take bit 31 of the float32 down by 24
    places.""",
    ("return (code | bits >> 24 & 0x80).to(torch.uint8)", "return code.to(torch.uint8)"),
)

negative_numbers_wrap = lines(
    """The sign is put where a two's complement has it, by negating the code; floats are sign
    and magnitude, so the other seven bits stay as they are.""",
    (
        "return (code | bits >> 24 & 0x80).to(torch.uint8)",
        "return torch.where(bits < 0, 256 - code, code).to(torch.uint8)",
    ),
)

torchs_own_cast = lines(
    """torch's cast to float8 does the whole work, so nothing is known of the format: not where
    it rounds, nor what it does above 448, which versions of torch answer differently. Take the
    bits of the float32.""",
    (
        "    bits = x.float().view(torch.int32)\n    magnitude",
        "    return x.float().clamp(-448, "
        "448).to(torch.float8_e4m3fn).view(torch.uint8)\n"
        "    bits = x.float().view(torch.int32)\n"
        "    magnitude",
    ),
)

zero_loses_its_sign = lines(
    """The sign comes from x < 0, and -0.0 is not below 0. Take the sign bit.""",
    ("return (code | bits >> 24 & 0x80)", "return (code | (x.float() < 0).int() * 0x80)"),
)

zero_is_a_number_with_an_exponent = lines(
    """Zero got the exponent of a number near 1. It has none: frexp and log2 say nothing of it, and
    its code is 0.""",
    (
        "return (code | bits >> 24 & 0x80)",
        "code = torch.where(magnitude == 0, 0x30, code)\n    return (code | bits >> 24 & 0x80)",
    ),
)

ties_go_down = lines(
    """A value in the middle of two codes always goes to the smaller one. The lowest bit that stays
    decides: add it, and an odd code's tie goes up to the even one.""",
    ("- 1 + odd >> shift", "- 1 >> shift"),
)

through_float16 = lines(
    """The value is rounded to float16 first and then again: what was just above a middle falls onto
    it, and then to the even side. Round once, from the float32.""",
    ("bits = x.float().view(torch.int32)", "bits = x.half().float().view(torch.int32)"),
)

nan_by_its_upper_bits = lines(
    """NaN is looked for in the upper half of the bits, as if the value were a bfloat16. A float32
    is NaN as well where only the lower ones are set, as in 0x7F800001: compare all of them.""",
    ("torch.where(magnitude > 0x7F800000,", "torch.where(magnitude >> 16 > 0x7F80,"),
)
