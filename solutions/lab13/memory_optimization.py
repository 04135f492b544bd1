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
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn
from toy_lab13 import ToyDecoder, seeded
from types_lab13 import Comp, Plan

Decoder = Callable[[torch.Tensor], torch.Tensor]

# -- slices and tiles of a decoder ---------------------------------------------------------------


def sliced_decode(decoder: Decoder, z: torch.Tensor) -> torch.Tensor:
    """The images of a batch of latents, decoded one latent at a time.

    z: (B, C, h, w), with any strides. decoder: (b, C, h, w) -> (b, 3, H, W), for any b, in a dtype
    that need not be z's. Returns (B, 3, H, W) in the decoder's dtype, what `decoder(z)` gives for a
    decoder that does not mix the images of a batch. The decoder is called once for each latent,
    which keeps its batch axis. Gradients reach z and the decoder's weights.

    Peak memory, without gradients: the images of the batch twice at most (they are collected), and
    one call of the decoder for one latent. With B = 1 nothing is saved: it is that one call.

    Raises ValueError where z has not four axes or holds no latent.
    Source: diffusers 0.42, AutoencoderKL.enable_slicing.
    """
    # BEGIN SOLUTION sliced_decode
    if z.dim() != 4 or len(z) == 0:
        raise ValueError(f"z is {tuple(z.shape)}; it must be (B, C, h, w) with B of 1 at least.")
    return torch.cat([decoder(one) for one in z.split(1)])
    # END SOLUTION


def tile_grid(L: int, tile: int, overlap: int) -> list[tuple[int, int, int, int]]:
    """How tiles of at most `tile` latent pixels cover one axis of `L` latent pixels.

    Neighbours share `overlap` pixels, so a tile begins `tile - overlap` behind the one before it.
    The first begins at 0; the one that reaches L is the last one, cut off at L.

    Returns (start, stop, crop_lo, crop_hi) for each tile, in order and all in latent pixels from
    the beginning of the axis: [start, stop) is what is decoded, [crop_lo, crop_hi) what comes into
    the image from this tile. The crop begins with its tile and ends where the next tile begins, or
    at L: the pixels that two tiles share belong to the later one, into which they are blended.

    Raises ValueError for L below 1, tile below 1, or overlap not in 0..tile - 1, also where the
    axis fits into one tile.
    """
    # BEGIN SOLUTION tile_grid
    if L < 1 or tile < 1:
        raise ValueError(f"L is {L} and tile is {tile}; both must be 1 at least.")
    if not 0 <= overlap < tile:
        raise ValueError(f"overlap is {overlap}; it must be in 0..{tile - 1} for tiles of {tile}.")
    stride = tile - overlap
    grid, start = [], 0
    while start + tile < L:
        grid.append((start, start + tile, start, start + stride))
        start += stride
    return [*grid, (start, L, start, L)]
    # END SOLUTION


def blend(prev: torch.Tensor, cur: torch.Tensor, extent: int, dim: int) -> torch.Tensor:
    """The tile `cur`, whose first pixels along `dim` come gradually out of the tile `prev`.

    The last `extent` pixels of prev and the first `extent` of cur show the same place. There pixel
    y of 0..extent - 1 becomes (1 - y / extent) * prev + (y / extent) * cur: the first one is prev's
    alone, and the first one behind the ramp is cur's alone. A tile that is shorter than `extent`
    along dim makes the ramp as long as that tile; one without a pixel there gives cur.

    prev and cur have the same shape apart from dim, with any number of axes and any strides, and
    the same floating dtype. extent: in pixels of what is blended, 0 or more; 0 gives cur. dim: one
    of their axes, may be negative. Returns a new tensor of cur's shape and dtype; prev and cur stay
    as they are, since their other borders are still to be blended. Gradients reach both.

    Raises ValueError for a negative extent, or shapes that differ elsewhere than along dim, also
    where extent is 0. A length of 1 is not stretched.
    Source: diffusers 0.42, AutoencoderKL.blend_v and blend_h (which write into cur).
    """
    # BEGIN SOLUTION blend
    if extent < 0:
        raise ValueError(f"extent is {extent}; it must be 0 or more.")
    dim = dim % cur.dim()
    rest = [axis for axis in range(cur.dim()) if axis != dim]
    if prev.dim() != cur.dim() or any(prev.shape[axis] != cur.shape[axis] for axis in rest):
        shapes = f"prev is {tuple(prev.shape)} and cur is {tuple(cur.shape)}"
        raise ValueError(f"{shapes}; they may differ along axis {dim} only.")
    extent = min(extent, prev.shape[dim], cur.shape[dim])
    if extent == 0:
        return cur.clone()
    shape = [1] * cur.dim()
    shape[dim] = extent
    weight = torch.arange(extent, dtype=torch.float64, device=cur.device) / extent
    weight = weight.to(cur.dtype).view(shape)
    old = prev.narrow(dim, prev.shape[dim] - extent, extent)
    out = cur.clone()
    out.narrow(dim, 0, extent).mul_(weight).add_(old * (1 - weight))
    return out
    # END SOLUTION


def tiled_decode(
    decoder: Decoder, z: torch.Tensor, tile: int, overlap: float | int, scale: int
) -> torch.Tensor:
    """The image of a latent, decoded in overlapping tiles that are blended into each other.

    z: (B, C, h, w), with any strides. decoder: (B, C, a, b) -> (B, 3, scale * a, scale * b); it may
    give another number of channels, and another dtype than z's: the image has them, too. tile: side
    of a tile in latent pixels. overlap: what neighbours share; an int is latent pixels, a float a
    share of the tile, rounded to the nearest whole latent pixel *once*. Returns (B, 3, scale * h,
    scale * w), for every tile and overlap. Gradients reach z and the decoder's weights.

    The tiles are `tile_grid`'s along both axes. A pixel that several tiles show is blended along
    the height and along the width, and the weight of a tile is the product of the two: where four
    tiles meet, (1 - wy)(1 - wx), (1 - wy) wx, wy (1 - wx) and wy wx with the ramps wy and wx of
    `blend`. Where an overlap above half a tile lets three tiles of one axis share a pixel, the
    newest is blended into what the two before it make together: with the ramps r2 of the newest and
    r1 of the one before, the three weigh r2, (1 - r2) r1 and (1 - r2)(1 - r1); and so on for more.
    Each tile is decoded once. An axis that fits into one tile is not cut, whether the other one is
    or not; a latent that fits is one call.

    Peak memory, without gradients: the image once, one call of the decoder for one tile, and,
    beside these, never more than two rows of tiles (so borders may be views of their tiles). z and
    what the decoder returns stay as they are: it may be a view of z, or expanded.

    Raises ValueError for what tile_grid refuses, for a scale below 1, for a float overlap outside
    of [0, 1), also where it would be rounded to 0, and for a decoder of which any tile is not
    scale times as high and as wide as its latent.
    Source: diffusers 0.42, AutoencoderKL.tiled_decode, which differs where four tiles meet.
    """
    # BEGIN SOLUTION tiled_decode
    if scale < 1:
        raise ValueError(f"scale is {scale}; it must be 1 at least.")
    if isinstance(overlap, float):
        if not 0 <= overlap < 1:
            raise ValueError(f"overlap is {overlap}; a share of the tile must be in [0, 1).")
        overlap = round(overlap * tile)
    height, width = z.shape[-2:]
    rows, columns = tile_grid(height, tile, overlap), tile_grid(width, tile, overlap)
    extent = overlap * scale
    out = None
    above: list[torch.Tensor] = []
    for top, bottom, row_lo, row_hi in rows:
        below, left = [], None
        for j, (start, stop, col_lo, col_hi) in enumerate(columns):
            here = decoder(z[..., top:bottom, start:stop])
            if here.shape[-2:] != (scale * (bottom - top), scale * (stop - start)):
                raise ValueError(
                    f"a tile of {bottom - top} x {stop - start} became {tuple(here.shape[-2:])}; "
                    f"with scale {scale} it must be {scale} times as large."
                )
            if out is None:
                out = here.new_empty(*here.shape[:-2], scale * height, scale * width)
            if above:
                here = blend(above[j], here, extent, -2)
            # Kept for the row below before the columns are blended, so that the two ramps do not
            # mix; and copied, since a view would keep the whole tile alive.
            below.append(here[..., here.shape[-2] - extent :, :].clone())
            if left is not None:
                here = blend(left, here, extent, -1)
            left = here[..., here.shape[-1] - extent :].clone()
            out[..., scale * row_lo : scale * row_hi, scale * col_lo : scale * col_hi] = here[
                ..., : scale * (row_hi - row_lo), : scale * (col_hi - col_lo)
            ]
        above = below
    return out
    # END SOLUTION


# -- attention, offload, choose ------------------------------------------------------------------


def sliced_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    heads_per_slice: int,
    queries_per_slice: int,
) -> torch.Tensor:
    """softmax(q k^T / sqrt(D)) v, with the scores of a few heads and queries in memory at a time.

    q: (B, H, S, D); k: (B, H, T, D); v: (B, H, T, E), in one floating dtype and with any strides.
    Returns (B, H, S, E) in that dtype. Scores may be large: a softmax of thousands does not
    overflow. The scores of a slice and their softmax are (B, heads, queries, T) in that dtype, with
    heads at most heads_per_slice and queries at most queries_per_slice; a size above what there is
    means all. Slices are as large as allowed: 8 heads by 5 are slices of 5 and 3, not of 4 and 4.
    Each is a product, a softmax and a product (no fused attention call: it holds no scores).

    Peak memory: besides its inputs and the output (twice, where results are joined in the end) a
    call holds the inputs and the result of one slice, and at most three tensors as large as a
    slice's scores: these before they are scaled, scaled, and their softmax. A fourth, such as
    what is left of the slice before, is one too many. For inference: no gradient need pass.

    Raises ValueError where either size is below 1.
    Source: diffusers 0.42, enable_attention_slicing.
    """
    # BEGIN SOLUTION sliced_attention
    for name, size in (
        ("heads_per_slice", heads_per_slice),
        ("queries_per_slice", queries_per_slice),
    ):
        if size < 1:
            raise ValueError(f"{name} is {size}; a slice holds one at least")
    heads, queries = q.shape[1:3]
    out = q.new_empty(*q.shape[:3], v.shape[3])
    for h in range(0, heads, heads_per_slice):
        some = slice(h, h + heads_per_slice)
        for s in range(0, queries, queries_per_slice):
            rows = slice(s, s + queries_per_slice)
            scores = (q[:, some, rows] * q.shape[3] ** -0.5) @ k[:, some].transpose(2, 3)
            out[:, some, rows] = scores.softmax(-1) @ v[:, some]
            del scores  # or it is still there while the next slice's are made
    return out
    # END SOLUTION


Move = Callable[[torch.Tensor], None]


# BEGIN SOLUTION SequentialOffload
def own_tensors(module: nn.Module) -> list[torch.Tensor]:
    """Parameters and buffers that a module holds itself, tied ones once."""
    return [*module.parameters(recurse=False), *module.buffers(recurse=False)]


# END SOLUTION


class SequentialOffload:
    """Sequential CPU offload: weights are in fast memory only while their own module runs.

    module: any module. Every module in it that holds parameters or buffers of its own is one to
    hook, whether it has children or not; its own tensors come before its forward and leave after
    it, in every call. to_fast(tensor), to_slow(tensor): move one tensor's values, and each call is
    a copy over the link (see arena_lab13.py). On construction everything goes to slow memory, each
    tensor once. A tensor that a module holds under two names moves once; one that a running module
    and a module within it both hold stays until the outer one is done. A buffer that a forward
    changes keeps its new value, whether it was changed in place or is a new tensor under the old
    name: then it is the new one that leaves. Arguments and outputs pass through as they are. After
    a forward that raised nothing is promised.
    Source: diffusers 0.42, enable_sequential_cpu_offload; accelerate 1.15, cpu_offload.
    """

    def __init__(self, module: nn.Module, to_fast: Move, to_slow: Move) -> None:
        # BEGIN SOLUTION SequentialOffload
        self.module, self.to_fast, self.to_slow = module, to_fast, to_slow
        self.running: list[nn.Module] = []
        self.hooks = []
        for tensor in [*module.parameters(), *module.buffers()]:
            to_slow(tensor)
        for part in module.modules():
            if own_tensors(part):
                self.hooks.append(part.register_forward_pre_hook(self.come))
                self.hooks.append(part.register_forward_hook(self.go))
        # END SOLUTION

    def remove(self) -> None:
        """Take the hooks off and bring everything back to fast memory, each tensor once."""
        # BEGIN SOLUTION SequentialOffload
        for hook in self.hooks:
            hook.remove()
        for tensor in [*self.module.parameters(), *self.module.buffers()]:
            self.to_fast(tensor)

    def come(self, part: nn.Module, _args: object) -> None:
        for tensor in self.unused(part):
            self.to_fast(tensor)
        self.running.append(part)

    def go(self, part: nn.Module, _args: object, _output: object) -> None:
        self.running.remove(part)
        for tensor in self.unused(part):
            self.to_slow(tensor)

    def unused(self, part: nn.Module) -> list[torch.Tensor]:
        """What a module holds now, also what its forward put there, and no running one holds."""
        used = {id(tensor) for other in self.running for tensor in own_tensors(other)}
        return [tensor for tensor in own_tensors(part) if id(tensor) not in used]
        # END SOLUTION


class ModelOffloadChain:
    """Model CPU offload: of the components of a pipeline at most one is in fast memory.

    components: modules by name, which share no tensor; seq: names in the order in which they run,
    without blanks, as in "text_encoder->denoiser->decoder". Those named go to slow memory on
    construction, the others stay where they are. When a component is called that is not in fast
    memory, whichever other one is leaves first, then it comes, whole; it stays there until another
    one of seq is called, so a denoiser comes once for all its steps. Each distinct tensor of a
    component moves once. Buffers that a forward changes, in place or as new tensors under the old
    names, keep their new values and leave with it. Arguments and outputs pass through as they are.
    Raises ValueError that names what is not a component or is there twice, before anything moves.
    Source: diffusers 0.42, enable_model_cpu_offload and model_cpu_offload_seq.
    """

    def __init__(
        self, components: dict[str, nn.Module], seq: str, to_fast: Move, to_slow: Move
    ) -> None:
        # BEGIN SOLUTION ModelOffloadChain
        names = seq.split("->")
        for name in names:
            if name not in components or names.count(name) > 1:
                raise ValueError(f"{name!r} is not one of {', '.join(components)}, named once")
        self.to_fast, self.to_slow = to_fast, to_slow
        self.chain = [components[name] for name in names]
        self.resident: nn.Module | None = None
        for part in self.chain:
            self.move(part, to_slow)
        self.hooks = [part.register_forward_pre_hook(self.come) for part in self.chain]
        # END SOLUTION

    def finish(self) -> None:
        """End of a run: whichever of the chain is still in fast memory leaves, if any; the next
        one that is called comes again."""
        # BEGIN SOLUTION ModelOffloadChain
        if self.resident is not None:
            self.move(self.resident, self.to_slow)
            self.resident = None
        # END SOLUTION

    def remove(self) -> None:
        """Take the hooks off and bring every component of seq back to fast memory, also before
        `finish()`: each tensor that is away once. What is there already may stay, come once more,
        or leave first."""
        # BEGIN SOLUTION ModelOffloadChain
        self.finish()
        for hook in self.hooks:
            hook.remove()
        for part in self.chain:
            self.move(part, self.to_fast)

    def come(self, part: nn.Module, _args: object) -> None:
        if part is not self.resident:
            self.finish()
            self.move(part, self.to_fast)
            self.resident = part

    def move(self, part: nn.Module, mover: Move) -> None:
        for tensor in [*part.parameters(), *part.buffers()]:  # both name a tied tensor once
            mover(tensor)
        # END SOLUTION


class GroupOffload:
    """Group offload: of a list of blocks, k in a row are in fast memory at a time.

    blocks: distinct modules, called one after the other, in a list or from any other iterable; the
    last group may be smaller than k. On construction all go to slow memory, each tensor once. A
    group comes, whole, when one of its blocks is called, whichever it is, and the group is not
    there; it leaves after the forward of its last block, or, where that one is skipped, before
    another group comes. A tensor that blocks of one group share moves once with it. Buffers that a
    forward changes, in place or as new tensors under the old names, keep their new values and leave
    with the group. Arguments and outputs pass through as they are.
    Raises ValueError for k below 1.
    Source: diffusers 0.42, apply_group_offloading with offload_type="block_level".
    """

    def __init__(self, blocks: Iterable[nn.Module], k: int, to_fast: Move, to_slow: Move) -> None:
        # BEGIN SOLUTION GroupOffload
        if k < 1:
            raise ValueError(f"k is {k}; a group has one block at least")
        self.blocks, self.to_fast, self.to_slow = list(blocks), to_fast, to_slow
        self.groups = [self.blocks[start : start + k] for start in range(0, len(self.blocks), k)]
        self.resident: list[nn.Module] = []
        self.move(self.blocks, to_slow)
        self.hooks = []
        for group in self.groups:
            for block in group:
                self.hooks.append(block.register_forward_pre_hook(self.come))
            self.hooks.append(group[-1].register_forward_hook(self.go))
        # END SOLUTION

    def remove(self) -> None:
        """Take the hooks off and bring all blocks back to fast memory: each tensor that is away
        once. What is there already may stay, come once more, or leave first."""
        # BEGIN SOLUTION GroupOffload
        self.go()
        for hook in self.hooks:
            hook.remove()
        self.move(self.blocks, self.to_fast)

    def come(self, block: nn.Module, _args: object) -> None:
        if block not in self.resident:
            self.go()
            self.resident = next(group for group in self.groups if block in group)
            self.move(self.resident, self.to_fast)

    def go(self, *_: object) -> None:
        self.move(self.resident, self.to_slow)
        self.resident = []

    def move(self, blocks: list[nn.Module], mover: Move) -> None:
        tensors = [t for block in blocks for t in [*block.parameters(), *block.buffers()]]
        for tensor in {id(tensor): tensor for tensor in tensors}.values():
            mover(tensor)
        # END SOLUTION


def choose(
    components: Sequence[Comp], budget_bytes: int, link_Bps: float, copy_s: float = 2e-5
) -> Plan:
    """The fastest way to run a pipeline within a memory budget.

    components: one at least, each with a name of its own; ten with a cut each have a thousand
    million plans, so no answer may try them all. Each stays resident (no knob), or has one of
    three: "model" (all its weights come before its first call, in 1 copy), "group" (they come in
    every call, in `groups` copies), "sequential" (in every call, in `leaves` copies); and none or
    one of its cuts. A copy of n bytes takes n / link_Bps + copy_s seconds, and the copies of a call
    are weight_bytes together, however uneven the groups or leaves are. Nothing overlaps, and the
    way back is free, since slow memory still has the weights. Seconds of a run: each component's
    calls * (its seconds + its cut's seconds), and its copies. While a component runs, fast memory
    holds all of its weights (resident, model), group_bytes or leaf_bytes; its activations; and the
    weights of every other component that is resident. The peak is the largest of these.

    Returns the plan with the fewest seconds whose peak is within budget_bytes, to the last byte; of
    equal ones (to 1e-9 of the seconds, so that no rounding decides) that with the smallest peak,
    then with the fewest knobs. Raises ValueError that names the smallest possible peak in bytes if
    the budget is below it.
    """
    # BEGIN SOLUTION choose
    best: tuple[float, int, int] | None = None
    found = Plan((), 0, 0.0)
    for stay in itertools.product((True, False), repeat=len(components)):
        beside = sum(c.weight_bytes for c, here in zip(components, stay, strict=True) if here)
        per_component = []
        for comp, here in zip(components, stay, strict=True):
            room = budget_bytes - beside + (comp.weight_bytes if here else 0)
            options = [o for o in _options(comp, here, link_Bps, copy_s) if o[1] <= room]
            if not options:
                break
            fastest = min(o[0] for o in options)
            near = [o for o in options if o[0] <= fastest * (1 + 1e-9)]
            others = beside - (comp.weight_bytes if here else 0)
            per_component.append([(s, bytes_ + others, knobs) for s, bytes_, knobs in near])
        else:
            peak = max(min(o[1] for o in near) for near in per_component)
            picked = [
                min((o for o in near if o[1] <= peak), key=lambda o: len(o[2]))
                for near in per_component
            ]
            seconds = sum(o[0] for o in picked)
            knobs = tuple(name for o in picked for name in o[2])
            if best is None or _better((seconds, peak, len(knobs)), best):
                best, found = (seconds, peak, len(knobs)), Plan(knobs, peak, seconds)
    if best is None:
        least = max(
            min(o[1] for o in _options(comp, False, link_Bps, copy_s)) for comp in components
        )
        raise ValueError(
            f"a budget of {budget_bytes} bytes is too small: with every knob turned the peak is "
            f"{least} bytes"
        )
    return found


def _options(
    comp: Comp, stays: bool, link_Bps: float, copy_s: float
) -> list[tuple[float, int, tuple[str, ...]]]:
    """(seconds, bytes, knobs) of every way to run one component that stays resident or does not."""
    per_call = comp.weight_bytes / link_Bps
    places = {
        "model": (per_call + copy_s, comp.weight_bytes),
        "group": (comp.calls * (per_call + comp.groups * copy_s), comp.group_bytes),
        "sequential": (comp.calls * (per_call + comp.leaves * copy_s), comp.leaf_bytes),
    }
    if stays:
        places = {"": (0.0, comp.weight_bytes)}
    cuts = [("", comp.act_bytes, 0.0), *((c.name, c.act_bytes, c.seconds) for c in comp.cuts)]
    return [
        (
            comp.calls * (comp.seconds + extra) + copying,
            held + act,
            tuple(f"{comp.name}.{knob}" for knob in (place, cut) if knob),
        )
        for place, (copying, held) in places.items()
        for cut, act, extra in cuts
    ]


def _better(new: tuple[float, int, int], old: tuple[float, int, int]) -> bool:
    """Fewer seconds; where they are equal but for rounding, a smaller peak, then fewer knobs."""
    if abs(new[0] - old[0]) > 1e-9 * old[0]:
        return new[0] < old[0]
    return new[1:] < old[1:]
    # END SOLUTION


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
