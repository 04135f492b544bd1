"""Lab 03, beside the learner's code: starts ranks, each with a group, and says what they did."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import random
import tempfile
import time
from pathlib import Path

import numpy
import torch
import torch._dynamo  # DDP imports it, for seconds, and a rank would do so for itself alone
import torch.distributed as dist
from blocking_ddp import BlockingDDP
from models import Branches, Fork, Hard, body, tower, wide
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from grader import meters, ranks
from grader.ranks import sockets

SECONDS = 24.0


def _run(function, world_size, args=(), checked=True):
    """What the ranks call of the learner's is looked up before they start, so that a file that does
    not load is told once and by this process."""
    return ranks.outcome(function, world_size, args, timeout_s=SECONDS, checked=checked)


def _gradients(module):
    """The trainable parameters' gradients in one vector; one that is None counts as NaN."""
    parts = []
    for p in module.parameters():
        if p.requires_grad:
            grad = torch.full_like(p, float("nan")) if p.grad is None else p.grad
            parts.append(grad.detach().reshape(-1).clone())
    return torch.cat(parts)


def _values(module):
    return torch.cat([p.detach().reshape(-1).clone() for p in module.parameters()])


def _state(module):
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def _buffers(module):
    return {name: value.detach().clone() for name, value in module.named_buffers()}


def _calls(log, operation="all_reduce"):
    """The calls of one operation as plain rows."""
    return [
        {
            "index": call.index,
            "payload_bytes": call.payload_bytes,
            "where": call.where,
            "gradients_ready": call.gradients_ready,
            "gradients_when_waited": call.gradients_when_waited,
        }
        for call in log.calls
        if call.operation == operation
    ]


# --- shard_indices --------------------------------------------------------------------------------


def beside_other_draws(student, *args):
    """The rows of a rank, and whether torch's, NumPy's and Python's global generators go on as they
    would have."""
    torch.manual_seed(5)
    numpy.random.seed(5)
    random.seed(5)
    before = torch.get_rng_state(), numpy.random.get_state()[1].tolist(), random.getstate()
    rows = student.shard_indices(*args)
    after = torch.get_rng_state(), numpy.random.get_state()[1].tolist(), random.getstate()
    return rows, torch.equal(before[0], after[0]) and before[1:] == after[1:]


# --- sync_module_ --------------------------------------------------------------------------------


class _Mixed(nn.Module):
    """Tied weights, a frozen layer, batch statistics, an integer and an unsaved buffer, and the
    first rows of a table; `strided`: every second column of one, and a transposed parameter."""

    def __init__(self, strided):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.norm = nn.BatchNorm1d(6)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("table", torch.zeros(5, dtype=torch.int64), persistent=False)
        self.register_buffer("rows", torch.zeros(50)[:7])
        if strided:
            self.register_buffer("columns", torch.zeros(4, 6)[:, ::2])
            self.turned = nn.Parameter(torch.zeros(3, 2).t())


def synced(student, world_size, src, seed, strided=False):
    """Every rank fills two such modules with numbers of its own, and syncs one after the other."""
    sync_module_ = student.sync_module_

    def filled():
        module = _Mixed(strided)
        with torch.no_grad():
            for tensor in [*module.parameters(), *module.buffers()]:
                if tensor.is_floating_point():
                    tensor.copy_(torch.randn(tensor.shape))
                else:
                    tensor.copy_(torch.randint(1, 1000, tensor.shape))
        return module

    def spoil(module):
        """What nobody may get to see."""
        with torch.no_grad():
            for tensor in [*module.parameters(), *module.buffers()]:
                if tensor.is_floating_point():
                    tensor[(0,) * tensor.dim()], tensor[(-1,) * tensor.dim()] = math.nan, math.inf

    def rank_does(rank, size):
        torch.manual_seed(seed + rank)
        sync_module_(filled(), src)  # the module after that one is looked at
        module = filled()
        if rank != src:
            spoil(module)

        def named():
            tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            return {name: tensor.detach().clone() for name, tensor in tensors.items()}

        addresses = [t.data_ptr() for t in [*module.parameters(), *module.buffers()]]
        before = named()
        with meters.collectives() as log:
            returned = sync_module_(module, src)
        return {
            "before": before,
            "after": named(),
            "returned": returned,
            "payload_bytes": sum(call.payload_bytes for call in log.calls),
            "in_place": addresses
            == [t.data_ptr() for t in [*module.parameters(), *module.buffers()]],
            "tied": module.head.weight is module.embed.weight,
            "trainable": [name for name, p in module.named_parameters() if p.requires_grad],
        }

    return _run(rank_does, world_size)


def large_synced(student, world_size, src):
    """A module of 1 MiB: whether the ranks end with src's numbers."""
    sync_module_ = student.sync_module_

    def rank_does(rank, size):
        torch.manual_seed(rank)
        module = nn.Linear(512, 512, bias=False)
        returned = sync_module_(module, src)
        torch.manual_seed(src)
        want = nn.Linear(512, 512, bias=False)
        return {"equal": torch.equal(module.weight, want.weight), "returned": returned}

    return _run(rank_does, world_size)


# --- ring_all_reduce_ ----------------------------------------------------------------------------


def ringed(student, inputs, members=None):
    """inputs[rank] is a list of tensors, each reduced with the learner's ring; members: ranks of a
    group of its own. What each rank has then, what the call returned, what the meter saw."""
    ring_all_reduce_ = student.ring_all_reduce_

    def rank_does(rank, size):
        group = dist.new_group(members) if members else None
        rows = []
        for tensor in inputs[rank]:
            flat = tensor.clone()
            row = {"result": flat, "returned": None}
            if members is None or rank in members:
                with meters.collectives() as log:
                    row["returned"] = ring_all_reduce_(flat, group)
                sends = [call for call in log.calls if call.operation == "send"]
                row["sends"] = [call.payload_bytes for call in sends]
                row["to"] = sorted({call.peer for call in sends})
                used = {call.operation for call in log.calls} - {"send", "recv"}
                row["others"] = sorted(used)
            rows.append(row)
        return rows

    return _run(rank_does, len(inputs))


# --- avg_hook ------------------------------------------------------------------------------------


def hooked(student, batches, seed, bucket_cap_mb, members=None):
    """DDP with the learner's hook beside DDP without one, on batches[iteration][rank]. members:
    the ranks that average, given as the hook's state; they alone take part."""
    avg_hook = student.avg_hook
    world_size = len(batches[0])

    def rank_does(rank, size):
        group = dist.new_group(members) if members else None
        if members and rank not in members:
            return None
        plain = tower(seed + rank)
        mine = copy.deepcopy(plain)
        oracle = DistributedDataParallel(plain, process_group=group, bucket_cap_mb=bucket_cap_mb)
        ours = DistributedDataParallel(mine, process_group=group, bucket_cap_mb=bucket_cap_mb)
        ours.register_comm_hook(group, lambda state, bucket: avg_hook(state, bucket))
        start = _state(mine)
        rows = []
        for batch in batches:
            for model in (oracle, ours):
                model.zero_grad()
            oracle(batch[rank]).square().sum().backward()
            with meters.collectives() as log:
                ours(batch[rank]).square().sum().backward()
            calls = [call for call in log.calls if call.where == "backward"]
            rows.append(
                {
                    "got": _gradients(mine),
                    "ddp": _gradients(plain),
                    "operations": sorted({call.operation for call in calls}),
                    "payloads": [call.payload_bytes for call in calls],
                }
            )
        return {"start": start, "rows": rows}

    return _run(rank_does, world_size)


def _wait_for(flag, seconds=3.0):
    """Whether the file `flag` is there before the time is over."""
    until = time.monotonic() + seconds
    while not flag.exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


def hook_held(student, batch, seed):
    """Rank 1 does not enter its hook before rank 0's has returned, or 3 s are over: who blocks in
    the hook never returns in time."""
    avg_hook = student.avg_hook
    with tempfile.TemporaryDirectory() as folder:
        flag = Path(folder, "returned")

        def rank_does(rank, size):
            seen = []

            def hook(state, bucket):
                if rank == 1:
                    seen.append(_wait_for(flag))
                future = avg_hook(state, bucket)
                if rank == 0:
                    flag.touch()
                return future

            model = tower(seed + rank)
            replica = DistributedDataParallel(model)
            replica.register_comm_hook(None, hook)
            start = _state(model)
            replica(batch[rank]).square().sum().backward()
            return {"seen": seen, "got": _gradients(model), "start": start}

        return _run(rank_does, 2, checked=False)


# --- train_ddp -----------------------------------------------------------------------------------


class _Recorder(nn.Module):
    """A model in float64 that keeps the first column of every batch that it is given."""

    def __init__(self, features, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.body = body(features)
        self.batches = []

    def forward(self, x):
        self.batches.append(x[:, 0].detach().clone())
        return self.body(x)


class _Counting(BlockingDDP):
    """Counts its forwards: a wrapper may decide there what its backward exchanges."""

    forwards = 0

    def forward(self, *args, **kwargs):
        self.forwards += 1
        return super().forward(*args, **kwargs)


def trained(student, world_size, dataset, epochs, seed, batch_size, lr, runs=1):
    """train_ddp on ranks whose models begin with numbers of their own, and whose disks are not
    the same; of several runs in the same processes the last one is told, and it alone saves, over
    a file that is there."""
    train_ddp = student.train_ddp

    def rank_does(rank, size):
        dist.destroy_process_group()  # train_ddp makes its own
        store = Path(ranks.own_folder(), "store")
        disk = Path(ranks.own_folder(), f"disk{rank}")
        disk.mkdir()
        made, seeds, wrapped, replicas = [], [], [], []
        if rank == 0 and runs > 1:
            torch.save(_Recorder(dataset[0].shape[1], 5).state_dict(), disk / "model.pt")

        def wrap(model):
            wrapped.append(bool(made) and model is made[-1])
            replicas.append(_Counting(model))
            return replicas[-1]

        def build():
            seeds.append(torch.initial_seed())
            made.append(_Recorder(dataset[0].shape[1], 1000 * rank + 17))
            made[-1].start = _state(made[-1].body)
            return made[-1]

        for number in range(runs):
            made.clear()
            seeds.clear()
            wrapped.clear()
            replicas.clear()
            saves = {"checkpoint": str(disk / "model.pt")} if number == runs - 1 else {}
            log = train_ddp(
                rank,
                size,
                f"{store}{number}",
                dataset,
                epochs,
                seed,
                batch_size=batch_size,
                lr=lr,
                build=build,
                wrap=wrap,
                **saves,
            )
        left = dist.is_initialized()
        files = sorted(path.name for path in disk.iterdir())
        saved = None
        if "model.pt" in files:
            saved = torch.load(disk / "model.pt", weights_only=True)
            saved = dict(saved) if isinstance(saved, dict) else None
        model = made[0] if made else None
        return {
            "losses": getattr(log, "losses", None),
            "samples": getattr(log, "samples", None),
            "left": left,
            "files": files,
            "saved": saved,
            "seeds": seeds,
            "wrapped": wrapped,
            "forwards": sum(replica.forwards for replica in replicas),
            "start": model and model.start,
            "end": model and _state(model),
            "batches": model and model.batches,
        }

    return _run(rank_does, world_size)


def torn_down_after_an_error(student, dataset):
    """Whether a group is left after train_ddp, on one rank, whose model cannot be built."""
    train_ddp = student.train_ddp

    def rank_does(rank, size):
        dist.destroy_process_group()
        folder = ranks.own_folder()

        def build():
            raise ArithmeticError("this model cannot be built")

        raised = ""
        try:
            train_ddp(rank, size, str(Path(folder, "s")), dataset, 1, 0, build=build)
        except ArithmeticError as error:
            raised = str(error)
        return {"raised": raised, "left": dist.is_initialized()}

    return _run(rank_does, 1)


# --- BucketedDDP ---------------------------------------------------------------------------------


def _loss(out):
    return out.square().mean()


def _hard(seed):
    torch.manual_seed(seed)
    return Hard()


def _pair(wrapper, module, caps, **more):
    """The learner's wrapper and torch's, around two copies of a module."""
    twin = copy.deepcopy(module)
    ours = wrapper(module, bucket_cap_bytes=caps[1], first_cap_bytes=caps[0], **more)
    oracle = DistributedDataParallel(
        twin,
        bucket_cap_mb=caps[1] / 2**20,
        find_unused_parameters=more.get("find_unused", False),
    )
    return ours, oracle, twin


def side_by_side(student, batches, seed, caps, optimize):
    """The learner's wrapper and torch's on batches[step][rank], with an AdamW each or none. Each
    rank's batch statistics begin with numbers of its own, as its parameters do."""
    wrapper = student.BucketedDDP

    def rank_does(rank, size):
        module = _hard(seed + rank)
        module.norm.running_mean.normal_()
        module.norm.running_var.uniform_(0.5, 2.0)
        made = _buffers(module)
        ours, oracle, twin = _pair(wrapper, module, caps)
        start = _state(module)
        begun = _buffers(module)
        rows = []
        pairs = [(ours, module), (oracle, twin)]
        opts = [torch.optim.AdamW(inner.parameters(), lr=1e-2) for _, inner in pairs]
        for batch in batches:
            for _, inner in pairs:
                inner.zero_grad()
            with meters.collectives() as log:
                _loss(ours(batch[rank])).backward()
            _loss(oracle(batch[rank])).backward()
            row = {"got": _gradients(module), "ddp": _gradients(twin)}
            if optimize:
                for opt in opts:
                    opt.step()
                row |= {"got_values": _values(module), "ddp_values": _values(twin)}
            order = [(event.kind, event.index) for event in log.events]
            row["calls"] = _calls(log)
            row["operations"] = sorted({call.operation for call in log.calls})
            row["order"] = [item for item in order if item[0] in ("waited", "backward ended")]
            rows.append(row)
        return {
            "start": start,
            "rows": rows,
            "events": [(kind, bucket) for _, kind, bucket in ours.events],
            "buffers": [made, begun, _buffers(module)],
        }

    return _run(rank_does, len(batches[0]))


def other_order(student, batch, seed):
    """Odd ranks run the branches in the other order and later, so their gradients come in another
    order and later, too."""
    wrapper = student.BucketedDDP

    def rank_does(rank, size):
        torch.manual_seed(seed + rank)
        module = Fork()
        ours = wrapper(module, bucket_cap_bytes=1, first_cap_bytes=1)
        start = _state(module)
        ours(batch[rank], "right" if rank % 2 else "left", 0.02 * rank).backward()
        return {"start": start, "got": _gradients(module)}

    return _run(rank_does, len(batch))


def held(student, batch, seed):
    """Rank 1 does not begin its backward before rank 0 has its last gradient, or 3 s are over: who
    waits for a bucket before the end of backward never gets there in time."""
    wrapper = student.BucketedDDP
    with tempfile.TemporaryDirectory() as folder:
        flag = Path(folder, "last")

        def rank_does(rank, size):
            module = _hard(seed + rank)
            ours = wrapper(module, bucket_cap_bytes=1 << 10, first_cap_bytes=256)
            start = _state(module)
            seen = []
            out = ours(batch[rank])
            if rank == 0:
                module.enter.weight.register_post_accumulate_grad_hook(lambda p: flag.touch())
            else:
                out.register_hook(lambda grad: seen.append(_wait_for(flag)))
            _loss(out).backward()
            return {"start": start, "got": _gradients(module), "seen": seen}

        return _run(rank_does, 2, checked=False)


def leaves_early(student, batch, seed, first_cap_bytes):
    """Rank 0 stays in front of its last layer's gradients until the kernel has counted
    `first_cap_bytes` / 2 that it sent since its forward, or 1.5 s are over since rank 1 came to its
    own, or 3 s; what it had sent then. None where the system does not count."""
    wrapper = student.BucketedDDP
    folder = tempfile.TemporaryDirectory()
    there = Path(folder.name, "there")

    def sent_bytes():
        return sockets.sent_bytes(sockets.of_process(os.getpid(), sockets.by_inode()))

    def rank_does(rank, size):
        torch.manual_seed(seed + rank)
        module = wide()
        ours = wrapper(module, bucket_cap_bytes=1 << 20, first_cap_bytes=first_cap_bytes)
        start = _state(module)
        seen = []

        def hold(grad):
            if rank == 1:
                there.touch()
                return
            until, now = time.monotonic() + 3.0, sent_bytes()
            while now is not None and now - before < first_cap_bytes / 2:
                if there.exists():
                    until = min(until, time.monotonic() + 1.5)
                if time.monotonic() > until:
                    break
                time.sleep(0.002)
                now = sent_bytes()
            seen.append(None if now is None else now - before)

        module[1].register_forward_hook(lambda module, args, out: out.register_hook(hold) and None)
        out = ours(batch[rank])
        before = sent_bytes()
        _loss(out).backward()
        return {"start": start, "got": _gradients(module), "seen": seen}

    with folder:
        return _run(rank_does, 2, checked=False)


def wide_and_evaluating(student, batch, seed, caps):
    """A backward of a model in float64, in eval mode: what was all-reduced, and the gradients."""
    wrapper = student.BucketedDDP

    def rank_does(rank, size):
        module = _hard(seed + rank).double()
        ours = wrapper(module, bucket_cap_bytes=caps[1], first_cap_bytes=caps[0])
        ours.eval()
        start = _state(module)
        with meters.collectives() as log:
            _loss(ours(batch[rank].double())).backward()
        return {"start": start, "got": _gradients(module), "calls": _calls(log)}

    return _run(rank_does, len(batch))


def large_gradients(student, value):
    """Gradients of 2 ranks that are all `value`."""
    wrapper = student.BucketedDDP

    def rank_does(rank, size):
        module = nn.Linear(4, 1, bias=False)
        replica = wrapper(module)
        with torch.no_grad():
            module.weight.zero_()
        replica(torch.full((1, 4), value)).sum().backward()
        return module.weight.grad[0]

    return _run(rank_does, 2)


# --- no_sync -------------------------------------------------------------------------------------


def micro_steps(student, plans, batches, seed):
    """For each plan, a list of (forward inside, backward inside no_sync()), the micro-steps on the
    learner's wrapper and on torch's; gradients are cleared before each plan. A third entry is a
    forward without gradients between the two, inside or not."""
    wrapper = student.BucketedDDP

    def step(replica, x, inside):
        with replica.no_sync() if inside[0] else contextlib.nullcontext():
            loss = _loss(replica(x))
        if len(inside) > 2:
            with replica.no_sync() if inside[2] else contextlib.nullcontext(), torch.no_grad():
                replica(x)
        with replica.no_sync() if inside[1] else contextlib.nullcontext():
            loss.backward()

    def rank_does(rank, size):
        module = _hard(seed + rank)
        ours, oracle, twin = _pair(wrapper, module, (256, 1 << 10))
        found = []
        for plan in plans:
            ours.zero_grad()
            oracle.zero_grad()
            rows = []
            for number, inside in enumerate(plan):
                x = batches[number][rank]
                with meters.collectives() as log:
                    step(ours, x, inside)
                step(oracle, x, inside)
                rows.append(
                    {
                        "got": _gradients(module),
                        "ddp": _gradients(twin),
                        "count": log.count("all_reduce"),
                        "others": log.count() - log.count("all_reduce"),
                    }
                )
            found.append(rows)
        return found

    return _run(rank_does, len(batches[0]))


def no_sync_ends(student, batch, seed):
    """All-reduces of a step after a no_sync() that an error left, of one in an inner and of one
    after an inner no_sync(), and of one inside after a forward outside that had no backward."""
    wrapper = student.BucketedDDP

    def rank_does(rank, size):
        ours = wrapper(_hard(seed))
        counts = []

        def count():
            with meters.collectives() as log:
                _loss(ours(batch[rank])).backward()
            counts.append(log.count("all_reduce"))

        with contextlib.suppress(ArithmeticError), ours.no_sync():
            raise ArithmeticError
        count()
        with ours.no_sync():
            with ours.no_sync():
                count()
            count()
        count()
        ours(batch[rank])
        with ours.no_sync():
            count()
        return counts

    return _run(rank_does, 2)


def one_rank_alone(student, world_size, factors):
    """The gradient that each rank gets where rank 0's is `factors` and all others' are zeros, and
    what a second backward of the same forward does: its all-reduces, and the gradient after it."""
    wrapper = student.BucketedDDP

    def rank_does(rank, size):
        module = nn.Linear(len(factors), 1, bias=False)
        replica = wrapper(module)
        loss = (replica(torch.zeros(1, len(factors)) + factors) * (rank == 0)).sum()
        loss.backward(retain_graph=True)
        first = module.weight.grad.clone()
        with meters.collectives() as log:
            loss.backward()
        return {"got": first[0], "again": log.count(), "added": (module.weight.grad - first)[0]}

    return _run(rank_does, world_size)


# --- find_unused ---------------------------------------------------------------------------------


def _named_gradients(module):
    return {
        name: None if p.grad is None else p.grad.clone() for name, p in module.named_parameters()
    }


def branching(student, batches, asks, seed, inside=(), all_used=False):
    """asks[step][rank] are the branches of each rank; steps in `inside` run under no_sync(), all
    others end with an AdamW step and cleared gradients. all_used: without the branch that nobody
    uses."""
    wrapper = student.BucketedDDP

    def rank_does(rank, size):
        torch.manual_seed(seed + rank)
        module = Branches()
        if all_used:
            del module.never
        ours, oracle, twin = _pair(wrapper, module, (64, 128), find_unused=True)
        start = _state(module)
        pairs = [(ours, module), (oracle, twin)]
        opts = [torch.optim.AdamW(m.parameters(), lr=1e-2, weight_decay=0.5) for _, m in pairs]
        rows = []
        for number, (batch, ask) in enumerate(zip(batches, asks)):
            for replica, _ in pairs:
                alone = replica.no_sync() if number in inside else contextlib.nullcontext()
                with alone:
                    replica(batch[rank], ask[rank]).backward()
            row = {"got": _named_gradients(module), "ddp": _named_gradients(twin)}
            if number not in inside:
                for opt in opts:
                    opt.step()
                    opt.zero_grad()
            rows.append(row | {"got_values": _values(module), "ddp_values": _values(twin)})
        return {"start": start, "rows": rows}

    return _run(rank_does, len(batches[0]))


def with_leftovers(student, batches, asks, seed):
    """Steps without an optimizer after which nobody clears the gradients; before each of them every
    rank multiplies its own by its number + 1. What stood there then, and after the step."""
    wrapper = student.BucketedDDP

    def rank_does(rank, size):
        torch.manual_seed(seed + rank)
        module = Branches()
        ours = wrapper(module, bucket_cap_bytes=128, first_cap_bytes=64, find_unused=True)
        rows = []
        for batch, ask in zip(batches, asks):
            for p in module.parameters():
                if p.grad is not None:
                    p.grad.mul_(rank + 1)
            before = _named_gradients(module)
            ours(batch[rank], ask[rank]).backward()
            rows.append({"before": before, "after": _named_gradients(module)})
        return rows

    return _run(rank_does, len(batches[0]))


def without_gradient(student, batch, seed, rows):
    """For each (ask, cap_bytes), on a wrapper of its own: what is raised where parameters get no
    gradient and find_unused was not asked for."""
    wrapper = student.BucketedDDP

    def raised(x, ask, cap_bytes):
        ours = wrapper(Branches(), bucket_cap_bytes=cap_bytes, first_cap_bytes=cap_bytes)
        try:
            ours(x, ask).backward()
        except RuntimeError:
            return "RuntimeError"
        return "nothing"

    def rank_does(rank, size):
        torch.manual_seed(seed)
        return [raised(batch[rank], ask, cap_bytes) for ask, cap_bytes in rows]

    return _run(rank_does, 2)


# --- with a GPU ----------------------------------------------------------------------------------


def on_gpus(student, world_size, seed):
    """BucketedDDP over NCCL, one GPU a rank: names, starts and durations of the kernels of one
    backward, from a trace."""
    wrapper = student.BucketedDDP

    def rank_does(rank, size):
        torch.cuda.set_device(rank)
        dist.destroy_process_group()
        store = Path(ranks.own_folder(), "nccl").as_uri()
        dist.init_process_group("nccl", init_method=store, rank=rank, world_size=size)
        torch.manual_seed(seed + rank)
        layers = [nn.Linear(2048, 2048) for _ in range(8)]
        ours = wrapper(nn.Sequential(*layers).cuda(), 8 << 20, 1 << 20)
        x = torch.randn(512, 2048, device="cuda")
        for _ in range(2):
            ours(x).square().mean().backward()
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as prof:
            ours(x).square().mean().backward()
            torch.cuda.synchronize()
        return [
            (event.name, event.time_range.start, event.time_range.end)
            for event in prof.events()
            if event.device_type == torch.autograd.DeviceType.CUDA
        ]

    return _run(rank_does, world_size)


def hook_in_bf16(student, seed):
    """avg_hook on bf16 gradients of a model on one GPU that two gloo ranks share."""
    avg_hook = student.avg_hook

    def rank_does(rank, size):
        torch.cuda.set_device(0)
        plain = tower(seed + rank).cuda().bfloat16()
        mine = copy.deepcopy(plain)
        oracle, ours = DistributedDataParallel(plain), DistributedDataParallel(mine)
        ours.register_comm_hook(None, lambda state, bucket: avg_hook(state, bucket))
        x = torch.randn(5, 12, device="cuda").bfloat16()
        for model in (oracle, ours):
            model(x).square().sum().backward()
        return {"got": _gradients(mine).cpu(), "ddp": _gradients(plain).cpu()}

    return _run(rank_does, 2)


# --- for pictures --------------------------------------------------------------------------------


def _six(seed):
    """Six layers with a gradient of 4,096 and one of 128 bytes each."""
    torch.manual_seed(seed)
    layers = [nn.Linear(32, 32) for _ in range(6)]
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.Tanh())))


def _backward_seen(replica, module, batch, after=None):
    """A backward, and what `after` does then: what the meter saw of it, and the gradients."""
    module.zero_grad()
    with meters.collectives(module.parameters()) as log:
        _loss(replica(batch)).backward()
        if after:
            after()
    calls = [[call.index, call.operation, call.payload_bytes] for call in log.calls]
    events = [[event.kind, event.index] for event in log.events]
    return {"calls": calls, "events": events, "got": _gradients(module)}


def bucket_course(student, batches, seed, caps):
    """A backward of the learner's wrapper on batches[rank], and one of the same module followed by
    a single all-reduce; in order, without checks that would make the ranks wait for each other."""
    wrapper = student.BucketedDDP

    def rank_does(rank, size):
        module = _six(seed + rank)
        ours = wrapper(module, bucket_cap_bytes=caps[1], first_cap_bytes=caps[0])
        alone = _six(seed)
        batch = torch.from_numpy(batches[rank])

        def average():
            flat = torch.cat([p.grad.reshape(-1) for p in alone.parameters()]) / size
            dist.all_reduce(flat)
            parts = flat.split([p.numel() for p in alone.parameters()])
            for p, mean in zip(alone.parameters(), parts):
                p.grad.copy_(mean.view_as(p))

        blocking = _backward_seen(alone, alone, batch, average)
        dist.barrier()
        return [_backward_seen(ours, module, batch), blocking]

    return _run(rank_does, len(batches), checked=False)


def ring_bytes(student, world_size, count):
    """The learner's ring over `count` float32: what each call returned, and whether it left the
    sum; beside it, what the kernel counted."""
    ring_all_reduce = student.ring_all_reduce_

    def rank_does(rank, size):
        flat = torch.full((count,), float(rank + 1))
        returned = ring_all_reduce(flat)
        return {"returned": returned, "right": bool((flat == size * (size + 1) / 2).all())}

    return _run(rank_does, world_size, checked=False)
