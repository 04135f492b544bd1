from grader.suite import lines, misconception


@misconception()
def rounds_the_share_twice(decoder, z, tile, overlap, scale):
    """The stride is rounded from the share in latent pixels and the ramp from the share in pixels
    of the image: two roundings, so stride and crop disagree and the image has another size, as with
    diffusers, where 160 rows become 172 at a share of 0.2. Make one integer of the share first."""
    if scale < 1 or not 0 <= overlap < (1 if isinstance(overlap, float) else tile):
        raise ValueError("no tiling")
    if isinstance(overlap, float):
        stride, extent = int(tile * (1 - overlap)), int(tile * scale * overlap)
    else:
        stride, extent = tile - overlap, scale * overlap
    limit = scale * tile - extent
    rows, columns = (tile_grid(length, tile, tile - stride) for length in z.shape[-2:])
    above, image = [], []
    for top, bottom, _, _ in rows:
        below, left, row = [], None, []
        for j, (start, stop, _, _) in enumerate(columns):
            here = decoder(z[..., top:bottom, start:stop])
            if above:
                here = blend(above[j], here, extent, -2)
            below.append(here[..., max(0, here.shape[-2] - extent) :, :].clone())
            if left is not None:
                here = blend(left, here, extent, -1)
            left = here[..., max(0, here.shape[-1] - extent) :].clone()
            high = limit if bottom < z.shape[-2] else None
            wide = limit if stop < z.shape[-1] else None
            row.append(here[..., :high, :wide])
        above = below
        image.append(torch.cat(row, -1))
    return torch.cat(image, -2)


blends_columns_before_rows_are_kept = lines(
    """The lower border is kept after the tile was blended with its left neighbour. Where four tiles
    meet, that ramp then counts twice: the tile at the upper left weighs too much and leaves a
    seam. Keep the border before the columns are blended.""",
    (
        "            below.append(here[..., here.shape[-2] - extent :, :].clone())\n",
        "",
    ),
    (
        "            left = here[..., here.shape[-1] - extent :].clone()\n",
        "            below.append(here[..., here.shape[-2] - extent :, :].clone())\n"
        "            left = here[..., here.shape[-1] - extent :].clone()\n",
    ),
)

blends_with_the_raw_neighbour = lines(
    """The left neighbour is taken as it was decoded, before it was blended with the tile above it.
    Just below a border the image then jumps from the blended rows to that tile alone. Keep the
    right border after the rows are blended.""",
    (
        "            if above:\n",
        "            raw = here[..., here.shape[-1] - extent :].clone()\n            if above:\n",
    ),
    (
        "            left = here[..., here.shape[-1] - extent :].clone()\n",
        "            left = raw\n",
    ),
)

ramp_in_latent_pixels = lines(
    """The ramp has as many pixels of the image as two tiles share latent pixels, though each of
    these became `scale` pixels: the ramp ends too early and is as much too steep. Its extent is
    scale * overlap.""",
    ("    extent = overlap * scale\n", "    extent = overlap\n"),
)

crops_without_blending = lines(
    """The tiles are cropped but not blended, so at every border two tiles that disagree meet: what
    the decoder sees beyond a border, and its GroupNorm's mean, differ from tile to tile. Blend
    each into its upper and its left neighbour.""",
    ("            if above:\n", "            if False:\n"),
    ("            if left is not None:\n", "            if False:\n"),
)

blends_along_the_width_only = lines(
    """The tiles of a row are blended with each other, the rows are not: the image has a seam at
    every border between two rows. Each tile is blended with the one above it, too.""",
    ("            if above:\n", "            if False:\n"),
)

keeps_every_tile = lines(
    """Every tile is kept until the end, though only the borders of the last row are needed: with
    the overlaps counted twice this is more than the whole image, on top of the image itself.""",
    ("    out = None\n", "    out, every = None, []\n"),
    (
        "            if above:\n",
        "            every.append(here)\n            if above:\n",
    ),
)

puts_the_rows_together_in_the_end = lines(
    """The rows are collected and joined in the end, and while they are joined the image is in
    memory twice. Make the image once, with its final size, and write each crop into its place.""",
    ("    out = None\n", "    pieces = []\n"),
    ("            if out is None:\n", "            if start == 0:\n"),
    (
        "                out = here.new_empty(*here.shape[:-2], scale * height, scale * width)\n",
        "                out = here.new_empty("
        "*here.shape[:-2], scale * (row_hi - row_lo), scale * width)\n"
        "                pieces.append(out)\n",
    ),
    (
        "            out[..., scale * row_lo : scale * row_hi, scale * col_lo : scale * col_hi]"
        " = here[\n",
        "            out[..., scale * col_lo : scale * col_hi] = here[\n",
    ),
    (
        "        above = below\n    return out\n",
        "        above = below\n    return torch.cat(pieces, -2)\n",
    ),
)

decodes_the_whole_latent_and_cuts = lines(
    """The whole latent is decoded and the image is cut into tiles afterwards: right pixels, at the
    peak that tiles are there to avoid. Cut the latent, and decode each piece.""",
    ("    out = None\n", "    out, whole = None, decoder(z)\n"),
    (
        "            here = decoder(z[..., top:bottom, start:stop])\n",
        "            here = whole[\n"
        "                ..., scale * top : scale * bottom, scale * start : scale * stop\n"
        "            ]\n",
    ),
)

cuts_a_share_off = lines(
    """The share of a tile was cut off to whole pixels: 0.3 of 9 is 2.7 and became 2. It is rounded
    to the nearest whole latent pixel, here 3.""",
    ("        overlap = round(overlap * tile)\n", "        overlap = int(overlap * tile)\n"),
)

image_in_the_latents_dtype = lines(
    """The image was made in the dtype of the latent. A decoder may compute in another one, and
    often does: the image has the dtype of its tiles.""",
    ("out = here.new_empty(", "out = z.new_empty("),
)

cuts_no_axis_where_one_fits = lines(
    """Where one axis fits into a tile the whole latent was decoded at once, though the other axis
    may be as long as it likes. Each axis is cut or not by itself.""",
    (
        "    extent = overlap * scale\n",
        "    if len(rows) == 1 or len(columns) == 1:\n"
        "        rows, columns = [(0, height, 0, height)], [(0, width, 0, width)]\n"
        "    extent = overlap * scale\n",
    ),
)

one_grid_for_both_axes = lines(
    """The grid of the height was used for the width as well, so only a square latent comes out
    right. Each axis has its own length and its own grid.""",
    (
        "rows, columns = tile_grid(height, tile, overlap), tile_grid(width, tile, overlap)",
        "rows = columns = tile_grid(height, tile, overlap)",
    ),
)

keeps_the_right_border_unblended = lines(
    """The right border is kept before the tile is blended with its left neighbour. With an overlap
    above half a tile a third tile still has its share in those pixels, and drops out there: the
    image steps. Keep the border of what the tile has become.""",
    (
        "            if left is not None:\n",
        "            border = here[..., here.shape[-1] - extent :].clone()\n"
        "            if left is not None:\n",
    ),
    (
        "            left = here[..., here.shape[-1] - extent :].clone()\n",
        "            left = border\n",
    ),
)

a_share_is_checked_after_rounding = lines(
    """A share was rounded first and then held against the bounds. A small negative one is rounded
    to 0 and passes: a share outside of [0, 1) is refused as it is.""",
    (
        "        if not 0 <= overlap < 1:\n"
        '            raise ValueError(f"overlap is {overlap}; '
        'a share of the tile must be in [0, 1).")\n',
        "",
    ),
    gate=False,
)

only_the_height_of_a_tile_is_checked = lines(
    """Of a decoded tile only the height was looked at. A decoder whose tiles are too wide or too
    narrow gives an image that does not fit together: both axes are scale times the latent's.""",
    (
        "if here.shape[-2:] != (scale * (bottom - top), scale * (stop - start)):",
        "if here.shape[-2] != scale * (bottom - top):",
    ),
    gate=False,
)
