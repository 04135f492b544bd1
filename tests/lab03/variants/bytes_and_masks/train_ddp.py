"""Lab 03 in bytes: one message for all state, offsets instead of views, bit masks for who used
what, a thread that keeps a hook's promise."""

import threading
import time
from bisect import bisect_right
from contextlib import contextmanager
from itertools import accumulate, cycle, islice

import torch
import torch.distributed as dist
import torch.nn.functional as F
from blocking_ddp import BlockingDDP
from generated import make_model
from torch import nn
from types_lab03 import RunLog


def shard_indices(n, rank, world_size, epoch=0, seed=0, shuffle=True, drop_last=False):
    order = range(n)
    if shuffle:
        generator = torch.Generator()
        generator.manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    total = n - n % world_size if drop_last else n + -n % world_size
    return list(islice(cycle(order), rank, total, world_size))


def sync_module_(module, src=0):
    tensors = [t.detach() for t in (*module.parameters(), *module.buffers())]
    packed = [t.contiguous().reshape(-1).view(torch.uint8) for t in tensors]
    message = torch.cat(packed)
    dist.broadcast(message, src)
    at = 0
    for tensor, old in zip(tensors, packed):
        piece = message[at : at + len(old)].clone().view(tensor.dtype)
        tensor.copy_(piece.reshape(tensor.shape))
        at += len(old)
    return len(message)


def ring_all_reduce_(flat, group=None):
    ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
    size, me = len(ranks), ranks.index(dist.get_rank())
    n = len(flat)
    start = [n * i // size for i in range(size + 1)]
    sent = 0
    for step in range(2 * size - 2):
        out, into = (me - step) % size, (me - step - 1) % size
        give = flat[start[out] : start[out + 1]].clone()
        take = flat.new_empty(start[into + 1] - start[into])
        receiving = dist.irecv(take, ranks[me - 1], group)
        sending = dist.isend(give, ranks[(me + 1) % size], group)
        receiving.wait()
        sending.wait()
        here = slice(start[into], start[into + 1])
        flat[here] = flat[here] + take if step < size - 1 else take
        sent += give.nbytes
    return sent


def assign_buckets(nbytes, caps):
    def cut(first, number):
        if first == len(nbytes):
            return []
        cap = caps[number] if number < len(caps) else caps[-1]
        sizes = accumulate(nbytes[first:])
        ends = (at for at, size in enumerate(sizes, first + 1) if size >= cap)
        end = next(ends, len(nbytes))
        return [list(range(first, end)), *cut(end, number + 1)]

    return cut(0, 0)


def avg_hook(state, bucket):
    tensor = bucket.buffer()
    tensor *= 1 / dist.get_world_size(state)
    work = dist.all_reduce(tensor, group=state, async_op=True)
    promise = torch.futures.Future()

    def keep():
        work.wait()
        promise.set_result(tensor)

    threading.Thread(target=keep, daemon=True).start()
    return promise


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
    url = "file://" + str(store_path)
    dist.init_process_group("gloo", init_method=url, world_size=world_size, rank=rank)
    try:
        torch.random.manual_seed(seed + rank)
        model = build()
        replica = wrap(model)
        opt = torch.optim.SGD(model.parameters(), momentum=0.9, lr=lr)
        inputs, targets = dataset
        mine, count = [], 0
        for epoch in range(epochs):
            shard = torch.tensor(shard_indices(len(inputs), rank, world_size, epoch, seed))
            count += len(shard)
            while len(shard):
                batch, shard = shard[:batch_size], shard[batch_size:]
                model.zero_grad(set_to_none=True)
                loss = F.mse_loss(replica(inputs[batch]), targets[batch])
                loss.backward()
                opt.step()
                mine.append(loss.item())
        mine = torch.tensor(mine, dtype=torch.float64)
        every = [torch.empty_like(mine) for _ in range(world_size)]
        dist.all_gather(every, mine)
        if rank == 0 and checkpoint:
            torch.save(model.state_dict(), str(checkpoint))
        return RunLog(torch.stack(every).mean(0).tolist(), count * world_size)
    finally:
        dist.destroy_process_group()


class BucketedDDP(nn.Module):
    def __init__(
        self, module, bucket_cap_bytes=25 << 20, first_cap_bytes=1 << 20, find_unused=False
    ):
        super().__init__()
        sync_module_(module)
        self.module, self.find_unused, self.events = module, find_unused, []
        self.list = [p for p in module.parameters() if p.requires_grad]
        self.list.reverse()
        plan = assign_buckets([p.nbytes for p in self.list], [first_cap_bytes, bucket_cap_bytes])
        self.ends = [ids[-1] + 1 for ids in plan]  # buckets are runs of neighbours
        self.alone = False
        self.deaf = True
        self.mask = 0  # bit i: parameter i has a gradient that nobody else has seen
        for i, p in enumerate(self.list):
            p.register_post_accumulate_grad_hook(lambda p, i=i: self.arrived(i))

    def forward(self, *args, **kwargs):
        if torch.is_grad_enabled():
            self.deaf = self.alone
            self.ready = 0
            self.flying = []
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self):
        self.alone, was = True, self.alone
        try:
            yield
        finally:
            self.alone = was

    def run(self, bucket):
        return (self.ends[bucket - 1] if bucket else 0), self.ends[bucket]

    def arrived(self, i):
        self.mask |= 1 << i
        if self.deaf:
            return
        if not self.ready:
            torch.autograd.Variable._execution_engine.queue_callback(self.landed)
        self.ready |= 1 << i
        self.depart()

    def depart(self):
        while len(self.flying) < len(self.ends):
            first, end = self.run(len(self.flying))
            full = (1 << end) - (1 << first)
            if self.ready & full != full:
                return
            grads = [
                torch.zeros_like(p) if p.grad is None else p.grad for p in self.list[first:end]
            ]
            message = torch.cat([grad.flatten() for grad in grads]) * (1 / dist.get_world_size())
            self.events.append((time.monotonic_ns(), "launched", len(self.flying)))
            self.flying.append((message, dist.all_reduce(message, async_op=True)))

    def landed(self):
        used = (1 << len(self.list)) - 1
        if self.find_unused:
            self.ready = used
            self.depart()
            bits = torch.tensor([self.mask >> i & 1 for i in range(len(self.list))]).to(torch.int64)
            dist.all_reduce(bits, op=dist.ReduceOp.BOR)
            used = sum(bit << i for i, bit in enumerate(bits.tolist()))
        if len(self.flying) != len(self.ends):
            raise RuntimeError("not every parameter got a gradient")
        for bucket, (message, work) in enumerate(self.flying):
            work.wait()
            self.events.append((time.monotonic_ns(), "waited", bucket))
            first, end = self.run(bucket)
            edges = [0, *accumulate(p.numel() for p in self.list[first:end])]
            for i in range(first, end):
                assert bisect_right(self.ends, i) == bucket
                if used >> i & 1:
                    part = message[edges[i - first] : edges[i - first + 1]]
                    self.list[i].grad = part.reshape(self.list[i].shape).clone()
        self.mask, self.deaf = 0, True
