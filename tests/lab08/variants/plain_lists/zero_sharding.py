"""Pieces of parameters in lists; chunks in lists; every parameter keeps a storage of its own."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_map_only


def one_dtype(params):
    dtypes = {p.dtype for p in params}
    if len(dtypes) != 1:
        raise ValueError(f"expected one dtype, found {dtypes}")
    return dtypes.pop()


def pieces_of(params, lo, hi):
    """(index of the parameter, first, last, place in the slice) of the elements lo..hi-1."""
    found, begin = [], 0
    for index, p in enumerate(params):
        first, last = max(lo - begin, 0), min(hi - begin, p.numel())
        if first < last:
            found.append((index, first, last, begin + first - lo))
        begin += p.numel()
    return found


def put(p, first, values):
    """Write elements of a parameter, which may lie in memory in another order."""
    whole = p.reshape(-1)
    whole[first : first + len(values)] = values
    p.copy_(whole.view(p.shape))


class Zero1AdamW:
    def __init__(self, params, pg=None, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, wd=1e-2):
        self.params = []
        for p in params:
            if p.requires_grad and all(p is not other for other in self.params):
                self.params.append(p)
        self.dtype = one_dtype(self.params)
        for name, value in (("lr", lr), ("eps", eps), ("wd", wd)):
            if value < 0:
                raise ValueError(f"{name} is {value}")
        for beta in betas:
            if beta < 0 or beta >= 1:
                raise ValueError(f"a beta is {beta}")
        self.pg, self.lr, self.betas, self.eps, self.wd = pg, lr, betas, eps, wd
        self.steps = 0
        self.ranks = dist.get_world_size(pg)
        self.shard_numel = math.ceil(sum(p.numel() for p in self.params) / self.ranks)
        self.exp_avg = self.slice()
        self.exp_avg_sq = self.slice()

    def slice(self):
        return torch.zeros(self.shard_numel, dtype=self.dtype)

    def pieces(self, rank):
        return pieces_of(self.params, rank * self.shard_numel, (rank + 1) * self.shard_numel)

    def step(self):
        self.step_shard(self.reduce_gradients())

    def reduce_gradients(self):
        chunks = [self.slice() for _ in range(self.ranks)]
        for rank, chunk in enumerate(chunks):
            for index, first, last, at in self.pieces(rank):
                grad = self.params[index].grad
                if grad is not None:
                    chunk[at : at + last - first] = grad.reshape(-1)[first:last] / self.ranks
        mine = self.slice()
        dist.reduce_scatter(mine, chunks, group=self.pg)
        return mine

    def step_shard(self, grad):
        self.steps += 1
        beta1, beta2 = self.betas
        own = self.slice()
        with torch.no_grad():
            for index, first, last, at in self.pieces(dist.get_rank(self.pg)):
                here = slice(at, at + last - first)
                g, m, v = grad[here], self.exp_avg[here], self.exp_avg_sq[here]
                m.copy_(beta1 * m + (1 - beta1) * g)
                v.copy_(beta2 * v + (1 - beta2) * g * g)
                step = self.lr * m / (1 - beta1**self.steps)
                root = (v / (1 - beta2**self.steps)).sqrt() + self.eps
                old = self.params[index].reshape(-1)[first:last]
                own[here] = old - self.lr * self.wd * old - step / root
            chunks = [self.slice() for _ in range(self.ranks)]
            dist.all_gather(chunks, own, group=self.pg)
            for rank, chunk in enumerate(chunks):
                for index, first, last, at in self.pieces(rank):
                    put(self.params[index], first, chunk[at : at + last - first])

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    def local_state_bytes(self):
        return 2 * self.shard_numel * self.exp_avg.element_size()


def plan_buckets(params, bucket_bytes):
    buckets = []
    for p in params:
        if not buckets or sum(q.nbytes for q in buckets[-1]) + p.nbytes > bucket_bytes:
            buckets.append([])
        buckets[-1].append(p)
    return buckets


class Zero2(nn.Module):
    """Gradients stay in `.grad` until their bucket is full, and are chunked from there."""

    def __init__(self, model, pg=None, bucket_bytes=25 << 20, **adamw):
        super().__init__()
        if bucket_bytes < 1:
            raise ValueError(f"bucket_bytes is {bucket_bytes}")
        self.module = model
        params = [p for p in model.parameters() if p.requires_grad]
        params.reverse()
        self.buckets = plan_buckets(params, bucket_bytes)
        self.optimizers = [Zero1AdamW(bucket, pg, **adamw) for bucket in self.buckets]
        for p in params:
            p.register_post_accumulate_grad_hook(self.got)
        self.zero_grad()

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def zero_grad(self, set_to_none=True):
        self.seen = []
        self.shards: list[Any] = [None for _ in self.buckets]
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def got(self, p):
        if any(p is other for other in self.seen):
            raise RuntimeError("a parameter had a gradient already")
        self.seen.append(p)
        for index in range(len(self.buckets)):
            if self.shards[index] is None:
                if not all(any(p is q for q in self.seen) for p in self.buckets[index]):
                    return
                self.send(index)

    def send(self, index):
        self.shards[index] = self.optimizers[index].reduce_gradients()
        self.optimizers[index].zero_grad()

    def finish(self):
        for index in range(len(self.buckets)):
            if self.shards[index] is None:
                self.send(index)
        return self.shards

    def step(self):
        self.finish()
        for index in range(len(self.buckets)):
            self.optimizers[index].step_shard(self.shards[index])
        self.zero_grad()

    def local_state_bytes(self):
        return sum(optimizer.local_state_bytes() for optimizer in self.optimizers)


class Zero3Module(nn.Module):
    """Gathers into chunks, and copies these into storages of the parameters' own."""

    def __init__(self, block, pg=None, prefetch=1):
        super().__init__()
        if prefetch < 0:
            raise ValueError(f"prefetch is {prefetch}")
        self.block, self.pg, self.prefetch = block, pg, prefetch
        self.next_blocks = self.previous_blocks = ()
        self.in_backward = False
        self.ranks, self.rank = dist.get_world_size(pg), dist.get_rank(pg)
        self.trainable = [p for p in block.parameters() if p.requires_grad]
        frozen = [p for p in block.parameters() if not p.requires_grad]
        self.groups = [group for group in (self.trainable, frozen) if group]
        self.shards = []
        self.running = []
        self.whole = True
        for group in self.groups:
            size = math.ceil(sum(p.numel() for p in group) / self.ranks)
            own = torch.zeros(size, dtype=one_dtype(group))
            for index, first, last, at in pieces_of(
                group, self.rank * size, self.rank * size + size
            ):
                own[at : at + last - first] = group[index].detach().reshape(-1)[first:last]
            self.shards.append(nn.Parameter(own, requires_grad=group is self.trainable))
            for p in group:
                p.data = p.detach().clone(memory_format=torch.contiguous_format)
        for p in self.trainable:
            p.register_post_accumulate_grad_hook(self._on_gradient)
        self.release()

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
            torch.autograd.graph.register_multi_grad_hook(inputs, self._on_inputs, mode="all")
        self.start()
        for module in self.next_blocks[: self.prefetch]:
            module.start()
        self.fill()
        out = self.block(*args, **kwargs)
        self.release()
        outs = [t for t in (out if isinstance(out, tuple) else (out,)) if t.requires_grad]
        if outs:
            torch.autograd.graph.register_multi_grad_hook(outs, self._on_output, mode="any")
        return out

    def _on_output(self, grad):
        self.in_backward = True
        self.awaited = len(self.trainable)
        torch.autograd.Variable._execution_engine.queue_callback(self._on_end)
        self.start()
        for module in self.previous_blocks[: self.prefetch]:
            module.start()
        self.fill()

    def _on_inputs(self, grads):
        self._on_end()

    def _on_gradient(self, param):
        self.awaited -= 1
        if self.awaited == 0 and not self.ends_with_inputs:
            self._on_end()

    def _on_end(self):
        if self.in_backward:
            self.in_backward = False
            self.scatter()
            self.release()

    def start(self):
        """Storages first, so that what is on its way has its place."""
        if self.whole:
            return
        self.whole = True
        for group, shard in zip(self.groups, self.shards):
            for p in group:
                p.untyped_storage().resize_(p.numel() * p.element_size())
            chunks = [torch.empty_like(shard.data) for _ in range(self.ranks)]
            work = dist.all_gather(chunks, shard.data, group=self.pg, async_op=True)
            self.running.append((work, chunks, group))

    def fill(self):
        for work, chunks, group in self.running:
            work.wait()
            for rank, chunk in enumerate(chunks):
                size = len(chunk)
                for index, first, last, at in pieces_of(group, rank * size, rank * size + size):
                    group[index].data.view(-1)[first:last] = chunk[at : at + last - first]
        self.running.clear()

    def release(self):
        self.whole = False
        for p in self.block.parameters():
            p.untyped_storage().resize_(0)

    def scatter(self):
        if not self.trainable:
            return
        shard = self.shards[0]
        chunks = [torch.zeros_like(shard.data) for _ in range(self.ranks)]
        size = len(shard)
        for rank, chunk in enumerate(chunks):
            for index, first, last, at in pieces_of(
                self.trainable, rank * size, rank * size + size
            ):
                grad = self.trainable[index].grad
                if grad is not None:
                    chunk[at : at + last - first] = grad.reshape(-1)[first:last]
        for p in self.trainable:
            p.grad = None
        mine = torch.empty_like(shard.data)
        dist.reduce_scatter(mine, chunks, group=self.pg)
        mine /= self.ranks
        if shard.grad is None:
            shard.grad = mine
        else:
            shard.grad += mine


def chain(modules):
    for index, module in enumerate(modules):
        module.next_blocks = list(modules)[index + 1 :]
        module.previous_blocks = list(modules)[:index][::-1]


# --- clipping, checkpoints, master weights -------------------------------------------------------


def clip_grad_norm_sharded(grads, real, max_norm, pg=None, error_if_nonfinite=False):
    if max_norm < 0:
        raise ValueError(f"a negative max_norm: {max_norm}")
    once = []
    for grad, count in zip(grads, real, strict=True):
        if not any(grad is other for other, _ in once):
            once.append((grad, count))
    total = 0.0
    for grad, count in once:
        for chunk in grad[:count].split(1024):
            total += float(chunk.double() @ chunk.double())
    box = torch.tensor([total], dtype=torch.float64)
    dist.all_reduce(box, group=pg)
    norm = math.sqrt(box.item())
    if error_if_nonfinite and not math.isfinite(norm):
        raise RuntimeError(f"a norm of {norm}")
    scale = max_norm / (norm + 1e-6)
    for grad, count in once:
        if not scale >= 1:  # NaN goes this way, too
            grad[:count] = grad[:count] * scale
    return torch.tensor(norm, dtype=torch.float32)


def _overlaps(sizes, each):
    """(tensor, its first and last, rank, that rank's first and last), piece by piece."""
    position = 0
    for number, size in enumerate(sizes):
        done = 0
        while done < size:
            rank, inside = divmod(position, each)
            length = min(size - done, each - inside)
            yield number, done, done + length, rank, inside, inside + length
            done += length
            position += length


def full_state_dict(model, shard, pg=None):
    rank, size = dist.get_rank(pg), dist.get_world_size(pg)
    keys = ["param", "exp_avg", "exp_avg_sq"]
    if rank > 0:
        for key in keys:
            dist.send(shard[key], group=pg, group_dst=0)
        return None
    names, shapes = [], []
    for name, p in model.named_parameters():
        if p.requires_grad:
            names.append(name)
            shapes.append(p.shape)
    out = {key: [torch.zeros(s, dtype=shard[key].dtype) for s in shapes] for key in keys}
    pieces = {key: [shard[key]] for key in keys}
    for source in range(1, size):
        for key in keys:
            box = torch.zeros_like(shard[key])
            dist.recv(box, group=pg, group_src=source)
            pieces[key].append(box)
    sizes = [shape.numel() for shape in shapes]
    for number, a, b, source, c, d in _overlaps(sizes, len(shard["param"])):
        for key in keys:
            out[key][number].view(-1)[a:b] = pieces[key][source][c:d]
    state = {}
    for name, value in model.state_dict().items():
        state[name] = value.clone() if isinstance(value, torch.Tensor) else value
    known = dict(model.named_parameters())
    for name, p in model.named_parameters(remove_duplicate=False):
        for first, tensor in zip(names, out["param"], strict=True):
            if known[first] is p:
                state[name] = tensor.clone()
    optimizer = {"step": shard["step"]}
    for key in keys[1:]:
        optimizer[key] = dict(zip(names, out[key], strict=True))
    return {"optimizer": optimizer, "model": state}


def reshard(full, rank, world_size):
    if rank < 0 or rank >= world_size:
        raise ValueError(f"no rank {rank} among {world_size}")
    optimizer = full["optimizer"]
    names = list(optimizer["exp_avg"])
    tables = {
        "param": full["model"],
        "exp_avg": optimizer["exp_avg"],
        "exp_avg_sq": optimizer["exp_avg_sq"],
    }
    sizes = [full["model"][name].numel() for name in names]
    each = (sum(sizes) + world_size - 1) // world_size
    result = {"step": optimizer["step"]}
    for key, table in tables.items():
        result[key] = torch.zeros(each, dtype=table[names[0]].dtype)
        for number, a, b, owner, c, d in _overlaps(sizes, each):
            if owner == rank:
                result[key][c:d] = table[names[number]].flatten()[a:b]
    return result


class MasterWeights:
    def __init__(self, params, pg=None, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, wd=0.01):
        self.params, self.pg = list(params), pg
        self.settings = lr, *betas, eps, wd
        self.count = 0
        self.sizes = [p.numel() for p in self.params]
        self.size = dist.get_world_size(pg)
        self.each = (sum(self.sizes) + self.size - 1) // self.size
        self.master = torch.zeros(self.each)
        for number, a, b, owner, c, d in _overlaps(self.sizes, self.each):
            if owner == dist.get_rank(pg):
                self.master[c:d] = self.params[number].detach().flatten()[a:b].float()
        self.exp_avg = torch.zeros(self.each)
        self.exp_avg_sq = torch.zeros(self.each)

    def step(self, grad):
        lr, beta1, beta2, eps, wd = self.settings
        self.count += 1
        g = grad.to(torch.float32)
        self.exp_avg = beta1 * self.exp_avg + (1 - beta1) * g
        self.exp_avg_sq = beta2 * self.exp_avg_sq + (1 - beta2) * g * g
        m = self.exp_avg / (1 - beta1**self.count)
        v = self.exp_avg_sq / (1 - beta2**self.count)
        self.master = self.master - lr * wd * self.master - lr * m / (v.sqrt() + eps)
        pieces = [torch.zeros(self.each, dtype=torch.bfloat16) for _ in range(self.size)]
        dist.all_gather(pieces, self.master.to(torch.bfloat16), group=self.pg)
        with torch.no_grad():
            for number, a, _, owner, c, d in _overlaps(self.sizes, self.each):
                put(self.params[number], a, pieces[owner][c:d])
