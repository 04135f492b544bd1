"""Lab 03 in objects: a bucket is one, knows who comes after it and writes its gradients itself."""

import time
from collections import deque
from contextlib import ExitStack, contextmanager

import torch
import torch.distributed as dist
from blocking_ddp import BlockingDDP
from generated import make_model
from torch import nn
from types_lab03 import RunLog


def shard_indices(n, rank, world_size, epoch=0, seed=0, shuffle=True, drop_last=False):
    rows = torch.arange(n)
    if shuffle:
        rows = rows[torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))]
    if drop_last:
        return rows[: n // world_size * world_size][rank::world_size].tolist()
    places = torch.arange(rank, -(-n // world_size) * world_size, world_size)
    return rows[places % max(n, 1)].tolist()


@torch.no_grad()
def sync_module_(module, src=0):
    def sizes():
        for owner in module.modules():
            for table in (owner._parameters, owner._buffers):
                for tensor in table.values():
                    if tensor is not None and id(tensor) not in seen:
                        seen.add(id(tensor))
                        mail = torch.empty(tensor.shape, dtype=tensor.dtype)
                        if dist.get_rank() == src:
                            mail.copy_(tensor)
                        dist.broadcast(mail, src)
                        tensor.copy_(mail)
                        yield mail.nbytes

    seen = set()
    return sum(sizes())


def ring_all_reduce_(flat, group=None):
    world = dist.get_world_size(group)
    rank = dist.get_rank(group)
    chunks = deque(flat.chunk(world) if len(flat) % world == 0 else flat.tensor_split(world))
    chunks.rotate(-rank)  # this rank's own chunk is the first
    sent = 0
    for half in ("add", "copy"):
        for _ in range(world - 1):
            give, take = chunks[0], chunks[-1]
            inbox = torch.zeros_like(take)
            works = [
                dist.isend(give, group=group, group_dst=(rank + 1) % world),
                dist.irecv(inbox, group=group, group_src=(rank - 1) % world),
            ]
            for work in works:
                work.wait()
            sent += give.nbytes
            if half == "add":
                take.add_(inbox)
            else:
                take.copy_(inbox)
            chunks.rotate(1)
    return sent


class Filling:
    """A bucket in the making."""

    def __init__(self, cap):
        self.cap, self.ids, self.bytes = cap, [], 0

    def takes(self, index, nbytes):
        self.ids.append(index)
        self.bytes += nbytes
        return self.bytes >= self.cap


def assign_buckets(nbytes, caps):
    caps = list(caps)
    closed, now = [], None
    for index, size in enumerate(nbytes):
        if now is None:
            now = Filling(caps.pop(0) if len(caps) > 1 else caps[0])
        if now.takes(index, size):
            closed.append(now.ids)
            now = None
    return closed + ([now.ids] if now else [])


def avg_hook(state, bucket):
    group = state or dist.group.WORLD
    scaled = torch.mul(bucket.buffer(), 1 / dist.get_world_size(group))
    future = dist.all_reduce(scaled, group=group, async_op=True).get_future()

    def out(done):
        (value,) = done.value()
        return value

    return future.then(out)


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
    with ExitStack() as at_the_end:
        store = dist.FileStore(str(store_path), world_size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
        at_the_end.callback(dist.destroy_process_group)
        torch.manual_seed(seed + rank)
        replica = wrap(model := build())
        opt = torch.optim.SGD(replica.parameters(), lr=lr, momentum=0.9)
        losses, samples = [], 0

        def step(rows):
            opt.zero_grad()
            x, y = (column[rows] for column in dataset)
            loss = torch.mean((replica(x) - y) ** 2)
            loss.backward()
            opt.step()
            return loss.detach()

        for epoch in range(epochs):
            rows = shard_indices(len(dataset[0]), rank, world_size, epoch, seed)
            samples += len(rows) * world_size
            of_epoch = [step(rows[at : at + batch_size]) for at in range(0, len(rows), batch_size)]
            if of_epoch:
                means = torch.stack(of_epoch)
                dist.all_reduce(means)
                losses += (means / world_size).tolist()
        if rank == 0 and str(checkpoint) != "":
            torch.save(dict(model.state_dict()), checkpoint)
        dist.barrier()
        return RunLog(losses, samples)


class Bucket:
    """Some neighbours: one message, sent when all are here and the bucket before has gone."""

    def __init__(self, number, params, log):
        self.number, self.params, self.log = number, params, log
        self.before = self.after = None
        self.empty()

    def empty(self):
        self.here, self.work, self.message = set(), None, None

    def gets(self, param):
        self.here.add(param)
        self.go()

    def go(self):
        blocked = self.before is not None and self.before.work is None
        if self.work is not None or blocked or len(self.here) < len(self.params):
            return
        share = 1 / dist.get_world_size()
        self.message = torch.empty(sum(p.numel() for p in self.params), dtype=self.params[0].dtype)
        for p, place in self.places():
            if p.grad is None:
                place.zero_()
            else:
                torch.mul(p.grad.reshape(-1), share, out=place)
        self.log("launched", self.number)
        self.work = dist.all_reduce(self.message, async_op=True)
        if self.after:
            self.after.go()

    def places(self):
        return zip(self.params, self.message.split([p.numel() for p in self.params]))

    def arrives(self, used):
        self.work.wait()
        self.log("waited", self.number)
        for p, mean in self.places():
            if p in used:
                if p.grad is None:
                    p.grad = torch.zeros_like(p)
                p.grad.copy_(mean.view(p.shape))


class BucketedDDP(nn.Module):
    def __init__(
        self, module, bucket_cap_bytes=25 << 20, first_cap_bytes=1 << 20, find_unused=False
    ):
        super().__init__()
        self.module = module
        self.events = []
        self.find_unused = find_unused
        self.levels = [True]
        self.used = set()
        self.exchanges = self.asked = False
        sync_module_(module)
        params = [p for p in reversed([*module.parameters()]) if p.requires_grad]
        plan = assign_buckets([p.nbytes for p in params], [first_cap_bytes, bucket_cap_bytes])
        self.chain = [
            Bucket(number, [params[i] for i in ids], self.log) for number, ids in enumerate(plan)
        ]
        for one, other in zip(self.chain, self.chain[1:]):
            one.after, other.before = other, one
        self.home = {p: bucket for bucket in self.chain for p in bucket.params}
        for p in params:
            p.register_post_accumulate_grad_hook(self.on_gradient)

    def log(self, kind, bucket):
        self.events.append((time.monotonic_ns(), kind, bucket))

    @contextmanager
    def no_sync(self):
        self.levels.append(False)
        try:
            yield
        finally:
            self.levels.pop()

    def forward(self, *args, **kwargs):
        if torch.is_grad_enabled():
            self.exchanges, self.asked = self.levels[-1], False
            for bucket in self.chain:
                bucket.empty()
        return self.module(*args, **kwargs)

    def on_gradient(self, param):
        self.used.add(param)
        if self.exchanges:
            if not self.asked:
                self.asked = True
                torch.autograd.Variable._execution_engine.queue_callback(self.on_end)
            self.home[param].gets(param)

    def on_end(self):
        used = self.used
        if self.find_unused:
            for bucket in self.chain:
                bucket.here |= set(bucket.params)
                bucket.go()
            flags = torch.tensor([float(p in used) for p in self.home])
            dist.all_reduce(flags, op=dist.ReduceOp.MAX)
            used = {p for p, flag in zip(self.home, flags) if flag > 0}
        if any(bucket.work is None for bucket in self.chain):
            raise RuntimeError("a parameter has no gradient")
        for bucket in self.chain:
            bucket.arrives(used)
        self.used.clear()
        self.exchanges = False
