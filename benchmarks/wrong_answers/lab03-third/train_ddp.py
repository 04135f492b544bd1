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

    The order is `torch.randperm(n)` of a generator seeded with seed + epoch, or 0..n-1 without
    `shuffle`.
    """
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    else:
        order = list(range(n))
    if drop_last:
        order = order[: n // world_size * world_size]
    elif n:
        total = -(-n // world_size) * world_size
        order = (order * -(-total // n))[:total]
    return order[rank::world_size]


# --- replicas that begin equal -------------------------------------------------------------------


def sync_module_(module: nn.Module, src: int = 0) -> int:
    """Give every rank the parameters and buffers of rank `src`, in place.

    All of them: frozen parameters, integer buffers, and buffers that no state dict lists. A tensor
    that is shared by two layers travels once. Returns the bytes that left `src`, the same number
    on every rank.
    """
    sent = 0
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            flat = tensor.contiguous()
            dist.broadcast(flat, src)
            if dist.get_rank() != src:
                tensor.copy_(flat)
            sent += tensor.nbytes
    return sent


# --- the collective itself -----------------------------------------------------------------------


def ring_all_reduce_(flat: Tensor, group: dist.ProcessGroup | None = None) -> int:
    """Sum `flat` over the ranks of `group` (None: all), in place, and return the bytes that this
    rank sent.

    flat: (N,), contiguous, the same N and dtype on every rank, any N (also below the number of
    ranks). W ranks form a ring: each sends to the next one only and receives from the one before,
    with `dist.isend` and `dist.irecv`, 2 (W - 1) times a chunk of about N / W elements: first W - 1
    steps that add (reduce-scatter), then W - 1 steps that copy (all-gather). The result is the same
    on all ranks to the last bit.
    """
    W, rank = dist.get_world_size(group), dist.get_rank(group)
    chunks = flat.tensor_split(W)
    ahead, behind = (rank + 1) % W, (rank - 1) % W
    if group is not None:
        ahead, behind = dist.get_global_rank(group, ahead), dist.get_global_rank(group, behind)
    sent = 0
    for step in range(2 * (W - 1)):
        outgoing = chunks[(rank - step) % W]
        target = chunks[(rank - step - 1) % W]
        incoming = torch.empty_like(target)
        works = [
            dist.isend(outgoing, ahead, group=group),
            dist.irecv(incoming, behind, group=group),
        ]
        for work in works:
            work.wait()
        sent += outgoing.nbytes
        if step < W - 1:
            target.add_(incoming)
        else:
            target.copy_(incoming)
    return sent


# --- buckets -------------------------------------------------------------------------------------


def assign_buckets(nbytes: list[int], caps: list[int]) -> list[list[int]]:
    """Put tensors of these sizes into buckets: lists of indices into `nbytes`, in their order.

    A tensor joins the open bucket, and if the bucket's size has then reached its cap it is closed:
    buckets may overshoot, and no tensor is cut. caps[i] is bucket i's, the last one holds for all
    further buckets; bytes, like `nbytes`. No bucket is empty. It is the caller who decides on the
    order of the tensors.
    """
    buckets: list[list[int]] = []
    size = 0
    opened = False
    for index, nbyte in enumerate(nbytes):
        if not opened:
            buckets.append([])
            size, opened = 0, True
        buckets[-1].append(index)
        size += nbyte
        if size >= caps[min(len(buckets), len(caps)) - 1]:
            opened = False
    return buckets


def avg_hook(  # torch reads its annotations: no `from __future__ import annotations` here
    state: dist.ProcessGroup | None, bucket: dist.GradBucket
) -> torch.futures.Future[Tensor]:
    """A communication hook for `DistributedDataParallel.register_comm_hook(state, avg_hook)`: the
    mean of a bucket over the ranks of `state` (None: all), with the same bits as without any hook.

    `bucket.buffer()` is (bucket_numel,), the gradients of this rank. Returns at once, with a future
    whose value will be the averaged tensor.
    """
    flat = bucket.buffer()
    flat.mul_(1 / dist.get_world_size(state))
    work = dist.all_reduce(flat, group=state, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


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
      equal and averages gradients.
    - Each epoch reads its rows of (x, y) = dataset in the order of `shard_indices` (not dropping
      any), `batch_size` rows a step; the last batch of an epoch may be shorter.
    - A step: mean squared error, backward, `torch.optim.SGD(lr=lr, momentum=0.9)`.
    - Logs the loss of each step as the mean over all ranks.
    - At the end rank 0, and no other, saves the state dict of what `build` gave to `checkpoint`,
      unless that is "". A rank may have a disk of its own.
    """
    dist.init_process_group(
        "gloo", init_method=rendezvous(store_path), rank=rank, world_size=world_size
    )
    try:
        torch.manual_seed(seed + rank)
        model = build()
        wrapped = wrap(model)
        opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        x, y = dataset
        losses, samples = [], 0
        for epoch in range(epochs):
            rows = shard_indices(len(x), rank, world_size, epoch, seed)
            for start in range(0, len(rows), batch_size):
                some = rows[start : start + batch_size]
                opt.zero_grad()
                loss = nn.functional.mse_loss(wrapped(x[some]), y[some])
                loss.backward()
                opt.step()
                mean = loss.detach() / world_size
                dist.all_reduce(mean)
                losses.append(mean.item())
                samples += len(some) * world_size
        if rank == 0 and str(checkpoint):
            torch.save(model.state_dict(), checkpoint)
        dist.barrier()
        return RunLog(losses, samples)
    finally:
        dist.destroy_process_group()


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
    by 1 / world_size before it is summed.

    A parameter that gets no gradient is an error at the end of backward, unless `find_unused`: then
    it counts as zeros, and where no rank used it its `.grad` stays as it was.

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
        sync_module_(module)
        self.world_size = dist.get_world_size()
        params = [p for p in reversed(list(module.parameters())) if p.requires_grad]
        plan = assign_buckets([p.nbytes for p in params], [first_cap_bytes, bucket_cap_bytes])
        self.buckets = [[params[i] for i in ids] for ids in plan]
        self.params = params
        self.used: set[Tensor] = set()
        self._begin(False)
        for index, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda p, i=index: self._on_gradient(p, i))

    def _begin(self, exchanges: bool) -> None:
        """Set the counters back for a backward that exchanges gradients, or does not."""
        self.exchanges, self.told = exchanges, False
        self.missing = [len(bucket) for bucket in self.buckets]
        self.works: list[tuple[Tensor, Any]] = []

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            self._begin(self.synced)
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it, a forward pass decides that its backward sends nothing: gradients add up in
        `.grad` until a backward whose forward ran outside averages the sum.

        Where backward is called makes no difference. What held before holds again afterwards, also
        after an error and inside another `no_sync()`.
        """
        before = self.synced
        self.synced = False
        try:
            yield
        finally:
            self.synced = before

    def _on_gradient(self, param: Tensor, index: int) -> None:
        """Autograd has just written `param.grad`; `param` is in bucket `index`."""
        self.used.add(param)
        if not self.exchanges:
            return
        if not self.told:
            self.told = True
            torch.autograd.Variable._execution_engine.queue_callback(self._on_backward_end)
        self.missing[index] -= 1
        self._launch_full_buckets()

    def _launch_full_buckets(self) -> None:
        """Start the all-reduce of every bucket that is full and next in line."""
        while len(self.works) < len(self.buckets) and self.missing[len(self.works)] == 0:
            index = len(self.works)
            parts = []
            for p in self.buckets[index]:
                if p in self.used and p.grad is not None:
                    parts.append(p.grad.reshape(-1))
                else:
                    parts.append(torch.zeros_like(p).reshape(-1))
            flat = torch.cat(parts)
            flat.mul_(1 / self.world_size)
            self.events.append((time.monotonic_ns(), "launched", index))
            self.works.append((flat, dist.all_reduce(flat, async_op=True)))

    def _on_backward_end(self) -> None:
        """Autograd has nothing left to do; backward returns when this does."""
        somewhere = set(self.params)
        if self.find_unused:
            somewhere = self._count_unused_as_zeros()
        elif len(self.works) < len(self.buckets):
            raise RuntimeError("A parameter got no gradient; find_unused=True allows that.")
        for index, (flat, work) in enumerate(self.works):
            self.events.append((time.monotonic_ns(), "waited", index))
            work.wait()
            at = 0
            for p in self.buckets[index]:
                mean = flat[at : at + p.numel()].view_as(p)
                at += p.numel()
                if p not in somewhere:
                    continue
                if p.grad is None:
                    p.grad = mean.clone()
                else:
                    p.grad.copy_(mean)
        self.used.clear()
        self._begin(False)

    def _count_unused_as_zeros(self) -> set[Tensor]:
        """Let the buckets go that wait for a gradient which will not come, and find out which
        parameters at least one rank has used."""
        self.missing = [0] * len(self.buckets)
        self._launch_full_buckets()
        flags = torch.tensor([int(p in self.used) for p in self.params], dtype=torch.int32)
        dist.all_reduce(flags)
        return {p for p, flag in zip(self.params, flags.tolist()) if flag}


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
