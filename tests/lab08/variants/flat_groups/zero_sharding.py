"""One class, `Flat`, knows how parameters lie in a padded buffer; everything else asks it. Sums of
squares, masters and moments are NumPy's."""

from __future__ import annotations

import copy
import math
from collections import deque
from itertools import accumulate, pairwise

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_map_only


def one_dtype(params):
    if len({p.dtype for p in params}) - 1:
        raise ValueError("a flat buffer has one dtype")
    return params[0].dtype


class Flat:
    def __init__(self, shapes, dtype, pg):
        self.shapes, self.dtype, self.pg = [torch.Size(shape) for shape in shapes], dtype, pg
        self.ranks, self.rank = dist.get_world_size(pg), dist.get_rank(pg)
        self.edges = [*accumulate((shape.numel() for shape in self.shapes), initial=0)]
        self.each = math.ceil(self.edges[-1] / self.ranks)
        self.mine = slice(self.rank * self.each, (self.rank + 1) * self.each)

    @classmethod
    def of(cls, params, pg):
        return cls([p.shape for p in params], one_dtype(params), pg)

    def buffer(self):
        return torch.zeros(self.ranks * self.each, dtype=self.dtype)

    def views(self, buffer):
        pairs = zip(pairwise(self.edges), self.shapes, strict=True)
        return [buffer[a:b].view(shape) for (a, b), shape in pairs]

    def filled(self, tensors):
        """A buffer with these in it; None leaves zeros."""
        buffer = self.buffer()
        with torch.no_grad():
            for view, tensor in zip(self.views(buffer), tensors, strict=True):
                if tensor is not None:
                    view.copy_(tensor)
        return buffer

    def own(self, tensors):
        return self.filled(tensors)[self.mine].clone()

    def scattered(self, buffer):
        """This rank's slice of the mean."""
        got = buffer.new_empty(self.each)
        dist.reduce_scatter_tensor(got, buffer, group=self.pg)
        return got.div_(self.ranks)

    @torch.no_grad()
    def spread(self, own, params):
        """Everybody's slices, written into the parameters."""
        buffer = own.new_empty(self.ranks * self.each)
        dist.all_gather_into_tensor(buffer, own, group=self.pg)
        for p, view in zip(params, self.views(buffer), strict=True):
            p.copy_(view)


class Zero1AdamW:
    def __init__(self, params, pg=None, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, wd=1e-2):
        self.params = []
        for p in params:
            if p.requires_grad and id(p) not in map(id, self.params):
                self.params.append(p)
        if not self.params:
            raise ValueError("nothing to train")
        self.flat = Flat.of(self.params, pg)
        if any(x < 0 for x in (lr, eps, wd)) or not all(0 <= b < 1 for b in betas):
            raise ValueError("out of range")
        self.lr, self.betas, self.eps, self.wd = lr, betas, eps, wd
        self.shard_numel, self.steps = self.flat.each, 0
        self.exp_avg, self.exp_avg_sq = (
            torch.zeros(self.flat.each, dtype=self.flat.dtype) for _ in range(2)
        )

    def step(self):
        self.step_shard(self.reduce_gradients())

    def reduce_gradients(self):
        return self.flat.scattered(self.flat.filled([p.grad for p in self.params]))

    @torch.no_grad()
    def step_shard(self, grad):
        own = self.flat.own(self.params)
        self.steps += 1
        adamw_(own.numpy(), grad.numpy(), self, self.steps)
        self.flat.spread(own, self.params)

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    def local_state_bytes(self):
        return sum(t.numel() * t.element_size() for t in (self.exp_avg, self.exp_avg_sq))


def adamw_(x, g, state, count):
    """One step on arrays, in place; `state` has moments and settings."""
    m, v = state.exp_avg.numpy(), state.exp_avg_sq.numpy()
    (a, b), one = state.betas, x.dtype.type(1)
    m += (1 - a) * (g - m)
    v += (1 - b) * (np.square(g) - v)
    root = np.sqrt(v / (one - b**count)) + state.eps
    x *= 1 - state.lr * state.wd
    x -= state.lr * (m / (one - a**count)) / root


def plan_buckets(params, bucket_bytes):
    found = []
    for p in params:
        if found and sum(q.nbytes for q in [*found[-1], p]) <= bucket_bytes:
            found[-1].append(p)
        else:
            found.append([p])
    return found


class Zero2(nn.Module):
    """A queue of buckets that wait; each is the list of the parameters that it waits for."""

    def __init__(self, model, pg=None, bucket_bytes=25 << 20, **adamw):
        super().__init__()
        if bucket_bytes < 1:
            raise ValueError("no room in a bucket")
        self.module = model
        params = [p for p in model.parameters() if p.requires_grad][::-1]
        one_dtype(params)
        self.buckets = plan_buckets(params, bucket_bytes)
        self.optimizers = [Zero1AdamW(bucket, pg, **adamw) for bucket in self.buckets]
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in params:
            p.register_post_accumulate_grad_hook(self.put)
        self.zero_grad()

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def zero_grad(self, set_to_none=True):
        for p in self.number:
            p.grad = None
        self.shards = [None for _ in self.buckets]
        self.buffers = {}
        self.queue = deque((i, set(bucket)) for i, bucket in enumerate(self.buckets))

    def put(self, p):
        index = self.number[p]
        waiting = next((missing for i, missing in self.queue if i == index), ())
        if p not in waiting:
            raise RuntimeError("twice in one step")
        waiting.remove(p)
        flat = self.optimizers[index].flat
        if index not in self.buffers:
            self.buffers[index] = flat.buffer()
        place = [q is p for q in self.buckets[index]].index(True)
        flat.views(self.buffers[index])[place].copy_(p.grad)
        p.grad = None
        while self.queue and not self.queue[0][1]:
            self.send()

    def send(self):
        index, _ = self.queue.popleft()
        flat = self.optimizers[index].flat
        buffer = self.buffers.pop(index, None)
        self.shards[index] = flat.scattered(flat.buffer() if buffer is None else buffer)

    def finish(self):
        while self.queue:
            self.send()
        return self.shards

    def step(self):
        for optimizer, shard in zip(self.optimizers, self.finish(), strict=True):
            optimizer.step_shard(shard)
        self.zero_grad()

    def local_state_bytes(self):
        return sum(optimizer.local_state_bytes() for optimizer in self.optimizers)


class Gathered:
    """Parameters as views of a buffer that comes and goes."""

    def __init__(self, params, pg):
        self.flat, self.params = Flat.of(params, pg), params
        self.buffer = self.flat.filled(params)
        self.shard = nn.Parameter(self.buffer[self.flat.mine].clone(), params[0].requires_grad)
        for p, view in zip(params, self.flat.views(self.buffer), strict=True):
            p.data = view
        self.work = None
        self.release()

    def start(self):
        storage = self.buffer.untyped_storage()
        if storage.nbytes() == 0:
            storage.resize_(self.buffer.nbytes)
            self.work = dist.all_gather_into_tensor(
                self.buffer, self.shard.detach(), group=self.flat.pg, async_op=True
            )

    def wait(self):
        if self.work is not None:
            self.work.wait()
            self.work = None

    def release(self):
        self.buffer.untyped_storage().resize_(0)

    def reduce(self):
        buffer = self.flat.filled([p.grad for p in self.params])
        for p in self.params:
            p.grad = None
        mean = self.flat.scattered(buffer)
        old = self.shard.grad
        self.shard.grad = mean if old is None else mean.add_(old)


class Zero3Module(nn.Module):
    def __init__(self, block, pg=None, prefetch=1):
        super().__init__()
        if prefetch < 0:
            raise ValueError("look back?")
        self.block, self.prefetch = block, prefetch
        self.next_blocks = self.previous_blocks = ()
        self.in_backward = self.ends_with_inputs = False
        self.trainable = [p for p in block.parameters() if p.requires_grad]
        frozen = [p for p in block.parameters() if not p.requires_grad]
        for p in self.trainable:
            p.register_post_accumulate_grad_hook(self._on_gradient)
        self.groups = [Gathered(group, pg) for group in (self.trainable, frozen) if group]
        self.shards = [group.shard for group in self.groups]

    def forward(self, *args, **kwargs):
        inputs = []

        def enter(x):
            if torch.is_grad_enabled() and x.requires_grad:
                x = x.view_as(x)
                inputs.append(x)
            return x

        args, kwargs = tree_map_only(torch.Tensor, enter, (args, kwargs))
        self.ends_with_inputs = bool(inputs)
        if inputs:
            torch.autograd.graph.register_multi_grad_hook(inputs, self._on_end, mode="all")
        self._each("start", self.next_blocks)
        out = self.block(*args, **kwargs)
        self._each("release")
        outs = [t for t in (out if isinstance(out, tuple) else (out,)) if t.requires_grad]
        if outs:
            torch.autograd.graph.register_multi_grad_hook(outs, self._on_output, mode="any")
        return out

    def _each(self, deed, ahead=()):
        for module in (self, *ahead[: self.prefetch]):
            for group in module.groups:
                getattr(group, deed)()
        if deed == "start":
            self._each("wait")

    def _on_output(self, grad):
        self.in_backward = True
        self.awaited = len(self.trainable)
        torch.autograd.Variable._execution_engine.queue_callback(self._on_end)
        self._each("start", self.previous_blocks)

    def _on_gradient(self, param):
        self.awaited -= 1
        if self.awaited == 0 and not self.ends_with_inputs:
            self._on_end()

    def _on_end(self, grads=()):
        if self.in_backward:
            self.in_backward = False
            if self.trainable:
                self.groups[0].reduce()
            self._each("release")


def chain(modules):
    for index, module in enumerate(modules):
        module.next_blocks = tuple(modules[index + 1 :])
        module.previous_blocks = tuple(reversed(modules[:index]))


def clip_grad_norm_sharded(grads, real, max_norm, pg=None, error_if_nonfinite=False):
    if max_norm < 0:
        raise ValueError("a norm below 0")
    seen = {}
    for grad, count in zip(grads, real, strict=True):
        seen.setdefault(id(grad), (grad, count))
    total = sum(np.square(g[:n].float().numpy(), dtype=np.float64).sum() for g, n in seen.values())
    box = torch.tensor(float(total), dtype=torch.float64)
    dist.all_reduce(box, group=pg)
    norm = box.sqrt().float()
    if error_if_nonfinite and not math.isfinite(norm):
        raise RuntimeError("the norm is not finite")
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1)
    for grad, _ in seen.values():
        grad *= factor
    return norm


def full_state_dict(model, shard, pg=None):
    params = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found = {}
    for key in ("param", "exp_avg", "exp_avg_sq"):
        flat = Flat([p.shape for p in params.values()], shard[key].dtype, pg)
        buffer = flat.buffer() if flat.rank == 0 else None
        parts = None if buffer is None else list(buffer.split(flat.each))
        dist.gather(shard[key], parts, group=pg, group_dst=0)
        if buffer is not None:
            views = map(torch.clone, flat.views(buffer))
            found[key] = dict(zip(params, views, strict=True))
    if not found:
        return None
    values = {p: found["param"][name] for name, p in params.items()}
    state = {
        name: copy.deepcopy(value.detach() if torch.is_tensor(value) else value)
        for name, value in model.state_dict().items()
    }
    named = model.named_parameters(remove_duplicate=False)
    state |= {name: values[p] for name, p in named if p in values}
    moments = {key: found[key] for key in ("exp_avg", "exp_avg_sq")}
    return {"model": state, "optimizer": moments | {"step": shard["step"]}}


def reshard(full, rank, world_size):
    if rank >= world_size or rank < 0:
        raise ValueError("there is no such rank")
    optimizer = dict(full["optimizer"])
    names = list(optimizer["exp_avg"])
    tables = {"param": full["model"], **optimizer}
    out = {"step": tables.pop("step")}
    for key, table in tables.items():
        numbers = torch.cat([table[name].reshape(-1) for name in names])
        size = math.ceil(len(numbers) / world_size)
        shard = numbers.new_zeros(size)
        mine = numbers[rank * size :][:size]
        shard[: len(mine)] = mine
        out[key] = shard
    return out


class MasterWeights:
    def __init__(self, params, pg=None, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, wd=0.01):
        self.params = list(params)
        self.lr, self.betas, self.eps, self.wd = lr, betas, eps, wd
        self.steps, self.flat = 0, Flat.of(self.params, pg)
        self.master = self.flat.own(self.params).float()
        self.exp_avg, self.exp_avg_sq = (torch.zeros(self.flat.each) for _ in range(2))

    def step(self, grad):
        self.steps += 1
        adamw_(self.master.numpy(), grad.float().numpy(), self, self.steps)
        self.flat.spread(self.master.to(torch.bfloat16), self.params)
