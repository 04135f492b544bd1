"""Another way: a row of tiles becomes one band of the image, and bands are blended whole."""

from __future__ import annotations

import torch
from types_lab13 import Plan

# -- slices and tiles ----------------------------------------------------------------------------


def sliced_decode(decoder, z):
    if z.dim() != 4:
        raise ValueError(f"z has {z.dim()} axes, not 4")
    if z.size(0) == 0:
        raise ValueError("z holds no latent")
    return torch.cat([decoder(z[index].unsqueeze(0)) for index in range(z.size(0))], dim=0)


def tile_grid(L, tile, overlap):
    if min(L, tile) < 1 or overlap not in range(tile):
        raise ValueError(f"L {L}, tile {tile}, overlap {overlap}")
    begin = [0]
    while begin[-1] + tile < L:
        begin.append(begin[-1] + tile - overlap)
    ends = [*begin[1:], L]
    return [(a, min(a + tile, L), a, b) for a, b in zip(begin, ends, strict=True)]


def blend(prev, cur, extent, dim):
    if extent < 0:
        raise ValueError(f"extent {extent}")
    if prev.dim() != cur.dim():
        raise ValueError(f"tiles of {prev.dim()} and {cur.dim()} axes")
    others = [list(t.shape) for t in (prev, cur)]
    for shape in others:
        shape[dim] = 0
    if others[0] != others[1]:
        raise ValueError(f"shapes {tuple(prev.shape)} and {tuple(cur.shape)}")
    extent = min(extent, prev.size(dim), cur.size(dim))
    out = cur.clone()
    for y in range(extent):
        old = prev.select(dim, prev.size(dim) - extent + y)
        new = cur.select(dim, y)
        out.select(dim, y).copy_(old * (1 - y / extent) + new * (y / extent))
    return out


def _band(decoder, rows, grid, extent, scale):
    """The image of one row of tiles, as wide as the whole image."""
    pieces, last = [], None
    for start, stop, low, high in grid:
        tile = decoder(rows[..., start:stop])
        if tile.size(-1) != scale * (stop - start) or tile.size(-2) != scale * rows.size(-2):
            raise ValueError(
                f"a tile has {tuple(tile.shape)}, which is not {scale} times its latent"
            )
        if last is not None:
            tile = blend(last, tile, extent, 3)
        pieces.append(tile[..., : scale * (high - low)].contiguous())
        last = tile[..., tile.shape[-1] - extent :].clone()
    return torch.cat(pieces, 3)


def tiled_decode(decoder, z, tile, overlap, scale):
    if scale < 1:
        raise ValueError(f"scale {scale}")
    if isinstance(overlap, float):
        if not 0.0 <= overlap < 1.0:
            raise ValueError(f"overlap {overlap}")
        overlap = round(tile * overlap)
    across = tile_grid(z.size(3), tile, overlap)
    extent = scale * overlap
    image = above = None
    for top, bottom, low, high in tile_grid(z.size(2), tile, overlap):
        band = _band(decoder, z[:, :, top:bottom], across, extent, scale)
        if image is None:
            size = (*band.shape[:2], scale * z.size(2), band.shape[3])
            image = torch.empty(size, dtype=band.dtype)
        else:
            band = blend(above, band, extent, 2)
        image[:, :, scale * low : scale * high] = band[:, :, : scale * (high - low)]
        above = band[:, :, band.shape[2] - extent :].clone()
        del band
    return image


# -- attention, offload, choose ------------------------------------------------------------------


def sliced_attention(q, k, v, heads_per_slice, queries_per_slice):
    """Heads as one axis of a batched product, filled into one output."""
    for size in (heads_per_slice, queries_per_slice):
        if not size >= 1:
            raise ValueError(f"a slice of {size} is none")
    batch, heads, queries, width = q.shape
    out = torch.empty(batch, heads, queries, v.shape[-1], dtype=q.dtype)
    h = 0
    while h < heads:
        above = min(h + heads_per_slice, heads)
        keys = k[:, h:above].flatten(0, 1).mT
        values = v[:, h:above].flatten(0, 1)
        s = 0
        while s < queries:
            end = min(s + queries_per_slice, queries)
            rows = q[:, h:above, s:end].flatten(0, 1)
            weights = torch.bmm(rows, keys).mul_(width**-0.5).softmax(dim=-1)
            out[:, h:above, s:end] = torch.bmm(weights, values).unflatten(0, (batch, above - h))
            del weights
            s = end
        h = above
    return out


class SequentialOffload:
    """What a module finds away it brings, and what it brought it sends back: a stack of lists."""

    def __init__(self, module, to_fast, to_slow):
        self.module, self.movers, self.stack, self.handles = module, (to_fast, to_slow), [], []
        self.there = set()
        for tensor in self._tensors():
            to_slow(tensor)
        for part in module.modules():
            self.handles.append(part.register_forward_pre_hook(self._before))
            self.handles.append(part.register_forward_hook(self._after, always_call=True))

    def _tensors(self):
        yield from self.module.parameters()
        yield from self.module.buffers()

    def _before(self, part, _args):
        brought = []
        for tensor in [*part.parameters(recurse=False), *part.buffers(recurse=False)]:
            if id(tensor) not in self.there:
                self.movers[0](tensor)
                self.there.add(id(tensor))
                brought.append(tensor)
        self.stack.append(brought)

    def _after(self, part, _args, _out):
        for tensor in self.stack.pop():
            self.there.remove(id(tensor))
        for tensor in [*part.parameters(recurse=False), *part.buffers(recurse=False)]:
            if id(tensor) not in self.there:
                self.movers[1](tensor)

    def remove(self):
        while self.handles:
            self.handles.pop().remove()
        for tensor in self._tensors():
            self.movers[0](tensor)


class _Set:
    """Tensors that move together."""

    def __init__(self, modules, to_fast, to_slow):
        self.modules = modules
        self.to_fast, self.to_slow, self.there = to_fast, to_slow, True

    def move(self, there):
        if there != self.there:
            table = {}
            for module in self.modules:
                table.update((id(t), t) for t in module.parameters())
                table.update((id(t), t) for t in module.buffers())
            for tensor in table.values():
                (self.to_fast if there else self.to_slow)(tensor)
            self.there = there


class ModelOffloadChain:
    def __init__(self, components, seq, to_fast, to_slow):
        self.sets, self.handles = {}, []
        for name in seq.split("->"):
            if name not in components:
                raise ValueError(f"no component is called {name!r}")
            if name in self.sets:
                raise ValueError(f"{name!r} stands in {seq!r} twice")
            self.sets[name] = _Set([components[name]], to_fast, to_slow)
        for name, one in self.sets.items():
            one.move(False)
            hook = components[name].register_forward_pre_hook(
                lambda _module, _args, name=name: self._only(name)
            )
            self.handles.append(hook)

    def _only(self, wanted):
        for name, one in self.sets.items():
            if name != wanted:
                one.move(False)
        if wanted is not None:
            self.sets[wanted].move(True)

    def finish(self):
        self._only(None)

    def remove(self):
        for handle in self.handles:
            handle.remove()
        for one in self.sets.values():
            one.move(True)


class GroupOffload:
    def __init__(self, blocks, k, to_fast, to_slow):
        if k < 1:
            raise ValueError(f"groups of {k} blocks")
        blocks = list(blocks)
        every = _Set(blocks, to_fast, to_slow)
        every.move(False)
        self.sets, self.handles = [], []
        for start in range(0, len(blocks), k):
            group = blocks[start : start + k]
            number = len(self.sets)
            self.sets.append(_Set(group, to_fast, to_slow))
            self.sets[-1].there = False
            for place, block in enumerate(group, start=1):
                self.handles.append(
                    block.register_forward_pre_hook(
                        lambda _module, _args, number=number: self._only(number)
                    )
                )
                if place == len(group):
                    self.handles.append(
                        block.register_forward_hook(lambda *_args: self._only(None))
                    )
        self.every, self.to_fast = every, to_fast

    def _only(self, wanted):
        for number, one in enumerate(self.sets):
            if number != wanted:
                one.move(False)
        if wanted is not None:
            self.sets[wanted].move(True)

    def remove(self):
        for handle in self.handles:
            handle.remove()
        self._only(None)
        self.every.move(True)


def choose(components, budget_bytes, link_Bps, copy_s=2e-5):
    """For each amount that a component may hold beside the residents: a knapsack of residents."""
    tables = [_table(comp, link_Bps, copy_s) for comp in components]
    amounts = sorted({row[1] for table in tables for rows in table for row in rows})
    best = None
    for amount in amounts:
        sack = {0: (0.0, ())}
        for comp, table in zip(components, tables, strict=True):
            fuller = {}
            for weight, (seconds, knobs) in sack.items():
                for more, rows in zip((comp.weight_bytes, 0), table, strict=True):
                    fit = [row for row in rows if row[1] <= amount]
                    total = weight + more
                    if not fit or total + amount > budget_bytes:
                        continue
                    time, _held, names = min(fit, key=lambda row: (_rounded(row[0]), len(row[2])))
                    new = (seconds + time, (*knobs, *names))
                    if total not in fuller or _key(new) < _key(fuller[total]):
                        fuller[total] = new
            sack = fuller
        for weight, (seconds, knobs) in sack.items():
            row = (_rounded(seconds), weight + amount, len(knobs), knobs, seconds)
            if best is None or row[:3] < best[:3]:
                best = row
    if best is None:
        least = max(min(row[1] for row in table[1]) for table in tables)
        raise ValueError(f"nothing runs within {budget_bytes} bytes; {least} are the fewest")
    return Plan(best[3], best[1], best[4])


def _key(entry):
    return (_rounded(entry[0]), len(entry[1]))


def _rounded(seconds):
    """To ten digits, so that sums that differ in their last bits are equal."""
    return float(f"{seconds:.9e}")


def _table(comp, link_Bps, copy_s):
    """Rows (seconds, bytes beside the residents, knobs): of a resident component, of the others."""
    cuts = [(None, comp.act_bytes, 0.0)] + [(c.name, c.act_bytes, c.seconds) for c in comp.cuts]
    stays, moves = [], []
    for name, act, extra in cuts:
        run = comp.calls * (comp.seconds + extra)
        cut = () if name is None else (f"{comp.name}.{name}",)
        stays.append((run, act, cut))
        once = comp.weight_bytes / link_Bps
        for place, held, time in (
            ("model", comp.weight_bytes, once + copy_s),
            ("group", comp.group_bytes, comp.calls * (once + comp.groups * copy_s)),
            ("sequential", comp.leaf_bytes, comp.calls * (once + comp.leaves * copy_s)),
        ):
            moves.append((run + time, held + act, (f"{comp.name}.{place}", *cut)))
    return stays, moves
