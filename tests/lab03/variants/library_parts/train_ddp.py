"""Lab 03 with more of the library: samplers, state dicts, futures, dictionaries for buckets."""

import time
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import torch
import torch.distributed as dist
from blocking_ddp import BlockingDDP
from generated import make_model
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from types_lab03 import RunLog


def shard_indices(n, rank, world_size, epoch=0, seed=0, shuffle=True, drop_last=False):
    order = list(range(n))
    if shuffle:
        order = torch.randperm(n, generator=torch.Generator().manual_seed(epoch + seed)).tolist()
    if drop_last:
        del order[n // world_size * world_size :]
    position = 0
    while len(order) % world_size:
        order.append(order[position])
        position += 1
    return [row for at, row in enumerate(order) if at % world_size == rank]


@torch.no_grad()
def sync_module_(module, src=0):
    tensors = [t.detach() for t in (*module.parameters(), *module.buffers())]
    sent = [t.clone(memory_format=torch.contiguous_format) for t in tensors]
    works = [dist.broadcast(one, src, async_op=True) for one in sent]
    for work, tensor, one in zip(works, tensors, sent):
        work.wait()
        tensor.copy_(one)
    return sum(one.nbytes for one in sent)


def ring_all_reduce_(flat, group=None):
    w, r = dist.get_world_size(group), dist.get_rank(group)
    edges = [flat.numel() * i // w for i in range(w + 1)]
    part = [flat[a:b] for a, b in pairwise(edges)]
    total = 0

    def turn(give, take, merge):
        nonlocal total
        give, take = part[give % w], part[take % w]
        box = torch.zeros_like(take)
        works = []
        if give.numel():
            works.append(dist.isend(give, group=group, group_dst=(r + 1) % w))
            total += give.nbytes
        if take.numel():
            works.append(dist.irecv(box, group=group, group_src=(r - 1) % w))
        for work in works:
            work.wait()
        merge(take, box)

    for step in range(w - 1):  # this rank ends with the whole sum of chunk r
        turn(r - 1 - step, r - 2 - step, lambda take, box: take.add_(box))
    for step in range(w - 1):
        turn(r - step, r - 1 - step, lambda take, box: take.copy_(box))
    return total


def assign_buckets(nbytes, caps):
    found, start, size = [], 0, 0
    for index, one in enumerate(nbytes, start=1):
        size += one
        if size >= caps[min(len(found), len(caps) - 1)] or index == len(nbytes):
            found.append(list(range(start, index)))
            start, size = index, 0
    return found


def avg_hook(state, bucket):
    group = state if state is not None else dist.group.WORLD
    work = dist.all_reduce(bucket.buffer().mul_(1 / group.size()), group=group, async_op=True)
    return work.get_future().then(lambda future: future.wait()[0])


def train_ddp(
    rank,
    world_size,
    store_path,
    dataset,
    epochs,
    seed,
    checkpoint="",
    batch_size=8,
    lr=0.02,
    build=make_model,
    wrap=BlockingDDP,
):
    url = f"file://{store_path}"
    dist.init_process_group("gloo", init_method=url, rank=rank, world_size=world_size)
    try:
        torch.manual_seed(seed + rank)
        rows = TensorDataset(*dataset)
        sampler = torch.utils.data.DistributedSampler(rows, world_size, rank, seed=seed)
        loader = DataLoader(rows, batch_size, sampler=sampler)
        replica = wrap(build())
        opt = torch.optim.SGD(replica.parameters(), lr=lr, momentum=0.9)
        losses = []
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            for x, y in loader:
                opt.zero_grad()
                loss = nn.MSELoss()(replica(x), y)
                loss.backward()
                opt.step()
                mean = loss.detach().clone()
                dist.all_reduce(mean, op=dist.ReduceOp.AVG)
                losses.append(mean.item())
        if checkpoint and rank == 0:
            state = replica.state_dict()
            torch.save({name.removeprefix("module."): state[name] for name in state}, checkpoint)
        dist.barrier()
    finally:
        dist.destroy_process_group()
    return RunLog(losses, epochs * world_size * len(sampler))


class BucketedDDP(nn.Module):
    def __init__(
        self, module, bucket_cap_bytes=25 << 20, first_cap_bytes=1 << 20, find_unused=False
    ):
        super().__init__()
        self.module = module
        self.events = []
        self.find_unused = find_unused
        self.alone = 0
        self.round = None
        self.touched = {}
        sync_module_(module)
        self.params = [p for p in module.parameters() if p.requires_grad]
        self.params.reverse()
        sizes = [p.nbytes for p in self.params]
        self.plan = assign_buckets(sizes, [first_cap_bytes, bucket_cap_bytes])
        for number, ids in enumerate(self.plan):
            for i in ids:
                hook = partial(self.on_gradient, number, i)
                self.params[i].register_post_accumulate_grad_hook(hook)

    def forward(self, *args, **kwargs):
        if torch.is_grad_enabled():
            self.round = None if self.alone else {"have": {}, "futures": {}, "next": 0}
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self):
        self.alone += 1
        try:
            yield
        finally:
            self.alone -= 1

    def on_gradient(self, number, i, param):
        self.touched[i] = True
        if self.round is None:
            return
        if not self.round["have"]:
            torch.autograd.Variable._execution_engine.queue_callback(self.on_end)
        self.round["have"].setdefault(number, []).append(i)
        self.advance(lambda at: len(self.round["have"].get(at, [])) == len(self.plan[at]))

    def advance(self, full):
        now = self.round
        while now["next"] < len(self.plan) and full(now["next"]):
            at = now["next"]
            now["next"] += 1
            pieces = []
            for i in self.plan[at]:
                p = self.params[i]
                pieces.append((torch.zeros_like(p) if p.grad is None else p.grad).flatten())
            flat = torch.cat([piece * (1 / dist.get_world_size()) for piece in pieces])
            self.events.append((time.monotonic_ns(), "launched", at))
            now["futures"][at] = (flat, dist.all_reduce(flat, async_op=True).get_future())

    def on_end(self):
        now = self.round
        used = [i in self.touched for i in range(len(self.params))]
        if self.find_unused:
            self.advance(lambda at: True)
            every = [None] * dist.get_world_size()
            dist.all_gather_object(every, used)
            used = [any(column) for column in zip(*every)]
        if now["next"] < len(self.plan):
            raise RuntimeError("a bucket never filled: a parameter has no gradient")
        for at, (flat, future) in now["futures"].items():
            future.wait()
            self.events.append((time.monotonic_ns(), "waited", at))
            offset = 0
            for i in self.plan[at]:
                p = self.params[i]
                mean = flat[offset : offset + p.numel()].reshape(p.shape)
                offset += p.numel()
                if used[i]:
                    p.grad = mean.clone()
        self.touched.clear()
        self.round = None
