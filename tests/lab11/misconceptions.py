"""Known wrong answers of lab 11, as code. Each docstring is what the learner who gave it reads."""

# Executed among the reference's names: `torch`, `qparams`, `to_e4m3`, ... are the reference's.
from grader.skeleton import changed
from grader.suite import misconception

FILE = "quantization.py"


# -- formats --------------------------------------------------------------------------------------


# --- qparams -------------------------------------------------------------------------------------


@misconception("qparams", file=FILE)
def a_scale_for_each_input_column(text):
    """Per channel means one scale for each output row; you took one for each input column. A
    sum over inputs cannot take such a scale out of itself, so no integer product can use
    it."""
    return changed(
        text,
        (
            "for length, size in zip(x.shape, block, strict=True):",
            "for length, size in zip(x.shape, block[::-1], strict=True):",
        ),
    )


@misconception("qparams", file=FILE)
def one_scale_for_everything(text):
    """One scale is made from the whole tensor, whatever `block` says, so the largest channel's
    step rules all others. Take the maximum inside of each block only."""
    return changed(
        text,
        (
            "        sizes = blocks.abs().amax(inside)\n",
            "        sizes = blocks.abs().amax(inside)\n"
            "        sizes = torch.full_like(sizes, float(sizes.max()))\n",
        ),
    )


@misconception("qparams", file=FILE)
def divides_by_eight_always(text):
    """Symmetric codes that must reach amax end at 2^(b-1) - 1; with 2^(b-1) the largest
    positive value needs a code that an int does not have, and is clipped by a whole step.
    Divide by 7, or 127, under "amax/7"."""
    return changed(
        text,
        ('"amax/7": 2 ** (bits - 1) - 1', '"amax/7": 2 ** (bits - 1)'),
    )


@misconception("qparams", file=FILE)
def seven_and_a_half_is_rounded_down(text):
    """ "amax/7.5" is half of all 2^b - 1 steps, 7.5 of 15; a whole-number division makes it 7,
    and the scale is 7 % too large. That is another convention than torchao's."""
    return changed(
        text,
        ("(2**bits - 1) / 2,", "(2**bits - 1) // 2,"),
    )


@misconception("qparams", file=FILE)
def largest_value_instead_of_size(text):
    """The maximum is taken without the sign removed, so a block whose largest size is negative
    gets a scale that is too small, and is clipped. Take max |x|."""
    return changed(
        text,
        (
            "        sizes = blocks.abs().amax(inside)\n",
            "        sizes = blocks.amax(inside).abs()\n",
        ),
    )


@misconception("qparams", file=FILE)
def zeros_divide_by_zero(text):
    """A block of zeros gets the scale 0, and 0 / 0 is NaN in everything that it touches. Keep
    scales at TINY or above."""
    return changed(
        text,
        ("scale = (sizes / steps[conv]).clamp(min=TINY)", "scale = sizes / steps[conv]"),
    )


@misconception("qparams", file=FILE)
def the_range_leaves_zero_out(text):
    """The range goes from the smallest to the largest value even where both have one sign, so
    0 has no code: padding and ReLU's zeros come back as something else. Stretch the range to
    contain 0."""
    return changed(
        text,
        (
            "blocks.amin(inside).clamp(max=0), blocks.amax(inside).clamp(min=0)",
            "blocks.amin(inside), blocks.amax(inside)",
        ),
    )


@misconception("qparams", file=FILE)
def the_zero_point_is_cut_off(text):
    """The zero point is cut off instead of rounded, which shifts every value of the block by
    up to a step. Round -low / scale to the nearest whole number."""
    return changed(
        text,
        (
            "zero = torch.round(-low / scale).clamp(0, 2**bits - 1)",
            "zero = torch.floor(-low / scale).clamp(0, 2**bits - 1)",
        ),
    )


@misconception("qparams", file=FILE)
def as_many_steps_as_codes(text):
    """2^b codes have 2^b - 1 steps between them, as a fence has one gap fewer than posts; with
    2^b steps the largest value needs a code too many. Divide the range by 2^b - 1."""
    return changed(
        text,
        (
            "scale = ((high - low) / (2**bits - 1)).clamp(min=TINY)",
            "scale = ((high - low) / 2**bits).clamp(min=TINY)",
        ),
    )


@misconception("qparams", file=FILE)
def quant_cuts_off(text):
    """A conversion to int cuts off towards zero, which is wrong by up to a whole step and
    always in one direction. Round to the nearest code."""
    return changed(
        text,
        (
            "codes = (torch.round(x.float() / scale) + zero).clamp(low, high)",
            "codes = (torch.trunc(x.float() / scale) + zero).clamp(low, high)",
        ),
    )


@misconception("qparams", file=FILE)
def halves_go_up(text):
    """floor(x + 1/2) sends every half up, so their errors add up instead of cancelling, and no
    library's bytes agree. Round half to even, as torch.round does."""
    return changed(
        text,
        (
            "codes = (torch.round(x.float() / scale) + zero).clamp(low, high)",
            "codes = (torch.floor(x.float() / scale + 0.5) + zero).clamp(low, high)",
        ),
    )


@misconception("qparams", file=FILE)
def codes_wrap_around(text):
    """Codes are not clamped before they become bits: 9 steps up is -7 in four bits, so the
    largest values change their sign. Clamp, then convert."""
    return changed(
        text,
        (
            "codes = (torch.round(x.float() / scale) + zero).clamp(low, high)",
            "codes = ((torch.round(x.float() / scale) + zero).long() - low) % (high "
            "- low + 1) + low",
        ),
    )


@misconception("qparams", file=FILE)
def scale_is_multiplied(text):
    """x is multiplied by its scale where it must be divided: a scale is the size of a step,
    and a code counts steps."""
    return changed(
        text,
        (
            "codes = (torch.round(x.float() / scale) + zero).clamp(low, high)",
            "codes = (torch.round(x.float() * scale) + zero).clamp(low, high)",
        ),
    )


@misconception("qparams", file=FILE)
def zero_point_after_the_scale(text):
    """The zero point is a code and has no unit; taken off after the multiplication it shifts
    the block by zero times one, not by zero steps. Subtract it, then multiply."""
    return changed(
        text,
        ("return (q.to(torch.int32) - zero) * scale", "return q.to(torch.int32) * scale - zero"),
    )


@misconception("qparams", file=FILE)
def the_zero_point_stays(text):
    """The codes are multiplied by the scale with the zero point still in them, so everything
    is too large by zero steps. Take off what `quant` added."""
    return changed(
        text,
        ("return (q.to(torch.int32) - zero) * scale", "return q.to(torch.int32) * scale"),
    )


# --- pack_int4 -----------------------------------------------------------------------------------


@misconception("pack_int4", file=FILE)
def sign_extension_is_lost(text):
    """A nibble comes back as 0 to 15, so -1 has become 15. Its bit 3 is the sign: 8 to 15
    stand for themselves less 16."""
    return changed(
        text,
        (
            "return torch.where(nibbles >= 8, nibbles - 16, nibbles).to(torch.int8)",
            "return nibbles.to(torch.int8)",
        ),
    )


@misconception("pack_int4", file=FILE)
def packs_in_the_other_order(text):
    """The nibbles are the wrong way round: every pair of neighbours changes places in a kernel
    that reads the other order, and no shape or range tells. "low" puts the first value into
    the low nibble."""
    return changed(
        text,
        (
            'low, high = (first, second) if order == "low" else (second, first)',
            'low, high = (second, first) if order == "low" else (first, second)',
        ),
    )


@misconception("pack_int4", file=FILE)
def one_order_only(text):
    """`order` is not looked at when packing, so what bitsandbytes reads is the neighbour.
    Exchange the two for "high"."""
    return changed(
        text,
        (
            'low, high = (first, second) if order == "low" else (second, first)',
            "low, high = first, second",
        ),
    )


@misconception("pack_int4", file=FILE)
def unpacks_one_order_only(text):
    """`order` is not looked at when unpacking, so what was packed high nibble first comes back
    with every pair of neighbours exchanged."""
    return changed(
        text,
        ('pair = (low, high) if order == "low" else (high, low)', "pair = (low, high)"),
    )


@misconception("pack_int4", file=FILE)
def a_negative_value_overwrites_its_neighbour(text):
    """A negative value has ones in all of its upper bits, and they overwrite the other nibble.
    Keep four bits of each (& 0xF) before you put them together."""
    return changed(
        text,
        ("nibbles = q.to(torch.int32) & 0xF\n", "nibbles = q.to(torch.int32)\n"),
    )


@misconception("pack_int4", file=FILE)
def offset_instead_of_twos_complement(text):
    """8 is added to make the codes positive; that is the layout of an unsigned int4 with zero
    point 8, and whoever reads two's complement sees -8 where there was 0. Keep the low four
    bits."""
    return changed(
        text,
        ("nibbles = q.to(torch.int32) & 0xF\n", "nibbles = q.to(torch.int32) + 8\n"),
    )


@misconception("pack_int4", file=FILE)
def the_two_halves_of_a_row(text):
    """The first half of a row is packed with the second half; here neighbours share a byte, so
    that a group of codes is a run of bytes. Take values 2 i and 2 i + 1."""
    return changed(
        text,
        (
            "first, second = nibbles[..., ::2], nibbles[..., 1::2]",
            "first, second = nibbles.chunk(2, dim=-1)",
        ),
    )


# --- to_e4m3 -------------------------------------------------------------------------------------


@misconception("to_e4m3", file=FILE)
def ties_go_away_from_zero(text):
    """A value in the middle of two codes always goes up. Half of what is dropped, less one,
    plus the lowest bit that stays, sends it to the even code."""
    return changed(
        text,
        (
            "kept = significand + (torch.ones_like(shift) << (shift - 1)) - 1 + odd >> shift",
            "kept = significand + (torch.ones_like(shift) << (shift - 1)) >> shift",
        ),
    )


@misconception("to_e4m3", file=FILE)
def drops_without_rounding(text):
    """Bits are dropped without a look at them, so every value moves towards zero, by up to a
    whole step. Add half of what is dropped first."""
    return changed(
        text,
        (
            "kept = significand + (torch.ones_like(shift) << (shift - 1)) - 1 + odd >> shift",
            "kept = significand >> shift",
        ),
    )


@misconception("to_e4m3", file=FILE)
def subnormals_are_flushed(text):
    """What is below 2^-6 becomes 0, but E4M3 has seven subnormals down to 2^-9, and small
    weights live there. Drop one bit more for each power of two below 2^-6."""
    return changed(
        text,
        (
            "code = (8 * (exponent - 121).clamp(min=0) + kept).clamp(max=0x7E)",
            "code = (8 * (exponent - 121).clamp(min=0) + kept).clamp(max=0x7E) * "
            "(exponent >= 121).int()",
        ),
    )


@misconception("to_e4m3", file=FILE)
def overflow_is_nan(text):
    """What rounds to more than 448 becomes NaN, as older versions of torch did it (0x7F is no
    480): one value above the range spoils a whole sum. Saturate to 0x7E."""
    return changed(
        text,
        (
            "    code = torch.where(magnitude > 0x7F800000, 0x7F, code)\n",
            "    code = torch.where(magnitude > 0x43E80000, 0x7F, code)\n",
        ),
    )


@misconception("to_e4m3", file=FILE)
def infinity_is_nan(text):
    """Infinity becomes NaN; E4M3 has no infinity, and a cast that saturates sends it to 448 as
    everything else above the range. Only NaN is NaN: magnitude > 0x7F800000."""
    return changed(
        text,
        (
            "    code = torch.where(magnitude > 0x7F800000, 0x7F, code)\n",
            "    code = torch.where(magnitude >= 0x7F800000, 0x7F, code)\n",
        ),
    )


@misconception("to_e4m3", file=FILE)
def rounds_twice(text):
    """The value is rounded to bfloat16 first and then again: what was just above a middle
    falls onto it, and then to the even side. Round once, from the float32."""
    return changed(
        text,
        ("bits = x.float().view(torch.int32)", "bits = x.bfloat16().float().view(torch.int32)"),
    )


@misconception("to_e4m3", file=FILE)
def ends_at_240(text):
    """240 is the largest value of a float with four exponent bits whose last exponent is kept
    for infinity, as IEEE's formats do. E4M3 (fn) uses that exponent for numbers up to 448."""
    return changed(
        text,
        ("+ kept).clamp(max=0x7E)", "+ kept).clamp(max=0x77)"),
    )


@misconception("to_e4m3", file=FILE)
def bias_of_eight(text):
    """The exponent's bias is 8 here, so every byte stands for half of its value; that is AMD's
    fnuz variant. E4M3 has bias 7: 2^-6 is its smallest normal number."""
    return changed(
        text,
        (
            "shift = (20 + (121 - exponent).clamp(min=0)).clamp(max=25)",
            "exponent = exponent + 1\n"
            "    shift = (20 + (121 - exponent).clamp(min=0)).clamp(max=25)",
        ),
    )


@misconception("to_e4m3", file=FILE)
def the_carry_is_lost(text):
    """Rounding 1.96 up gives 2.0, which is the next exponent; here the carry falls off the
    three bits of mantissa, and 1.96 becomes 1.0. Add the rounded significand to the exponent,
    do not put it beside it."""
    return changed(
        text,
        (
            "code = (8 * (exponent - 121).clamp(min=0) + kept).clamp(max=0x7E)",
            "code = (8 * (exponent - 120).clamp(min=0) + kept % 8).clamp(max=0x7E)",
        ),
    )


@misconception("to_e4m3", file=FILE)
def the_sign_is_lost(text):
    """Bit 7 is the sign, and here it is never set. Take bit 31 of the float32 down by 24
    places."""
    return changed(
        text,
        ("return (code | bits >> 24 & 0x80).to(torch.uint8)", "return code.to(torch.uint8)"),
    )


@misconception("to_e4m3", file=FILE)
def negative_numbers_wrap(text):
    """The sign is put where a two's complement has it, by negating the code; floats are sign
    and magnitude, so the other seven bits stay as they are."""
    return changed(
        text,
        (
            "return (code | bits >> 24 & 0x80).to(torch.uint8)",
            "return torch.where(bits < 0, 256 - code, code).to(torch.uint8)",
        ),
    )


@misconception("to_e4m3", file=FILE)
def torchs_own_cast(text):
    """torch's cast to float8 does the whole work, so nothing is known of the format: not where
    it rounds, nor what it does above 448, which versions of torch answer differently. Take the
    bits of the float32."""
    return changed(
        text,
        (
            "    bits = x.float().view(torch.int32)\n    magnitude",
            "    return x.float().clamp(-448, "
            "448).to(torch.float8_e4m3fn).view(torch.uint8)\n"
            "    bits = x.float().view(torch.int32)\n"
            "    magnitude",
        ),
    )


# --- fp8_linear_dynamic --------------------------------------------------------------------------


@misconception("fp8_linear_dynamic", file=FILE)
def multiplies_by_the_scale(text):
    """Values are multiplied by their scale before the cast instead of divided by it, so a
    large row becomes larger still and saturates. Divide before, multiply after."""
    return changed(
        text,
        (
            "x_codes, w_codes = to_e4m3(x / x_scale), to_e4m3(w / w_scale)",
            "x_codes, w_codes = to_e4m3(x * x_scale), to_e4m3(w * w_scale)",
        ),
    )


@misconception("fp8_linear_dynamic", file=FILE)
def casts_without_a_scale(text):
    """Values are cast as they are, without the scale: what is small falls among the
    subnormals, and what is above 448 is cut. Divide by the scale first."""
    return changed(
        text,
        (
            "x_codes, w_codes = to_e4m3(x / x_scale), to_e4m3(w / w_scale)",
            "x_codes, w_codes = to_e4m3(x), to_e4m3(w)",
        ),
    )


@misconception("fp8_linear_dynamic", file=FILE)
def one_scale_for_all_tokens(text):
    """All tokens share one scale. A padding token and an outlier then have the same step;
    dynamic per token means a maximum over K for each row of x."""
    return changed(
        text,
        (
            "x_scale = x.abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX",
            "x_scale = x.abs().amax().expand(x.shape[0], 1).clamp(min=1e-12) / E4M3_MAX",
        ),
    )


@misconception("fp8_linear_dynamic", file=FILE)
def one_scale_for_the_whole_weight(text):
    """The weight has one scale for all of its output channels, so the largest channel rules
    the others. Take a maximum for each row of w."""
    return changed(
        text,
        (
            "w_scale = w.abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX",
            "w_scale = w.abs().amax().expand(w.shape[0], 1).clamp(min=1e-12) / E4M3_MAX",
        ),
    )


@misconception("fp8_linear_dynamic", file=FILE)
def the_weights_scale_is_forgotten(text):
    """The sums are multiplied by the tokens' scales only, so each output channel is off by its
    own factor. Both sides were divided; undo both."""
    return changed(
        text,
        ("y = (sums * x_scale * w_scale.T).bfloat16()", "y = (sums * x_scale).bfloat16()"),
    )


@misconception("fp8_linear_dynamic", file=FILE)
def the_tokens_scale_is_forgotten(text):
    """The sums are multiplied by the channels' scales only, so each token's output is off by
    its own factor. Both sides were divided; undo both."""
    return changed(
        text,
        ("y = (sums * x_scale * w_scale.T).bfloat16()", "y = (sums * w_scale.T).bfloat16()"),
    )


@misconception("fp8_linear_dynamic", file=FILE)
def divides_the_sums_again(text):
    """The sums are divided by the scales once more; to get back what was divided, multiply."""
    return changed(
        text,
        (
            "y = (sums * x_scale * w_scale.T).bfloat16()",
            "y = (sums / x_scale / w_scale.T).bfloat16()",
        ),
    )


@misconception("fp8_linear_dynamic", file=FILE)
def hands_back_the_reciprocal(text):
    """The scales that are handed back are 448 / amax, with which values were multiplied;
    whoever stores them and multiplies again gets 448^2 / amax^2 times too much. A scale is
    what a code is multiplied by."""
    return changed(
        text,
        (
            "return Fp8Product(y, x_codes, x_scale, w_codes, w_scale.T)",
            "return Fp8Product(y, x_codes, 1 / x_scale, w_codes, 1 / w_scale.T)",
        ),
    )


@misconception("fp8_linear_dynamic", file=FILE)
def as_if_e4m3_ended_at_240(text):
    """The largest of a row is put on 240, the end of an E4M3 with infinities, so almost one
    exponent of range is never used. This E4M3 ends at 448."""
    return changed(
        text,
        (
            "x_scale = x.abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX",
            "x_scale = x.abs().amax(1, keepdim=True).clamp(min=1e-12) / 240",
        ),
    )


@misconception("fp8_linear_dynamic", file=FILE)
def multiplies_the_bytes(text):
    """The bytes are multiplied as whole numbers, but a byte of E4M3 is a code: 0x38 is 1.0,
    and no 56. Decode them, or give them to a kernel that does."""
    return changed(
        text,
        (
            "sums = from_e4m3(x_codes) @ from_e4m3(w_codes).T",
            "sums = x_codes.float() @ w_codes.float().T",
        ),
    )


@misconception("fp8_linear_dynamic", file=FILE)
def does_not_use_the_codes(text):
    """y is the product of the original values: the codes are made and never multiplied, so
    what is measured is not FP8 at all. Multiply what was stored."""
    return changed(
        text,
        (
            "sums = from_e4m3(x_codes) @ from_e4m3(w_codes).T",
            "sums = (x / x_scale) @ (w / w_scale).T",
        ),
    )


# --- nf4 -----------------------------------------------------------------------------------------


@misconception("nf4", file=FILE)
def uniform_levels_under_the_name_of_nf4(text):
    """These are sixteen evenly spaced levels, uniform int4 labelled NF4. NormalFloat's are
    quantiles of a normal distribution, close together around 0 where the weights are."""
    return changed(
        text,
        ("return (values / values[-1]).float()", "return torch.linspace(-1, 1, 2**bits)"),
    )


@misconception("nf4", file=FILE)
def a_codebook_without_zero(text):
    """The sixteen quantiles are evenly spaced in probability, and none of them is 0, so
    padding and pruned weights come back as noise. Take 8 positive and 7 negative ones, and
    0."""
    return changed(
        text,
        (
            "values = torch.tensor(sorted([*negative, 0.0, *positive]), dtype=torch.float64)",
            "values = torch.tensor([quantile(1 - outermost + (2 * outermost - 1) * i "
            "/ (2**bits - 1)) for i in range(2**bits)])",
        ),
    )


@misconception("nf4", file=FILE)
def eight_negative_values(text):
    """The codebook is mirrored: eight values lie below 0 and seven above. QLoRA's has the
    finer half on the positive side, and every code here decodes to another value."""
    return changed(
        text,
        (
            "values = torch.tensor(sorted([*negative, 0.0, *positive]), dtype=torch.float64)",
            "values = -torch.tensor(sorted([*negative, 0.0, *positive])[::-1], "
            "dtype=torch.float64)",
        ),
        ("return (values / values[-1]).float()", "return (values / values.abs().max()).float()"),
    )


@misconception("nf4", file=FILE)
def blocks_stop_at_the_row(text):
    """Each row of the weight has one maximum. Blocks of 64 run through the flattened weight,
    so a row of 96 holds one and a half of them."""
    return changed(
        text,
        (
            "absmax = blocks.abs().amax(1)\n    places",
            "absmax = w.float().abs().amax(1).repeat_interleave(w.shape[1])[::bs]\n    places",
        ),
    )


@misconception("nf4", file=FILE)
def one_maximum_for_the_tensor(text):
    """One maximum serves the whole tensor, so one large weight pushes all others into the
    middle codes. Each block of 64 has its own."""
    return changed(
        text,
        (
            "absmax = blocks.abs().amax(1)\n    places",
            "absmax = blocks.abs().amax().expand(len(blocks))\n    places",
        ),
    )


@misconception("nf4", file=FILE)
def largest_instead_of_size_nf4(text):
    """The block's maximum is taken without the sign removed, so a block whose largest size is
    negative is scaled beyond -1 and cut. Take max |w|."""
    return changed(
        text,
        ("absmax = blocks.abs().amax(1)\n    places", "absmax = blocks.amax(1)\n    places"),
    )


@misconception("nf4", file=FILE)
def low_nibble_first(text):
    """The first code of each byte is in its low nibble, as in MX; bitsandbytes has it in the
    high one, so all neighbours are exchanged there."""
    return changed(
        text,
        (
            "codes = (places[::2] << 4 | places[1::2]).to(torch.uint8)",
            "codes = (places[1::2] << 4 | places[::2]).to(torch.uint8)",
        ),
    )


@misconception("nf4", file=FILE)
def no_mean_is_taken_off(text):
    """The maxima are quantized as they are. They are all positive and alike, so half of a
    signed map lies idle and the fine values around 0 are never used: take their mean off
    first."""
    return changed(
        text,
        ("offset = absmax.mean()", "offset = torch.zeros(())"),
    )


@misconception("nf4", file=FILE)
def second_blocks_of_64(text):
    """The second level has a scale for 64 maxima, as the first one has for weights; QLoRA
    takes 256 there, and 4.127 bits come from that."""
    return changed(
        text,
        (
            "padded = torch.zeros(-(-len(absmax) // 256) * 256)",
            "padded = torch.zeros(-(-len(absmax) // 64) * 64)",
        ),
        ("groups = padded.reshape(-1, 256)", "groups = padded.reshape(-1, 64)"),
    )


@misconception("nf4", file=FILE)
def second_level_is_linear(text):
    """The maxima get int8 codes, evenly spaced. The dynamic map spends its codes around 0,
    where what is left of the maxima lies; find the nearest of its 256 values."""
    return changed(
        text,
        (
            "places = _nearest(groups / scale.clamp(min=TINY)[:, None], dynamic_code()).flatten()",
            "places = _nearest(groups / scale.clamp(min=TINY)[:, None], "
            "torch.linspace(-1, 1, 256)).flatten()",
        ),
    )


# --- to_mx ---------------------------------------------------------------------------------------


@misconception("to_mx", file=FILE)
def the_exponent_is_rounded(text):
    """log2 of the maximum is rounded to the nearest exponent, which is none of the four modes:
    between 1.41 and 2 a block's scale is a factor of two off. Take floor or ceil, as the mode
    says."""
    return changed(
        text,
        ('up = {"floor": 1.0,', 'up = {"floor": 0.5**0.5,'),
    )


@misconception("to_mx", file=FILE)
def always_floor(text):
    """Whatever the mode, the scale is that of "floor", so the largest value of a block is
    clipped by up to a quarter in E2M1. The other modes exist to avoid that."""
    return changed(
        text,
        ("exponent = exponent - 1 + carry.int() - power", "exponent = exponent - 1 - power"),
    )


@misconception("to_mx", file=FILE)
def forgets_the_elements_exponent(text):
    """The scale is the power of two of the maximum itself, so all elements lie below 2, and
    the upper half of the format is never used. Take off the element's own largest power of
    two: 2, or 8."""
    return changed(
        text,
        ("exponent = exponent - 1 + carry.int() - power", "exponent = exponent - 1 + carry.int()"),
    )


@misconception("to_mx", file=FILE)
def a_scale_with_a_sign(text):
    """E8M0 has no sign and a bias of 127: byte 127 is 1. The exponent is stored as it is here,
    modulo 256."""
    return changed(
        text,
        (
            "return (exponent + 127).to(torch.uint8), payload",
            "return (exponent % 256).to(torch.uint8), payload",
        ),
    )


@misconception("to_mx", file=FILE)
def ceil_misses_powers_of_two(text):
    """A maximum that is a power of two already needs no larger scale; ceil of a whole number
    is that number. Here it goes up all the same, and wastes a bit."""
    return changed(
        text,
        ('carry = fraction > up if mode == "ceil" else fraction >= up', "carry = fraction >= up"),
    )


@misconception("to_mx", file=FILE)
def rceil_as_ceil(text):
    """ "rceil" asks whether amax divided by the largest *element* fits, 6 or 448, not by a
    power of two: a maximum of 5 fits under scale 1. Divide by `top`, then take ceil of
    log2."""
    return changed(
        text,
        (
            'torch.frexp(amax / top if mode == "rceil" else amax)',
            'torch.frexp(amax / 2.0**power if mode == "rceil" else amax)',
        ),
    )


@misconception("to_mx", file=FILE)
def even_rounds_to_other_bits(text):
    """ "even" rounds the maximum to the bits that an *element* has: 1.75 is the limit for E2M1,
    1.9375 for E4M3. Here three bits are taken for both."""
    return changed(
        text,
        ("1 - 2.0 ** -(mantissa_bits + 2)", "1 - 2.0**-5"),
    )


@misconception("to_mx", file=FILE)
def elements_are_multiplied(text):
    """Elements are multiplied by the block's scale; it is what a code is multiplied by when it
    is read, so divide here."""
    return changed(
        text,
        (
            "torch.ldexp(blocks.double(), -exponent[..., None])",
            "torch.ldexp(blocks.double(), exponent[..., None])",
        ),
    )


@misconception("to_mx", file=FILE)
def uniform_codes_in_e2m1(text):
    """The element is rounded to a whole number of halves. E2M1 is a float: above 2 its values
    are 1 apart, and above 4 they are 2 apart. Find the nearest of E2M1_VALUES."""
    return changed(
        text,
        (
            "        middle = (low + high) / 2\n        code +=",
            "        middle = 0.25 + 0.5 * place\n        code +=",
        ),
    )


@misconception("to_mx", file=FILE)
def e2m1_ties_go_up(text):
    """The middle of two elements always goes to the larger one. Half to even sends 0.25 to 0
    and 5 to 4, and that is what hardware does."""
    return changed(
        text,
        ("(size > middle if place % 2 == 0 else size >= middle)", "(size >= middle)"),
    )


@misconception("to_mx", file=FILE)
def blocks_of_16(text):
    """A scale serves 16 values here; that is NVFP4's block. MX has 32, and a quarter of a bit
    for the scale."""
    return changed(
        text,
        (
            "blocks = x.float().unflatten(-1, (-1, 32))",
            "blocks = x.float().unflatten(-1, (-1, 16))",
        ),
    )


@misconception("to_mx", file=FILE)
def high_nibble_first(text):
    """The first code of each byte is in its high nibble, as bitsandbytes has it; MXFP4's is in
    the low one."""
    return changed(
        text,
        (
            "    return (code[..., 1::2] << 4 | code[..., ::2]).to(torch.uint8)",
            "    return (code[..., ::2] << 4 | code[..., 1::2]).to(torch.uint8)",
        ),
    )


# --- to_nvfp4 ------------------------------------------------------------------------------------


@misconception("to_nvfp4", file=FILE)
def no_global_scale(text):
    """There is no global scale, so a block's scale is amax / 6 as E4M3: for weights around
    0.02 that is below 2^-6, and all blocks get one and the same scale. Bring the largest
    block's scale to 448 first."""
    return changed(
        text,
        (
            "global_scale = torch.where(largest == 0, torch.ones(()), largest / (E4M3_MAX * 6))",
            "global_scale = torch.ones(())",
        ),
    )


@misconception("to_nvfp4", file=FILE)
def the_global_scale_forgets_the_elements(text):
    """The global scale is max / 448, so no block's scale is above 448 / 6 = 74.7, and the
    upper part of E4M3 lies idle. Divide by 448 * 6: the scales are of what is above 6."""
    return changed(
        text,
        ("largest / (E4M3_MAX * 6))", "largest / E4M3_MAX)"),
    )


@misconception("to_nvfp4", file=FILE)
def divides_by_the_unrounded_scale(text):
    """Elements are divided by the scale before its rounding to E4M3, which nobody will ever
    read; the decoder multiplies by the stored one, and all values of a block are off by up to
    6 %."""
    return changed(
        text,
        (
            "elements = blocks / (from_e4m3(scales) * global_scale)[..., None]",
            "elements = blocks / (wanted * global_scale)[..., None]",
        ),
    )


@misconception("to_nvfp4", file=FILE)
def scales_are_powers_of_two(text):
    """The block's scale is rounded to a power of two, as MX has it. NVFP4's E4M3 has three
    bits of mantissa to fit the maximum with."""
    return changed(
        text,
        (
            "wanted = (amax / 6 / global_scale).clamp(E4M3_SMALLEST_NORMAL, E4M3_MAX)",
            "wanted = torch.exp2(torch.floor(torch.log2((amax / 6 / "
            "global_scale).clamp(E4M3_SMALLEST_NORMAL, E4M3_MAX))))",
        ),
    )


@misconception("to_nvfp4", file=FILE)
def blocks_of_32(text):
    """A scale serves 32 values here; that is MX's block. NVFP4 has 16, and half a bit for the
    scale."""
    return changed(
        text,
        (
            "blocks = x.float().unflatten(-1, (-1, 16))",
            "blocks = x.float().unflatten(-1, (-1, 32))",
        ),
    )


@misconception("to_nvfp4", file=FILE)
def scales_become_subnormal(text):
    """Scales are rounded to whatever E4M3 has, subnormals of one or two bits among them;
    torchao keeps them at 2^-6 or above, and so a small block's bytes differ. Clamp before
    rounding."""
    return changed(
        text,
        (".clamp(E4M3_SMALLEST_NORMAL, E4M3_MAX)", ".clamp(2.0**-9, E4M3_MAX)"),
    )


@misconception("to_nvfp4", file=FILE)
def the_global_scale_is_not_divided_out(text):
    """Elements are divided by the block's scale only, so all of them are off by the global
    scale, and mostly cut or zero. What decodes a code is the product of both."""
    return changed(
        text,
        (
            "elements = blocks / (from_e4m3(scales) * global_scale)[..., None]",
            "elements = blocks / from_e4m3(scales)[..., None]",
        ),
    )


@misconception("to_nvfp4", file=FILE)
def the_largest_goes_to_four(text):
    """Scales are made so that the block's largest value becomes 4, a power of two; E2M1 goes
    up to 6, and a quarter of its codes is never used."""
    return changed(
        text,
        ("wanted = (amax / 6 / global_scale).clamp(", "wanted = (amax / 4 / global_scale).clamp("),
    )


# -- methods, report ------------------------------------------------------------------------------
# -- gptq


@misconception("gptq", file=FILE)
def inverse_is_never_reduced(text):
    """Each column's error goes out by a row of the whole inverse, as if the columns that are
    quantized already could still give way. Every column that is fixed must leave the inverse: its
    upper Cholesky factor holds these ever smaller inverses, row by row."""
    return changed(
        text,
        (
            "upper = torch.linalg.cholesky(inverse, upper=True)",
            "upper = inverse / inverse.diagonal().sqrt()[:, None]",
        ),
    )


@misconception("gptq", file=FILE)
def updates_columns_that_are_fixed(text):
    """The error is given to all columns, also to those in front that are quantized already; what
    they then hold is on no grid, or is thrown away. Only columns behind j may still change."""
    return changed(
        text,
        (
            "upper = torch.linalg.cholesky(inverse, upper=True)",
            "upper = inverse / inverse.diagonal()[:, None]",
        ),
        ("error = (w[:, j] - result[:, j]) / upper[j, j]", "error = w[:, j] - result[:, j]"),
        (
            "w[:, j + 1 : end] -= error[:, None] * upper[j, j + 1 : end]",
            "w[:, start:end] -= error[:, None] * upper[j, start:end]\n"
            "            result[:, :j] -= error[:, None] * upper[j, :j]",
        ),
    )


@misconception("gptq", file=FILE)
def takes_the_lower_factor(text):
    """The lower Cholesky factor has nothing to the right of its diagonal, so no column ever hears
    of an error and the result is plain rounding. The upper factor is wanted: upper.T @ upper is
    the inverse."""
    return changed(
        text, ("torch.linalg.cholesky(inverse, upper=True)", "torch.linalg.cholesky(inverse)")
    )


@misconception("gptq", file=FILE)
def factor_of_h_itself(text):
    """The factor is that of H, not of its inverse. H says how inputs go together; how much the
    other columns must move to make up for an error is in the inverse of H."""
    return changed(
        text,
        (
            "upper = torch.linalg.cholesky(inverse, upper=True)",
            "upper = torch.linalg.cholesky(h, upper=True)",
        ),
    )


@misconception("gptq", file=FILE)
def error_is_not_divided(text):
    """The error goes out without being divided by the factor's diagonal, so what the columns behind
    take over is off by upper[j, j], which has a unit: of one over the size of the input."""
    return changed(
        text,
        ("error = (w[:, j] - result[:, j]) / upper[j, j]", "error = w[:, j] - result[:, j]"),
    )


@misconception("gptq", file=FILE)
def adds_the_error(text):
    """The columns behind are moved with the error instead of against it, which doubles what was
    lost. Subtract error * upper[j, j+1:], with error = (w - q) / upper[j, j]."""
    return changed(
        text,
        (
            "error = (w[:, j] - result[:, j]) / upper[j, j]",
            "error = (result[:, j] - w[:, j]) / upper[j, j]",
        ),
    )


@misconception("gptq", file=FILE)
def does_not_damp(text):
    """Nothing is added to H's diagonal, so directions that the calibration inputs hardly show are
    taken for free to move weights along, and a singular H fails in the Cholesky factor. Add damp
    times the mean of the diagonal."""
    return changed(
        text,
        ("h = h + damp * h.diagonal().mean() * torch.eye(k, dtype=w.dtype)", "h = h + 0.0"),
    )


@misconception("gptq", file=FILE)
def damps_by_a_constant(text):
    """damp itself is added to the diagonal, so the same inputs in other units, or twice as many of
    them, give another result. It is a share: damp times the mean of the diagonal."""
    return changed(text, ("damp * h.diagonal().mean() *", "damp *"))


@misconception("gptq", file=FILE)
def dead_inputs_stay(text):
    """An input that is 0 in all of the calibration leaves a zero on H's diagonal, and without
    damping the Cholesky factor fails. Set that weight to 0 and the diagonal to 1 first."""
    return changed(
        text,
        ("w[:, dead] = 0\n", "pass\n"),
        ("h = h + torch.diag(dead.to(w.dtype))", "h = h + 0.0"),
    )


@misconception("gptq", file=FILE)
def order_is_not_undone(text):
    """Columns come back in the order in which they were worked on, while the layer's inputs still
    come in their own; each weight then multiplies another input. Put column order[j] back to where
    it was."""
    return changed(text, ("back[:, order] = result", "back = result"))


@misconception("gptq", file=FILE)
def order_is_applied_twice(text):
    """result[:, order] orders the columns once more instead of undoing it; the inverse permutation
    is an assignment, back[:, order] = result."""
    return changed(text, ("back[:, order] = result", "back = result[:, order]"))


@misconception("gptq", file=FILE)
def smallest_inputs_first(text):
    """Columns are taken in ascending order. act_order does the largest h[j, j] first, while there
    are still many columns left to make up for the errors that cost most."""
    return changed(text, ("descending=True", "descending=False"))


@misconception("gptq", file=FILE)
def group_scales_of_the_original(text):
    """The scales of a group are taken from the original weights, or from a copy that is brought up
    to date only at a block's end. The weights that are rounded are other ones by then, and overflow
    the grid or use only a part of it. Take a group's scale where the group begins, from the weights
    as all columns before it left them."""
    return changed(
        text,
        (
            "    scale = int_scale(w, bits)\n    for",
            "    first = w.clone()\n    scale = int_scale(w, bits)\n    for",
        ),
        (
            "scale = int_scale(w[:, j : j + g], bits)",
            "scale = int_scale(first[:, j : j + g], bits)",
        ),
    )


@misconception("gptq", file=FILE)
def groups_have_no_scale_of_their_own(text):
    """g is ignored and one scale serves a whole row; a large weight then makes the steps of all
    others coarse. With g, each g columns get a scale."""
    return changed(text, ("if g is not None and j % g == 0:", "if False:"))


@misconception("gptq", file=FILE)
def next_block_hears_nothing(text):
    """Errors stay within their block of columns: the update of everything behind the block, once at
    its end, is missing."""
    return changed(text, ("w[:, end:] -= errors @ upper[start:end, end:]", "pass"))


@misconception("gptq", file=FILE)
def block_errors_are_not_divided(text):
    """At a block's end the differences w - q go out, while within the block they were divided by
    the factor's diagonal. Keep the divided errors."""
    return changed(
        text, ("errors[:, j - start] = error", "errors[:, j - start] = error * upper[j, j]")
    )


@misconception("gptq", file=FILE)
def grid_of_each_column(text):
    """Every column gets a scale of its own, from one weight, so each weight lands exactly on the
    grid's end: that is a scale a weight, which nobody stores. A scale belongs to a row, or to g
    columns of it."""
    return changed(
        text,
        ("if g is not None and j % g == 0:", "if (g := g or 1) and j % 1 == 0:"),
        ("w[:, j : j + g], bits", "w[:, j : j + 1], bits"),
    )


# -- report


@misconception("report", file=FILE)
def scales_are_free(text):
    """Only codes are counted. Each group stores a scale as well: int4 with fp16 scales in groups of
    128 has 4.125 bits a weight, NF4 with float32 maxima of 64 has 4.5."""
    return changed(text, ("scales * fmt.scale_bits,", "0,"))


@misconception("report", file=FILE)
def zero_points_are_free(text):
    """An asymmetric format stores a zero point beside each scale: 4 more bits a group."""
    return changed(text, ("scales * fmt.zero_bits)", "0)"))


@misconception("report", file=FILE)
def double_quantization_is_free(text):
    """Scales of 8 bits are themselves quantized, and each `nested` of them keep a float32; with
    NF4's 256 that is 0.002 bits a weight, small but stored."""
    return changed(text, ("shared = -(-scales // fmt.nested) if fmt.nested else 0", "shared = 0"))


@misconception("report", file=FILE)
def the_tensors_own_bits_are_free(text):
    """NVFP4 has one float32 for the whole tensor, without which its E4M3 scales mean nothing; it is
    stored with each layer."""
    return changed(text, ("32 * shared, fmt.tensor_bits)", "32 * shared)"))


@misconception("report", file=FILE)
def one_scale_a_tensor(text):
    """group None was taken for one scale for the whole tensor; it is one for each row, N of
    them."""
    return changed(
        text,
        (
            "scales = n * -(-k // (fmt.group or k))",
            "scales = n * -(-k // fmt.group) if fmt.group else 1",
        ),
    )


@misconception("report", file=FILE)
def scales_along_the_rows(text):
    """Groups were taken along N. A scale covers weights of one output, which stand in one row: N
    times ceil(K / group) scales."""
    return changed(
        text,
        ("scales = n * -(-k // (fmt.group or k))", "scales = k * -(-n // (fmt.group or n))"),
    )


@misconception("report", file=FILE)
def everything_is_quantized(text):
    """Embedding and head were counted at the format's bits too. They stay in bf16, and in an 8B
    model with 128,256 tokens they are 2.1 GB, more than a third of the int4 file."""
    return changed(
        text,
        (
            "for shape in model.linear.values()) + 2 * (\n        math.prod(model.head)"
            " + sum(math.prod(shape) for shape in model.other.values())\n    )",
            "for shape in [*model.linear.values(), model.head]) + sum(\n"
            "        _layer_bytes((math.prod(s[:-1]), s[-1]), fmt) for s in model.other.values()\n"
            "    )",
        ),
    )


@misconception("report", file=FILE)
def the_rest_in_float32(text):
    """What is not quantized was counted with 4 bytes. It stays in bf16, 2 bytes an element."""
    return changed(
        text,
        (
            "for shape in model.linear.values()) + 2 * (",
            "for shape in model.linear.values()) + 4 * (",
        ),
    )


@misconception("report", file=FILE)
def fewer_bits_are_fewer_flops(text):
    """Fewer bits were taken for fewer FLOPs, so W4A16 speeds up prefill: weights shrink, FLOPs do
    not; batch-1 decode gains, large-batch prefill does not. They are brought back to bf16 before
    they are multiplied."""
    return changed(
        text,
        (
            "math.prod(shape) / gpu.flops[fmt.math]",
            "math.prod(shape) / (gpu.flops['bf16'] * 16 / fmt.code_bits)",
        ),
    )


@misconception("report", file=FILE)
def always_the_bf16_peak(text):
    """Every format is multiplied at the bf16 peak, so FP8 and int8 gain nothing in prefill. Their
    tensor cores do twice as much: take gpu.flops[fmt.math]."""
    return changed(
        text,
        ("math.prod(shape) / gpu.flops[fmt.math]", "math.prod(shape) / gpu.flops['bf16']"),
    )


@misconception("report", file=FILE)
def times_are_added(text):
    """Reading and multiplying were added up. A kernel reads the next weights while it multiplies
    these; a roofline takes the longer of the two."""
    return changed(
        text,
        (
            "max(compute, _layer_bytes(shape, fmt) / gpu.bytes_per_s)",
            "compute + _layer_bytes(shape, fmt) / gpu.bytes_per_s",
        ),
    )


@misconception("report", file=FILE)
def one_bound_for_the_model(text):
    """The longer time was taken once, of the sums over the whole model. Matrices run one after
    another: while one waits for memory, another one's spare FLOPs are of no use to it."""
    return changed(
        text,
        (
            "    for shape in model.linear.values():\n"
            "        compute = 2 * tokens * math.prod(shape) / gpu.flops[fmt.math]\n"
            "        seconds += max(compute, _layer_bytes(shape, fmt) / gpu.bytes_per_s)\n"
            "    return seconds\n",
            "    flops = sum(2 * tokens * math.prod(s) for s in model.linear.values())\n"
            "    size = sum(_layer_bytes(s, fmt) for s in model.linear.values())\n"
            "    return seconds + max(flops / gpu.flops[fmt.math], size / gpu.bytes_per_s)\n",
        ),
    )


@misconception("report", file=FILE)
def a_multiply_add_is_one_flop(text):
    """N * K multiply-adds were counted as N * K FLOPs. Peaks count a multiplication and an addition
    as two: 2 * tokens * N * K."""
    return changed(
        text,
        ("compute = 2 * tokens * math.prod(shape)", "compute = tokens * math.prod(shape)"),
    )


@misconception("report", file=FILE)
def the_batch_is_read_again(text):
    """The weights' bytes were multiplied with the tokens. A pass reads each weight once, for all of
    its tokens; that is why large batches are bound by FLOPs."""
    return changed(
        text,
        (
            "max(compute, _layer_bytes(shape, fmt) / gpu.bytes_per_s)",
            "max(compute, tokens * _layer_bytes(shape, fmt) / gpu.bytes_per_s)",
        ),
    )


@misconception("report", file=FILE)
def the_head_is_forgotten(text):
    """The head is left out. It is read for every token in bf16; beside 4-bit layers of an 8B model
    it is more than a fifth of the time of a step at batch 1."""
    return changed(
        text,
        (
            'seconds = max(2 * head / gpu.flops["bf16"], 2 * head / gpu.bytes_per_s)',
            "seconds = 0.0",
        ),
    )


@misconception("report", file=FILE)
def logits_of_every_token(text):
    """The head was run for every token of the prompt. Only the last one's logits are wanted."""
    return changed(
        text,
        (
            'seconds = max(2 * head / gpu.flops["bf16"],',
            'seconds = max(2 * tokens * head / gpu.flops["bf16"],',
        ),
    )


@misconception("report", file=FILE)
def speed_up_is_upside_down(text):
    """The plan's time over bf16's is a slow-down: below 1 where the plan is faster. A speed-up is
    bf16's time over the plan's."""
    return changed(
        text,
        (
            "pass_seconds(model, BF16, gpu, tokens) /",
            "1 / pass_seconds(model, BF16, gpu, tokens) *",
        ),
    )


@misconception("report", file=FILE)
def decibels_of_a_power_twice(text):
    """20 log10 belongs to a ratio of amplitudes. Sums of squares are powers: 10 log10."""
    return changed(text, ("10 * math.log10(signal / noise)", "20 * math.log10(signal / noise)"))


@misconception("report", file=FILE)
def noise_over_signal(text):
    """Noise over signal has the wrong sign: a better format would have a lower figure. SQNR is 10
    log10(signal / noise)."""
    return changed(text, ("math.log10(signal / noise)", "math.log10(noise / signal)"))


@misconception("report", file=FILE)
def mean_of_the_layers_decibels(text):
    """Decibels were averaged over the layers. A mean of logarithms lets good layers hide a bad one;
    add up the squares of all layers, then take one ratio."""
    return changed(
        text,
        (
            "        sums = torch.zeros(4, dtype=torch.float64)\n",
            "        sums, levels = torch.zeros(4, dtype=torch.float64), []\n",
        ),
        (
            "            sums += torch.stack([part.square().sum() for part in parts])\n",
            "            sums = torch.stack([part.square().sum() for part in parts])\n"
            "            each = [_decibel(float(sums[i]), float(sums[i + 1])) for i in (0, 2)]\n"
            "            levels.append(each)\n",
        ),
        (
            "[_decibel(float(sums[i]), float(sums[i + 1])) for i in (0, 2)]\n        found",
            "[sum(each) / len(each) for each in zip(*levels)]\n        found",
        ),
    )


@misconception("report", file=FILE)
def outputs_are_not_looked_at(text):
    """The second SQNR is again that of the weights. An error counts as much as the input that it
    meets: in an outlier channel a small one is a large error of the output."""
    return changed(
        text, ("parts = (w, noise, x @ w.T, x @ noise.T)", "parts = (w, noise, w, noise)")
    )


@misconception("report", file=FILE)
def perplexity_of_the_original(text):
    """The perplexity is that of the model as it was, the same in every row: the plan's weights were
    not put in the places of the layers'."""
    return changed(text, ("{**weights, **plan.weights}", "weights"))


@misconception("report", file=FILE)
def bits_of_the_layers_alone(text):
    """Bytes of the whole model were divided by the parameters of the linear layers. Embedding, head
    and norms are parameters, too: divide by all of them."""
    return changed(
        text,
        (
            "params = sum(one.numel() for one in weights.values())",
            "params = sum(weights[name].numel() for name in plans[0].weights)",
        ),
    )


# -- plan

PLAN = "quantization_comparison_plan.md"


def _cells(text, **columns):
    """The plan with other texts in the cells of one column: scheme with _ for blanks to text."""
    column = columns.pop("column")
    out = []
    for line in text.split("\n"):
        cells = line.split("|")
        key = cells[1].strip().replace(" ", "_") if len(cells) > 5 else ""
        if key in columns:
            cells[column] = f" {columns[key]} "
        out.append("|".join(cells))
    return "\n".join(out)


BYTES, BITS, MATH, BOUND_1, MS_1, BOUND_N, MS_N = range(2, 9)
CHOICE, SPEED, WHY = range(2, 5)


@misconception("plan", file=PLAN)
def four_bits_are_four_bits(text):
    """Four bits a weight leave out the scales. With an fp16 scale for 128 weights it is 4.125 bits,
    and more the smaller the groups are."""
    return _cells(text, column=BITS, W4A16_g128="4.00", NF4="4.00", MXFP4="4.00", NVFP4="4.00")


@misconception("plan", file=PLAN)
def all_bytes_at_four_bits(text):
    """8.03e9 parameters at 4 bits are 4.02 GB, and no such file exists: embedding and head stay in
    bf16, 2.1 GB of them, and the scales are stored."""
    return _cells(text, column=BYTES, W4A16_g128="4.015 GB", NF4="4.015 GB", MXFP4="4.015 GB")


@misconception("plan", file=PLAN)
def embeddings_are_quantized(text):
    """Embedding and head were counted at the format's bits. They stay in bf16 in every one of these
    schemes, 2.1 GB of this model."""
    return _cells(
        text, column=BYTES, int8_W8A8="8.036 GB", fp8_W8A8="8.036 GB", W4A16_g128="4.141 GB"
    )


@misconception("plan", file=PLAN)
def gib_called_gb(text):
    """The figures are GiB with GB written beside them, 7 % too low. 16,060,522,496 bytes are 16.06
    GB or 14.96 GiB."""
    return _cells(text, column=BYTES, bf16="14.96 GB", int8_W8A8="8.463 GB", fp8_W8A8="8.463 GB")


@misconception("plan", file=PLAN)
def bytes_without_a_unit(text):
    """Bytes stand there without a unit. GB and GiB differ by 7 %, which is more than some schemes
    do: write it."""
    return _cells(text, column=BYTES, bf16="16.061")


@misconception("plan", file=PLAN)
def weight_only_speeds_up_prefill(text):
    """W4A16 was given a quarter of the prefill's time: weights shrink, FLOPs do not; batch-1 decode
    gains, large-batch prefill does not. The weights are brought back to bf16 and multiplied
    there."""
    return _cells(text, column=MS_N, W4A16_g128="29.2", NF4="29.2", MXFP4="29.2", NVFP4="29.2")


@misconception("plan", file=PLAN)
def sparse_peaks(text):
    """The peaks are those with sparsity, twice as high. They hold for weights of which two in four
    are zero; dense ones are multiplied at 989 and 1,979 TFLOP/s."""
    text = _cells(text, column=MS_N, bf16="58.1", W4A16_g128="58.1", NF4="58.1")
    return _cells(text, column=MS_N, int8_W8A8="29.2", fp8_W8A8="29.2")


@misconception("plan", file=PLAN)
def fp4_tensor_cores(text):
    """An H100 has no FP4 tensor cores. There NVFP4 and MXFP4 save bytes, like int4, and are
    multiplied in bf16."""
    return _cells(text, column=MATH, MXFP4="fp4", NVFP4="fp4")


@misconception("plan", file=PLAN)
def batch_one_computes(text):
    """Batch 1 was called bound by compute. One token does 2 FLOPs for each weight that it reads,
    and an H100 could do 295 a byte: it waits for memory."""
    return _cells(text, column=BOUND_1, bf16="compute", int8_W8A8="compute", W4A16_g128="compute")


@misconception("plan", file=PLAN)
def prefill_waits_for_memory(text):
    """Prefill was called bound by memory. 8,192 tokens share each weight that is read, far above
    the 295 FLOPs a byte at which an H100 becomes bound by compute."""
    return _cells(text, column=BOUND_N, bf16="memory", int8_W8A8="memory", W4A16_g128="memory")


@misconception("plan", file=PLAN)
def head_costs_no_time(text):
    """The head is missing in the time of a step. Its 1.05 GB in bf16 are read for every token, 0.31
    ms, as much as 30 % of W4A16's linear layers."""
    return _cells(text, column=MS_1, bf16="4.167", int8_W8A8="2.085", W4A16_g128="1.074")


@misconception("plan", file=PLAN)
def whole_file_is_read(text):
    """The whole file was divided by the bandwidth. Of the embedding a token reads one row, a
    lookup; its 1.05 GB stay where they are."""
    return _cells(text, column=MS_1, bf16="4.794", int8_W8A8="2.712", W4A16_g128="1.702")


@misconception("plan", file=PLAN)
def int4_for_prefill(text):
    """W4A16 was chosen for prefill. Its weights are multiplied in bf16, so it takes as long as bf16
    and misses the limit: weights shrink, FLOPs do not."""
    return _cells(text, column=CHOICE, prefill="W4A16 g128")


@misconception("plan", file=PLAN)
def bf16_at_batch_one(text):
    """bf16 was kept at batch 1, where 16 GB a token take 4.5 ms and 2.5 are allowed. Whatever
    halves the bytes halves the time there."""
    return _cells(text, column=CHOICE, batch_1="bf16")


@misconception("plan", file=PLAN)
def finest_blocks_at_batch_one(text):
    """NVFP4 was chosen on a GPU that cannot multiply it. There it is a weight format with a scale
    for each 16 weights: more bytes and more time than groups of 128, in the same class."""
    return _cells(text, column=CHOICE, batch_1="NVFP4")


@misconception("plan", file=PLAN)
def speed_up_is_the_ratio_of_bits(text):
    """16 over 4.125 bits was claimed as the speed-up. The head stays in bf16, so the step is faster
    by 3.23, not by 3.88: divide the two times of your table."""
    return _cells(text, column=SPEED, batch_1="3.88")


@misconception("plan", file=PLAN)
def a_scheme_is_missing(text):
    """NVFP4 has no row. That the hardware cannot multiply a format is a result, and belongs into
    the table: with its bytes, and bf16 as its math."""
    return "\n".join(line for line in text.split("\n") if not line.startswith("| NVFP4"))


@misconception("plan", file=PLAN)
def pipe_in_a_sentence(text):
    """A | within a sentence ends its cell, and the row has one too many. In a table it is written
    \\|."""
    return changed(text, ("8,192 tokens are bound", "8,192 | tokens are bound"))


@misconception("plan", file=PLAN)
def no_line_of_dashes(text):
    """Without the line of dashes under its header a table is a paragraph of pipes to Markdown."""
    lines = text.split("\n")
    return "\n".join(line for line in lines if not line.startswith("|---------|"))


# -- smoothquant, awq_search


@misconception("smoothquant", file=FILE)
def folded_the_wrong_way(text):
    """The norm is multiplied by s and the weights are divided: outliers grow instead of shrinking.
    Divide the gain, multiply the weights."""
    return changed(
        text,
        ("return gain / s, [w * s for w in layers]", "return gain * s, [w / s for w in layers]"),
    )


@misconception("smoothquant", file=FILE)
def norm_stays_as_it_was(text):
    """The weights are multiplied by s and nobody divides the inputs, so the layer computes another
    function. Fold 1 / s into the gain of the norm before."""
    return changed(
        text, ("return gain / s, [w * s for w in layers]", "return gain, [w * s for w in layers]")
    )


@misconception("smoothquant", file=FILE)
def each_reader_has_its_own_scales(text):
    """Each layer got scales of its own, but all of them read one norm, which can divide by one s
    only. Take the maximum over all of them."""
    return changed(
        text,
        ("of_w = torch.cat(layers).abs().amax(dim=0)", "of_w = layers[0].abs().amax(dim=0)"),
        (
            "[w * s for w in layers]",
            "[w * of_x**alpha / w.abs().amax(dim=0) ** (1 - alpha) for w in layers]",
        ),
    )


@misconception("smoothquant", file=FILE)
def alpha_is_on_the_wrong_side(text):
    """alpha and 1 - alpha are exchanged: alpha says how much of the inputs' size moves into the
    weights, all of it at 1."""
    return changed(
        text, ("s = of_x**alpha / of_w ** (1 - alpha)", "s = of_x ** (1 - alpha) / of_w**alpha")
    )


@misconception("smoothquant", file=FILE)
def means_instead_of_maxima(text):
    """The mean of |x| was taken. A grid's step follows from the largest value, and so must s."""
    return changed(text, ("of_x = x.abs().amax(dim=0)", "of_x = x.abs().mean(dim=0)"))


@misconception("smoothquant", file=FILE)
def weights_are_not_looked_at(text):
    """s was taken from the inputs alone, so columns of weights that are large already grow further.
    Divide by max|w|^(1 - alpha)."""
    return changed(text, ("s = of_x**alpha / of_w ** (1 - alpha)", "s = of_x**alpha"))


@misconception("awq_search", file=FILE)
def weight_error_decides(text):
    """The alpha with the least error of the *weights* was chosen. Scales spend error where inputs
    are small: look at the outputs, x @ (w - rounded).T."""
    return changed(text, ("(x @ (w - rounded).T).square()", "(w - rounded).square()"))


@misconception("awq_search", file=FILE)
def scales_are_not_undone(text):
    """The rounded weights were compared without dividing by s again, so the loss measures the
    scales. What runs is x @ (rounded / s).T."""
    return changed(text, (".reshape(w.shape) / s\n", ".reshape(w.shape)\n"))


@misconception("awq_search", file=FILE)
def largest_input_decides(text):
    """The maximum of |x| was taken. AWQ asks which channels matter on average, and one token's
    outlier would decide alone: take the mean."""
    return changed(text, ("sizes = x.abs().mean(dim=0)", "sizes = x.abs().amax(dim=0)"))


@misconception("awq_search", file=FILE)
def sizes_of_the_weights(text):
    """The scales come from the weights. A channel is salient if its *inputs* are large; that is the
    "activation-aware" in AWQ."""
    return changed(text, ("sizes = x.abs().mean(dim=0)", "sizes = w.abs().mean(dim=0)"))


@misconception("awq_search", file=FILE)
def columns_are_divided_first(text):
    """Salient columns were divided by s before rounding and multiplied afterwards, which rounds
    them more coarsely. Multiply first, divide afterwards."""
    return changed(
        text,
        ("groups = (w * s)", "groups = (w / s)"),
        (".reshape(w.shape) / s\n", ".reshape(w.shape) * s\n"),
    )


@misconception("awq_search", file=FILE)
def one_grid_a_row(text):
    """One scale was used for a whole row, though each g columns have one: the search then tunes a
    format that is not the one that is stored."""
    return changed(text, ("groups = (w * s).reshape(-1, g)", "groups = w * s"))
