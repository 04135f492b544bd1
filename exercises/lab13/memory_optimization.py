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

    Raises ValueError for L below 1, tile below 1, or overlap not in 0..tile - 1, also where the
    axis fits into one tile.
    """
    # TODO(lab13.tile_grid): Where tiles begin, and what is kept of them
    raise NotImplementedError("lab13.tile_grid")


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
    # TODO(lab13.blend): One tile goes over into the next
    raise NotImplementedError("lab13.blend")


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
    # TODO(lab13.tiled_decode): An image in tiles, at the memory of one
    raise NotImplementedError("lab13.tiled_decode")


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
    # TODO(lab13.sliced_attention): Attention a slice at a time
    raise NotImplementedError("lab13.sliced_attention")


Move = Callable[[torch.Tensor], None]


# TODO(lab13.SequentialOffload): Every module's weights come and go with it


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
        # TODO(lab13.SequentialOffload): Every module's weights come and go with it
        raise NotImplementedError("lab13.SequentialOffload")

    def remove(self) -> None:
        """Take the hooks off and bring everything back to fast memory, each tensor once."""
        # TODO(lab13.SequentialOffload): Every module's weights come and go with it
        raise NotImplementedError("lab13.SequentialOffload")


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
        # TODO(lab13.ModelOffloadChain): One component at a time
        raise NotImplementedError("lab13.ModelOffloadChain")

    def finish(self) -> None:
        """End of a run: whichever of the chain is still in fast memory leaves, if any; the next
        one that is called comes again."""
        # TODO(lab13.ModelOffloadChain): One component at a time
        raise NotImplementedError("lab13.ModelOffloadChain")

    def remove(self) -> None:
        """Take the hooks off and bring every component of seq back to fast memory, also before
        `finish()`: each tensor that is away once. What is there already may stay, come once more,
        or leave first."""
        # TODO(lab13.ModelOffloadChain): One component at a time
        raise NotImplementedError("lab13.ModelOffloadChain")


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
        # TODO(lab13.GroupOffload): A few blocks at a time
        raise NotImplementedError("lab13.GroupOffload")

    def remove(self) -> None:
        """Take the hooks off and bring all blocks back to fast memory: each tensor that is away
        once. What is there already may stay, come once more, or leave first."""
        # TODO(lab13.GroupOffload): A few blocks at a time
        raise NotImplementedError("lab13.GroupOffload")


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
    # TODO(lab13.choose): The fewest knobs that fit
    raise NotImplementedError("lab13.choose")


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
