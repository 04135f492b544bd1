from grader.suite import lines, misconception

begins_tiles_until_the_end_of_the_axis = lines(
    """A tile is begun at every stride below L, also where the one before it has reached L already:
    a last tile that shows nothing new, as small as a strip, of which the decoder sees too little.
    Stop with the tile that reaches L.""",
    ("    while start + tile < L:\n", "    while start + stride < L:\n"),
    (
        "        grid.append((start, start + tile, start, start + stride))\n",
        "        grid.append((start, min(start + tile, L), start, start + stride))\n",
    ),
)


@misconception()
def leaves_the_rest_out(L, tile, overlap):
    """Only whole tiles are laid, so the rest of an axis that they do not divide is in no tile: the
    image lacks its last rows. The last tile is cut off at L."""
    if L < 1 or not 0 <= overlap < tile:
        raise ValueError("no tiling")
    begin = list(range(0, L - tile + 1, tile - overlap)) or [0]
    crops = [*begin, min(begin[-1] + tile, L)]
    return [
        (start, min(start + tile, L), start, crops[number + 1])
        for number, start in enumerate(begin)
    ]


moves_the_last_tile_back = lines(
    """The last tile is moved back until it is whole, so it shares more than `overlap` with the one
    before it: the ramp is shorter than what they share, and the strip is decoded twice. It begins
    one stride behind the one before it and is cut off at L.""",
    (
        "    return [*grid, (start, L, start, L)]\n",
        "    return [*grid, (max(0, L - tile), L, start, L)]\n",
    ),
)

crops_in_the_middle_of_the_overlap = lines(
    """The crop begins in the middle of what two tiles share, so half of the ramp is cut away and
    the image jumps there. The whole strip belongs to the later tile, into which it is blended.""",
    (
        "        grid.append((start, start + tile, start, start + stride))\n",
        "        low = start + overlap // 2 if grid else 0\n"
        "        grid.append((start, start + tile, low, start + stride + overlap // 2))\n",
    ),
    (
        "    return [*grid, (start, L, start, L)]\n",
        "    return [*grid, (start, L, start + overlap // 2 if grid else 0, L)]\n",
    ),
)

keeps_the_whole_tile = lines(
    """Each tile comes into the image whole, so what two tiles share stands in it twice, and the
    image grows by the overlap at every border. The crop ends where the next tile begins.""",
    (
        "        grid.append((start, start + tile, start, start + stride))\n",
        "        grid.append((start, start + tile, start, start + tile))\n",
    ),
)

steps_by_whole_tiles = lines(
    """The next tile begins where this one ends, so neighbours share nothing and there is nothing
    to blend: every border is a seam. The stride is tile - overlap.""",
    ("    stride = tile - overlap\n", "    stride = tile\n"),
)

shared_pixels_go_to_the_earlier_tile = lines(
    """The pixels that two tiles share were given to the earlier tile, as it was before anything was
    blended into it. They belong to the later one, whose first pixels the ramp mixes: a crop begins
    with its tile.""",
    (
        "        grid.append((start, start + tile, start, start + stride))\n",
        "        low = start + overlap if grid else 0\n"
        "        grid.append((start, start + tile, low, start + tile))\n",
    ),
    (
        "    return [*grid, (start, L, start, L)]\n",
        "    return [*grid, (start, L, start + overlap if grid else 0, L)]\n",
    ),
)

an_axis_that_fits_is_not_checked = lines(
    """An axis that fits into one tile is answered before the overlap is looked at, so one that is
    negative, or as large as a tile, passes there and stops the next, longer axis. Check the
    arguments first, whatever the axis.""",
    (
        "    if L < 1 or tile < 1:\n",
        "    if 1 <= L <= tile:\n        return [(0, L, 0, L)]\n    if L < 1 or tile < 1:\n",
    ),
    gate=False,
)
