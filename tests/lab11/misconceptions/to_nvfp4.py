from grader.suite import lines

no_global_scale = lines(
    """There is no global scale, so a block's scale is amax / 6 as E4M3: for weights around
    0.02 that is below 2^-6, and all blocks get one and the same scale. Bring the largest
    block's scale to 448 first.""",
    (
        "global_scale = torch.where(largest == 0, torch.ones(()), largest / (E4M3_MAX * 6))",
        "global_scale = torch.ones(())",
    ),
)

the_global_scale_forgets_the_elements = lines(
    """The global scale is max / 448, so no block's scale is above 448 / 6 = 74.7, and the
    upper part of E4M3 lies idle. Divide by 448 * 6: the scales are of what is above 6.""",
    ("largest / (E4M3_MAX * 6))", "largest / E4M3_MAX)"),
)

divides_by_the_unrounded_scale = lines(
    """Elements are divided by the scale before its rounding to E4M3, which nobody will ever
    read; the decoder multiplies by the stored one, and all values of a block are off by up to
    6 %.""",
    (
        "elements = blocks / (from_e4m3(scales) * global_scale)[..., None]",
        "elements = blocks / (wanted * global_scale)[..., None]",
    ),
)

scales_are_powers_of_two = lines(
    """The block's scale is rounded to a power of two, as MX has it. NVFP4's E4M3 has three
    bits of mantissa to fit the maximum with.""",
    (
        "wanted = (amax / 6 / global_scale).clamp(E4M3_SMALLEST_NORMAL, E4M3_MAX)",
        "wanted = torch.exp2(torch.floor(torch.log2((amax / 6 / "
        "global_scale).clamp(E4M3_SMALLEST_NORMAL, E4M3_MAX))))",
    ),
)

blocks_of_32 = lines(
    """A scale serves 32 values here; that is MX's block. NVFP4 has 16, and half a bit for the
    scale.""",
    (
        "blocks = x.float().unflatten(-1, (-1, 16))",
        "blocks = x.float().unflatten(-1, (-1, 32))",
    ),
)

scales_become_subnormal = lines(
    """Scales are rounded to whatever E4M3 has, subnormals of one or two bits among them;
    torchao keeps them at 2^-6 or above, and so a small block's bytes differ. Clamp before
    rounding.""",
    (".clamp(E4M3_SMALLEST_NORMAL, E4M3_MAX)", ".clamp(2.0**-9, E4M3_MAX)"),
)

the_global_scale_is_not_divided_out = lines(
    """Elements are divided by the block's scale only, so all of them are off by the global
    scale, and mostly cut or zero. What decodes a code is the product of both.""",
    (
        "elements = blocks / (from_e4m3(scales) * global_scale)[..., None]",
        "elements = blocks / from_e4m3(scales)[..., None]",
    ),
)

the_largest_goes_to_four = lines(
    """Scales are made so that the block's largest value becomes 4, a power of two; E2M1 goes
    up to 6, and a quarter of its codes is never used.""",
    ("wanted = (amax / 6 / global_scale).clamp(", "wanted = (amax / 4 / global_scale).clamp("),
)

elements_lose_the_sign_of_zero_nvfp4 = lines(
    """What is -0.0, or rounds to it, loses its sign bit. The sign of an element is that of the
    value, not whether it is below 0.""",
    (
        "8 * torch.signbit(elements))",
        "8 * ((elements < 0) & (above.sum(-1) > 0)))",
    ),
)

the_sign_is_less_than_zero = lines(
    """The sign bit comes from x < 0, and -0.0 is not below 0. Take signbit.""",
    ("8 * torch.signbit(elements))", "8 * (elements < 0))"),
    gate=False,
)
