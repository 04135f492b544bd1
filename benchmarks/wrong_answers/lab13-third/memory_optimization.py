"""Lab 13: memory knobs of a diffusion pipeline, each written out and measured.

Which tensor is moved, shrunk, cut into tiles or computed again, and what does it cost? Latents are
(B, C, h, w), images (B, 3, scale * h, scale * w). A decoder is anything that can be called with a
latent and gives its image.

    python exercises/lab13/memory_optimization.py
    python exercises/lab13/memory_optimization.py --side 64 --tile 16 --overlap 4
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn
from toy_lab13 import ToyDecoder, seeded
from types_lab13 import Comp, Plan

Decoder = Callable[[torch.Tensor], torch.Tensor]

# -- slices and tiles of a decoder ---------------------------------------------------------------


def sliced_decode(decoder: Decoder, z: torch.Tensor) -> torch.Tensor:
    """The images of a batch of latents, decoded one latent at a time.

    z: (B, C, h, w). decoder: (b, C, h, w) -> (b, 3, H, W), for any b. Returns (B, 3, H, W), what
    `decoder(z)` gives for a decoder that does not mix the images of a batch.

    Peak memory: the images of the batch twice at most (they are collected), and one call of the
    decoder for one latent. With B = 1 nothing is saved: it is that one call.

    Raises ValueError where z has not four axes or holds no latent.
    Source: diffusers 0.42, AutoencoderKL.enable_slicing.
    """
    # TODO(lab13.sliced_decode): One image of a batch at a time
    raise NotImplementedError("lab13.sliced_decode")


def tile_grid(L: int, tile: int, overlap: int) -> list[tuple[int, int, int, int]]:
    """How tiles of at most `tile` latent pixels cover one axis of `L` latent pixels.

    Neighbours share `overlap` pixels, so a tile begins `tile - overlap` behind the one before it.
    The first begins at 0; the one that reaches L is the last one, cut off at L.

    Returns (start, stop, crop_lo, crop_hi) for each tile, in order and all in latent pixels from
    the beginning of the axis: [start, stop) is what is decoded, [crop_lo, crop_hi) what comes into
    the image from this tile. The crop begins with its tile and ends where the next tile begins, or
    at L: the pixels that two tiles share belong to the later one, into which they are blended.

    Raises ValueError for L below 1, tile below 1, or overlap not in 0..tile - 1.
    """
    if L < 1 or tile < 1 or not 0 <= overlap < tile:
        raise ValueError(f"no tiling: L {L}, tile {tile}, overlap {overlap}")
    grid = []
    start = 0
    while start + tile < L:
        following = start + tile - overlap
        grid.append((start, start + tile, start, following))
        start = following
    grid.append((start, L, start, L))
    return grid


def blend(prev: torch.Tensor, cur: torch.Tensor, extent: int, dim: int) -> torch.Tensor:
    """The tile `cur`, whose first pixels along `dim` come gradually out of the tile `prev`.

    The last `extent` pixels of prev and the first `extent` of cur show the same place. There pixel
    y of 0..extent - 1 becomes (1 - y / extent) * prev + (y / extent) * cur: the first one is prev's
    alone, and the first one behind the ramp is cur's alone. A tile that is shorter than `extent`
    along dim makes the ramp as long as that tile.

    prev and cur have the same shape apart from dim, and the same dtype. extent: in pixels of what
    is blended, 0 or more; 0 gives cur. dim: may be negative. Returns a new tensor of cur's shape
    and dtype; prev and cur stay as they are, since their other borders are still to be blended.

    Raises ValueError for a negative extent or shapes that differ elsewhere than along dim.
    Source: diffusers 0.42, AutoencoderKL.blend_v and blend_h (which write into cur).
    """
    dim = dim % cur.dim()
    rest = [i for i in range(cur.dim()) if i != dim]
    if extent < 0 or prev.dim() != cur.dim():
        raise ValueError("a negative extent, or tiles of different rank")
    if any(prev.shape[i] != cur.shape[i] for i in rest):
        raise ValueError(f"{tuple(prev.shape)} and {tuple(cur.shape)} differ beside axis {dim}")
    out = cur.clone()
    n = min(extent, prev.shape[dim], cur.shape[dim])
    if n == 0:
        return out
    wide = torch.promote_types(cur.dtype, torch.float32)
    weight = torch.arange(n, dtype=wide, device=cur.device) / n
    weight = weight.view([n if i == dim else 1 for i in range(cur.dim())])
    old = prev.narrow(dim, prev.shape[dim] - n, n)
    new = cur.narrow(dim, 0, n)
    out.narrow(dim, 0, n).copy_((1 - weight) * old + weight * new)
    return out


def tiled_decode(
    decoder: Decoder, z: torch.Tensor, tile: int, overlap: float | int, scale: int
) -> torch.Tensor:
    """The image of a latent, decoded in overlapping tiles that are blended into each other.

    z: (B, C, h, w). decoder: (B, C, a, b) -> (B, 3, scale * a, scale * b), of the channels and
    dtype that it likes. tile: side of a tile in latent pixels. overlap: what neighbours share; an
    int is latent pixels, a float a share of the tile, rounded to whole latent pixels *once*.
    Returns (B, 3, scale * h, scale * w), for every tile and overlap.

    The tiles are `tile_grid`'s along both axes. A pixel that several tiles show is blended along
    the height and along the width, and the weight of a tile is the product of the two: where four
    tiles meet, (1 - wy)(1 - wx), (1 - wy) wx, wy (1 - wx) and wy wx with the ramps wy and wx of
    `blend`. An axis that fits into one tile is not cut; a latent that fits is one call.

    Peak memory: the image once, one call of the decoder for one tile, and, beside these, never
    more than two rows of tiles. z and what the decoder returns stay as they are.

    Raises ValueError for what tile_grid refuses, for a scale below 1, a float overlap outside of
    [0, 1), and for a decoder whose tile is not scale times as large as its latent.
    Source: diffusers 0.42, AutoencoderKL.tiled_decode, which differs where four tiles meet.
    """
    if scale < 1:
        raise ValueError(f"scale {scale}")
    if isinstance(overlap, float):
        if not 0 <= overlap < 1:
            raise ValueError(f"a share of {overlap}")
        overlap = round(overlap * tile)
    height, width = z.shape[-2:]
    rows, columns = tile_grid(height, tile, overlap), tile_grid(width, tile, overlap)
    ramp = scale * overlap
    out = None
    above: list[torch.Tensor] = []
    for top, bottom, row_lo, row_hi in rows:
        below: list[torch.Tensor] = []
        left = None
        for j, (start, stop, col_lo, col_hi) in enumerate(columns):
            here = decoder(z[..., top:bottom, start:stop])
            if here.shape[-2:] != (scale * (bottom - top), scale * (stop - start)):
                raise ValueError(f"a tile of {tuple(here.shape)} from a decoder of scale {scale}")
            if out is None:
                out = here.new_empty(*here.shape[:2], scale * height, scale * width)
            if above:
                here = blend(above[j], here, ramp, -2)
            if bottom < height:
                below.append(here[..., here.shape[-2] - ramp :, :].clone())
            if left is not None:
                here = blend(left, here, ramp, -1)
            left = here[..., here.shape[-1] - ramp :].clone() if stop < width else None
            out[
                ..., scale * row_lo : scale * row_hi, scale * col_lo : scale * col_hi
            ] = here[..., : scale * (row_hi - row_lo), : scale * (col_hi - col_lo)]
            del here
        above = below
    return out


# -- attention, offload, choose ------------------------------------------------------------------


def sliced_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    heads_per_slice: int,
    queries_per_slice: int,
) -> torch.Tensor:
    """softmax(q k^T / sqrt(D)) v, with the scores of a few heads and queries in memory at a time.

    q: (B, H, S, D); k: (B, H, T, D); v: (B, H, T, E), in one dtype. Returns (B, H, S, E) in that
    dtype. The scores of a slice are (B, heads, queries, T) in that dtype, with heads at most
    heads_per_slice and queries at most queries_per_slice; the last slice may be smaller, and a size
    above what there is means all. Besides its inputs and the output a call holds one slice's
    tensors: its scores, their softmax, its inputs and its result. Slices are as large as allowed,
    each a product, a softmax and a product (no fused attention call: it holds no scores).
    Raises ValueError for a size below 1.
    Source: diffusers 0.42, enable_attention_slicing.
    """
    if heads_per_slice < 1 or queries_per_slice < 1:
        raise ValueError("a slice holds one head and one query at least")
    B, H, S, D = q.shape
    out = q.new_empty(B, H, S, v.shape[-1])
    for h in range(0, H, heads_per_slice):
        heads = slice(h, h + heads_per_slice)
        keys, values = k[:, heads].transpose(-2, -1), v[:, heads]
        for s in range(0, S, queries_per_slice):
            some = slice(s, s + queries_per_slice)
            scores = (q[:, heads, some] * D**-0.5) @ keys
            weights = scores.softmax(-1)
            del scores
            out[:, heads, some] = weights @ values
            del weights
    return out


Move = Callable[[torch.Tensor], None]


class SequentialOffload:
    """Sequential CPU offload: weights are in fast memory only while their own module runs.

    module: any module. Every module in it that holds parameters or buffers of its own is one to
    hook, whether it has children or not; its own tensors come before its forward and leave after
    it. to_fast(tensor), to_slow(tensor): move one tensor's values, and each call is a copy over the
    link (see arena_lab13.py). On construction everything goes to slow memory. A tensor that a
    module holds under two names moves once; one that a running module and a module within it both
    hold stays until the outer one is done. Buffers that a forward changes keep their new values.
    Source: diffusers 0.42, enable_sequential_cpu_offload; accelerate 1.15, cpu_offload.
    """

    def __init__(self, module: nn.Module, to_fast: Move, to_slow: Move) -> None:
        self.to_fast, self.to_slow = to_fast, to_slow
        self.module = module
        self.users: Counter[int] = Counter()
        self.entered: list[list[torch.Tensor]] = []
        self.handles = []
        for part in module.modules():
            if self.own(part):
                self.handles.append(part.register_forward_pre_hook(self.before))
                self.handles.append(part.register_forward_hook(self.after))
        for tensor in distinct([module]):
            to_slow(tensor)

    def own(self, part: nn.Module) -> list[torch.Tensor]:
        held = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
        return list({id(t): t for t in held}.values())

    def before(self, part: nn.Module, args: object) -> None:
        tensors = self.own(part)
        for tensor in tensors:
            self.users[id(tensor)] += 1
            if self.users[id(tensor)] == 1:
                self.to_fast(tensor)
        self.entered.append(tensors)

    def after(self, part: nn.Module, args: object, output: object) -> None:
        for tensor in self.entered.pop():
            self.users[id(tensor)] -= 1
        for tensor in self.own(part):
            if self.users[id(tensor)] == 0:
                self.to_slow(tensor)

    def remove(self) -> None:
        """Take the hooks off and bring everything back to fast memory."""
        for handle in self.handles:
            handle.remove()
        self.handles = []
        for tensor in distinct([self.module]):
            self.to_fast(tensor)


def distinct(modules: Iterable[nn.Module]) -> list[torch.Tensor]:
    """Parameters and buffers of the modules, each once."""
    found: dict[int, torch.Tensor] = {}
    for module in modules:
        for tensor in (*module.parameters(), *module.buffers()):
            found[id(tensor)] = tensor
    return list(found.values())


class ModelOffloadChain:
    """Model CPU offload: of the components of a pipeline at most one is in fast memory.

    components: modules by name; seq: names in the order in which they run, as in
    "text_encoder->denoiser->decoder". Those named go to slow memory on construction, the others
    stay where they are. When a component is called that is not in fast memory, the one that is
    leaves first, then it comes, whole; it stays there until another one is called, so a denoiser
    comes once for all its steps. Each distinct tensor of a component moves once.
    Raises ValueError for a name that is no component or stands there twice.
    Source: diffusers 0.42, enable_model_cpu_offload and model_cpu_offload_seq.
    """

    def __init__(
        self, components: dict[str, nn.Module], seq: str, to_fast: Move, to_slow: Move
    ) -> None:
        names = [name.strip() for name in seq.split("->")]
        for name in names:
            if name not in components or names.count(name) > 1:
                raise ValueError(f"{name!r} in {seq!r}")
        self.to_fast, self.to_slow = to_fast, to_slow
        self.chain = [components[name] for name in names]
        self.resident: nn.Module | None = None
        for tensor in distinct(self.chain):
            to_slow(tensor)
        self.handles = [part.register_forward_pre_hook(self.come) for part in self.chain]

    def come(self, part: nn.Module, args: object) -> None:
        if part is self.resident:
            return
        self.finish()
        for tensor in distinct([part]):
            self.to_fast(tensor)
        self.resident = part

    def finish(self) -> None:
        """End of a run: whatever is still in fast memory leaves."""
        if self.resident is not None:
            for tensor in distinct([self.resident]):
                self.to_slow(tensor)
        self.resident = None

    def remove(self) -> None:
        """Take the hooks off and bring every component back to fast memory."""
        for handle in self.handles:
            handle.remove()
        there = {id(t) for t in distinct([self.resident] if self.resident is not None else [])}
        for tensor in distinct(self.chain):
            if id(tensor) not in there:
                self.to_fast(tensor)
        self.handles, self.resident = [], None


class GroupOffload:
    """Group offload: of a list of blocks, k in a row are in fast memory at a time.

    blocks: distinct modules, called one after the other; the last group may be smaller than k. On
    construction all go to slow memory. A group comes when one of its blocks is called and the group
    is not there, and leaves after the forward of its last block, or, where that one is skipped,
    before another group comes. A tensor that blocks of one group share moves once with it.
    Raises ValueError for k below 1.
    Source: diffusers 0.42, apply_group_offloading with offload_type="block_level".
    """

    def __init__(self, blocks: Iterable[nn.Module], k: int, to_fast: Move, to_slow: Move) -> None:
        if k < 1:
            raise ValueError(f"groups of {k}")
        self.to_fast, self.to_slow = to_fast, to_slow
        self.blocks = list(blocks)
        self.groups = [self.blocks[i : i + k] for i in range(0, len(self.blocks), k)]
        self.resident: list[nn.Module] | None = None
        self.handles = []
        for group in self.groups:
            for block in group:
                self.handles.append(block.register_forward_pre_hook(self.comer(group)))
            self.handles.append(group[-1].register_forward_hook(self.goer))
        for tensor in distinct(self.blocks):
            to_slow(tensor)

    def comer(self, group: list[nn.Module]) -> Callable[..., None]:
        def come(block: nn.Module, args: object) -> None:
            if self.resident is group:
                return
            self.leave()
            for tensor in distinct(group):
                self.to_fast(tensor)
            self.resident = group

        return come

    def goer(self, block: nn.Module, args: object, output: object) -> None:
        self.leave()

    def leave(self) -> None:
        if self.resident is not None:
            for tensor in distinct(self.resident):
                self.to_slow(tensor)
        self.resident = None

    def remove(self) -> None:
        """Take the hooks off and bring all blocks back to fast memory."""
        for handle in self.handles:
            handle.remove()
        there = {id(t) for t in distinct(self.resident or [])}
        for tensor in distinct(self.blocks):
            if id(tensor) not in there:
                self.to_fast(tensor)
        self.handles, self.resident = [], None


def choose(
    components: Sequence[Comp], budget_bytes: int, link_Bps: float, copy_s: float = 2e-5
) -> Plan:
    """The fastest way to run a pipeline within a memory budget.

    Each component stays resident (no knob), or has one of three: "model" (all its weights come
    before its first call: 1 copy), "group" (in every call `groups` copies, group_bytes at a time),
    "sequential" (in every call `leaves` copies, leaf_bytes at a time); and none or one of its cuts.
    A copy of n bytes takes n / link_Bps + copy_s seconds, nothing overlaps, and the way back is
    free, since slow memory still has the weights. Seconds of a run: each component's calls * (its
    seconds + its cut's seconds), and its copies. While a component runs, fast memory holds all of
    its weights (resident, model), group_bytes or leaf_bytes; its activations; and the weights of
    every other component that is resident. The peak is the largest of these.

    Returns the plan with the fewest seconds whose peak is within budget_bytes; of equal ones (to
    1e-9 of the seconds) that with the smallest peak, then with the fewest knobs. Raises ValueError
    that names the smallest possible peak in bytes if the budget is below it.
    """
    def options(part: Comp, stays: bool) -> list[tuple[float, int, tuple[str, ...]]]:
        """(seconds, bytes without the other components, knobs) of each way to run a component."""
        link = part.weight_bytes / link_Bps
        if stays:
            places = [("", part.weight_bytes, 0.0)]
        else:
            places = [
                ("model", part.weight_bytes, link + copy_s),
                ("group", part.group_bytes, part.calls * (link + part.groups * copy_s)),
                ("sequential", part.leaf_bytes, part.calls * (link + part.leaves * copy_s)),
            ]
        cuts = [("", part.act_bytes, 0.0)]
        cuts += [(cut.name, cut.act_bytes, cut.seconds) for cut in part.cuts]
        return [
            (
                part.calls * (part.seconds + more) + copies,
                held + act,
                tuple(f"{part.name}.{knob}" for knob in (place, cut) if knob),
            )
            for place, held, copies in places
            for cut, act, more in cuts
        ]

    best: list[tuple[float, int, int, tuple[str, ...]]] = []
    for stay in itertools.product((True, False), repeat=len(components)):
        all_resident = sum(c.weight_bytes for c, s in zip(components, stay) if s)
        fitting = []
        for part, stays in zip(components, stay):
            beside = all_resident - (part.weight_bytes if stays else 0)
            fitting.append(
                [
                    (seconds, size + beside, knobs)
                    for seconds, size, knobs in options(part, stays)
                    if size + beside <= budget_bytes
                ]
            )
        if not all(fitting):
            continue
        least = sum(min(option[0] for option in ways) for ways in fitting)
        fastest = []
        for ways in fitting:
            limit = min(option[0] for option in ways) + 1e-9 * least
            fastest.append([option for option in ways if option[0] <= limit])
        peak = max((min(option[1] for option in ways) for ways in fastest), default=0)
        picks = [
            min((option for option in ways if option[1] <= peak), key=lambda o: len(o[2]))
            for ways in fastest
        ]
        knobs = tuple(knob for pick in picks for knob in pick[2])
        best.append((sum(pick[0] for pick in picks), peak, len(knobs), knobs))
    if not best:
        smallest = max(min(o[1] for o in options(part, False)) for part in components)
        raise ValueError(f"the smallest possible peak is {smallest} bytes")
    limit = min(plan[0] for plan in best) * (1 + 1e-9)
    seconds, peak, _, knobs = min(
        (plan for plan in best if plan[0] <= limit), key=lambda plan: plan[1:3]
    )
    return Plan(knobs, peak, seconds)


# -- what the script prints ----------------------------------------------------------------------


def main() -> None:
    """Print the tiles of one axis, and how far an image in tiles is from the whole one."""
    parser = argparse.ArgumentParser(description="Decode one latent whole and in tiles.")
    parser.add_argument("--side", type=int, default=48, help="side of the latent in latent pixels")
    parser.add_argument("--tile", type=int, default=16, help="side of a tile in latent pixels")
    parser.add_argument("--overlap", type=int, default=4, help="what neighbours share")
    options = parser.parse_args()
    decoder = seeded(ToyDecoder(), 0)
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(1, 4, options.side, options.side, generator=generator)
    grid = tile_grid(options.side, options.tile, options.overlap)
    with torch.no_grad():
        whole = decoder(z)
        tiled = tiled_decode(decoder, z, options.tile, options.overlap, decoder.scale)
    print(f"{len(grid)} x {len(grid)} tiles of {options.tile}, which share {options.overlap}:")
    for start, stop, lo, hi in grid:
        print(f"  decodes {start:4d} .. {stop:4d}, gives {lo:4d} .. {hi:4d}")
    print(f"image {tuple(tiled.shape)}")
    print(
        f"tiled against whole: mean |difference| {(tiled - whole).abs().mean():.4f}, "
        f"where the image's standard deviation is {whole.std():.4f}"
    )


if __name__ == "__main__":
    main()
