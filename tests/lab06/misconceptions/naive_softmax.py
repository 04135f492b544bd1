from grader.suite import lines, misconception


@misconception()
def no_maximum(x):
    """exp(x) without the maximum: exp(89) is infinite in float32, and rows around -200 become 0 /
    0; x - max leaves the quotient as it is, and its largest exponential is 1."""
    e = torch.exp(x)
    return e / e.sum(dim=1, keepdim=True)


@misconception()
def one_maximum_for_all_rows(x):
    """One maximum of the whole matrix is subtracted: in a row far below it all exponentials
    underflow, and 0 / 0 is NaN. Every row has its own maximum."""
    e = torch.exp(x - x.max())
    return e / e.sum(dim=1, keepdim=True)


@misconception()
def down_the_columns(x):
    """The sums run down the columns; dim=1 is the axis of the columns, along which a row sums to
    1."""
    e = torch.exp(x - x.amax(dim=0, keepdim=True))
    return e / e.sum(dim=0, keepdim=True)


@misconception()
def the_library_does_it(x):
    """torch.softmax is one kernel that is fused already; write the five operations that it
    saves."""
    return torch.softmax(x, dim=1)


@misconception()
def exponentials_twice(x):
    """Difference and exponential are computed twice, for the sum and for the quotient: two more
    passes over memory that a name for the exponentials would save."""
    m = x.amax(dim=1, keepdim=True)
    return torch.exp(x - m) / torch.exp(x - m).sum(dim=1, keepdim=True)


@misconception()
def subtracted_in_place(x):
    """x -= max writes into the caller's tensor; x - max makes a new one."""
    x -= x.amax(dim=1, keepdim=True)
    e = torch.exp(x)
    return e / e.sum(dim=1, keepdim=True)


@misconception()
def always_float32(x):
    """x.float() is a sixth pass over memory where x is float64, and gives a result in float32; the
    result has the dtype of x."""
    x = x.float()
    e = torch.exp(x - x.amax(dim=1, keepdim=True))
    return e / e.sum(dim=1, keepdim=True)


the_mean_is_subtracted = lines(
    """The row's mean is subtracted before exp, not its maximum: what lies more than 88 above the
    mean still overflows.""",
    ("maxima = x.amax(dim=1, keepdim=True)", "maxima = x.mean(dim=1, keepdim=True)"),
)

float64_goes_through_float32 = lines(
    """float64 is computed in float32 and converted back, which loses half of its digits.""",
    ("    differences = x - maxima\n", "    differences = x.float() - maxima.float()\n"),
    ("    return exponentials / sums\n", "    return (exponentials / sums).to(x.dtype)\n"),
)
