from grader.suite import lines

uniform_levels_under_the_name_of_nf4 = lines(
    """These are sixteen evenly spaced levels, uniform int4 labelled NF4. NormalFloat's are
    quantiles of a normal distribution, close together around 0 where the weights are.""",
    ("return (values / values[-1]).float()", "return torch.linspace(-1, 1, 2**bits)"),
)

a_codebook_without_zero = lines(
    """The sixteen quantiles are evenly spaced in probability, and none of them is 0, so
    padding and pruned weights come back as noise. Take 8 positive and 7 negative ones, and
    0.""",
    (
        "values = torch.tensor(sorted([*negative, 0.0, *positive]), dtype=torch.float64)",
        "values = torch.tensor([quantile(1 - outermost + (2 * outermost - 1) * i "
        "/ (2**bits - 1)) for i in range(2**bits)])",
    ),
)

eight_negative_values = lines(
    """The codebook is mirrored: eight values lie below 0 and seven above. QLoRA's has the
    finer half on the positive side, and every code here decodes to another value.""",
    (
        "values = torch.tensor(sorted([*negative, 0.0, *positive]), dtype=torch.float64)",
        "values = -torch.tensor(sorted([*negative, 0.0, *positive])[::-1], dtype=torch.float64)",
    ),
    ("return (values / values[-1]).float()", "return (values / values.abs().max()).float()"),
)

blocks_stop_at_the_row = lines(
    """Each row of the weight has one maximum. Blocks of 64 run through the flattened weight,
    so a row of 96 holds one and a half of them.""",
    (
        "absmax = blocks.abs().amax(1)\n    places",
        "absmax = w.float().abs().amax(1).repeat_interleave(w.shape[1])[::bs]\n    places",
    ),
)

one_maximum_for_the_tensor = lines(
    """One maximum serves the whole tensor, so one large weight pushes all others into the
    middle codes. Each block of 64 has its own.""",
    (
        "absmax = blocks.abs().amax(1)\n    places",
        "absmax = blocks.abs().amax().expand(len(blocks))\n    places",
    ),
)

largest_instead_of_size_nf4 = lines(
    """The block's maximum is taken without the sign removed, so a block whose largest size is
    negative is scaled beyond -1 and cut. Take max |w|.""",
    ("absmax = blocks.abs().amax(1)\n    places", "absmax = blocks.amax(1)\n    places"),
)

low_nibble_first = lines(
    """The first code of each byte is in its low nibble, as in MX; bitsandbytes has it in the
    high one, so all neighbours are exchanged there.""",
    (
        "codes = (places[::2] << 4 | places[1::2]).to(torch.uint8)",
        "codes = (places[1::2] << 4 | places[::2]).to(torch.uint8)",
    ),
)

no_mean_is_taken_off = lines(
    """The maxima are quantized as they are. They are all positive and alike, so half of a
    signed map lies idle and the fine values around 0 are never used: take their mean off
    first.""",
    ("offset = absmax.mean()", "offset = torch.zeros(())"),
)

second_blocks_of_64 = lines(
    """The second level has a scale for 64 maxima, as the first one has for weights; QLoRA
    takes 256 there, and 4.127 bits come from that.""",
    (
        "padded = torch.zeros(-(-len(absmax) // 256) * 256)",
        "padded = torch.zeros(-(-len(absmax) // 64) * 64)",
    ),
    ("groups = padded.reshape(-1, 256)", "groups = padded.reshape(-1, 64)"),
)

second_level_is_linear = lines(
    """The maxima get int8 codes, evenly spaced. The dynamic map spends its codes around 0,
    where what is left of the maxima lies; find the nearest of its 256 values.""",
    (
        "places = _nearest(groups / scale.clamp(min=TINY)[:, None], dynamic_code()).flatten()",
        "places = _nearest(groups / scale.clamp(min=TINY)[:, None], "
        "torch.linspace(-1, 1, 256)).flatten()",
    ),
)

codes_of_the_maxima_that_come_back = lines(
    """The codes are those of w over the maximum that comes back from eight bits. They belong to the
    true maxima, so that they are the same with and without double quantization.""",
    (
        "    return NF4(codes, places[: len(absmax)].to(torch.uint8), scale, offset)",
        "    back = (dynamic_code()[places].reshape(-1, 256) * scale[:, None]).flatten() + offset\n"
        "    back = back[: len(absmax), None].clamp(min=TINY)\n"
        "    again = _nearest(blocks / back, codebook).flatten()\n"
        "    codes = (again[::2] << 4 | again[1::2]).to(torch.uint8)\n"
        "    return NF4(codes, places[: len(absmax)].to(torch.uint8), scale, offset)",
    ),
)

blocks_must_fit_a_row = lines(
    """bs was asked to divide the rows. Blocks run along the flattened weight: it has to divide the
    number of all values, and rows of 96 in blocks of 64 are good.""",
    ("bs < 2 or bs % 2 or w.numel() % bs", "bs < 2 or bs % 2 or w.shape[-1] % bs"),
)

a_floor_under_the_maximum = lines(
    """A small constant such as 1e-8 is added to a block's maximum or takes the place of a smaller
    one, so small weights get codes in the middle. Only a block of zeros needs another divisor.""",
    ("absmax.clamp(min=TINY)[:, None], codebook", "absmax.clamp(min=1e-8)[:, None], codebook"),
    gate=False,
)

one_scale_for_all_maxima = lines(
    """One absmax_scale serves all maxima of the tensor. It is a second level of blocks: each 256
    maxima in a row have a scale of their own, and the last ones may be fewer.""",
    ("groups = padded.reshape(-1, 256)", "groups = padded.reshape(1, -1)"),
)
