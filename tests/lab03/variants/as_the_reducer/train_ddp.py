"""Lab 03 nearer to DDP's C++: buffers that stay, hooks on graph nodes, a walk over the graph."""

import itertools
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from blocking_ddp import BlockingDDP
from generated import make_model
from torch import nn
from types_lab03 import RunLog


def shard_indices(n, rank, world_size, epoch=0, seed=0, shuffle=True, drop_last=False):
    generator = torch.Generator()
    generator.manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator) if shuffle else torch.arange(n)
    if drop_last:
        order = order[: n - n % world_size]
    else:
        rounds = -(-n // world_size)
        order = torch.cat([order] * (1 + rounds * world_size // n))[: rounds * world_size]
    return order.view(-1, world_size)[:, rank].tolist() if len(order) else []


def sync_module_(module, src=0):
    by_dtype = {}
    for tensor in itertools.chain(module.parameters(), module.buffers()):
        by_dtype.setdefault(tensor.dtype, []).append(tensor.data)
    total = 0
    for tensors in by_dtype.values():
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.broadcast(flat, src)
        total += flat.nbytes
        for tensor, piece in zip(tensors, flat.split([t.numel() for t in tensors])):
            tensor.copy_(piece.view_as(tensor))
    return total


def ring_all_reduce_(flat, group=None):
    world_size = dist.get_world_size(group)
    me = dist.get_rank(group)
    ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
    to, source = ranks[(me + 1) % world_size], ranks[me - 1]
    length = -(-flat.numel() // world_size)  # padded: all chunks are equally long
    padded = flat.new_zeros(world_size, length)
    padded.view(-1)[: flat.numel()] = flat
    inbox = flat.new_empty(length)
    sent = 0
    for step in range(2 * (world_size - 1)):
        adds = step < world_size - 1
        give = (me - step) if adds else (me - step + world_size)
        take = (give - 1) % world_size
        out = padded[give % world_size].clone()
        ops = [
            dist.P2POp(dist.isend, out, to, group),
            dist.P2POp(dist.irecv, inbox, source, group),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        sent += out.nbytes
        padded[take] = padded[take] + inbox if adds else inbox
    flat.copy_(padded.view(-1)[: flat.numel()])
    return sent


def assign_buckets(nbytes, caps):
    caps = itertools.chain(caps, itertools.repeat(caps[-1]))
    buckets, pending, cap = [], [], next(caps)
    for index in range(len(nbytes)):
        pending.append(index)
        if sum(nbytes[i] for i in pending) >= cap:
            buckets.append(pending)
            pending, cap = [], next(caps)
    return [*buckets, pending] if pending else buckets


def avg_hook(state, bucket):
    share = bucket.buffer() * (1.0 / dist.get_world_size(state))
    answer = torch.futures.Future()
    arrived = dist.all_reduce(share, group=state, async_op=True).get_future()
    arrived.add_done_callback(lambda done: answer.set_result(done.value()[0]))
    return answer


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
    store = dist.FileStore(str(store_path), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    losses, samples = [], 0
    try:
        torch.manual_seed(seed + rank)
        model = build()
        replica = wrap(model)
        opt = torch.optim.SGD(replica.parameters(), lr, momentum=0.9)
        for epoch in range(epochs):
            rows = shard_indices(len(dataset[0]), rank, world_size, epoch, seed)
            for first in range(0, len(rows), batch_size):
                x, y = (column[rows[first : first + batch_size]] for column in dataset)
                loss = (replica(x) - y).square().mean()
                replica.zero_grad()
                loss.backward()
                opt.step()
                shared = torch.tensor([loss.item(), float(len(x))], dtype=torch.float64)
                dist.all_reduce(shared)
                losses.append(shared[0].item() / world_size)
                samples += int(shared[1].item())
        if not rank and checkpoint:
            with open(checkpoint, "wb") as file:
                torch.save(replica.module.state_dict(), file)
        return RunLog(losses, samples)
    finally:
        dist.destroy_process_group()


class BucketedDDP(nn.Module):
    def __init__(
        self, module, bucket_cap_bytes=25 << 20, first_cap_bytes=1 << 20, find_unused=False
    ):
        super().__init__()
        self.module, self.find_unused, self.events = module, find_unused, []
        self._exchange, self._expecting = True, False
        sync_module_(module)
        params = [p for p in module.parameters() if p.requires_grad][::-1]
        plan = assign_buckets([p.nbytes for p in params], [first_cap_bytes, bucket_cap_bytes])
        self._params = params
        self._flats = [params[b[0]].new_zeros(sum(params[i].numel() for i in b)) for b in plan]
        self._views, self._home, self._plan = {}, {}, plan
        for number, (flat, ids) in enumerate(zip(self._flats, plan)):
            for i, piece in zip(ids, flat.split([params[i].numel() for i in ids])):
                self._views[i] = piece.view_as(params[i])
                self._home[i] = number
        self._used = set()
        self._nodes = []
        for i, p in enumerate(params):
            node = p.expand_as(p).grad_fn.next_functions[0][0]
            node.register_hook(lambda *_, i=i: self._ready(i))
            self._nodes.append(node)  # or it would be gone, and its hook with it

    def forward(self, *args, **kwargs):
        out = self.module(*args, **kwargs)
        if torch.is_grad_enabled():
            self._expecting = self._exchange
            if self._expecting:
                self._left = [set(ids) for ids in self._plan]
                self._works = []
                self._begun = False
                self._absent = self._not_reached(out) if self.find_unused else []
        return out

    def _not_reached(self, out):
        """Parameters that backward will not come to: no path of the graph leads there."""
        seen, queue = set(), [out.grad_fn]
        while queue:
            node = queue.pop()
            if node is not None and node not in seen:
                seen.add(node)
                queue += [parent for parent, _ in node.next_functions]
        return [i for i, node in enumerate(self._nodes) if node not in seen]

    def _ready(self, i):
        self._used.add(i)
        if not self._expecting:
            return
        if not self._begun:
            self._begun = True
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
            for j in self._absent:
                self._mark(j)
        self._mark(i)

    def _mark(self, i):
        grad, view = self._params[i].grad, self._views[i]
        if grad is None:
            view.zero_()
        else:
            torch.mul(grad, 1.0 / dist.get_world_size(), out=view)
        self._left[self._home[i]].discard(i)
        while len(self._works) < len(self._flats) and not self._left[len(self._works)]:
            number = len(self._works)
            self.events.append((time.monotonic_ns(), "launched", number))
            self._works.append(dist.all_reduce(self._flats[number], async_op=True))

    def _finish(self):
        if len(self._works) < len(self._flats):
            raise RuntimeError("some parameters got no gradient")
        used = torch.zeros(len(self._params), dtype=torch.int32)
        used[list(self._used)] = 1
        if self.find_unused:
            dist.all_reduce(used, op=dist.ReduceOp.MAX)
        for number, work in enumerate(self._works):
            work.wait()
            self.events.append((time.monotonic_ns(), "waited", number))
        for i, p in enumerate(self._params):
            if used[i]:
                if p.grad is None:
                    p.grad = torch.empty_like(p)
                p.grad.copy_(self._views[i])
        self._used = set()
        self._expecting = False

    @contextmanager
    def no_sync(self):
        old = self._exchange
        self._exchange = False
        try:
            yield
        finally:
            self._exchange = old
