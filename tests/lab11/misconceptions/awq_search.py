from grader.suite import lines

weight_error_decides = lines(
    """The alpha with the least error of the *weights* was chosen. Scales spend error where inputs
    are small: look at the outputs, x @ (w - rounded).T.""",
    ("(x @ (w - rounded).T).square()", "(w - rounded).square()"),
)

scales_are_not_undone = lines(
    """The rounded weights were compared without dividing by s again, so the loss measures the
    scales. What runs is x @ (rounded / s).T.""",
    (".reshape(w.shape) / s\n", ".reshape(w.shape)\n"),
)

largest_input_decides = lines(
    """The maximum of |x| was taken. AWQ asks which channels matter on average, and one token's
    outlier would decide alone: take the mean.""",
    ("sizes = x.abs().mean(dim=0)", "sizes = x.abs().amax(dim=0)"),
)

sizes_of_the_weights = lines(
    """The scales come from the weights. A channel is salient if its *inputs* are large; that is the
    "activation-aware" in AWQ.""",
    ("sizes = x.abs().mean(dim=0)", "sizes = w.abs().mean(dim=0)"),
)

columns_are_divided_first = lines(
    """Salient columns were divided by s before rounding and multiplied afterwards, which rounds
    them more coarsely. Multiply first, divide afterwards.""",
    ("groups = (w * s)", "groups = (w / s)"),
    (".reshape(w.shape) / s\n", ".reshape(w.shape) * s\n"),
)

one_grid_a_row = lines(
    """One scale was used for a whole row, though each g columns have one: the search then tunes a
    format that is not the one that is stored.""",
    ("groups = (w * s).reshape(-1, g)", "groups = w * s"),
)

last_of_equal_ones = lines(
    """Of equal losses the last alpha was kept. The first one stays: a later one
    has to be better.""",
    ("loss < best[2]", "loss <= best[2]"),
)

floor_under_the_mean = lines(
    """1e-4 was set under the mean of |x|, not under s: of a channel without inputs s is then 1e-4
    to the power alpha. Take the power first, then 1e-4 at least.""",
    ("s = (sizes**alpha).clamp(min=1e-4)", "s = sizes.clamp(min=1e-4) ** alpha"),
    gate=False,
)

scales_are_normalized = lines(
    """s was divided by the root of its largest times its smallest, as AWQ's own code does. Here s
    is the power of the mean itself; the loss is the same, the scales are not.""",
    (
        "s = (sizes**alpha).clamp(min=1e-4)\n",
        "s = (sizes**alpha).clamp(min=1e-4)\n        s = s / (s.max() * s.min()).sqrt()\n",
    ),
)
