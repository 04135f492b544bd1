"""Another way: the image tile by tile out of two tables of weights, one for each axis, hooks
of all modules that look a module up, and plans from a queue, the fastest first."""

from __future__ import annotations

import heapq
import itertools

import torch
from torch.nn.modules import module as every
from types_lab13 import Plan

# -- slices and tiles ----------------------------------------------------------------------------


def sliced_decode(decoder, z):
    if z.dim() != 4 or z.size(0) == 0:
        raise ValueError(f"a batch of latents is wanted, not {tuple(z.shape)}")
    images = None
    for place, latent in enumerate(z):
        image = decoder(latent.unsqueeze(0))
        if images is None:
            images = torch.zeros((len(z), *image.shape[1:]), dtype=image.dtype)
        images = images.index_copy_(0, torch.tensor([place]), image)
    return images


def tile_grid(L, tile, overlap):
    if not (L > 0 and tile > 0 and tile > overlap >= 0):
        raise ValueError(f"L {L}, tile {tile}, overlap {overlap}")
    stride = tile - overlap
    whole = list(itertools.takewhile(lambda at: at + tile < L, itertools.count(0, stride)))
    last = len(whole) * stride
    return [*((at, at + tile, at, at + stride) for at in whole), (last, L, last, L)]


def blend(prev, cur, extent, dim):
    if extent < 0:
        raise ValueError("extent")
    same = [(a, b) for a, b in zip(prev.shape, cur.shape)]
    if prev.ndim == cur.ndim:
        del same[dim]
    if prev.ndim != cur.ndim or any(a != b for a, b in same):
        raise ValueError(f"{tuple(prev.shape)} beside {tuple(cur.shape)}, axis {dim}")
    extent = min(extent, prev.shape[dim], cur.shape[dim])
    before, ramp = (
        prev.tensor_split([prev.shape[dim] - extent], dim)[1],
        cur.split([extent, cur.shape[dim] - extent], dim),
    )
    rows = [
        old.mul((extent - y) / extent).add(new, alpha=y / extent)
        for y, (old, new) in enumerate(zip(before.unbind(dim), ramp[0].unbind(dim)))
    ]
    return torch.cat([torch.stack(rows, dim), ramp[1]], dim) if rows else cur.clone()


def _shares(length, tile, overlap, scale):
    """Rows of (start, stop, weights): a tile's ramp, times what later tiles leave to it."""
    rows = []
    for start, stop, _, _ in tile_grid(length, tile, overlap):
        y = torch.arange(scale * (stop - start), dtype=torch.float64)
        ramp = (y / (scale * overlap)).clamp(max=1) if start and overlap else torch.ones_like(y)
        for before, _, weights in rows:
            shared = weights[scale * (start - before) :]
            shared *= 1 - ramp[: len(shared)]
        rows.append((start, stop, ramp))
    return rows


def tiled_decode(decoder, z, tile, overlap, scale):
    if scale < 1:
        raise ValueError("scale")
    if type(overlap) is float:
        if overlap < 0 or overlap >= 1 or overlap != overlap:
            raise ValueError("a share")
        overlap = round(overlap * tile)
    whole = [scale * length for length in z.shape[-2:]]
    down, right = (_shares(length, tile, overlap, scale) for length in z.shape[-2:])
    image = None
    for (a, b, wy), (c, d, wx) in itertools.product(down, right):
        made = decoder(z[:, :, a:b, c:d])
        if list(made.shape[-2:]) != [len(wy), len(wx)]:
            raise ValueError(f"{list(made.shape)} where {len(wy)} x {len(wx)} pixels were due")
        if len(down) * len(right) == 1:
            return made.clone()
        if image is None:
            image = torch.zeros(*made.shape[:2], *whole, dtype=made.dtype)
        part = image[:, :, scale * a : scale * b, scale * c : scale * d]
        part.addcmul_(made * wy.to(made.dtype)[:, None], wx.to(made.dtype))
        del made
    return image


# -- attention, offload, choose ------------------------------------------------------------------


def sliced_attention(q, k, v, heads_per_slice, queries_per_slice):
    sizes = {"heads": heads_per_slice, "queries": queries_per_slice}
    if wrong := [name for name, size in sizes.items() if size < 1]:
        raise ValueError(f"no {wrong[0]} in a slice")
    scale = 1.0 / q.size(-1) ** 0.5
    out = torch.empty(*q.shape[:-1], v.size(-1), dtype=q.dtype, device=q.device)
    slices = [torch.split(x, heads_per_slice, 1) for x in (q, k, v, out)]
    for queries, keys, values, results in zip(*slices):
        for rows, result in zip(
            queries.split(queries_per_slice, 2), results.split(queries_per_slice, 2)
        ):
            scores = torch.einsum("bhsd,bhtd->bhst", rows * scale, keys)
            scores = scores.sub_(scores.max(dim=-1, keepdim=True).values)
            scores = scores.exp_()
            result[:] = torch.einsum("bhst,bhte->bhse", scores, values) / scores.sum(-1)[..., None]
            del scores
    return out


class Watcher:
    """Hooks of all modules there are; ours are looked up by their id."""

    def __init__(self, modules, before, after):
        self.ours = {id(module): module for module in modules}
        self.hooks = [
            every.register_module_forward_pre_hook(
                lambda module, args: before(module) if id(module) in self.ours else None
            ),
            every.register_module_forward_hook(
                lambda module, args, out: after(module) if id(module) in self.ours else None
            ),
        ]

    def stop(self):
        while self.hooks:
            self.hooks.pop().remove()


def _distinct(modules, recurse=True):
    seen, found = set(), []
    for module in modules:
        for tensor in (*module.parameters(recurse), *module.buffers(recurse)):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                found.append(tensor)
    return found


class SequentialOffload:
    def __init__(self, module, to_fast, to_slow):
        self.module, self.to_fast, self.to_slow = module, to_fast, to_slow
        self.depth, self.held = [], set()
        for tensor in _distinct([module]):
            to_slow(tensor)
        self.watcher = Watcher(module.modules(), self.before, self.after)

    def before(self, part):
        self.depth.append(self.held)
        own = _distinct([part], recurse=False)
        for tensor in own:
            if id(tensor) not in self.held:
                self.to_fast(tensor)
        self.held = self.held.union(id(tensor) for tensor in own)

    def after(self, part):
        self.held = self.depth.pop()
        for tensor in _distinct([part], recurse=False):
            if id(tensor) not in self.held:
                self.to_slow(tensor)

    def remove(self):
        self.watcher.stop()
        for tensor in _distinct([self.module]):
            self.to_fast(tensor)


class _OneAtATime:
    """Sets of modules of which one is in fast memory at most."""

    def __init__(self, sets, to_fast, to_slow):
        self.sets, self.to_fast, self.to_slow, self.now = sets, to_fast, to_slow, None
        self.number = {id(one): n for n, some in enumerate(sets) for one in some}
        for tensor in _distinct(itertools.chain.from_iterable(sets)):
            to_slow(tensor)

    def turn(self, number):
        if number == self.now:
            return
        if self.now is not None:
            for tensor in _distinct(self.sets[self.now]):
                self.to_slow(tensor)
        self.now = number
        if number is not None:
            for tensor in _distinct(self.sets[number]):
                self.to_fast(tensor)

    def come(self, module):
        self.turn(self.number[id(module)])

    def all_back(self):
        self.turn(None)
        for tensor in _distinct(itertools.chain.from_iterable(self.sets)):
            self.to_fast(tensor)


class ModelOffloadChain:
    def __init__(self, components, seq, to_fast, to_slow):
        names = seq.split("->")
        for name in names:
            if components.get(name) is None:
                raise ValueError(f"{name!r} is not one of {sorted(components)}")
            if names.count(name) != 1:
                raise ValueError(f"{name!r} runs twice in {seq!r}")
        parts = [components[name] for name in names]
        self.sets = _OneAtATime([[part] for part in parts], to_fast, to_slow)
        self.watcher = Watcher(parts, self.sets.come, lambda part: None)

    def finish(self):
        self.sets.turn(None)

    def remove(self):
        self.watcher.stop()
        self.sets.all_back()


class GroupOffload:
    def __init__(self, blocks, k, to_fast, to_slow):
        if k < 1:
            raise ValueError(f"{k} blocks are no group")
        rest, groups = iter(blocks), []
        while group := list(itertools.islice(rest, k)):
            groups.append(group)
        self.sets = _OneAtATime(groups, to_fast, to_slow)
        self.last = {id(group[-1]) for group in groups}
        modules = [block for group in groups for block in group]
        self.watcher = Watcher(modules, self.sets.come, self.leave)

    def leave(self, block):
        if id(block) in self.last:
            self.sets.turn(None)

    def remove(self):
        self.watcher.stop()
        self.sets.all_back()


def choose(components, budget_bytes, link_Bps, copy_s=2e-5):
    """Partial plans in a queue, by their seconds and the least that the others take."""
    tables = [list(_ways(comp, link_Bps, copy_s)) for comp in components]
    fastest = [min(row[0] for row in table) for table in tables]
    rest = [sum(fastest[place:]) for place in range(len(tables) + 1)]
    queue = [(rest[0], 0, 0, 0, 0.0, ())]
    seen, ends, limit = {}, [], None
    while queue:
        total, place, stays, held, seconds, knobs = heapq.heappop(queue)
        if limit is not None and total > limit * (1 + 8e-10):
            break
        if place == len(tables):
            limit = total if limit is None else limit
            ends.append((stays + held, len(knobs), knobs, seconds))
            continue
        known = seen.setdefault((place, stays, held), [])
        if any(count <= len(knobs) for count in known):
            continue
        known.append(len(knobs))
        for more, weight, own, names in tables[place]:
            new = (stays + weight, max(held, own))
            if sum(new) <= budget_bytes:
                time = seconds + more
                entry = (time + rest[place + 1], place + 1, *new, time, knobs + names)
                heapq.heappush(queue, entry)
    if not ends:
        least = max(min(row[2] for row in table if not row[1]) for table in tables)
        raise ValueError(f"the smallest peak is {least:,} bytes")
    peak, _count, knobs, seconds = min(ends)
    return Plan(knobs, peak, seconds)


def _ways(comp, link_Bps, copy_s):
    """(seconds, bytes that stay for the others, bytes for itself, knobs)"""
    copy = comp.weight_bytes / link_Bps
    every_call = {"group": comp.groups, "sequential": comp.leaves}
    held = {"model": comp.weight_bytes, "group": comp.group_bytes, "sequential": comp.leaf_bytes}
    for cut in [None, *comp.cuts]:
        extra, act, name = (0.0, comp.act_bytes, ())
        if cut is not None:
            extra, act, name = cut.seconds, cut.act_bytes, (f"{comp.name}.{cut.name}",)
        run = comp.calls * (comp.seconds + extra)
        yield run, comp.weight_bytes, act, name
        for knob, own in held.items():
            copies = comp.calls * (copy + every_call.get(knob, 0) * copy_s)
            if knob == "model":
                copies = copy + copy_s
            yield run + copies, 0, own + act, (f"{comp.name}.{knob}", *name)
