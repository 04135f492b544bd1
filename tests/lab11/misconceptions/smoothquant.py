from grader.suite import lines

folded_the_wrong_way = lines(
    """The norm is multiplied by s and the weights are divided: outliers grow instead of shrinking.
    Divide the gain, multiply the weights.""",
    ("return gain / s, [w * s for w in layers]", "return gain * s, [w / s for w in layers]"),
)

norm_stays_as_it_was = lines(
    """The weights are multiplied by s and nobody divides the inputs, so the layer computes another
    function. Fold 1 / s into the gain of the norm before.""",
    ("return gain / s, [w * s for w in layers]", "return gain, [w * s for w in layers]"),
)

each_reader_has_its_own_scales = lines(
    """Each layer got scales of its own, but all of them read one norm, which can divide by one s
    only. Take the maximum over all of them.""",
    ("of_w = torch.cat(layers).abs().amax(dim=0)", "of_w = layers[0].abs().amax(dim=0)"),
    (
        "[w * s for w in layers]",
        "[w * of_x**alpha / w.abs().amax(dim=0) ** (1 - alpha) for w in layers]",
    ),
)

alpha_is_on_the_wrong_side = lines(
    """alpha and 1 - alpha are exchanged: alpha says how much of the inputs' size moves into the
    weights, all of it at 1.""",
    ("s = of_x**alpha / of_w ** (1 - alpha)", "s = of_x ** (1 - alpha) / of_w**alpha"),
)

means_instead_of_maxima = lines(
    """The mean of |x| was taken. A grid's step follows from the largest value, and so must s.""",
    ("of_x = x.abs().amax(dim=0)", "of_x = x.abs().mean(dim=0)"),
)

weights_are_not_looked_at = lines(
    """s was taken from the inputs alone, so columns of weights that are large already grow further.
    Divide by max|w|^(1 - alpha).""",
    ("s = of_x**alpha / of_w ** (1 - alpha)", "s = of_x**alpha"),
)

the_first_layer_decides = lines(
    """The maxima of the weights are those of the first layer. All layers that read the norm get the
    same s: take the maximum over all of them.""",
    ("of_w = torch.cat(layers).abs().amax(dim=0)", "of_w = layers[0].abs().amax(dim=0)"),
)

largest_instead_of_size = lines(
    """The largest input was taken, not the largest size, so a channel whose outliers are negative
    is not seen. Take max |x|.""",
    ("of_x = x.abs().amax(dim=0)", "of_x = x.amax(dim=0).clamp(min=0)"),
)

maxima_have_a_floor = lines(
    """Maxima were clamped to 1e-5, as common code does. Where one of them is 0 the scale is 1, and
    a channel that is merely small has no floor.""",
    ("of_x = x.abs().amax(dim=0)", "of_x = x.abs().amax(dim=0).clamp(min=1e-5)"),
    (
        "of_w = torch.cat(layers).abs().amax(dim=0)",
        "of_w = torch.cat(layers).abs().amax(dim=0).clamp(min=1e-5)",
    ),
)

ends_of_alpha_are_refused = lines(
    """alpha 0 and alpha 1 were refused. Both lie in [0, 1]: all of the size stays with the inputs,
    or all of it moves.""",
    ("if not 0 <= alpha <= 1:", "if not 0 < alpha < 1:"),
)

inputs_in_memory_order = lines(
    """`view` needs a tensor that lies in memory row by row, and a transposed one does not;
    `reshape` copies where it must.""",
    ("of_x = x.abs().amax(dim=0)", "of_x = x.view(-1).abs().view(x.shape).amax(dim=0)"),
    gate=False,
)
