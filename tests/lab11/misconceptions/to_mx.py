from grader.suite import lines

the_exponent_is_rounded = lines(
    """log2 of the maximum is rounded to the nearest exponent, which is none of the four modes:
    between 1.41 and 2 a block's scale is a factor of two off. Take floor or ceil, as the mode
    says.""",
    ('up = {"floor": 1.0,', 'up = {"floor": 0.5**0.5,'),
)

always_floor = lines(
    """Whatever the mode, the scale is that of "floor", so the largest value of a block is
    clipped by up to a quarter in E2M1. The other modes exist to avoid that.""",
    ("exponent = exponent - 1 + carry.int() - power", "exponent = exponent - 1 - power"),
)

forgets_the_elements_exponent = lines(
    """The scale is the power of two of the maximum itself, so all elements lie below 2, and
    the upper half of the format is never used. Take off the element's own largest power of
    two: 2, or 8.""",
    ("exponent = exponent - 1 + carry.int() - power", "exponent = exponent - 1 + carry.int()"),
)

a_scale_with_a_sign = lines(
    """E8M0 has no sign and a bias of 127: byte 127 is 1. The exponent is stored as it is here,
    modulo 256.""",
    (
        "return (exponent + 127).to(torch.uint8), payload",
        "return (exponent % 256).to(torch.uint8), payload",
    ),
)

ceil_misses_powers_of_two = lines(
    """A maximum that is a power of two already needs no larger scale; ceil of a whole number
    is that number. Here it goes up all the same, and wastes a bit.""",
    ('carry = fraction > up if mode == "ceil" else fraction >= up', "carry = fraction >= up"),
)

rceil_as_ceil = lines(
    """ "rceil" asks whether amax divided by the largest *element* fits, 6 or 448, not by a
    power of two: a maximum of 5 fits under scale 1. Divide by `top`, then take ceil of
    log2.""",
    (
        'torch.frexp(amax / top if mode == "rceil" else amax)',
        'torch.frexp(amax / 2.0**power if mode == "rceil" else amax)',
    ),
)

even_rounds_to_other_bits = lines(
    """ "even" rounds the maximum to the bits that an *element* has: 1.75 is the limit for E2M1,
    1.9375 for E4M3. Here three bits are taken for both.""",
    ("1 - 2.0 ** -(mantissa_bits + 2)", "1 - 2.0**-5"),
)

elements_are_multiplied = lines(
    """Elements are multiplied by the block's scale; it is what a code is multiplied by when it
    is read, so divide here.""",
    (
        "torch.ldexp(blocks.double(), -exponent[..., None])",
        "torch.ldexp(blocks.double(), exponent[..., None])",
    ),
)

uniform_codes_in_e2m1 = lines(
    """The element is rounded to a whole number of halves. E2M1 is a float: above 2 its values
    are 1 apart, and above 4 they are 2 apart. Find the nearest of E2M1_VALUES.""",
    (
        "        middle = (low + high) / 2\n        code +=",
        "        middle = 0.25 + 0.5 * place\n        code +=",
    ),
)

e2m1_ties_go_up = lines(
    """The middle of two elements always goes to the larger one. Half to even sends 0.25 to 0
    and 5 to 4, and that is what hardware does.""",
    ("(size > middle if place % 2 == 0 else size >= middle)", "(size >= middle)"),
)

blocks_of_16 = lines(
    """A scale serves 16 values here; that is NVFP4's block. MX has 32, and a quarter of a bit
    for the scale.""",
    (
        "blocks = x.float().unflatten(-1, (-1, 32))",
        "blocks = x.float().unflatten(-1, (-1, 16))",
    ),
)

high_nibble_first = lines(
    """The first code of each byte is in its high nibble, as bitsandbytes has it; MXFP4's is in
    the low one.""",
    (
        "    return (code[..., 1::2] << 4 | code[..., ::2]).to(torch.uint8)",
        "    return (code[..., ::2] << 4 | code[..., 1::2]).to(torch.uint8)",
    ),
)

logarithm_in_float32 = lines(
    """floor(log2 a) comes from a logarithm in float32, which rounds up to the next whole number
    just below a power of two, and the scale is twice as large. Take frexp, or the bits.""",
    (
        "        exponent = exponent - 1 + carry.int() - power",
        '        if mode == "floor":\n'
        "            exponent = torch.log2(amax.clamp(min=TINY)).floor().int() + 1\n"
        "        exponent = exponent - 1 + carry.int() - power",
    ),
)

even_always_rounds_to_one_bit = lines(
    """ "even" rounds the maximum to the bits that an *element* has, and E4M3 has three. Here one
    bit, E2M1's, is taken for both.""",
    ("1 - 2.0 ** -(mantissa_bits + 2)", "1 - 2.0**-3"),
)

elements_lose_the_sign_of_zero = lines(
    """What is -0.0, or rounds to it, loses its sign bit. The sign of an element is that of the
    value.""",
    ("code |= torch.signbit(x).int() << 3", "code |= ((x < 0) & (code > 0)).int() << 3"),
)

the_quotient_is_float64 = lines(
    """amax / top was taken in float64. "rceil" asks for the float32 quotient, as cuBLAS has it;
    where that is subnormal it may round to a power of two, which the float64 one is just above.""",
    (
        'torch.frexp(amax / top if mode == "rceil" else amax)',
        'torch.frexp(amax.double() / top if mode == "rceil" else amax.double())',
    ),
    gate=False,
)

rceil_goes_up_from_a_power_of_two = lines(
    """In "rceil" the exponent is always one above floor; where amax / top is a power of two itself,
    as for a maximum of 6 or 448, ceil is that power, and the scale is twice as large here.""",
    ("exponent = exponent - (fraction == 0.5).int()", "pass"),
)

the_quotient_is_bfloat16 = lines(
    """amax / top was taken in the dtype of x, and in bfloat16 it is rounded to eight bits, up to a
    power of two or down to one. Convert to float32 first.""",
    (
        'torch.frexp(amax / top if mode == "rceil" else amax)',
        'torch.frexp((amax.to(x.dtype) / top).float() if mode == "rceil" else amax)',
    ),
)
