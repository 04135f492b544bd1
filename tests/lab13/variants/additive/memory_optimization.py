"""Another way: each tile is multiplied by its weights and added to the image, no tile knows a
neighbour."""

from __future__ import annotations

import itertools
import math

import torch
from types_lab13 import Plan

# -- slices and tiles ----------------------------------------------------------------------------


def sliced_decode(decoder, z):
    if z.ndim != 4 or z.shape[0] < 1:
        raise ValueError(f"a batch of latents has four axes and one latent at least: {z.shape}")
    images = None
    for b in range(z.shape[0]):
        image = decoder(z[b : b + 1])
        if images is None:
            images = image.new_empty(z.shape[0], *image.shape[1:])
        images[b] = image[0]
    return images


def tile_grid(L, tile, overlap):
    if L <= 0 or tile <= 0 or overlap < 0 or overlap >= tile:
        raise ValueError(f"no tiles of {tile} that share {overlap} on an axis of {L}")
    stride = tile - overlap
    count = max(1, math.ceil((L - overlap) / stride))
    begin = [k * stride for k in range(count)]
    return [(a, min(a + tile, L), a, a + stride if a < begin[-1] else L) for a in begin]


def blend(prev, cur, extent, dim):
    if extent < 0 or prev.ndim != cur.ndim:
        raise ValueError(f"a ramp of {extent} pixels, tiles of {prev.ndim} and {cur.ndim} axes")
    a, b = prev.movedim(dim, -1), cur.movedim(dim, -1)
    if a.shape[:-1] != b.shape[:-1]:
        raise ValueError(f"tiles of {tuple(prev.shape)} and {tuple(cur.shape)} do not fit")
    n = min(extent, a.shape[-1], b.shape[-1])
    ramp = torch.linspace(0, 1, n + 1, dtype=torch.float64)[:n].to(b.dtype)
    mixed = torch.lerp(a[..., a.shape[-1] - n :], b[..., :n], ramp)
    return torch.cat([mixed, b[..., n:]], -1).movedim(-1, dim)


def _axis(length, tile, overlap, scale):
    """(start, stop, weights of this tile's pixels) for each tile of an axis."""
    grid = tile_grid(length, tile, overlap)
    at = torch.arange(scale * length, dtype=torch.float64)
    ramps = [torch.ones_like(at)]
    for start, _, _, _ in grid[1:]:
        inside = at - scale * start
        grows = (inside / (scale * overlap)).clamp(0, 1) if overlap else inside >= 0
        ramps.append(grows.to(at))
    rows = []
    newer = torch.ones_like(at)
    for (start, stop, _, _), ramp in zip(reversed(grid), reversed(ramps), strict=True):
        rows.append((start, stop, (ramp * newer)[scale * start : scale * stop]))
        newer = newer * (1 - ramp)
    return rows


def tiled_decode(decoder, z, tile, overlap, scale):
    if scale < 1:
        raise ValueError(f"scale {scale}")
    if isinstance(overlap, float):
        if overlap < 0 or overlap >= 1:
            raise ValueError(f"a share of {overlap}")
        overlap = int(tile * overlap + 0.5)
    h, w = z.shape[-2:]
    columns = _axis(w, tile, overlap, scale)
    image = None
    for top, bottom, wy in _axis(h, tile, overlap, scale):
        for left, right, wx in columns:
            shown = decoder(z[..., top:bottom, left:right])
            if tuple(shown.shape[-2:]) != (len(wy), len(wx)):
                raise ValueError(f"{len(wy)} x {len(wx)} pixels were due, not {shown.shape}")
            if image is None:
                image = shown.new_zeros(*shown.shape[:-2], scale * h, scale * w)
            rows = slice(scale * top, scale * bottom)
            cols = slice(scale * left, scale * right)
            image[..., rows, cols] += shown * torch.outer(wy, wx).to(shown.dtype)
    return image


# -- attention, offload, choose ------------------------------------------------------------------


def sliced_attention(q, k, v, heads_per_slice, queries_per_slice):
    """Queries outside, heads inside; the softmax by hand, and the pieces joined at the end."""
    if min(heads_per_slice, queries_per_slice) < 1:
        raise ValueError(f"sizes are {heads_per_slice} and {queries_per_slice}, not 1 and more")
    bands = []
    for rows in torch.split(q, queries_per_slice, dim=2):
        triples = zip(*(torch.split(x, heads_per_slice, dim=1) for x in (rows, k, v)), strict=True)
        bands.append(torch.cat([_piece(*triple) for triple in triples], dim=1))
    return torch.cat(bands, dim=2)


def _piece(q, k, v):
    scores = torch.einsum("bhsd,bhtd->bhst", q / math.sqrt(q.shape[-1]), k)
    scores -= scores.amax(-1, keepdim=True)
    scores.exp_()
    return torch.einsum("bhst,bhte->bhse", scores, v) / scores.sum(-1, keepdim=True)


class Wrapped:
    """Forwards that are replaced by others, and can be put back."""

    def __init__(self):
        self.modules = []

    def around(self, module, before, after):
        plain = module.forward

        def forward(*args, **kwargs):
            before(module)
            try:
                return plain(*args, **kwargs)
            finally:
                after(module)

        module.forward = forward
        self.modules.append(module)

    def undo(self):
        for module in self.modules:
            del module.forward


def _everything(*modules):
    found = {}
    for module in modules:
        for tensor in itertools.chain(module.parameters(), module.buffers()):
            found[id(tensor)] = tensor
    return list(found.values())


class SequentialOffload:
    def __init__(self, module, to_fast, to_slow):
        self.holders = {}
        self.wrapped, self.module, self.to_fast = Wrapped(), module, to_fast

        def own(part):
            both = (*part._parameters.values(), *part._buffers.values())
            return {id(t): t for t in both if t is not None}

        def come(part):
            for key, tensor in own(part).items():
                if not self.holders.setdefault(key, []):
                    to_fast(tensor)
                self.holders[key].append(part)

        def go(part):
            for key, holders in list(self.holders.items()):
                if part in holders:
                    holders.remove(part)
                if not holders:
                    del self.holders[key]
            for key, tensor in own(part).items():
                if key not in self.holders:
                    to_slow(tensor)

        for tensor in _everything(module):
            to_slow(tensor)
        for part in list(module.modules()):
            self.wrapped.around(part, come, go)

    def remove(self):
        self.wrapped.undo()
        for tensor in _everything(self.module):
            self.to_fast(tensor)


class ModelOffloadChain:
    def __init__(self, components, seq, to_fast, to_slow):
        names = seq.split("->")
        if set(names) - set(components) or len(set(names)) < len(names):
            raise ValueError(f"{seq!r} does not fit to {sorted(components)}")
        self.to_fast, self.to_slow, self.here = to_fast, to_slow, []
        self.parts = [components[name] for name in names]
        self.wrapped = Wrapped()
        for part in self.parts:
            for tensor in _everything(part):
                to_slow(tensor)
            self.wrapped.around(part, self._come, lambda _part: None)

    def _come(self, part):
        if self.here[:1] == [part]:
            return
        self.finish()
        self.here = [part]
        for tensor in _everything(part):
            self.to_fast(tensor)

    def finish(self):
        for tensor in _everything(*self.here):
            self.to_slow(tensor)
        self.here = []

    def remove(self):
        self.finish()
        self.wrapped.undo()
        for part in self.parts:
            for tensor in _everything(part):
                self.to_fast(tensor)


class GroupOffload:
    def __init__(self, blocks, k, to_fast, to_slow):
        if k <= 0:
            raise ValueError("k must be 1 and more")
        blocks = list(blocks)
        self.blocks, self.to_fast, self.here = blocks, to_fast, None
        self.wrapped = Wrapped()
        for tensor in _everything(*blocks):
            to_slow(tensor)

        def leave():
            for tensor in _everything(*(self.here[1] if self.here else ())):
                to_slow(tensor)
            self.here = None

        def come(block):
            start = blocks.index(block) // k * k
            if self.here is None or self.here[0] != start:
                leave()
                self.here = (start, blocks[start : start + k])
                for tensor in _everything(*self.here[1]):
                    to_fast(tensor)

        def go(block):
            place = blocks.index(block) + 1
            if place % k == 0 or place == len(blocks):
                leave()

        self.leave = leave
        for block in blocks:
            self.wrapped.around(block, come, go)

    def remove(self):
        self.leave()
        self.wrapped.undo()
        for tensor in _everything(*self.blocks):
            self.to_fast(tensor)


def choose(components, budget_bytes, link_Bps, copy_s=2e-5):
    """Component after component, all sums that no other sum beats: (seconds, bytes of residents,
    the most that a component holds beside them, knobs). The peak is the second and third."""
    front = [(0.0, 0, 0, ())]
    least = [(0.0, 0, 0, ())]
    for comp in components:
        options = _ways(comp, link_Bps, copy_s)
        front = _front([_sum(a, b) for a in front for b in options], budget_bytes)
        least = [min((_sum(a, b) for a in least for b in options), key=lambda r: r[1] + r[2])]
    if not front:
        raise ValueError(f"{budget_bytes} bytes are below the smallest peak, {sum(least[0][1:3])}")
    fastest = min(row[0] for row in front)
    near = [row for row in front if row[0] <= fastest * (1 + 1e-9)]
    best = min(near, key=lambda row: (row[1] + row[2], len(row[3])))
    return Plan(best[3], best[1] + best[2], best[0])


def _ways(comp, link_Bps, copy_s):
    load = comp.weight_bytes / link_Bps
    cuts = [(comp.act_bytes, 0.0, ())]
    cuts += [(c.act_bytes, c.seconds * comp.calls, (f"{comp.name}.{c.name}",)) for c in comp.cuts]
    ways = []
    for act, more, knobs in cuts:
        run = comp.calls * comp.seconds + more
        ways.append((run, comp.weight_bytes, act, knobs))
        for name, held, copies, times in (
            ("model", comp.weight_bytes, 1, 1),
            ("group", comp.group_bytes, comp.groups, comp.calls),
            ("sequential", comp.leaf_bytes, comp.leaves, comp.calls),
        ):
            row = (run + times * (load + copies * copy_s), 0, held + act)
            ways.append((*row, (f"{comp.name}.{name}", *knobs)))
    return ways


def _sum(a, b):
    return (a[0] + b[0], a[1] + b[1], max(a[2], b[2]), a[3] + b[3])


def _front(rows, budget_bytes):
    kept = []
    for row in sorted(rows, key=lambda r: (r[0], r[1], r[2], len(r[3]))):
        if row[1] + row[2] <= budget_bytes and not any(
            o[1] <= row[1] and o[2] <= row[2] and len(o[3]) <= len(row[3]) for o in kept
        ):
            kept.append(row)
    return kept
