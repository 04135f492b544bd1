from grader.suite import lines

o_is_rescaled_but_not_l = lines(
    """o is rescaled to the common maximum and l is not; both are sums of exp(s - m) and change
    with m in the same way.""",
    ("l = w_a * l_a + w_b * l_b", "l = l_a + l_b"),
)

l_is_rescaled_but_not_o = lines(
    """l is rescaled to the common maximum and o is not; o is the same sum with v as weights and
    needs the same factor.""",
    ("o = w_a[..., None] * o_a + w_b[..., None] * o_b", "o = o_a + o_b"),
)

infinity_minus_infinity = lines(
    """Where both parts are empty the factor is exp(-inf - -inf) = NaN; any finite shift serves
    such a row.""",
    ("shift = m.masked_fill(m == -math.inf, 0.0)", "shift = m"),
)

factors_have_the_wrong_sign = lines(
    """The factor of a part is exp(m_part - m), at most 1; exp(m - m_part) makes the smaller part
    the heavier one.""",
    (
        "torch.exp(m_a - shift), torch.exp(m_b - shift)",
        "torch.exp(shift - m_a), torch.exp(shift - m_b)",
    ),
)

o_is_divided_by_l = lines(
    """The merged o is divided by l; a state keeps o unnormalised, otherwise the next merge weighs
    it as if its l were 1.""",
    ("return m, l, o", "return m, l, o / l.masked_fill(l == 0, 1.0)[..., None]"),
)

o_is_divided_by_an_l_of_zero = lines(
    """The merged o is divided by l; a state keeps o unnormalised, otherwise the next merge weighs
    it as if its l were 1.""",
    ("return m, l, o", "return m, l, o / l[..., None]"),
)

o_is_taken_for_an_average = lines(
    """o is weighed with l as if it were normalised; o is already the sum over the keys, so its
    only factor is exp(m_part - m).""",
    (
        "o = w_a[..., None] * o_a + w_b[..., None] * o_b",
        "o = (w_a * l_a)[..., None] * o_a + (w_b * l_b)[..., None] * o_b",
    ),
)

o_is_averaged = lines(
    """o is weighed with l as if it were normalised; o is already the sum over the keys, so its
    only factor is exp(m_part - m).""",
    (
        "o = w_a[..., None] * o_a + w_b[..., None] * o_b",
        "o = (w_a * l_a)[..., None] * o_a + (w_b * l_b)[..., None] * o_b\n"
        "    o = o / l.masked_fill(l == 0, 1.0)[..., None]",
    ),
)

measured_from_the_first_part = lines(
    """The first part's maximum is kept as the common one; if the second part's is larger, exp(m_b
    - m_a) grows without bound.""",
    ("m = torch.maximum(m_a, m_b)", "m = torch.where(m_a == -math.inf, m_b, m_a)"),
)

measured_from_the_first_part_even_if_empty = lines(
    """The first part's maximum is kept as the common one; if the second part's is larger, exp(m_b
    - m_a) grows without bound.""",
    ("m = torch.maximum(m_a, m_b)", "m = m_a"),
)

a_large_negative_number_for_minus_infinity = lines(
    """The shift is clamped to -10,000 or more, a stand-in for -inf; a part whose maximum lies lower
    then gets weight 0. Only -inf itself needs another shift.""",
    ("shift = m.masked_fill(m == -math.inf, 0.0)", "shift = m.clamp(min=-1e4)"),
    gate=False,
)

factors_of_seven_digits = lines(
    """The two factors are computed in float32; a float64 state then keeps its dtype, but only seven
    digits are right.""",
    (
        "torch.exp(m_a - shift), torch.exp(m_b - shift)",
        "torch.exp((m_a - shift).float()), torch.exp((m_b - shift).float())",
    ),
)
