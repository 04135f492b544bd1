"""Lab 03: data parallelism from collectives.

N processes hold the same parameters, read different rows and average their gradients; everything
else is arithmetic about who sends what, and when. gloo on a CPU; `python train_ddp.py` starts two
ranks by itself, `torchrun --nproc-per-node 2 train_ddp.py` works as well.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from blocking_ddp import BlockingDDP
from generated import make_model, make_rows
from torch import Tensor, nn
from types_lab03 import RunLog

# --- who reads which rows ------------------------------------------------------------------------


def shard_indices(
    n: int,
    rank: int,
    world_size: int,
    epoch: int = 0,
    seed: int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
) -> list[int]:
    """Rows of a dataset of n that `rank` reads in `epoch`, in order: what
    `torch.utils.data.DistributedSampler` gives.

    Every rank gets the same number of rows: ceil(n / world_size), where the list is filled up by
    repeating it from its front, as often as it takes; or floor(n / world_size) with `drop_last`,
    which drops from its end. Rank r takes every world_size-th row, from the r-th on.

    The order is `torch.randperm(n)` of a generator of its own, seeded with seed + epoch, or 0..n-1
    without `shuffle`. torch's global generator stays as it is.
    """
    # BEGIN SOLUTION shard_indices
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    else:
        order = list(range(n))
    each = n // world_size if drop_last else -(-n // world_size)
    order = [order[i % n] for i in range(each * world_size)]
    return order[rank::world_size]
    # END SOLUTION


# --- replicas that begin equal -------------------------------------------------------------------


def sync_module_(module: nn.Module, src: int = 0) -> int:
    """Give every rank the parameters and buffers of rank `src`, in place.

    All of them: frozen parameters, integer buffers, buffers that no state dict lists, and tensors
    that are not contiguous, such as every second column of a table. A tensor that is shared by two
    layers travels once. Only `src` gives: what the other ranks held, NaN perhaps, reaches nobody,
    and they send nothing but what they pass on. Returns the bytes of those tensors, each counted
    once and without what lies between its elements, the same number on every rank.
    """
    # BEGIN SOLUTION sync_module_
    total = 0
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            dense = tensor.contiguous()  # a backend sends memory as it lies there
            dist.broadcast(dense, src=src)
            tensor.copy_(dense)
            total += tensor.numel() * tensor.element_size()
    return total
    # END SOLUTION


# --- the collective itself -----------------------------------------------------------------------


def ring_all_reduce_(flat: Tensor, group: dist.ProcessGroup | None = None) -> int:
    """Sum `flat` over the ranks of `group` (None: all), in place, and return the bytes that this
    rank sent.

    flat: (N,), contiguous, the same N and dtype on every rank, any N >= 1 (also below the number of
    ranks). W ranks form a ring: each sends to the next one only and receives from the one before,
    with `dist.isend` and `dist.irecv`, 2 (W - 1) times a chunk of about N / W elements: first W - 1
    steps that add (reduce-scatter), then W - 1 steps that copy (all-gather). The result is the same
    on all ranks to the last bit.
    """
    # BEGIN SOLUTION ring_all_reduce_
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    chunks = flat.tensor_split(world_size)
    sent = 0

    def exchange(out: Tensor, into: Tensor) -> int:
        sending = dist.isend(out, group=group, group_dst=after)
        dist.irecv(into, group=group, group_src=before).wait()
        sending.wait()
        return out.numel() * out.element_size()

    for step in range(world_size - 1):
        mine = chunks[(rank - step - 1) % world_size]
        incoming = torch.empty_like(mine)
        sent += exchange(chunks[(rank - step) % world_size], incoming)
        mine += incoming
    for step in range(world_size - 1):
        sent += exchange(chunks[(rank + 1 - step) % world_size], chunks[(rank - step) % world_size])
    return sent
    # END SOLUTION


# --- buckets -------------------------------------------------------------------------------------


def assign_buckets(nbytes: list[int], caps: list[int]) -> list[list[int]]:
    """Put tensors of these sizes into buckets: lists of indices into `nbytes`, in their order.

    A tensor joins the open bucket, and if the bucket's size has then reached its cap it is closed:
    buckets may overshoot, and no tensor is cut. caps[i] is bucket i's, the last one holds for all
    further buckets; bytes, like `nbytes`. No bucket is empty. It is the caller who decides on the
    order of the tensors.
    """
    # BEGIN SOLUTION assign_buckets
    buckets: list[list[int]] = [[]]
    size = 0
    for index, tensor_bytes in enumerate(nbytes):
        buckets[-1].append(index)
        size += tensor_bytes
        if size >= caps[min(len(buckets), len(caps)) - 1]:
            buckets.append([])
            size = 0
    return [bucket for bucket in buckets if bucket]
    # END SOLUTION


def avg_hook(  # torch reads its annotations: no `from __future__ import annotations` here
    state: dist.ProcessGroup | None, bucket: dist.GradBucket
) -> torch.futures.Future[Tensor]:
    """A communication hook for `DistributedDataParallel.register_comm_hook(state, avg_hook)`: the
    mean of a bucket over the ranks of `state` (None: all), with the same bits as without any hook.

    `bucket.buffer()` is (bucket_numel,), the gradients of this rank. Returns at once, with a future
    whose value will be the averaged tensor.
    """
    # BEGIN SOLUTION avg_hook
    tensor = bucket.buffer().mul_(1 / dist.get_world_size(state))
    work = dist.all_reduce(tensor, group=state, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])
    # END SOLUTION


# --- a run ---------------------------------------------------------------------------------------


def rendezvous(store_path: str | Path) -> str:
    """Given: where ranks meet, for `init_process_group`: a file, or what torchrun has set."""
    return Path(store_path).absolute().as_uri() if str(store_path) else "env://"


def train_ddp(
    rank: int,
    world_size: int,
    store_path: str | Path,
    dataset: tuple[Tensor, Tensor],
    epochs: int,
    seed: int,
    checkpoint: str | Path = "",
    batch_size: int = 8,
    lr: float = 0.02,
    build: Callable[[], nn.Module] = make_model,
    wrap: Callable[[nn.Module], nn.Module] = BlockingDDP,
) -> RunLog:
    """What one rank does, from the rendezvous to the teardown.

    - Joins a gloo group at `rendezvous(store_path)`; leaves it destroyed, also after an error.
    - Seeds torch with seed + rank, calls `build()`, and `wrap`s the model, which makes the replicas
      equal and averages gradients. It is the wrapped model that a step calls.
    - Each epoch reads its rows of (x, y) = dataset in the order of `shard_indices` (not dropping
      any), `batch_size` rows a step; the last batch of an epoch may be shorter.
    - A step: mean squared error, backward, `torch.optim.SGD(lr=lr, momentum=0.9)`.
    - Logs the loss of each step as the mean over all ranks.
    - At the end rank 0, and no other, saves the state dict of what `build` gave to `checkpoint`,
      over a file that is there; not where it is "". A rank may have a disk of its own.
    """
    # BEGIN SOLUTION train_ddp
    dist.init_process_group(
        "gloo", init_method=rendezvous(store_path), rank=rank, world_size=world_size
    )
    try:
        torch.manual_seed(seed + rank)
        model = build()
        replica = wrap(model)
        opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        x, y = dataset
        losses, samples = [], 0
        for epoch in range(epochs):
            rows = shard_indices(len(x), rank, world_size, epoch, seed)
            samples += world_size * len(rows)
            for batch in torch.tensor(rows).split(batch_size):
                opt.zero_grad()
                loss = nn.functional.mse_loss(replica(x[batch]), y[batch])
                loss.backward()
                opt.step()
                losses.append(loss.detach())
        log = torch.stack(losses)
        dist.all_reduce(log)
        if rank == 0 and str(checkpoint):
            torch.save(model.state_dict(), checkpoint)
        dist.barrier()
        return RunLog((log / world_size).tolist(), samples)
    finally:
        dist.destroy_process_group()
    # END SOLUTION


# --- overlap -------------------------------------------------------------------------------------


class BucketedDDP(nn.Module):
    """A module whose gradients are the mean over all ranks when `backward` returns.

    Parameters and buffers are rank 0's from the constructor on; after that, only gradients travel.
    Trainable parameters (of one dtype), in REVERSE order of `module.parameters()`, which is about
    the order in which their gradients come, are put into buckets once: `assign_buckets` with the
    caps [first_cap_bytes, bucket_cap_bytes]. A bucket is one flat tensor and one all-reduce, which
    starts during backward, as soon as all its gradients are there and every bucket before it has
    started: in the order of the buckets on every rank. Nobody waits before the backward's end,
    where all of them are waited for and the means written to `.grad`. Each gradient is multiplied
    by 1 / world_size before it is summed. Modes such as `eval()` change none of this.

    A parameter that gets no gradient is an error at the end of backward, unless `find_unused`: then
    it counts with what stands in its `.grad` (zeros for None), and where no rank used it, neither
    in this backward nor in those under `no_sync` before it, its `.grad` stays as it was. One
    backward a forward: what a second one adds stays with its rank.

    `events`: (time.monotonic_ns(), "launched" or "waited", bucket), in order, for a timeline.
    """

    def __init__(
        self,
        module: nn.Module,
        bucket_cap_bytes: int = 25 << 20,
        first_cap_bytes: int = 1 << 20,
        find_unused: bool = False,
    ) -> None:
        super().__init__()
        self.module = module
        self.find_unused = find_unused
        self.synced = True  # no_sync() changes it, forward() reads it
        self.events: list[tuple[int, str, int]] = []
        # BEGIN SOLUTION BucketedDDP
        sync_module_(module)
        params = [p for p in reversed(list(module.parameters())) if p.requires_grad]
        nbytes = [p.numel() * p.element_size() for p in params]
        caps = [first_cap_bytes, bucket_cap_bytes]
        self.buckets = [[params[i] for i in ids] for ids in assign_buckets(nbytes, caps)]
        self.active = False
        self.fresh: set[Tensor] = set()  # parameters with a gradient that was not averaged yet
        for index, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda p, i=index: self._on_gradient(p, i))
        # END SOLUTION

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        # BEGIN SOLUTION BucketedDDP
        if torch.is_grad_enabled():
            self.active = self.synced  # decided here: backward may run outside no_sync()
            self.callback_queued = False
            self.missing = [len(bucket) for bucket in self.buckets]
            self.running: list[tuple[Tensor, dist.Work]] = []
        return self.module(*args, **kwargs)
        # END SOLUTION

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it, a forward pass decides that its backward sends nothing: gradients add up in
        `.grad` until a backward whose forward ran outside averages the sum.

        Where backward is called makes no difference, and a forward without gradients (under
        `torch.no_grad()`) decides nothing. What held before holds again afterwards, also after an
        error and inside another `no_sync()`.
        """
        # BEGIN SOLUTION no_sync
        before, self.synced = self.synced, False
        try:
            yield
        finally:
            self.synced = before
        # END SOLUTION

    def _on_gradient(self, param: Tensor, index: int) -> None:
        """Autograd has just written `param.grad`; `param` is in bucket `index`."""
        # BEGIN SOLUTION BucketedDDP
        self.fresh.add(param)
        if not self.active:
            return
        if not self.callback_queued:
            self.callback_queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._on_backward_end)
        self.missing[index] -= 1
        self._launch_full_buckets()
        # END SOLUTION

    def _launch_full_buckets(self) -> None:
        """Start the all-reduce of every bucket that is full and next in line."""
        # BEGIN SOLUTION BucketedDDP
        while len(self.running) < len(self.buckets) and self.missing[len(self.running)] == 0:
            index = len(self.running)
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.buckets[index]]
            flat = torch.cat([grad.reshape(-1) for grad in grads])
            flat.mul_(1 / dist.get_world_size())
            self.events.append((time.monotonic_ns(), "launched", index))
            self.running.append((flat, dist.all_reduce(flat, async_op=True)))
        # END SOLUTION

    def _on_backward_end(self) -> None:
        """Autograd has nothing left to do; backward returns when this does."""
        # BEGIN SOLUTION BucketedDDP
        used = self._count_unused_as_zeros() if self.find_unused else self.fresh
        if len(self.running) < len(self.buckets):
            count = sum(self.missing)
            raise RuntimeError(f"{count} parameters got no gradient; is find_unused=True missing?")
        for index, (flat, work) in enumerate(self.running):
            work.wait()
            self.events.append((time.monotonic_ns(), "waited", index))
            bucket = self.buckets[index]
            for p, mean in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                if p in used:
                    p.grad = mean.view_as(p) if p.grad is None else p.grad.copy_(mean.view_as(p))
        self.fresh.clear()
        self.active = False
        # END SOLUTION

    def _count_unused_as_zeros(self) -> set[Tensor]:
        """Let the buckets go that wait for a gradient which will not come, and find out which
        parameters at least one rank has used."""
        # BEGIN SOLUTION find_unused
        self.missing = [0] * len(self.buckets)
        self._launch_full_buckets()
        params = [p for bucket in self.buckets for p in bucket]
        users = torch.tensor([p in self.fresh for p in params], dtype=torch.int32)
        dist.all_reduce(users)
        return {p for p, count in zip(params, users.tolist(), strict=True) if count}
        # END SOLUTION


# --- the script ----------------------------------------------------------------------------------

CAPS = (4 << 10, 8 << 10)
"""First and further bucket caps of the script, in bytes: its model has 20.8 KiB of gradients."""


def bucket_table(model: nn.Module, events: Sequence[tuple[int, str, int]]) -> list[str]:
    """Lines: each bucket's tensors and KiB, and when the last backward launched and awaited it."""
    params = [p for p in reversed(list(model.parameters())) if p.requires_grad]
    nbytes = [p.numel() * p.element_size() for p in params]
    buckets = assign_buckets(nbytes, list(CAPS))
    last = {(kind, bucket): t_ns for t_ns, kind, bucket in events}
    start = min((t for (kind, _), t in last.items() if kind == "launched"), default=0)
    lines = [f"{'bucket':>6}{'tensors':>9}{'KiB':>8}{'launched us':>13}{'waited us':>11}"]
    for index, ids in enumerate(buckets):
        times = [(last.get((kind, index), start) - start) / 1e3 for kind in ("launched", "waited")]
        kib = sum(nbytes[i] for i in ids) / 1024
        lines.append(f"{index:>6}{len(ids):>9}{kib:>8.2f}{times[0]:>13.0f}{times[1]:>11.0f}")
    return lines


def one_rank(
    rank: int, world_size: int, store_path: str, epochs: int, seed: int
) -> tuple[RunLog, list[str]]:
    """One rank of the script: its log, and the bucket table of its last step."""
    torch.set_num_threads(1)
    made: list[BucketedDDP] = []

    def wrap(module: nn.Module) -> nn.Module:
        made.append(BucketedDDP(module, first_cap_bytes=CAPS[0], bucket_cap_bytes=CAPS[1]))
        return made[-1]

    log = train_ddp(rank, world_size, store_path, make_rows(512), epochs, seed, wrap=wrap)
    return log, bucket_table(made[-1].module, made[-1].events)


def report(log: RunLog, table: list[str], epochs: int, world_size: int) -> None:
    """The reduced loss of each epoch, and the buckets."""
    steps = len(log.losses) // epochs
    print(f"{world_size} ranks, {log.samples:,} rows in {len(log.losses)} steps of all of them")
    for epoch in range(epochs):
        losses = log.losses[epoch * steps : (epoch + 1) * steps]
        print(f"epoch {epoch}: loss {sum(losses) / steps:.4f} (mean over all ranks)")
    print("\n".join(["", "The last backward of rank 0:", *table]))


def start_rank(answers: Any, rank: int, *args: Any) -> None:
    """A process of its own: puts what `one_rank` gives, or which task is missing, on the queue."""
    try:
        answers.put((rank, one_rank(rank, *args)))
    except NotImplementedError as missing:
        answers.put((rank, str(missing)))


def start_ranks(world_size: int, epochs: int, seed: int) -> Any:
    """Start the ranks on this machine; what rank 0 gives, or the name of a missing task."""
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="train_ddp-") as folder:
        args = (world_size, str(Path(folder, "store")), epochs, seed)
        processes = [
            context.Process(target=start_rank, args=(answers, rank, *args), daemon=True)
            for rank in range(world_size)
        ]
        for process in processes:
            process.start()
        while any(process.is_alive() for process in processes) and answers.empty():
            time.sleep(0.02)
            if failed := [p.exitcode for p in processes if p.exitcode not in (None, 0)]:
                raise SystemExit(f"A rank ended with status {failed[0]}; its error stands above.")
        rank, answer = answers.get()
        while not isinstance(answer, str) and rank != 0:
            rank, answer = answers.get()
        if not isinstance(answer, str):
            for process in processes:
                process.join()
    return answer


def main(argv: list[str] | None = None) -> int:
    """The script; 1 when a task that it needs is not written yet, 2 for a bad value."""
    parser = argparse.ArgumentParser(description="A short data-parallel run on generated rows.")
    parser.add_argument("--ranks", type=int, default=2, help="ranks to start (2)")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the 512 rows (5)")
    parser.add_argument("--seed", type=int, default=0, help="of the model and the order (0)")
    args = parser.parse_args(argv)
    if args.ranks < 1 or args.epochs < 1:
        print("--ranks and --epochs must be at least 1.", file=sys.stderr)
        return 2
    world_size = args.ranks
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:  # torchrun has started this rank
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        print(f"rank {rank} of {world_size}, number {os.environ['LOCAL_RANK']} on this machine")
        try:
            answer: Any = one_rank(rank, world_size, "", args.epochs, args.seed)
        except NotImplementedError as missing:
            answer = str(missing)
    else:
        rank, answer = 0, start_ranks(world_size, args.epochs, args.seed)
    if isinstance(answer, str):
        print(f"`{answer}` is not written yet: look for TODO({answer}) in {Path(__file__).name}.")
        return 1
    if rank == 0:
        report(*answer, args.epochs, world_size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
