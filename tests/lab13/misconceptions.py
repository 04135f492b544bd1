"""Known wrong answers of lab 13, as code. Each docstring is what the learner who gave it reads."""

# Executed among the reference's names: `torch`, `tile_grid`, `blend`, ... are the reference's.
from grader.skeleton import changed
from grader.suite import misconception

# -- slices and tiles ----------------------------------------------------------------------------

LAB = "memory_optimization.py"


# --- sliced_decode -------------------------------------------------------------------------------


@misconception("sliced_decode")
def decodes_the_whole_batch(decoder, z):
    """The decoder is called with the whole batch, so the activations of all images are alive at
    once: the peak grows with B. Call it with one latent after the other."""
    if z.dim() != 4 or len(z) == 0:
        raise ValueError("no batch")
    return decoder(z)


@misconception("sliced_decode")
def drops_the_batch_axis(decoder, z):
    """z[i] has no batch axis any more, and a layer may take its channels for a batch: GroupNorm
    would then normalize something else. Slice with z.split(1) or z[i : i + 1]."""
    if z.dim() != 4 or len(z) == 0:
        raise ValueError("no batch")
    return torch.stack([decoder(one) for one in z])


@misconception("sliced_decode")
def decodes_two_halves(decoder, z):
    """The batch is cut into two halves, and half a batch still has B / 2 times the activations of
    one image: the peak goes on growing with B. A slice is one latent."""
    if z.dim() != 4 or len(z) == 0:
        raise ValueError("no batch")
    return torch.cat([decoder(half) for half in z.chunk(2)])


@misconception("sliced_decode")
def puts_each_image_in_front(decoder, z):
    """Each image is put in front of those before it, so they come back in the reverse order: image
    b must be the one of latent b."""
    if z.dim() != 4 or len(z) == 0:
        raise ValueError("no batch")
    return torch.cat([decoder(one) for one in z.split(1)][::-1])


# --- tile_grid -----------------------------------------------------------------------------------


@misconception("tile_grid", file=LAB)
def begins_tiles_until_the_end_of_the_axis(text):
    """A tile is begun at every stride below L, also where the one before it has reached L already:
    a last tile that shows nothing new, as small as a strip, of which the decoder sees too little.
    Stop with the tile that reaches L."""
    return changed(
        text,
        ("    while start + tile < L:\n", "    while start + stride < L:\n"),
        (
            "        grid.append((start, start + tile, start, start + stride))\n",
            "        grid.append((start, min(start + tile, L), start, start + stride))\n",
        ),
    )


@misconception("tile_grid")
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


@misconception("tile_grid", file=LAB)
def moves_the_last_tile_back(text):
    """The last tile is moved back until it is whole, so it shares more than `overlap` with the one
    before it: the ramp is shorter than what they share, and the strip is decoded twice. It begins
    one stride behind the one before it and is cut off at L."""
    return changed(
        text,
        (
            "    return [*grid, (start, L, start, L)]\n",
            "    return [*grid, (max(0, L - tile), L, start, L)]\n",
        ),
    )


@misconception("tile_grid", file=LAB)
def crops_in_the_middle_of_the_overlap(text):
    """The crop begins in the middle of what two tiles share, so half of the ramp is cut away and
    the image jumps there. The whole strip belongs to the later tile, into which it is blended."""
    return changed(
        text,
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


@misconception("tile_grid", file=LAB)
def keeps_the_whole_tile(text):
    """Each tile comes into the image whole, so what two tiles share stands in it twice, and the
    image grows by the overlap at every border. The crop ends where the next tile begins."""
    return changed(
        text,
        (
            "        grid.append((start, start + tile, start, start + stride))\n",
            "        grid.append((start, start + tile, start, start + tile))\n",
        ),
    )


@misconception("tile_grid", file=LAB)
def steps_by_whole_tiles(text):
    """The next tile begins where this one ends, so neighbours share nothing and there is nothing
    to blend: every border is a seam. The stride is tile - overlap."""
    return changed(text, ("    stride = tile - overlap\n", "    stride = tile\n"))


# --- blend ---------------------------------------------------------------------------------------


WEIGHT = "    weight = torch.arange(extent, dtype=torch.float64, device=cur.device) / extent\n"


@misconception("blend", file=LAB)
def ramp_ends_at_one(text):
    """The ramp reaches 1 in its last pixel, which is one step too early: the pixel behind it is
    cur's alone as well, so the strip has one step less and each is steeper. It is y / extent."""
    return changed(text, (WEIGHT, WEIGHT.replace("/ extent", "/ max(extent - 1, 1)")))


@misconception("blend", file=LAB)
def ramp_begins_after_zero(text):
    """The ramp begins at 1 / extent and ends at 1: one pixel is left out at its beginning, where
    the tile before it stands alone. Pixel 0 has weight 0: y / extent."""
    return changed(
        text,
        (WEIGHT, WEIGHT.replace("torch.arange(extent,", "torch.arange(1, extent + 1,")),
    )


@misconception("blend", file=LAB)
def swaps_the_weights(text):
    """prev and cur have each other's weight, so the strip begins with the new tile and ends with
    the old one: two seams instead of none. cur's weight is y / extent, which grows."""
    return changed(text, (WEIGHT, WEIGHT.replace("/ extent", "/ -extent + 1")))


@misconception("blend", file=LAB)
def takes_the_beginning_of_prev(text):
    """The first pixels of prev are mixed in, which show the far side of that tile: its last pixels
    show what the first ones of cur show."""
    return changed(
        text,
        (
            "    old = prev.narrow(dim, prev.shape[dim] - extent, extent)\n",
            "    old = prev.narrow(dim, 0, extent)\n",
        ),
    )


@misconception("blend", file=LAB)
def half_of_each(text):
    """Both tiles weigh one half everywhere in the strip, which leaves a step at its beginning and
    one at its end. The weight of cur grows from pixel to pixel: y / extent."""
    return changed(text, (WEIGHT, WEIGHT.replace("/ extent", "* 0 + 0.5")))


@misconception("blend", file=LAB)
def weights_that_do_not_add_up(text):
    """prev's weight does not fall while cur's grows, so the two add up to more than 1: the strip is
    too bright. Where cur weighs w, prev weighs 1 - w."""
    return changed(text, ("add_(old * (1 - weight))", "add_(old)"))


@misconception("blend", file=LAB)
def short_tiles_get_part_of_the_ramp(text):
    """A tile that is shorter than the ramp gets only the beginning of it, so cur never comes to its
    full weight before it ends. The ramp is made as long as the shorter tile: y / that length."""
    return changed(
        text,
        (
            "    extent = min(extent, prev.shape[dim], cur.shape[dim])\n",
            "    full = extent\n    extent = min(extent, prev.shape[dim], cur.shape[dim])\n",
        ),
        (WEIGHT, WEIGHT.replace("/ extent", "/ full")),
    )


@misconception("blend", file=LAB)
def writes_into_cur(text):
    """The result is written into cur. When its lower border is needed for the next row, it has been
    blended with the tile to its left already, and where four tiles meet the weights are wrong; and
    a decoder that gives a view of its argument would have its latent overwritten."""
    return changed(
        text,
        ("        return cur.clone()\n", "        return cur\n"),
        ("    out = cur.clone()\n", "    out = cur\n"),
    )


# --- tiled_decode --------------------------------------------------------------------------------


@misconception("tiled_decode")
def rounds_the_share_twice(decoder, z, tile, overlap, scale):
    """The stride is rounded from the share in latent pixels and the ramp from the share in pixels
    of the image: two roundings, so stride and crop disagree and the image has another size, as with
    diffusers, where 160 rows become 172 at a share of 0.2. Make one integer of the share first."""
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


@misconception("tiled_decode", file=LAB)
def blends_columns_before_rows_are_kept(text):
    """The lower border is kept after the tile was blended with its left neighbour. Where four tiles
    meet, that ramp then counts twice: the tile at the upper left weighs too much and leaves a
    seam. Keep the border before the columns are blended."""
    return changed(
        text,
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


@misconception("tiled_decode", file=LAB)
def blends_with_the_raw_neighbour(text):
    """The left neighbour is taken as it was decoded, before it was blended with the tile above it.
    Just below a border the image then jumps from the blended rows to that tile alone. Keep the
    right border after the rows are blended."""
    return changed(
        text,
        (
            "            if above:\n",
            "            raw = here[..., here.shape[-1] - extent :].clone()\n"
            "            if above:\n",
        ),
        (
            "            left = here[..., here.shape[-1] - extent :].clone()\n",
            "            left = raw\n",
        ),
    )


@misconception("tiled_decode", file=LAB)
def ramp_in_latent_pixels(text):
    """The ramp has as many pixels of the image as two tiles share latent pixels, though each of
    these became `scale` pixels: the ramp ends too early and is as much too steep. Its extent is
    scale * overlap."""
    return changed(text, ("    extent = overlap * scale\n", "    extent = overlap\n"))


@misconception("tiled_decode", file=LAB)
def crops_without_blending(text):
    """The tiles are cropped but not blended, so at every border two tiles that disagree meet: what
    the decoder sees beyond a border, and its GroupNorm's mean, differ from tile to tile. Blend
    each into its upper and its left neighbour."""
    return changed(
        text,
        ("            if above:\n", "            if False:\n"),
        ("            if left is not None:\n", "            if False:\n"),
    )


@misconception("tiled_decode", file=LAB)
def blends_along_the_width_only(text):
    """The tiles of a row are blended with each other, the rows are not: the image has a seam at
    every border between two rows. Each tile is blended with the one above it, too."""
    return changed(text, ("            if above:\n", "            if False:\n"))


@misconception("tiled_decode", file=LAB)
def keeps_every_tile(text):
    """Every tile is kept until the end, though only the borders of the last row are needed: with
    the overlaps counted twice this is more than the whole image, on top of the image itself."""
    return changed(
        text,
        ("    out = None\n", "    out, every = None, []\n"),
        (
            "            if above:\n",
            "            every.append(here)\n            if above:\n",
        ),
    )


@misconception("tiled_decode", file=LAB)
def puts_the_rows_together_in_the_end(text):
    """The rows are collected and joined in the end, and while they are joined the image is in
    memory twice. Make the image once, with its final size, and write each crop into its place."""
    return changed(
        text,
        ("    out = None\n", "    pieces = []\n"),
        ("            if out is None:\n", "            if start == 0:\n"),
        (
            "                out = here.new_empty("
            "*here.shape[:-2], scale * height, scale * width)\n",
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


@misconception("tiled_decode", file=LAB)
def decodes_the_whole_latent_and_cuts(text):
    """The whole latent is decoded and the image is cut into tiles afterwards: right pixels, at the
    peak that tiles are there to avoid. Cut the latent, and decode each piece."""
    return changed(
        text,
        ("    out = None\n", "    out, whole = None, decoder(z)\n"),
        (
            "            here = decoder(z[..., top:bottom, start:stop])\n",
            "            here = whole[\n"
            "                ..., scale * top : scale * bottom, scale * start : scale * stop\n"
            "            ]\n",
        ),
    )


# -- attention, offload, choose ------------------------------------------------------------------


# --- sliced_attention ----------------------------------------------------------------------------


@misconception("sliced_attention")
def slices_the_keys(q, k, v, heads_per_slice, queries_per_slice):
    """The keys were sliced and each slice was given a softmax of its own. A softmax divides by a
    sum over all keys; whoever slices them has to carry a running maximum and sum along (online
    softmax)."""
    for size in (heads_per_slice, queries_per_slice):
        if size < 1:
            raise ValueError(size)
    out = torch.zeros(*q.shape[:3], v.shape[3], dtype=q.dtype)
    parts = range(0, k.shape[2], queries_per_slice)
    for h in range(0, q.shape[1], heads_per_slice):
        some = slice(h, h + heads_per_slice)
        for t in parts:
            keys = slice(t, t + queries_per_slice)
            scores = (q[:, some] * q.shape[3] ** -0.5) @ k[:, some, keys].transpose(2, 3)
            out[:, some] += scores.softmax(-1) @ v[:, some, keys] / len(parts)
    return out


@misconception("sliced_attention", file=LAB)
def makes_all_scores_first(text):
    """All scores are made first and only their softmax is sliced, so the largest tensor is there as
    before. The product of q and k is what has to be sliced."""
    return changed(
        text,
        (
            "    for h in range(0, heads, heads_per_slice):\n",
            "    every = (q * q.shape[3] ** -0.5) @ k.transpose(2, 3)\n"
            "    for h in range(0, heads, heads_per_slice):\n",
        ),
        (
            "            scores = (q[:, some, rows] * q.shape[3] ** -0.5) @ k[:, "
            "some].transpose(2, 3)",
            "            scores = every[:, some, rows]",
        ),
    )


@misconception("sliced_attention", file=LAB)
def slices_only_heads(text):
    """Only the heads are sliced: each slice still has a score for every pair of tokens, the part
    that grows with the square of the image. Slice the queries as well."""
    return changed(
        text,
        ("for s in range(0, queries, queries_per_slice):", "for s in (0,):"),
        ("rows = slice(s, s + queries_per_slice)", "rows = slice(None)"),
    )


@misconception("sliced_attention", file=LAB)
def slices_only_queries(text):
    """Only the queries are sliced, and the scores of all heads are made at once. heads_per_slice
    was to be kept, too: the two sizes multiply."""
    return changed(
        text,
        ("for h in range(0, heads, heads_per_slice):", "for h in (0,):"),
        ("some = slice(h, h + heads_per_slice)", "some = slice(None)"),
    )


@misconception("sliced_attention", file=LAB)
def one_head_and_query_at_a_time(text):
    """Each slice is one head, whatever size was allowed. Memory is saved that nobody asked for, and
    every slice costs its launches: take slices as large as allowed."""
    return changed(
        text,
        ("for h in range(0, heads, heads_per_slice):", "for h in range(heads):"),
        ("some = slice(h, h + heads_per_slice)", "some = slice(h, h + 1)"),
    )


@misconception("sliced_attention", file=LAB)
def scales_by_the_slice(text):
    """The scores are scaled by a size of the slice. The scale belongs to the head: 1 / sqrt(D),
    with D the last axis of q, however q is cut."""
    return changed(
        text,
        ("(q[:, some, rows] * q.shape[3] ** -0.5)", "(q[:, some, rows] * queries_per_slice**-0.5)"),
    )


@misconception("sliced_attention", file=LAB)
def calls_the_fused_kernel(text):
    """A fused attention call holds no scores in the first place, so slicing around it saves nothing
    and costs launches (so it is in diffusers, too: attention slicing on top of it is no gain). Here
    the slices are to be made by hand."""
    return changed(
        text,
        (
            "            scores = (q[:, some, rows] * q.shape[3] ** -0.5) @ k[:, "
            "some].transpose(2, 3)\n"
            "            out[:, some, rows] = scores.softmax(-1) @ v[:, some]\n"
            "            del scores  # or it is still there while the next slice's are made\n",
            "            out[:, some, rows] = torch.nn.functional.scaled_dot_product_attention(\n"
            "                q[:, some, rows], k[:, some], v[:, some]\n"
            "            )\n",
        ),
    )


# --- SequentialOffload ---------------------------------------------------------------------------


@misconception("SequentialOffload", file=LAB)
def weights_stay_after_the_forward(text):
    """Weights come before each forward and never leave: after one call everything is in fast
    memory, as without offload. A forward hook has to send them away."""
    return changed(
        text,
        ("                self.hooks.append(part.register_forward_hook(self.go))\n", ""),
    )


@misconception("SequentialOffload", file=LAB)
def brings_everything_below(text):
    """A module's hook brings parameters() and with them those of all modules below it, so the
    outermost module brings the whole model. Own tensors are those of recurse=False."""
    return changed(
        text,
        (
            "return [*module.parameters(recurse=False), *module.buffers(recurse=False)]",
            "return [*module.parameters(), *module.buffers()]",
        ),
    )


@misconception("SequentialOffload", file=LAB)
def hooks_only_modules_without_children(text):
    """Only modules without children were hooked. A module can have children and parameters of its
    own (a gain, a class token): its weights never come, and its forward stops with a wrong
    shape."""
    return changed(
        text, ("            if own_tensors(part):\n", "            if not list(part.children()):\n")
    )


@misconception("SequentialOffload", file=LAB)
def forgets_the_buffers(text):
    """Buffers were forgotten: they are part of a module's memory as parameters are, and stayed in
    fast memory. Take buffers() beside parameters()."""
    return changed(
        text,
        (
            "return [*module.parameters(recurse=False), *module.buffers(recurse=False)]",
            "return [*module.parameters(recurse=False)]",
        ),
        (
            "        for tensor in [*module.parameters(), *module.buffers()]:\n"
            "            to_slow(tensor)\n",
            "        for tensor in module.parameters():\n            to_slow(tensor)\n",
        ),
    )


@misconception("SequentialOffload", file=LAB)
def sends_away_what_is_still_needed(text):
    """A tied weight left with the inner module while the outer one still needed it. Count who uses
    a tensor: it leaves when the last of them is done."""
    return changed(
        text,
        ("            if self.users[id(tensor)] == 0:\n", "            if True:\n"),
        ("            if self.users[id(tensor)] == 1:\n", "            if True:\n"),
    )


@misconception("SequentialOffload", file=LAB)
def brings_a_tied_weight_twice(text):
    """A weight that an outer module had brought was brought again for the inner one: a copy over
    the link for what is there already. Bring a tensor for its first user only."""
    return changed(
        text, ("            if self.users[id(tensor)] == 1:\n", "            if True:\n")
    )


@misconception("SequentialOffload", file=LAB)
def everything_stays_until_first_used(text):
    """Nothing leaves on construction, so the whole model lies in fast memory until each module has
    run once. The peak of the first call is that of no offload at all."""
    return changed(
        text,
        (
            "        for tensor in [*module.parameters(), *module.buffers()]:\n"
            "            to_slow(tensor)\n",
            "",
        ),
    )


@misconception("SequentialOffload", file=LAB)
def keeps_a_copy(text):
    """A copy of every weight is kept beside the one that was moved: what left fast memory under its
    name is still there under another."""
    return changed(
        text,
        (
            "        self.users: Counter[int] = Counter()\n",
            "        self.users: Counter[int] = Counter()\n        self.copies = []\n",
        ),
        (
            "                self.to_fast(tensor)\n\n    def go",
            "                self.to_fast(tensor)\n"
            "                self.copies.append(tensor.detach().clone())\n\n    def go",
        ),
    )


# --- ModelOffloadChain ---------------------------------------------------------------------------


@misconception("ModelOffloadChain", file=LAB)
def leaves_after_every_call(text):
    """The component leaves after every call, so the denoiser's weights cross the link once a step
    and not once a run. It has to stay until another component is called."""
    return changed(
        text,
        (
            "        self.hooks = [part.register_forward_pre_hook(self.come) for "
            "part in self.chain]\n",
            "        self.hooks = [part.register_forward_pre_hook(self.come) for "
            "part in self.chain]\n"
            "        self.hooks += [\n"
            "            part.register_forward_hook(lambda *_: self.finish()) for "
            "part in self.chain\n"
            "        ]\n",
        ),
    )


@misconception("ModelOffloadChain", file=LAB)
def comes_before_the_other_leaves(text):
    """The new component comes before the old one has left, so for a moment both are in fast memory:
    the peak is the sum of two components, not the largest. First make room."""
    return changed(
        text,
        (
            "            self.finish()\n"
            "            self.move(part, self.to_fast)\n"
            "            self.resident = part\n",
            "            self.move(part, self.to_fast)\n"
            "            self.finish()\n"
            "            self.resident = part\n",
        ),
    )


@misconception("ModelOffloadChain", file=LAB)
def nothing_leaves(text):
    """Components come when they are called and none of them leaves: at the end of a run all of them
    are there. Whoever is there leaves before the next one comes."""
    return changed(
        text,
        (
            "            self.finish()\n            self.move(part, self.to_fast)\n",
            "            self.move(part, self.to_fast)\n",
        ),
    )


@misconception("ModelOffloadChain", file=LAB)
def comes_again_in_every_step(text):
    """The component is brought before every call, also when it is there: the denoiser crosses the
    link once a step. Look first whether it is the one that is resident."""
    return changed(
        text,
        (
            "            self.resident = part\n",
            "            self.resident = part\n"
            "        else:\n"
            "            self.move(part, self.to_fast)\n",
        ),
    )


@misconception("ModelOffloadChain", file=LAB)
def moves_tied_weights_twice(text):
    """The component was walked module by module, and a weight that two of them hold moved twice.
    parameters() of the whole component names every tensor once."""
    return changed(
        text,
        (
            "        for tensor in [*part.parameters(), *part.buffers()]:  # both "
            "name a tied tensor once\n"
            "            mover(tensor)\n",
            "        for module in part.modules():\n"
            "            for tensor in [*module.parameters(recurse=False), "
            "*module.buffers(recurse=False)]:\n"
            "                mover(tensor)\n",
        ),
    )


@misconception("ModelOffloadChain", file=LAB)
def buffers_of_a_component_stay(text):
    """Buffers were forgotten: they are in fast memory, too, and stayed there. A component is its
    parameters() and its buffers()."""
    return changed(
        text,
        (
            "        for tensor in [*part.parameters(), *part.buffers()]:  # both "
            "name a tied tensor once\n",
            "        for tensor in part.parameters():\n",
        ),
    )


@misconception("ModelOffloadChain", file=LAB)
def the_last_one_never_leaves(text):
    """finish() does nothing, so the decoder lies in fast memory between two runs, beside whatever
    the program does then."""
    return changed(
        text,
        (
            "        if self.resident is not None:\n"
            "            self.move(self.resident, self.to_slow)\n"
            "            self.resident = None\n"
            "        # END SOLUTION\n",
            "        pass\n        # END SOLUTION\n",
        ),
        (
            "            self.finish()\n            self.move(part, self.to_fast)\n",
            "            if self.resident is not None:\n"
            "                self.move(self.resident, self.to_slow)\n"
            "            self.move(part, self.to_fast)\n",
        ),
    )


# --- GroupOffload --------------------------------------------------------------------------------


@misconception("GroupOffload", file=LAB)
def a_group_leaves_after_each_block(text):
    """A group leaves after each of its blocks and comes again for the next one: k times the copies.
    It leaves after its last block."""
    return changed(
        text,
        (
            "            self.hooks.append(group[-1].register_forward_hook(self.go))\n",
            "            self.hooks += [block.register_forward_hook(self.go) for block in group]\n",
        ),
    )


@misconception("GroupOffload", file=LAB)
def groups_never_leave(text):
    """A group comes and never leaves, so after one step all blocks are in fast memory. The hook of
    a group's last block has to send it away."""
    return changed(
        text,
        ("            self.hooks.append(group[-1].register_forward_hook(self.go))\n", ""),
        (
            "            self.go()\n            self.resident = next",
            "            self.resident = next",
        ),
    )


@misconception("GroupOffload", file=LAB)
def a_group_waits_for_the_next(text):
    """A group leaves only when the next one is called, so after the last block of a step the last
    group stays, and lies beside whatever runs between two steps. It leaves after its last block."""
    return changed(
        text,
        ("            self.hooks.append(group[-1].register_forward_hook(self.go))\n", ""),
    )


@misconception("GroupOffload", file=LAB)
def the_next_group_comes_too_early(text):
    """The next group comes before the old one leaves, and two groups are there at once: that is
    what prefetching pays, and here it was not asked for."""
    return changed(
        text,
        (
            "            self.hooks.append(group[-1].register_forward_hook(self.go))\n",
            "            self.hooks.append(group[0].register_forward_hook(self.go_before))\n",
        ),
        (
            "    def go(self, *_: object) -> None:\n",
            "    def go_before(self, block, *_):\n"
            "        for before in self.groups:\n"
            "            if block not in before and before is self.last:\n"
            "                self.move(before, self.to_slow)\n"
            "        self.last = self.resident\n\n"
            "    last = None\n\n"
            "    def go(self, *_: object) -> None:\n",
        ),
        (
            "            self.go()\n            self.resident = next(",
            "            self.resident = next(",
        ),
    )


@misconception("GroupOffload", file=LAB)
def every_kth_block(text):
    """Blocks 0, k, 2k... were put into one group. Blocks run in their order, so a group is k blocks
    in a row: block i belongs to group i // k."""
    return changed(
        text,
        (
            "self.groups = [self.blocks[start : start + k] for start in range(0, "
            "len(self.blocks), k)]",
            "count = -(-len(self.blocks) // k)\n"
            "        self.groups = [self.blocks[start::count] for start in range(count)]",
        ),
    )


@misconception("GroupOffload", file=LAB)
def makes_k_groups(text):
    """k was taken for the number of groups. It is the number of blocks in a group: 40 blocks with k
    = 2 are 20 groups."""
    return changed(
        text,
        (
            "self.groups = [self.blocks[start : start + k] for start in range(0, "
            "len(self.blocks), k)]",
            "size = -(-len(self.blocks) // k)\n"
            "        starts = range(0, len(self.blocks), size)\n"
            "        self.groups = [self.blocks[start : start + size] for start in starts]",
        ),
    )


@misconception("GroupOffload", file=LAB)
def loses_the_last_blocks(text):
    """The last, smaller group got no hooks: with 7 blocks and k = 3 the last block's weights never
    come. The number of groups is ceil(L / k)."""
    return changed(
        text,
        (
            "for start in range(0, len(self.blocks), k)]",
            "for start in range(0, len(self.blocks) - k + 1, k)]",
        ),
    )


@misconception("GroupOffload", file=LAB)
def moves_shared_weights_with_each_block(text):
    """A weight that two blocks of a group share moved with each of them: twice over the link for
    one tensor. Move each distinct tensor of the group once."""
    return changed(
        text,
        (
            "for tensor in {id(tensor): tensor for tensor in tensors}.values():",
            "for tensor in tensors:",
        ),
    )


@misconception("GroupOffload", file=LAB)
def buffers_of_blocks_stay(text):
    """Buffers were forgotten: they stayed in fast memory while their group was away. A block is its
    parameters() and its buffers()."""
    return changed(
        text,
        (
            "for t in [*block.parameters(), *block.buffers()]]",
            "for t in block.parameters()]",
        ),
    )


# --- choose --------------------------------------------------------------------------------------


@misconception("choose")
def stacks_every_knob(components, budget_bytes, link_Bps, copy_s=2e-5):
    """Every knob was turned, whatever the budget: you paid copies of all weights in every step for
    a budget that you already met. Turn the fewest seconds' worth that fits."""
    knobs, seconds, peak = [], 0.0, 0
    for comp in components:
        cuts = [("", comp.act_bytes, 0.0), *((c.name, c.act_bytes, c.seconds) for c in comp.cuts)]
        cut, act, extra = min(cuts, key=lambda c: c[1])
        knobs += [f"{comp.name}.{name}" for name in ("group", cut) if name]
        copies = comp.weight_bytes / link_Bps + comp.groups * copy_s
        seconds += comp.calls * (comp.seconds + extra + copies)
        peak = max(peak, comp.group_bytes + act)
    if peak > budget_bytes:
        raise ValueError(f"the smallest peak is {peak}")
    return Plan(tuple(knobs), peak, seconds)


@misconception("choose", file=LAB)
def model_offload_pays_every_call(text):
    """Model offload was charged a copy for every call. The component stays through all its calls:
    one copy a run, and that is why it beats the others when the component fits."""
    return changed(
        text,
        (
            '"model": (per_call + copy_s, comp.weight_bytes),',
            '"model": (comp.calls * (per_call + copy_s), comp.weight_bytes),',
        ),
    )


@misconception("choose", file=LAB)
def group_offload_pays_once(text):
    """Group and sequential offload were charged one copy of the weights a run. Every call brings
    all of them again, since each group has left before the next call begins."""
    return changed(
        text,
        (
            '"group": (comp.calls * (per_call + comp.groups * copy_s), comp.group_bytes),',
            '"group": (per_call + comp.groups * copy_s, comp.group_bytes),',
        ),
        (
            '"sequential": (comp.calls * (per_call + comp.leaves * copy_s), comp.leaf_bytes),',
            '"sequential": (per_call + comp.leaves * copy_s, comp.leaf_bytes),',
        ),
    )


@misconception("choose", file=LAB)
def copies_cost_only_bytes(text):
    """The time that every copy takes beside its bytes was left out. Without it sequential offload
    costs what group offload costs, and holds less: with it there is a reason for groups."""
    return changed(
        text,
        (
            "    per_call = comp.weight_bytes / link_Bps\n",
            "    per_call = comp.weight_bytes / link_Bps\n    copy_s = 0.0\n",
        ),
    )


@misconception("choose", file=LAB)
def activations_are_forgotten(text):
    """The budget was held against weights alone. While a component runs its activations are there
    as well, and in a decoder they are most of it."""
    return changed(text, ("            held + act,\n", "            held,\n"))


@misconception("choose", file=LAB)
def residents_are_forgotten(text):
    """Each component was looked at alone. While one runs, the weights of every other one that is
    resident are in fast memory beside it."""
    return changed(
        text,
        (
            "beside = sum(c.weight_bytes for c, here in zip(components, stay, "
            "strict=True) if here)",
            "beside = 0",
        ),
        (
            "room = budget_bytes - beside + (comp.weight_bytes if here else 0)",
            "room = budget_bytes",
        ),
        ("others = beside - (comp.weight_bytes if here else 0)", "others = 0"),
    )


@misconception("choose", file=LAB)
def smallest_peak_instead_of_shortest_time(text):
    """The plan with the smallest peak was taken. The budget is a limit and no goal: below it memory
    is worth nothing and seconds are everything."""
    return changed(
        text,
        (
            "    if abs(new[0] - old[0]) > 1e-9 * old[0]:\n        return new[0] < old[0]\n"
            "    return new[1:] < old[1:]\n",
            "    return (new[1], new[0]) < (old[1], old[0])\n",
        ),
        (
            "            fastest = min(o[0] for o in options)\n",
            "            least = min(o[1] for o in options)\n"
            "            options = [o for o in options if o[1] == least]\n"
            "            fastest = min(o[0] for o in options)\n",
        ),
    )


@misconception("choose", file=LAB)
def a_full_budget_does_not_fit(text):
    """A plan whose peak is exactly the budget was refused. What fits to the last byte fits."""
    return changed(text, ("if o[1] <= room]", "if o[1] < room]"))


@misconception("choose", file=LAB)
def idle_knobs_are_turned(text):
    """Of plans that are equal in seconds and peak one with idle knobs was taken: VAE slicing at
    batch 1, tiling of an image that is one tile. A knob that gains nothing stays off."""
    return changed(text, ("key=lambda o: len(o[2]))", "key=lambda o: -len(o[2]))"))


@misconception("choose", file=LAB)
def names_the_budget_only(text):
    """The error names the peak that was refused, or none, and not the smallest one that can be had:
    whoever asked does not know what would be enough."""
    return changed(
        text,
        (
            "            min(o[1] for o in _options(comp, False, link_Bps, "
            "copy_s)) for comp in components\n",
            "            min(o[1] for o in _options(comp, True, link_Bps, copy_s)) "
            "for comp in components\n",
        ),
    )


@misconception("choose", file=LAB)
def weights_travel_both_ways(text):
    """The way back was charged, too. Slow memory still has the weights, which do not change:
    leaving is giving the room back, without a copy."""
    return changed(
        text,
        (
            "    per_call = comp.weight_bytes / link_Bps\n",
            "    per_call = 2 * comp.weight_bytes / link_Bps\n",
        ),
    )


@misconception("choose", file=LAB)
def all_or_none_stay(text):
    """Either all components stayed or none of them. Small ones that are called once are cheap to
    move, and make room for the one that is called in every step: look at every set of residents."""
    return changed(
        text,
        (
            "for stay in itertools.product((True, False), repeat=len(components)):",
            "for stay in ([True] * len(components), [False] * len(components)):",
        ),
    )


# --- knob_table ----------------------------------------------------------------------------------

TABLE = "memory_optimization.md"


def _cells(text, column, **rows):
    """The table with other texts in cells of one column: knob with _ for blanks to text."""
    out, names = [], []
    for line in text.split("\n"):
        cells = line.split("|")
        if len(cells) > 9:
            names = names or [cell.strip() for cell in cells]
            key = cells[1].strip().replace(" ", "_")
            if key in rows:
                cells[names.index(column)] = f" {rows[key]} "
        out.append("|".join(cells))
    return "\n".join(out)


@misconception("knob_table", file=TABLE)
def offload_costs_nothing(text):
    """Offload was said to cost nothing, or to speed things up. It makes large models possible and
    is paid in copies: weights cross a link that is tens to a hundred times slower than fast
    memory."""
    every = dict.fromkeys(("model_offload", "group_offload", "sequential_offload"), "nothing")
    return _cells(text, "costs", **every)


@misconception("knob_table", file=TABLE)
def slicing_helps_one_image(text):
    """VAE slicing was said to help one image. It cuts along the batch, and one image is one slice:
    published tables show the same peak with it and without."""
    return _cells(text, "gains at batch 1", VAE_slicing="yes")


@misconception("knob_table", file=TABLE)
def tiling_is_exact(text):
    """Tiling was said to leave the image as it is. GroupNorm takes its statistics over a tile and
    not over the image, and borders are blended: it is another image."""
    return _cells(text, "image", VAE_tiling="same")


@misconception("knob_table", file=TABLE)
def tiling_costs_quality_only(text):
    """Tiles overlap, and what they share is decoded twice or four times. Tiling costs compute as
    well as quality."""
    return _cells(text, "costs", VAE_tiling="quality")


@misconception("knob_table", file=TABLE)
def model_offload_copies_in_every_step(text):
    """Model offload was said to copy the denoiser in every step. It stays while no other component
    is called, so one run is one copy, whatever the number of steps."""
    return _cells(text, "copies", model_offload="4")


@misconception("knob_table", file=TABLE)
def group_offload_copies_once(text):
    """Group and sequential offload were said to copy the weights once a run. What leaves after its
    forward comes again in the next step: four steps are four copies."""
    return _cells(text, "copies", group_offload="1", sequential_offload="1")


@misconception("knob_table", file=TABLE)
def fp8_storage_is_fp8_compute(text):
    """fp8 storage was said to shrink activations as well. Weights alone are stored in fp8; they are
    cast up before they multiply, so what is computed is as wide as before."""
    return _cells(text, "tensor", fp8_storage="weights, activations")


@misconception("knob_table", file=TABLE)
def fewer_bits_change_nothing(text):
    """Weights of 8 bits were said to give the same image. Rounding weights is no rounding error of
    one sum: it changes every product, and the image."""
    return _cells(text, "image", fp8_storage="same", int8_weights="same")


@misconception("knob_table", file=TABLE)
def attention_slicing_moves(text):
    """Attention slicing moves nothing: it makes the scores of some heads and queries at a time, on
    the same device. That is a cut."""
    return _cells(text, "does", attention_slicing="moves")


@misconception("knob_table", file=TABLE)
def attention_slicing_changes_the_image(text):
    """Attention slicing and fused kernels were said to change the image. Another order of the same
    sums differs by rounding; the function is the same."""
    return _cells(text, "image", attention_slicing="changed", fused_attention="changed")


@misconception("knob_table", file=TABLE)
def tiling_relieves_the_denoiser(text):
    """VAE tiling and slicing were said to relieve the denoiser. They cut what the decoder computes;
    the denoiser has finished by then."""
    return _cells(text, "of", VAE_tiling="denoiser", VAE_slicing="denoiser")


@misconception("knob_table", file=TABLE)
def checkpointing_is_free(text):
    """Gradient checkpointing was said to cost nothing. What was not kept is computed a second time
    in the backward, about a third more FLOPs."""
    return _cells(text, "costs", gradient_checkpointing="nothing")


@misconception("knob_table", file=TABLE)
def a_knob_is_missing(text):
    """A knob has no row. That one gains nothing here is a result, too, and belongs into the
    table."""
    return "\n".join(
        line for line in text.split("\n") if not line.startswith("| split guidance   ")
    )


@misconception("knob_table", file=TABLE)
def no_line_of_dashes(text):
    """Without the line of dashes under its header a table is a paragraph of pipes to Markdown."""
    return "\n".join(line for line in text.split("\n") if not line.startswith("|---------------"))
