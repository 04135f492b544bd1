"""Another way: offload as a difference between what is there and what is wanted; tiles that are
kept whole until the row below them is done, and a search over plans that cuts its branches."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from types_lab13 import Plan

# -- slices and tiles ----------------------------------------------------------------------------


def sliced_decode(decoder, z):
    if z.ndim != 4:
        raise ValueError("a latent is (B, C, h, w)")
    images = [decoder(latent[None])[0] for latent in z.unbind()]
    if not images:
        raise ValueError("no latent to decode")
    return torch.stack(images)


def tile_grid(L, tile, overlap):
    for name, value, least in (("L", L, 1), ("tile", tile, 1), ("overlap", overlap, 0)):
        if value < least:
            raise ValueError(f"{name} is {value}, below {least}")
    if overlap >= tile:
        raise ValueError("tiles that share all they have do not advance")
    starts = [
        0,
        *(start for start in range(tile - overlap, L, tile - overlap) if start + overlap < L),
    ]
    rows = [(start, min(start + tile, L)) for start in starts]
    return [
        (*row, row[0], following) for row, following in zip(rows, [*starts[1:], L], strict=True)
    ]


def blend(prev, cur, extent, dim):
    if extent < 0:
        raise ValueError("a ramp has a length of 0 or more")
    if prev.ndim != cur.ndim:
        raise ValueError("tiles of different numbers of axes")
    axes = list(range(cur.ndim))
    axes.append(axes.pop(dim))
    a, b = prev.permute(axes), cur.permute(axes)
    if a.shape[:-1] != b.shape[:-1]:
        raise ValueError("tiles that differ elsewhere than along the axis of the ramp")
    n = min(extent, a.shape[-1], b.shape[-1])
    y = torch.arange(b.shape[-1], device=b.device)
    weight = (y.double() / max(n, 1)).clamp(max=1).to(b.dtype) if n else torch.ones_like(b[..., :])
    under = F.pad(a[..., a.shape[-1] - n :], (0, b.shape[-1] - n))
    mixed = torch.where(y < n, under * (1 - weight) + b * weight, b)
    back = [axes.index(axis) for axis in range(cur.ndim)]
    return mixed.permute(back).clone()


def tiled_decode(decoder, z, tile, overlap, scale):
    if scale < 1:
        raise ValueError("an image has one pixel at least for each of the latent's")
    if isinstance(overlap, float):
        if not (overlap >= 0.0 and overlap < 1.0):
            raise ValueError("a share is 0 or more and less than 1")
        overlap = round(tile * overlap)
    grids = [tile_grid(length, tile, overlap) for length in z.shape[2:]]
    shared = scale * overlap
    image, upper = None, None
    for top, bottom, y0, y1 in grids[0]:
        # Tiles of this row that are blended with those above them, and not with each other.
        row, last = [], None
        for column, (left, right, x0, x1) in enumerate(grids[1]):
            fresh = decoder(z[:, :, top:bottom, left:right])
            due = (scale * (bottom - top), scale * (right - left))
            if tuple(fresh.shape[2:]) != due:
                raise ValueError(f"a tile of {tuple(fresh.shape[2:])} pixels where {due} were due")
            if upper is not None:
                fresh = blend(upper[column], fresh, shared, 2)
            shown = fresh if last is None else blend(last, fresh, shared, 3)
            row.append(fresh)
            last = shown
            if image is None:
                size = (*fresh.shape[:2], *(scale * length for length in z.shape[2:]))
                image = torch.zeros(size, dtype=fresh.dtype, device=fresh.device)
            here = (slice(scale * y0, scale * y1), slice(scale * x0, scale * x1))
            image[:, :, here[0], here[1]] = shown[:, :, : scale * (y1 - y0), : scale * (x1 - x0)]
            del shown, fresh
        upper = row
    return image


# -- attention, offload, choose ------------------------------------------------------------------


def sliced_attention(q, k, v, heads_per_slice, queries_per_slice):
    """Scores in one buffer that is used again, softmax by a log of sums."""
    if heads_per_slice < 1 or queries_per_slice < 1:
        raise ValueError("slices of 1 and more")
    B, H, S, D = q.shape
    heads, queries = min(heads_per_slice, H), min(queries_per_slice, S)
    room = q.new_empty(B, heads, queries, k.shape[2])
    out = q.new_empty(B, H, S, v.shape[3])
    for h in range(0, H, heads):
        n = min(heads, H - h)
        for s in range(0, S, queries):
            m = min(queries, S - s)
            scores = room[:, :n, :m]
            torch.mul(q[:, h : h + n, s : s + m] @ k[:, h : h + n].mT, D**-0.5, out=scores)
            scores.sub_(scores.amax(-1, keepdim=True)).exp_()
            scores.div_(scores.sum(-1, keepdim=True))
            out[:, h : h + n, s : s + m] = scores @ v[:, h : h + n]
    return out


class Shelf:
    """Tensors of some modules, and which of them are away. `settle` makes the difference good:
    first everything leaves that is not wanted, then what is wanted comes."""

    def __init__(self, modules, to_fast, to_slow):
        self.modules, self.to_fast, self.to_slow = list(modules), to_fast, to_slow
        self.away, self.hooks = {}, []

    def tensors(self):
        found = {}
        for module in self.modules:
            for tensor in (*module.parameters(), *module.buffers()):
                found.setdefault(id(tensor), tensor)
        return found

    def settle(self, wanted):
        here = self.tensors()
        for key, tensor in here.items():
            if key not in wanted and key not in self.away:
                self.to_slow(tensor)
                self.away[key] = tensor
        for key in here:
            if key in wanted and key in self.away:
                self.to_fast(self.away.pop(key))

    def empty(self):
        for hook in self.hooks:
            hook.remove()
        self.settle(set(self.tensors()))


def _keys(modules, recurse=True):
    keys = set()
    for module in modules:
        keys.update(map(id, module.parameters(recurse)), map(id, module.buffers(recurse)))
    return keys


class SequentialOffload:
    def __init__(self, module, to_fast, to_slow):
        self.shelf, self.stack = Shelf([module], to_fast, to_slow), []
        self.shelf.settle(set())
        for part in module.modules():
            self.shelf.hooks.append(part.register_forward_pre_hook(self._enter))
            self.shelf.hooks.append(part.register_forward_hook(self._leave))

    def _enter(self, part, args):
        self.stack.append(part)
        self.shelf.settle(_keys(self.stack, recurse=False))

    def _leave(self, part, args, output):
        self.stack.pop()
        self.shelf.settle(_keys(self.stack, recurse=False))

    def remove(self):
        self.shelf.empty()


class ModelOffloadChain:
    def __init__(self, components, seq, to_fast, to_slow):
        names = seq.split("->")
        wrong = [n for i, n in enumerate(names) if n not in components or n in names[:i]]
        if wrong:
            raise ValueError(f"no component, or there twice: {', '.join(map(repr, wrong))}")
        self.shelf = Shelf((components[name] for name in names), to_fast, to_slow)
        self.shelf.settle(set())
        for part in self.shelf.modules:
            self.shelf.hooks.append(part.register_forward_pre_hook(self._only))

    def _only(self, part, args):
        self.shelf.settle(_keys([part]))

    def finish(self):
        self.shelf.settle(set())

    def remove(self):
        self.shelf.empty()


class GroupOffload:
    def __init__(self, blocks, k, to_fast, to_slow):
        if k < 1:
            raise ValueError("a group of no blocks")
        self.shelf, self.k = Shelf(blocks, to_fast, to_slow), k
        self.shelf.settle(set())
        for place, block in enumerate(self.shelf.modules):
            group = self.shelf.modules[place - place % k :][:k]

            def come(_block, _args, group=group):
                self.shelf.settle(_keys(group))

            self.shelf.hooks.append(block.register_forward_pre_hook(come))
            if block is group[-1]:
                hook = block.register_forward_hook(lambda *_: self.shelf.settle(set()))
                self.shelf.hooks.append(hook)

    def remove(self):
        self.shelf.empty()


def choose(components, budget_bytes, link_Bps, copy_s=2e-5):
    """Depth first, with the seconds that the rest takes at least as a bound."""
    ways = [_pruned(_ways(comp, link_Bps, copy_s)) for comp in components]
    least = max(min(row[2] for row in rows if row[1] == 0) for rows in ways)
    if least > budget_bytes:
        raise ValueError(f"{least} bytes are the smallest peak there is")
    ahead = [0.0]
    for rows in reversed(ways):
        ahead.insert(0, ahead[0] + min(row[0] for row in rows))
    best = [None]

    def walk(place, seconds, weights, held, knobs):
        if weights + held > budget_bytes:
            return
        if best[0] and seconds + ahead[place] > best[0][0] * (1 + 5e-10):
            return
        if place == len(ways):
            score = (seconds, weights + held, len(knobs))
            if not best[0] or _before(score, best[0]):
                best[0], best[1:] = score, [knobs]
            return
        for more, weight, own, names in ways[place]:
            walk(place + 1, seconds + more, weights + weight, max(held, own), knobs + names)

    walk(0, 0.0, 0, 0, ())
    seconds, peak, _count = best[0]
    return Plan(best[1], peak, seconds)


def _before(new, old):
    if abs(new[0] - old[0]) > 5e-10 * max(new[0], old[0]):
        return new[0] < old[0]
    return new[1:] < old[1:]


def _ways(comp, link_Bps, copy_s):
    """(seconds, bytes that stay, bytes beside those that stay, knobs), the fastest first."""
    link = comp.weight_bytes / link_Bps
    for cut in (None, *comp.cuts):
        act = cut.act_bytes if cut else comp.act_bytes
        run = comp.calls * (comp.seconds + (cut.seconds if cut else 0.0))
        name = (f"{comp.name}.{cut.name}",) if cut else ()
        yield run, comp.weight_bytes, act, name
        for knob, times, copies, held in (
            ("model", 1, 1, comp.weight_bytes),
            ("group", comp.calls, comp.groups, comp.group_bytes),
            ("sequential", comp.calls, comp.leaves, comp.leaf_bytes),
        ):
            time = run + times * (link + copies * copy_s)
            yield time, 0, held + act, (f"{comp.name}.{knob}", *name)


def _pruned(rows):
    kept = []
    for row in sorted(rows, key=lambda r: (r[0], r[1] + r[2], len(r[3]))):
        if not any(o[1] <= row[1] and o[2] <= row[2] and len(o[3]) <= len(row[3]) for o in kept):
            kept.append(row)
    return kept
