"""Lab 03 in generators: an exchange is a coroutine that is told of gradients, and the rows, chunks
and buckets come out of generators too."""

import time
from contextlib import contextmanager, suppress
from functools import reduce
from itertools import chain, groupby, islice, repeat

import torch
import torch.distributed as dist
from blocking_ddp import BlockingDDP
from generated import make_model
from torch import nn
from types_lab03 import RunLog


def shard_indices(n, rank, world_size, epoch=0, seed=0, shuffle=True, drop_last=False):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist() if shuffle else [*range(n)]

    def dealt():
        round_ = 0
        while round_ * world_size + (world_size if drop_last else 1) <= n:
            yield order[(round_ * world_size + rank) % n]
            round_ += 1

    return list(dealt())


def sync_module_(module, src=0):
    kinds = sorted(
        (
            (str(t.dtype), i, t.detach())
            for i, t in enumerate([*module.parameters(), *module.buffers()])
        ),
        key=lambda row: row[:2],
    )
    total = 0
    for _, rows in groupby(kinds, key=lambda row: row[0]):
        tensors = [row[2] for row in rows]
        flat = torch.nn.utils.parameters_to_vector([t.contiguous() for t in tensors])
        dist.broadcast(flat, src=src)
        total += flat.nbytes
        parts = iter(flat.split([t.numel() for t in tensors]))
        for tensor in tensors:
            tensor.copy_(next(parts).reshape(tensor.shape))
    return total


def ring_all_reduce_(flat, group=None):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    chunks = flat.tensor_split(world)

    def turns():
        for step in range(world - 1):
            yield chunks[rank - step], chunks[rank - step - 1], torch.Tensor.add_
        for step in range(world - 1):
            yield chunks[(rank - step + 1) % world], chunks[rank - step], torch.Tensor.copy_

    def turn(give, take, merge):
        inbox = torch.empty_like(take)
        sending = dist.isend(give, group=group, group_dst=(rank + 1) % world)
        dist.irecv(inbox, group=group, group_src=(rank + world - 1) % world).wait()
        sending.wait()
        merge(take, inbox)
        return give.element_size() * give.numel()

    return sum(turn(*row) for row in turns())


def assign_buckets(nbytes, caps):
    def closed():
        limits = chain(caps, repeat(caps[-1]))
        rows = enumerate(nbytes)
        for first in rows:
            limit, ids, size = next(limits), [first[0]], first[1]
            while size < limit and (more := next(rows, None)):
                ids.append(more[0])
                size += more[1]
            yield ids

    return list(closed())


def avg_hook(state, bucket):
    world = dist.get_world_size(state) if state else dist.get_world_size()
    tensor = bucket.buffer().mul_(1.0 / world)
    works = [dist.all_reduce(tensor, group=state, async_op=True).get_future()]
    return torch.futures.collect_all(works).then(lambda _: tensor)


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
    dist.init_process_group(
        "gloo", init_method=f"file://{store_path}", rank=rank, world_size=world_size
    )
    try:
        torch.manual_seed(rank + seed)
        module = build()
        replica = wrap(module)
        opt = torch.optim.SGD(module.parameters(), lr, 0.9)

        def batches():
            for epoch in range(epochs):
                rows = iter(shard_indices(len(dataset[0]), rank, world_size, epoch, seed))
                while batch := list(islice(rows, batch_size)):
                    yield batch

        losses, samples = [], 0
        for batch in batches():
            loss = nn.functional.mse_loss(replica(dataset[0][batch]), dataset[1][batch])
            loss.backward()
            opt.step()
            opt.zero_grad()
            every = [None] * world_size
            dist.all_gather_object(every, (loss.item(), len(batch)))
            losses.append(sum(value for value, _ in every) / world_size)
            samples += sum(rows for _, rows in every)
        if checkpoint and not rank:
            torch.save(module.state_dict(), checkpoint)
        return RunLog(losses, samples)
    finally:
        dist.destroy_process_group()


class BucketedDDP(nn.Module):
    def __init__(
        self, module, bucket_cap_bytes=25 << 20, first_cap_bytes=1 << 20, find_unused=False
    ):
        super().__init__()
        self.module, self.events, self.find_unused = module, [], find_unused
        self.within = 0
        self.exchange = None
        self.since = {}
        sync_module_(module)
        self.params = [p for p in list(module.parameters())[::-1] if p.requires_grad]
        caps = [first_cap_bytes, bucket_cap_bytes]
        self.plan = assign_buckets([p.element_size() * p.numel() for p in self.params], caps)
        for i, p in enumerate(self.params):
            p.register_post_accumulate_grad_hook(lambda p, i=i: self.told(i))

    @contextmanager
    def no_sync(self):
        self.within += 1
        try:
            yield
        finally:
            self.within -= 1

    def forward(self, *args, **kwargs):
        if torch.is_grad_enabled():
            self.exchange = None if self.within else self.coroutine()
            if self.exchange:
                next(self.exchange)
        return self.module(*args, **kwargs)

    def told(self, i):
        self.since[i] = True
        if self.exchange:
            self.exchange.send(i)

    def coroutine(self):
        """Is sent the numbers of parameters, and None at the end of backward."""
        here, sent = set(), []

        def full(ids):
            return here.issuperset(ids)

        while (i := (yield)) is not None:
            if not here:
                torch.autograd.Variable._execution_engine.queue_callback(self.over)
            here.add(i)
            sent += self.messages(islice(self.plan, len(sent), None), full, len(sent))
        used = self.since
        if self.find_unused:
            sent += self.messages(self.plan[len(sent) :], lambda ids: True, len(sent))
            flags = torch.zeros(len(self.params), dtype=torch.uint8)
            flags[list(self.since)] = 1
            every = [torch.empty_like(flags) for _ in range(dist.get_world_size())]
            dist.all_gather(every, flags)
            anybody = reduce(torch.bitwise_or, every).tolist()
            used = {i for i, flag in enumerate(anybody) if flag}
        if len(sent) < len(self.plan):
            raise RuntimeError("without a gradient: some parameter of " + str(self.plan[len(sent)]))
        for number, (flat, work) in enumerate(sent):
            work.wait()
            self.events.append((time.monotonic_ns(), "waited", number))
            pieces = flat.split([self.params[i].numel() for i in self.plan[number]])
            for i, piece in zip(self.plan[number], pieces):
                if i in used:
                    self.params[i].grad = piece.view_as(self.params[i]).clone()

    def messages(self, plan, full, number):
        """Starts the next buckets as long as they are full."""
        started = []
        for at, ids in enumerate(plan, number):
            if not full(ids):
                break
            params = [self.params[i] for i in ids]
            flat = torch.cat(
                [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in params]
            )
            flat *= 1 / dist.get_world_size()
            self.events.append((time.monotonic_ns(), "launched", at))
            started.append((flat, dist.all_reduce(flat, async_op=True)))
        return started

    def over(self):
        exchange, self.exchange = self.exchange, None
        with suppress(StopIteration):
            exchange.send(None)
        self.since = {}
