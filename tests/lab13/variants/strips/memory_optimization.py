"""Another way: strips of the finished image instead of borders of tiles, a visit to a module as a
generator, and every set of residents under every peak that could be."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import torch
from types_lab13 import Plan

# -- slices and tiles ----------------------------------------------------------------------------


def sliced_decode(decoder, z):
    if len(z.shape) != 4 or not z.shape[0]:
        raise ValueError(f"no batch of latents: {list(z.shape)}")
    return torch.concat(tuple(map(decoder, torch.tensor_split(z, z.shape[0]))))


def tile_grid(L, tile, overlap):
    if L < 1 or tile < 1:
        raise ValueError("an axis and a tile have a length")
    if overlap < 0 or tile <= overlap:
        raise ValueError("an overlap is a part of a tile")
    step = tile - overlap
    starts = np.arange(0, max(L - overlap, 1), step)
    table = np.stack([starts, np.minimum(starts + tile, L), starts, np.append(starts[1:], L)])
    return [tuple(int(place) for place in row) for row in table.T]


def blend(prev, cur, extent, dim):
    shapes = [[*t.shape] for t in (prev, cur)]
    if extent < 0 or len(shapes[0]) != len(shapes[1]):
        raise ValueError("no ramp between these")
    lengths = [shape.pop(dim) for shape in shapes]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{shapes[0]} and {shapes[1]} beside the ramp's axis")
    ramp = min(extent, *lengths)
    if ramp == 0:
        return cur.clone()
    places = torch.arange(ramp)
    old = prev.index_select(dim, places + (lengths[0] - ramp))
    new = cur.index_select(dim, places)
    share = places.to(torch.float64).div(ramp).to(cur.dtype)
    share = share.reshape([ramp if axis == dim % cur.ndim else 1 for axis in range(cur.ndim)])
    return cur.index_copy(dim, places, old - old * share + new * share)


def tiled_decode(decoder, z, tile, overlap, scale):
    if scale < 1 or (isinstance(overlap, float) and not 0 <= overlap < 1):
        raise ValueError(f"scale {scale}, overlap {overlap}")
    if isinstance(overlap, float):
        overlap = math.floor(overlap * tile + 0.5)
    high, wide = z.shape[-2:]
    downward = tile_grid(high, tile, overlap)
    ramp = overlap * scale

    def decoded(top, bottom, left, right):
        made = decoder(z[:, :, top:bottom, left:right])
        if made.shape[-1] != scale * (right - left) or made.shape[-2] != scale * (bottom - top):
            raise ValueError("the decoder has another scale")
        return made

    canvas, strips = None, None
    for top, bottom, y0, y1 in downward:
        border, lower = None, []
        for place, (left, right, x0, x1) in enumerate(tile_grid(wide, tile, overlap)):
            now = decoded(top, bottom, left, right)
            if border is not None:
                now = blend(border, now, ramp, 3)
            border = now[..., max(0, now.shape[3] - ramp) :].clone()
            piece = now.narrow(3, 0, (x1 - x0) * scale)
            if strips is not None:
                piece = blend(strips[place], piece, ramp, 2)
            lower.append(piece[:, :, max(0, piece.shape[2] - ramp) :].clone())
            if canvas is None:
                canvas = now.new_empty(now.shape[0], now.shape[1], high * scale, wide * scale)
            part = canvas.narrow(2, y0 * scale, (y1 - y0) * scale)
            part = part.narrow(3, x0 * scale, (x1 - x0) * scale)
            part.copy_(piece.narrow(2, 0, part.shape[2]))
            del now, piece
        strips = lower
    return canvas


# -- attention, offload, choose ------------------------------------------------------------------


def sliced_attention(q, k, v, heads_per_slice, queries_per_slice):
    if not (heads_per_slice > 0 and queries_per_slice > 0):
        raise ValueError("nothing in a slice")
    out = torch.empty(q.shape[:3] + v.shape[3:], dtype=q.dtype)
    keys = k.transpose(-1, -2)
    parts = itertools.product(
        torch.arange(q.shape[1]).split(heads_per_slice),
        torch.arange(q.shape[2]).split(queries_per_slice),
    )
    for some, rows in parts:
        a, b = some[0].item(), some[-1].item() + 1
        c, d = rows[0].item(), rows[-1].item() + 1
        scores = torch.matmul(q[:, a:b, c:d] / math.sqrt(q.shape[-1]), keys[:, a:b])
        scores = torch.softmax(scores, dim=3)
        torch.matmul(scores, v[:, a:b], out=out[:, a:b, c:d])
    return out


def _own(module):
    """A module's tensors by id, without those of its children."""
    return {
        id(tensor): tensor
        for tensor in [*module._parameters.values(), *module._buffers.values()]
        if tensor is not None
    }


def _all(modules):
    return functools.reduce(dict.__or__, (_own(m) for top in modules for m in top.modules()), {})


class SequentialOffload:
    """A visit is a generator: what comes before its yield comes before the forward."""

    def __init__(self, module, to_fast, to_slow):
        self.module, self.to_fast, self.to_slow = module, to_fast, to_slow
        self.visits, self.outside, self.hooks = [], set(), []
        for tensor in _all([module]).values():
            to_slow(tensor)
        for part in set(module.modules()):
            self.hooks += [
                part.register_forward_pre_hook(self.begin, with_kwargs=True),
                part.register_forward_hook(self.end, with_kwargs=True),
            ]

    def visit(self, part):
        before = set(self.outside)
        for key, tensor in _own(part).items():
            if key not in before:
                self.to_fast(tensor)
        self.outside = before | set(_own(part))
        yield
        self.outside = before
        for key, tensor in _own(part).items():
            if key not in before:
                self.to_slow(tensor)

    def begin(self, part, args, kwargs):
        self.visits.append(self.visit(part))
        next(self.visits[-1])

    def end(self, part, args, kwargs, output):
        for _ in self.visits.pop():
            pass

    def remove(self):
        for hook in self.hooks:
            hook.remove()
        for tensor in _all([self.module]).values():
            self.to_fast(tensor)


class ModelOffloadChain:
    def __init__(self, components, seq, to_fast, to_slow):
        self.to_fast, self.to_slow, self.now = to_fast, to_slow, None
        self.chain = {}
        for name in seq.split("->"):
            if name in self.chain or name not in components:
                raise ValueError(f"{seq}: {name!r} is twice there, or none of {list(components)}")
            self.chain[name] = components[name]
        self.hooks = []
        for name, part in self.chain.items():
            self.send(name)
            hook = functools.partial(self.turn, name)
            self.hooks.append(part.register_forward_pre_hook(hook))

    def send(self, name):
        for tensor in _all([self.chain[name]]).values():
            self.to_slow(tensor)

    def turn(self, name, *_):
        if self.now == name:
            return
        self.finish()
        self.now = name
        for tensor in _all([self.chain[name]]).values():
            self.to_fast(tensor)

    def finish(self):
        if self.now is not None:
            self.send(self.now)
        self.now = None

    def remove(self):
        for hook in self.hooks:
            hook.remove()
        for name, part in self.chain.items():
            if name != self.now:
                for tensor in _all([part]).values():
                    self.to_fast(tensor)
        self.now = None


class GroupOffload:
    def __init__(self, blocks, k, to_fast, to_slow):
        if k < 1:
            raise ValueError("k")
        self.to_fast, self.to_slow, self.now = to_fast, to_slow, None
        self.blocks = tuple(blocks)
        for tensor in _all(self.blocks).values():
            to_slow(tensor)
        self.k, self.hooks = k, []
        for place, block in enumerate(self.blocks):
            before = functools.partial(self.before, place // k)
            after = functools.partial(self.after, place)
            self.hooks.append(block.register_forward_pre_hook(before))
            self.hooks.append(block.register_forward_hook(after))

    def group(self, number):
        return _all(self.blocks[number * self.k : (number + 1) * self.k]).values()

    def before(self, number, *_):
        if self.now not in (None, number):
            self.leave()
        if self.now is None:
            for tensor in self.group(number):
                self.to_fast(tensor)
            self.now = number

    def after(self, place, *_):
        if (place + 1) % self.k == 0 or place + 1 == len(self.blocks):
            self.leave()

    def leave(self):
        if self.now is not None:
            for tensor in self.group(self.now):
                self.to_slow(tensor)
        self.now = None

    def remove(self):
        there = set() if self.now is None else {id(t) for t in self.group(self.now)}
        for hook in self.hooks:
            hook.remove()
        for key, tensor in _all(self.blocks).items():
            if key not in there:
                self.to_fast(tensor)
        self.now = None


def choose(components, budget_bytes, link_Bps, copy_s=2e-5):
    """For every set of residents and every peak that could be: whoever is fastest below it."""
    weights = np.array([comp.weight_bytes for comp in components], dtype=object)
    tables = [[_ways(comp, stays, link_Bps, copy_s) for stays in (0, 1)] for comp in components]
    found = []
    smallest = None
    for stays in itertools.product((0, 1), repeat=len(components)):
        beside = sum(int(w) for w, here in zip(weights, stays) if here)
        rows = []
        for table, here, weight in zip(tables, stays, weights):
            others = beside - int(weight) * here
            rows.append([(seconds, own + others, names) for seconds, own, names in table[here]])
        lowest = max(min(row[1] for row in some) for some in rows)
        smallest = lowest if smallest is None else min(smallest, lowest)
        if lowest > budget_bytes:
            continue
        fit = [[row for row in some if row[1] <= budget_bytes] for some in rows]
        total = sum(min(row[0] for row in some) for some in fit)
        for limit in sorted({row[1] for some in fit for row in some if row[1] >= lowest}):
            pick = [
                min(
                    (row for row in some if row[1] <= limit), key=lambda r: (_near(r[0]), len(r[2]))
                )
                for some in fit
            ]
            seconds = math.fsum(row[0] for row in pick)
            if seconds <= total * (1 + 1e-9):
                names = tuple(itertools.chain.from_iterable(row[2] for row in pick))
                found.append((seconds, max(row[1] for row in pick), len(names), names))
    if not found:
        raise ValueError(f"at least {smallest} bytes are needed, and there are {budget_bytes}")
    fastest = min(found)[0]
    equal = [row for row in found if row[0] <= fastest * (1 + 1e-9)]
    seconds, peak, _count, names = min(equal, key=lambda row: row[1:3])
    return Plan(names, peak, seconds)


def _near(seconds):
    return float(f"{seconds:.8e}")


def _ways(comp, stays, link_Bps, copy_s):
    once = comp.weight_bytes / link_Bps
    places = [("", 0.0, comp.weight_bytes)]
    if not stays:
        calls = comp.calls
        places = [
            ("model", once + copy_s, comp.weight_bytes),
            ("group", calls * once + calls * comp.groups * copy_s, comp.group_bytes),
            ("sequential", calls * once + calls * comp.leaves * copy_s, comp.leaf_bytes),
        ]
    rows = []
    for knob, copying, held in places:
        for name, act, more in [("", comp.act_bytes, 0.0)] + [
            (cut.name, cut.act_bytes, cut.seconds) for cut in comp.cuts
        ]:
            names = tuple(f"{comp.name}.{one}" for one in (knob, name) if one)
            rows.append(
                (comp.calls * comp.seconds + comp.calls * more + copying, held + act, names)
            )
    return rows
