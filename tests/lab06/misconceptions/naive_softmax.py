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

NOT_KEPT = """A reduction drops its axis unless keepdim=True keeps it: M numbers beside an M x N
    matrix are matched with the columns, or with nothing."""

maxima_lose_their_axis = lines(
    NOT_KEPT,
    ("x.amax(dim=1, keepdim=True)", "x.amax(dim=1)"),
)

sums_lose_their_axis = lines(
    NOT_KEPT,
    ("exponentials.sum(dim=1, keepdim=True)", "exponentials.sum(dim=1)"),
)


maximum_comes_with_an_index = lines(
    """x.max(dim=1) gives two results, the maxima and where they stand: take .values, or amax.""",
    ("x.amax(dim=1, keepdim=True)", "x.max(dim=1, keepdim=True)"),
)


@misconception()
def by_way_of_the_log_sum_exp(x):
    """torch.logsumexp has maximum, exp and sum in it already, and the exponentials are then made a
    second time: write the five operations."""
    return torch.exp(x - torch.logsumexp(x, dim=1, keepdim=True))


@misconception()
def exp_of_the_log_softmax(x):
    """exp of log_softmax is a softmax that the library has made; write the five operations that it
    saves."""
    return torch.exp(torch.log_softmax(x, dim=1))


the_minimum_is_subtracted = lines(
    """The row's minimum is subtracted, which makes all exponents positive: exp overflows where a
    row spans more than 88. With the maximum the largest exponent is 0.""",
    ("x.amax(", "x.amin("),
)

the_largest_size_is_subtracted = lines(
    """The largest absolute value of the row is subtracted: in a row around -200 that is 200, and
    exp(-400) is 0 everywhere. It is the maximum, with its sign.""",
    ("x.amax(", "x.abs().amax("),
)

difference_the_other_way_round = lines(
    """The difference is maximum - x, so that the smallest element gets the largest weight; it is
    x - maximum.""",
    ("x - maxima", "maxima - x"),
)

naive_powers_of_two = lines(
    """torch.exp2 gives powers of 2; a softmax is made of powers of e.""",
    ("torch.exp(", "torch.exp2("),
)

one_sum_for_all_rows = lines(
    """All exponentials are divided by one sum, that of the whole matrix: then the matrix sums to 1,
    and not each of its rows.""",
    ("exponentials.sum(dim=1, keepdim=True)", "exponentials.sum()"),
)

sums_down_the_columns = lines(
    """The exponentials are summed down the columns; dim=1 is the axis along which a row sums to
    1.""",
    ("exponentials.sum(dim=1,", "exponentials.sum(dim=0,"),
)

maxima_of_the_columns = lines(
    """The maxima are those of the columns; a row that lies far below them has nothing but
    exponentials of 0. Each row has its own maximum: dim=1.""",
    ("x.amax(dim=1,", "x.amax(dim=0,"),
)

not_divided_by_the_sums = lines(
    """The exponentials are not divided by their sum, so a row does not sum to 1.""",
    ("return exponentials / sums", "return exponentials"),
)


copied_first = lines(
    """x is copied first, a sixth operation that reads and writes the whole matrix: no operation
    here writes into x, so there is nothing to protect.""",
    ("maxima = x.amax(", "x = x.clone()\n    maxima = x.amax("),
)

a_little_beside_the_sums = lines(
    """A small number is added to each sum, which is a sixth operation: a sum is never below 1, as
    the row's maximum adds exp(0) to it.""",
    ("return exponentials / sums", "return exponentials / (sums + 1e-9)"),
)

logarithms_of_the_result = lines(
    """These are the logarithms of the probabilities, x - maximum - ln(sum); the probabilities are
    exp / sum.""",
    ("return exponentials / sums", "return differences - torch.log(sums)"),
)
