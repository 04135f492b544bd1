from grader.suite import misconception


@misconception()
def o_is_rescaled_but_not_l(a, b):
    """o is rescaled to the common maximum and l is not; both are sums of exp(s - m) and change
    with m in the same way."""
    m = torch.maximum(a[0], b[0])
    shift = m.masked_fill(m == -math.inf, 0.0)
    w_a, w_b = torch.exp(a[0] - shift), torch.exp(b[0] - shift)
    return m, a[1] + b[1], w_a[..., None] * a[2] + w_b[..., None] * b[2]


@misconception()
def l_is_rescaled_but_not_o(a, b):
    """l is rescaled to the common maximum and o is not; o is the same sum with v as weights and
    needs the same factor."""
    m = torch.maximum(a[0], b[0])
    shift = m.masked_fill(m == -math.inf, 0.0)
    return m, torch.exp(a[0] - shift) * a[1] + torch.exp(b[0] - shift) * b[1], a[2] + b[2]


@misconception()
def infinity_minus_infinity(a, b):
    """Where both parts are empty the factor is exp(-inf - -inf) = NaN; any finite shift serves
    such a row."""
    m = torch.maximum(a[0], b[0])
    w_a, w_b = torch.exp(a[0] - m), torch.exp(b[0] - m)
    return m, w_a * a[1] + w_b * b[1], w_a[..., None] * a[2] + w_b[..., None] * b[2]


@misconception()
def factors_have_the_wrong_sign(a, b):
    """The factor of a part is exp(m_part - m), at most 1; exp(m - m_part) makes the smaller part
    the heavier one."""
    m = torch.maximum(a[0], b[0])
    w_a, w_b = torch.exp(m - a[0]), torch.exp(m - b[0])
    return m, w_a * a[1] + w_b * b[1], w_a[..., None] * a[2] + w_b[..., None] * b[2]


@misconception()
def o_is_divided_by_l(a, b):
    """The merged o is divided by l; a state keeps o unnormalised, otherwise the next merge weighs
    it as if its l were 1."""
    m = torch.maximum(a[0], b[0])
    shift = m.masked_fill(m == -math.inf, 0.0)
    w_a, w_b = torch.exp(a[0] - shift), torch.exp(b[0] - shift)
    l = w_a * a[1] + w_b * b[1]
    return m, l, (w_a[..., None] * a[2] + w_b[..., None] * b[2]) / l[..., None]


@misconception()
def o_is_taken_for_an_average(a, b):
    """o is weighed with l as if it were normalised; o is already the sum over the keys, so its
    only factor is exp(m_part - m)."""
    m = torch.maximum(a[0], b[0])
    shift = m.masked_fill(m == -math.inf, 0.0)
    w_a, w_b = torch.exp(a[0] - shift) * a[1], torch.exp(b[0] - shift) * b[1]
    return m, w_a + w_b, w_a[..., None] * a[2] + w_b[..., None] * b[2]


@misconception()
def measured_from_the_first_part(a, b):
    """The first part's maximum is kept as the common one; if the second part's is larger, exp(m_b
    - m_a) grows without bound."""
    w_b = torch.exp(b[0] - a[0])
    return a[0], a[1] + w_b * b[1], a[2] + w_b[..., None] * b[2]
