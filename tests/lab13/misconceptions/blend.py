from grader.suite import lines

WEIGHT = "    weight = torch.arange(extent, dtype=torch.float64, device=cur.device) / extent\n"

ramp_ends_at_one = lines(
    """The ramp reaches 1 in its last pixel, which is one step too early: the pixel behind it is
    cur's alone as well, so the strip has one step less and each is steeper. It is y / extent.""",
    (WEIGHT, WEIGHT.replace("/ extent", "/ max(extent - 1, 1)")),
)

ramp_begins_after_zero = lines(
    """The ramp begins at 1 / extent and ends at 1: one pixel is left out at its beginning, where
    the tile before it stands alone. Pixel 0 has weight 0: y / extent.""",
    (WEIGHT, WEIGHT.replace("torch.arange(extent,", "torch.arange(1, extent + 1,")),
)

swaps_the_weights = lines(
    """prev and cur have each other's weight, so the strip begins with the new tile and ends with
    the old one: two seams instead of none. cur's weight is y / extent, which grows.""",
    (WEIGHT, WEIGHT.replace("/ extent", "/ -extent + 1")),
)

takes_the_beginning_of_prev = lines(
    """The first pixels of prev are mixed in, which show the far side of that tile: its last pixels
    show what the first ones of cur show.""",
    (
        "    old = prev.narrow(dim, prev.shape[dim] - extent, extent)\n",
        "    old = prev.narrow(dim, 0, extent)\n",
    ),
)

half_of_each = lines(
    """Both tiles weigh one half everywhere in the strip, which leaves a step at its beginning and
    one at its end. The weight of cur grows from pixel to pixel: y / extent.""",
    (WEIGHT, WEIGHT.replace("/ extent", "* 0 + 0.5")),
)

weights_that_do_not_add_up = lines(
    """prev's weight does not fall while cur's grows, so the two add up to more than 1: the strip is
    too bright. Where cur weighs w, prev weighs 1 - w.""",
    ("add_(old * (1 - weight))", "add_(old)"),
)

short_tiles_get_part_of_the_ramp = lines(
    """A tile that is shorter than the ramp gets only the beginning of it, so cur never comes to its
    full weight before it ends. The ramp is made as long as the shorter tile: y / that length.""",
    (
        "    extent = min(extent, prev.shape[dim], cur.shape[dim])\n",
        "    full = extent\n    extent = min(extent, prev.shape[dim], cur.shape[dim])\n",
    ),
    (WEIGHT, WEIGHT.replace("/ extent", "/ full")),
)

writes_into_cur = lines(
    """The result is written into cur. When its lower border is needed for the next row, it has been
    blended with the tile to its left already, and where four tiles meet the weights are wrong; and
    a decoder that gives a view of its argument would have its latent overwritten.""",
    ("        return cur.clone()\n", "        return cur\n"),
    ("    out = cur.clone()\n", "    out = cur\n"),
)

tiles_without_a_ramp_are_not_checked = lines(
    """With an extent of 0 the result is given back before the shapes are looked at, so two tiles
    that belong to different images pass. Look at the shapes first.""",
    (
        "    dim = dim % cur.dim()\n",
        "    if extent == 0:\n        return cur.clone()\n    dim = dim % cur.dim()\n",
    ),
    gate=False,
)

writes_the_ramp_into_cur = lines(
    """The result is written into cur. When its lower border is needed for the next row, it has been
    blended with the tile to its left already, and where four tiles meet the weights are wrong; and
    a decoder that gives a view of its argument would have its latent overwritten.""",
    ("    out = cur.clone()\n", "    out = cur\n"),
)

stretches_a_row_of_one = lines(
    """A prev of one row, channel or image passes, and is stretched to cur's length as in any sum of
    tensors. It shows another piece of another image: refuse it like every other length.""",
    (
        "any(prev.shape[axis] != cur.shape[axis] for axis in rest)",
        "any(\n        prev.shape[axis] not in (1, cur.shape[axis]) for axis in rest\n    )",
    ),
    gate=False,
)
