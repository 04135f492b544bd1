"""Functional and asynchronous collectives, waited for when they are needed; the ends of a block's
backward are autograd functions around its inputs and outputs, as FSDP2 has them."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
from torch import nn

# torch 2.13 gave these two new names, and warns of the old ones
reduce_scatter = getattr(fc, "reduce_scatter_single", None) or fc.reduce_scatter_tensor
all_gather = getattr(fc, "all_gather_single", None) or fc.all_gather_tensor


def one_dtype(params):
    dtypes = [p.dtype for p in params]
    if len(set(dtypes)) != 1:
        raise ValueError(f"dtypes: {dtypes}")
    return dtypes[0]


def world_of(pg):
    return dist.group.WORLD if pg is None else pg


def padded(tensors, ranks):
    """End to end, and zeros up to a multiple of `ranks`."""
    parts = [t.detach().reshape(-1) for t in tensors]
    return torch.cat([*parts, parts[0].new_zeros(-sum(map(len, parts)) % ranks)])


def mean_slice(flat, group):
    return fc.wait_tensor(reduce_scatter(flat, "avg", 0, group))


def everybodys(own, group):
    return fc.wait_tensor(all_gather(own, 0, group))


@torch.no_grad()
def copy_into(params, flat):
    pieces = flat[: sum(p.numel() for p in params)].split([p.numel() for p in params])
    for p, piece in zip(params, pieces, strict=True):
        p.copy_(piece.view(p.shape))


class Moments:
    """AdamW of one vector."""

    def __init__(self, like, lr, betas, eps, wd):
        self.first, self.second = torch.zeros_like(like), torch.zeros_like(like)
        self.count, self.settings = 0, (lr, betas, eps, wd)

    def step(self, vector, grad):
        lr, (beta1, beta2), eps, wd = self.settings
        self.count += 1
        self.first.lerp_(grad, 1 - beta1)
        self.second.lerp_(grad.square(), 1 - beta2)
        root = self.second.sqrt() / (1 - beta2**self.count) ** 0.5 + eps
        vector -= lr * wd * vector
        vector -= lr / (1 - beta1**self.count) * self.first / root


class Zero1AdamW:
    def __init__(self, params, pg=None, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, wd=1e-2):
        self.params = list({p: None for p in params if p.requires_grad})
        self.dtype = one_dtype(self.params)
        if lr < 0 or eps < 0 or wd < 0 or any(not 0 <= beta < 1 for beta in betas):
            raise ValueError(f"{lr=} {betas=} {eps=} {wd=}")
        self.group = world_of(pg)
        self.ranks = self.group.size()
        self.shard_numel = -(sum(p.numel() for p in self.params) // -self.ranks)
        self.moments = Moments(torch.zeros(self.shard_numel, dtype=self.dtype), lr, betas, eps, wd)

    exp_avg = property(lambda self: self.moments.first)
    exp_avg_sq = property(lambda self: self.moments.second)
    steps = property(lambda self: self.moments.count)

    def gradients(self):
        grads = (torch.zeros_like(p) if p.grad is None else p.grad for p in self.params)
        return padded(grads, self.ranks)

    def step(self):
        self.step_shard(self.reduce_gradients())

    def reduce_gradients(self):
        return mean_slice(self.gradients(), self.group)

    def step_shard(self, grad):
        own = padded(self.params, self.ranks).view(self.ranks, -1)[self.group.rank()].clone()
        self.moments.step(own, grad)
        copy_into(self.params, everybodys(own, self.group))

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    def local_state_bytes(self):
        return self.exp_avg.nbytes * 2


def plan_buckets(params, bucket_bytes):
    found, full = [], bucket_bytes + 1
    for p in params:
        full += p.nbytes
        if full > bucket_bytes:
            found.append([])
            full = p.nbytes
        found[-1].append(p)
    return found


class Zero2(nn.Module):
    """Gradients wait in `.grad`; one bucket is on its way at a time, and the last one is waited for
    when backward is over."""

    def __init__(self, model, pg=None, bucket_bytes=25 << 20, **adamw):
        super().__init__()
        if bucket_bytes <= 0:
            raise ValueError(f"{bucket_bytes=}")
        self.module, self.on_its_way = model, None
        params = [p for p in reversed(list(model.parameters())) if p.requires_grad]
        one_dtype(params)
        self.buckets = plan_buckets(params, bucket_bytes)
        self.optimizers = [Zero1AdamW(bucket, pg, **adamw) for bucket in self.buckets]
        for p in params:
            p.register_post_accumulate_grad_hook(self.came)
        self.zero_grad()

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def zero_grad(self, set_to_none=True):
        self.arrive()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.there = set()
        self.sent = 0
        self.shards = [None] * len(self.buckets)

    def came(self, p):
        if p in self.there:
            raise RuntimeError("there is a gradient of this step already")
        self.there.add(p)
        while self.sent < len(self.buckets) and self.there.issuperset(self.buckets[self.sent]):
            if self.on_its_way is None:
                torch.autograd.Variable._execution_engine.queue_callback(self.arrive)
            self.send()

    def send(self):
        self.arrive()
        optimizer = self.optimizers[self.sent]
        flat = optimizer.gradients()
        optimizer.zero_grad()
        flat.div_(optimizer.ranks)
        shard = flat.new_empty(optimizer.shard_numel)
        work = dist.reduce_scatter_tensor(shard, flat, group=optimizer.group, async_op=True)
        self.on_its_way = work, self.sent, shard, flat
        self.sent += 1

    def arrive(self):
        if self.on_its_way is not None:
            work, index, shard, _ = self.on_its_way
            work.wait()
            self.shards[index] = shard
            self.on_its_way = None

    def finish(self):
        while self.sent < len(self.buckets):
            self.send()
        self.arrive()
        return self.shards

    def step(self):
        for optimizer, shard in zip(self.optimizers, self.finish(), strict=True):
            optimizer.step_shard(shard)
        self.zero_grad()

    def local_state_bytes(self):
        return sum(optimizer.local_state_bytes() for optimizer in self.optimizers)


class Passage(torch.autograd.Function):
    """Tensors as they are; on the way back, a call before their gradients go on."""

    @staticmethod
    def forward(ctx, call, *tensors):
        ctx.call = call
        ctx.set_materialize_grads(False)
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx, *grads):
        ctx.call()
        return None, *grads


def passing(call, values):
    """The values, those among them that need gradients through a passage."""
    wanted = [isinstance(v, torch.Tensor) and v.requires_grad for v in values]
    if not (any(wanted) and torch.is_grad_enabled()):
        return values, False
    through = iter(Passage.apply(call, *(v for v, want in zip(values, wanted) if want)))
    return [next(through) if want else v for v, want in zip(values, wanted)], True


class Zero3Module(nn.Module):
    def __init__(self, block, pg=None, prefetch=1):
        super().__init__()
        if prefetch < 0:
            raise ValueError(f"{prefetch=}")
        self.block, self.group, self.prefetch = block, world_of(pg), prefetch
        self.next_blocks, self.previous_blocks = (), ()
        self.busy, self.missing = False, set()
        self.parts = {}
        for wanted in (True, False):
            params = [p for p in block.parameters() if p.requires_grad == wanted]
            if params:
                one_dtype(params)
                self.parts[wanted] = params, padded(params, self.group.size())
        self.shards = []
        for wanted, (params, flat) in self.parts.items():
            own = flat.view(self.group.size(), -1)[self.group.rank()].clone()
            self.shards.append(nn.Parameter(own, requires_grad=wanted))
            end = 0
            for p in params:
                p.data, end = flat[end : end + p.numel()].view(p.shape), end + p.numel()
                if wanted:
                    p.register_post_accumulate_grad_hook(self.came)
        self.works = []
        self.release()

    def forward(self, *args, **kwargs):
        values, self.by_inputs = passing(self.over, [*args, *kwargs.values()])
        args, kwargs = values[: len(args)], dict(zip(kwargs, values[len(args) :], strict=True))
        self.get(self.next_blocks)
        out = self.block(*args, **kwargs)
        self.release()
        several = isinstance(out, tuple)
        outs, _ = passing(self.begins, list(out) if several else [out])
        return tuple(outs) if several else outs[0]

    def begins(self):
        self.busy = True
        self.missing = set(self.parts[True][0]) if True in self.parts else set()
        torch.autograd.Variable._execution_engine.queue_callback(self.over)
        self.get(self.previous_blocks)

    def came(self, p):
        self.missing.discard(p)
        if not (self.missing or self.by_inputs):
            self.over()

    @torch.no_grad()
    def over(self):
        if not self.busy:
            return
        self.busy = False
        self.release()
        if True in self.parts:
            params, _ = self.parts[True]
            flat = padded(
                [torch.zeros(p.shape, dtype=p.dtype) if p.grad is None else p.grad for p in params],
                self.group.size(),
            )
            for p in params:
                p.grad = None
            mean, shard = mean_slice(flat, self.group), self.shards[0]
            shard.grad = mean if shard.grad is None else shard.grad.add_(mean)

    def start(self):
        for (_, flat), shard in zip(self.parts.values(), self.shards, strict=True):
            if flat.untyped_storage().nbytes() == 0:
                flat.untyped_storage().resize_(flat.nbytes)
                self.works += [
                    dist.all_gather_into_tensor(
                        flat, shard.detach(), group=self.group, async_op=True
                    )
                ]

    def get(self, others):
        self.start()
        while self.works:
            self.works.pop(0).wait()
        for other in others[: self.prefetch]:
            other.start()

    def release(self):
        for _, flat in self.parts.values():
            flat.untyped_storage().resize_(0)


def chain(modules):
    for index, module in enumerate(modules):
        module.next_blocks = modules[index + 1 :]
        module.previous_blocks = modules[:index][::-1]


def clip_grad_norm_sharded(grads, real, max_norm, pg=None, error_if_nonfinite=False):
    if not max_norm >= 0:
        raise ValueError(f"{max_norm=}")
    fronts = {id(g): g.narrow(0, 0, n) for g, n in zip(grads, real, strict=True)}.values()
    squares = torch.zeros(())
    for front in fronts:
        squares = squares + torch.linalg.vector_norm(front.float()) ** 2
    norm = fc.wait_tensor(fc.all_reduce(squares, "sum", world_of(pg))).sqrt()
    if error_if_nonfinite and not torch.isfinite(norm):
        raise RuntimeError(f"{norm=}")
    for front in fronts:
        front.copy_(front.double() * torch.clamp(max_norm / (norm + 1e-6), max=1.0))
    return norm


def full_state_dict(model, shard, pg=None):
    group = world_of(pg)
    names = {p: name for name, p in model.named_parameters() if p.requires_grad}
    whole = {}
    for key in ("param", "exp_avg", "exp_avg_sq"):
        if group.rank() > 0:
            dist.isend(shard[key], group=group, group_dst=0).wait()
            continue
        flat = shard[key].repeat(group.size())
        rows = flat.view(group.size(), -1)
        for work in [
            dist.irecv(rows[rank], group=group, group_src=rank) for rank in range(1, group.size())
        ]:
            work.wait()
        sizes = [p.numel() for p in names]
        pieces = zip(names.items(), flat[: sum(sizes)].split(sizes), strict=True)
        whole[key] = {name: piece.reshape(p.shape).clone() for (p, name), piece in pieces}
    if group.rank() > 0:
        return None
    state = model.state_dict(keep_vars=True)
    for name, value in state.items():
        if isinstance(value, nn.Parameter) and value in names:
            state[name] = whole["param"][names[value]]
        elif isinstance(value, torch.Tensor):
            state[name] = value.detach().clone()
    optimizer = {"step": shard["step"]} | {k: whole[k] for k in ("exp_avg", "exp_avg_sq")}
    return {"model": dict(state), "optimizer": optimizer}


def reshard(full, rank, world_size):
    if not -1 < rank < world_size:
        raise ValueError(f"{rank=} {world_size=}")
    moments = {k: full["optimizer"][k] for k in ("exp_avg", "exp_avg_sq")}
    shard = {"step": full["optimizer"]["step"]}
    for key, table in {"param": full["model"], **moments}.items():
        flat = torch.cat([table[name].flatten() for name in moments["exp_avg"]])
        size = -(len(flat) // -world_size)
        places = torch.arange(rank * size, rank * size + size)
        shard[key] = torch.where(places < len(flat), flat[places.clamp(max=len(flat) - 1)], 0)
    return shard


class MasterWeights:
    def __init__(self, params, pg=None, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, wd=0.01):
        self.params, self.group = list(params), world_of(pg)
        flat = padded(self.params, self.group.size())
        self.master = flat.view(self.group.size(), -1)[self.group.rank()].float()
        self.moments = Moments(self.master, lr, betas, eps, wd)

    exp_avg = property(lambda self: self.moments.first)
    exp_avg_sq = property(lambda self: self.moments.second)

    def step(self, grad):
        self.moments.step(self.master, grad.float())
        copy_into(self.params, everybodys(self.master.bfloat16(), self.group))
