"""One flat buffer with the parameters as views, torch.optim.AdamW on a slice of it, AVG."""

from __future__ import annotations

import itertools
from collections import Counter

import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.nn import functional
from torch.nn.utils import parameters_to_vector
from torch.utils._pytree import tree_map_only


def one_dtype(params):
    (dtype,) = {p.dtype for p in params}
    return dtype


def flat_of(tensors, ranks):
    """One padded buffer with copies of the tensors."""
    flat = _flatten_dense_tensors(tuple(t.contiguous() for t in tensors))
    return functional.pad(flat, (0, -len(flat) % ranks))


def view_into(flat, params):
    for p, part in zip(
        params, _unflatten_dense_tensors(flat[: sum(map(torch.numel, params))], params)
    ):
        p.data = part


class Zero1AdamW:
    def __init__(self, params, pg=None, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, wd=1e-2):
        self.params = list({id(p): p for p in params if p.requires_grad}.values())
        one_dtype(self.params)
        if min(lr, eps, wd) < 0 or not 0 <= min(betas) <= max(betas) < 1:
            raise ValueError((lr, betas, eps, wd))
        self.pg, self.ranks = pg, dist.get_world_size(pg)
        self.flat = flat_of([p.detach() for p in self.params], self.ranks)
        view_into(self.flat, self.params)
        self.own = self.flat.chunk(self.ranks)[dist.get_rank(pg)]
        self.shard_numel = len(self.own)
        self.inner = torch.optim.AdamW(
            [self.own.requires_grad_()], lr=lr, betas=betas, eps=eps, weight_decay=wd
        )
        self.inner.state[self.own] = {
            "step": torch.zeros(()),
            "exp_avg": torch.zeros_like(self.own, requires_grad=False),
            "exp_avg_sq": torch.zeros_like(self.own, requires_grad=False),
        }

    exp_avg = property(lambda self: self.inner.state[self.own]["exp_avg"])
    exp_avg_sq = property(lambda self: self.inner.state[self.own]["exp_avg_sq"])
    steps = property(lambda self: int(self.inner.state[self.own]["step"]))

    def step(self):
        self.step_shard(self.reduce_gradients())

    def reduce_gradients(self):
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.params]
        return self.scatter(flat_of(grads, self.ranks))

    def scatter(self, flat):
        mine = flat.new_empty(self.shard_numel)
        dist.reduce_scatter_tensor(mine, flat, op=dist.ReduceOp.AVG, group=self.pg)
        return mine

    def step_shard(self, grad):
        self.own.grad = grad
        self.inner.step()
        self.own.grad = None
        dist.all_gather_into_tensor(self.flat, self.own.detach().clone(), group=self.pg)

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    def local_state_bytes(self):
        return self.exp_avg.nbytes + self.exp_avg_sq.nbytes


def plan_buckets(params, bucket_bytes):
    ends = itertools.accumulate(
        params,
        lambda seen, p: (
            (seen[0], seen[1] + p.nbytes)
            if seen[1] + p.nbytes <= bucket_bytes
            else (seen[0] + 1, p.nbytes)
        ),
        initial=(-1, bucket_bytes),
    )
    numbered = zip(params, itertools.islice(ends, 1, None))
    grouped = itertools.groupby(numbered, key=lambda item: item[1][0])
    return [[p for p, _ in group] for _, group in grouped]


class Zero2(nn.Module):
    """Buckets leave asynchronously; each is waited for when the next one leaves."""

    def __init__(self, model, pg=None, bucket_bytes=25 << 20, **adamw):
        super().__init__()
        if bucket_bytes < 1:
            raise ValueError(bucket_bytes)
        self.module = model
        params = [p for p in model.parameters() if p.requires_grad][::-1]
        self.buckets = plan_buckets(params, bucket_bytes)
        self.optimizers = [Zero1AdamW(bucket, pg, **adamw) for bucket in self.buckets]
        self.places = {}
        for index, bucket in enumerate(self.buckets):
            starts = itertools.accumulate((p.numel() for p in bucket), initial=0)
            for p, at in zip(bucket, starts):
                self.places[id(p)] = index, slice(at, at + p.numel())
                p.register_post_accumulate_grad_hook(self.take)
        self.zero_grad()

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def zero_grad(self, set_to_none=True):
        self.module.zero_grad()
        self.shards = [None] * len(self.buckets)
        self.flats, self.counts, self.seen = {}, Counter(), set()

    def take(self, p):
        if id(p) in self.seen:
            raise RuntimeError("one backward a step")
        self.seen.add(id(p))
        index, place = self.places[id(p)]
        self.flat(index)[place] = p.grad.flatten()
        p.grad = None
        self.counts[index] += 1
        while None in self.shards:
            index = self.shards.index(None)
            if self.counts[index] < len(self.buckets[index]):
                break
            self.send(index)

    def flat(self, index):
        if index not in self.flats:
            self.flats[index] = torch.zeros_like(self.optimizers[index].flat)
        return self.flats[index]

    def send(self, index):
        self.flat(index)
        self.shards[index] = self.optimizers[index].scatter(self.flats.pop(index))

    def finish(self):
        while None in self.shards:
            self.send(self.shards.index(None))
        return self.shards

    def step(self):
        for optimizer, shard in zip(self.optimizers, self.finish()):
            optimizer.step_shard(shard)
        self.zero_grad()

    def local_state_bytes(self):
        return sum(map(Zero1AdamW.local_state_bytes, self.optimizers))


class Zero3Module(nn.Module):
    def __init__(self, block, pg=None, prefetch=1):
        super().__init__()
        if prefetch < 0:
            raise ValueError(prefetch)
        self.block, self.pg, self.prefetch = block, pg, prefetch
        self.next_blocks = self.previous_blocks = ()
        ranks = dist.get_world_size(pg)
        split = {True: [], False: []}
        for p in block.parameters():
            split[p.requires_grad].append(p)
        self.trainable = split[True]
        self.wholes, self.shards, self.works = [], [], []
        for wanted, group in split.items():
            if group:
                one_dtype(group)
                whole = flat_of([p.detach() for p in group], ranks)
                view_into(whole, group)
                own = whole.chunk(ranks)[dist.get_rank(pg)].clone()
                self.shards.append(nn.Parameter(own, requires_grad=wanted))
                self.wholes.append(whole)
        for p in self.trainable:
            p.register_post_accumulate_grad_hook(self.count)
        self.open = False
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
            torch.autograd.graph.register_multi_grad_hook(inputs, self.end, mode="all")
        self.gather(self.next_blocks)
        out = self.block(*args, **kwargs)
        self.release()
        outs = [t for t in (out if isinstance(out, tuple) else (out,)) if t.requires_grad]
        if outs:
            torch.autograd.graph.register_multi_grad_hook(outs, self.begin, mode="any")
        return out

    def begin(self, grad):
        self.open, self.waiting = True, len(self.trainable)
        torch.autograd.Variable._execution_engine.queue_callback(self.end)
        self.gather(self.previous_blocks)

    def count(self, p):
        self.waiting -= 1
        if not (self.waiting or self.ends_with_inputs):
            self.end()

    def end(self, grads=None):
        if not self.open:
            return
        self.open = False
        self.release()
        if self.trainable:
            grads = [
                torch.zeros(p.shape, dtype=p.dtype) if p.grad is None else p.grad
                for p in self.trainable
            ]
            flat = flat_of(grads, dist.get_world_size(self.pg))
            del grads
            for p in self.trainable:
                p.grad = None
            shard = self.shards[0]
            mine = torch.empty_like(shard, requires_grad=False)
            dist.reduce_scatter_tensor(mine, flat, op=dist.ReduceOp.AVG, group=self.pg)
            shard.grad = mine if shard.grad is None else torch.add(shard.grad, mine)

    def start(self):
        for whole, shard in zip(self.wholes, self.shards):
            if not whole.untyped_storage().size():
                whole.untyped_storage().resize_(whole.nbytes)
                self.works.append(
                    dist.all_gather_into_tensor(whole, shard.detach(), group=self.pg, async_op=True)
                )

    def gather(self, others):
        for module in (self, *others[: self.prefetch]):
            module.start()
        for work in self.works:
            work.wait()
        self.works.clear()

    def release(self):
        for whole in self.wholes:
            whole.untyped_storage().resize_(0)


def chain(modules):
    for index, module in enumerate(modules):
        module.next_blocks = modules[index + 1 :]
        module.previous_blocks = modules[:index][::-1]


# --- clipping, checkpoints, master weights -------------------------------------------------------


def clip_grad_norm_sharded(grads, real, max_norm, pg=None, error_if_nonfinite=False):
    if max_norm < 0:
        raise ValueError(f"max_norm={max_norm}")
    counts = dict(zip(grads, real, strict=True))  # tensors are told apart by identity
    parts = [grad.narrow(0, 0, count) for grad, count in counts.items()]
    norms = torch._foreach_norm([part.float() for part in parts]) if parts else []
    both = torch.tensor([0.0, *norms]).square_().sum().reshape(1)
    dist.all_reduce(both, async_op=True, group=pg).wait()
    norm = both.sqrt_().squeeze()
    if error_if_nonfinite and bool(norm.isnan() | norm.isinf()):
        raise RuntimeError(f"norm={norm.item()}")
    if parts:
        torch._foreach_mul_(parts, torch.clamp(max_norm / (norm + 1e-6), max=1.0).item())
    return norm


def _lengths(model):
    params = {name: p for name, p in model.named_parameters() if p.requires_grad}
    return params, [p.numel() for p in params.values()]


def full_state_dict(model, shard, pg=None):
    world_size = dist.get_world_size(pg)
    shards = [None] * world_size if dist.get_rank(pg) == 0 else None
    dist.gather_object(shard, shards, group=pg, group_dst=0)
    if shards is None:
        return None
    params, lengths = _lengths(model)
    whole = {}
    for key in ("param", "exp_avg", "exp_avg_sq"):
        flat = torch.hstack([row[key] for row in shards]).narrow(0, 0, sum(lengths))
        pieces = map(torch.clone, flat.split(lengths))
        shapes = (p.shape for p in params.values())
        whole[key] = dict(zip(params, map(torch.reshape, pieces, shapes), strict=True))
    names = {p: name for name, p in params.items()}
    state = tree_map_only(torch.Tensor, torch.clone, dict(model.state_dict()))
    for name, p in model.named_parameters(remove_duplicate=False):
        if p in names:
            state[name] = whole["param"][names[p]].clone()
    whole["step"] = shards[0]["step"]
    del whole["param"]
    return {"model": state, "optimizer": whole}


def reshard(full, rank, world_size):
    if rank not in range(world_size):
        raise ValueError(f"rank={rank}, world_size={world_size}")
    moments = {key: full["optimizer"][key] for key in ("exp_avg", "exp_avg_sq")}
    names = [*moments["exp_avg"]]
    out = {"step": full["optimizer"]["step"]}
    for key, tensors in {"param": full["model"], **moments}.items():
        flat = parameters_to_vector(tensors[name] for name in names)
        padded = nn.functional.pad(flat, (0, -len(flat) % world_size))
        out[key] = padded.view(world_size, -1)[rank].clone()
    return out


class MasterWeights:
    def __init__(self, params, pg=None, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, wd=0.01):
        self.pg = pg
        params = list(params)
        flat = parameters_to_vector([p.detach().contiguous() for p in params])
        self.flat = nn.functional.pad(flat, (0, -len(flat) % dist.get_world_size(pg)))
        # the parameters are views of the buffer that is gathered into
        for p, view in zip(params, self.flat[: len(flat)].split([p.numel() for p in params])):
            p.data = view.view_as(p)
        own = self.flat.view(dist.get_world_size(pg), -1)[dist.get_rank(pg)]
        self.master = nn.Parameter(own.float())
        self.opt = torch.optim.AdamW([self.master], lr, betas, eps, wd, foreach=False)

    exp_avg = property(lambda self: self.opt.state[self.master]["exp_avg"])
    exp_avg_sq = property(lambda self: self.opt.state[self.master]["exp_avg_sq"])

    def step(self, grad):
        self.master.grad = grad.float()
        self.opt.step()
        self.opt.zero_grad()
        dist.all_gather_into_tensor(self.flat, self.master.detach().bfloat16(), group=self.pg)
