"""Lab 08, beside the learner's code: starts ranks that train on shards, and says what they hold."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import time

import torch
import torch._dynamo  # torch.optim and fully_shard import it, for seconds: once, before the ranks
import torch.distributed as dist
from models import Awkward, Block, Branches, Noted, Odd, Partly, Strided
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from grader import meters, ranks

SECONDS = 40.0


def _run(function, world_size, args=(), checked=True):
    return ranks.outcome(function, world_size, args, timeout_s=SECONDS, checked=checked)


def _mine(per_rank, rank):
    """This rank's of a list of tensors. The others' are overwritten in this process before any of
    the learner's code runs in it: what another rank knows must be sent by it."""
    for other, tensor in enumerate(per_rank):
        if other != rank:
            tensor.fill_(float("nan"))
    return per_rank[rank]


def _keep_mine(plans, rank):
    for plan in plans:
        for per_rank in [*plan["batches"], *plan["nudges"]]:
            _mine(per_rank, rank)


def _give_back_unused():
    """What lies unused in the heap leaves this process, so that the ranks forked from it grow by
    what is alive in them (glibc; elsewhere nothing happens)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _meet(group=None):
    """A collective that nothing else here uses: where a rank has left one out, this one meets
    another, which is an error at once and not a wait of half a minute."""
    dist.all_reduce(torch.zeros(1), group=group)


def _let_go(m):
    """Until no temporary tensor is alive, or a second is over: a thread of the process group may
    hold one for a moment after its collective has ended."""
    until = time.monotonic() + 1.0
    while m.alive["temporary"] and time.monotonic() < until:
        time.sleep(0.01)


def _payloads(log):
    """Payload bytes by operation; where they were issued, by operation."""
    total, where = {}, {}
    for call in log.calls:
        total[call.operation] = total.get(call.operation, 0) + call.payload_bytes
        where.setdefault(call.operation, set()).add(call.where)
    return {"payload": total, "where": {name: sorted(found) for name, found in where.items()}}


@contextlib.contextmanager
def _noted(student, name, **given):
    """A list for the sentence that says which argument of a method was changed in the block: it is
    the learner's to read, and no rank need fail for it."""
    changed = []
    try:
        with student.unchanged(name, **given):
            yield changed
    except Exception as error:
        if type(error).__name__ != "ArgumentChanged":
            raise
        changed.append(str(error))


def _values(params):
    return torch.cat([p.detach().reshape(-1).clone() for p in params])


# --- sharding ------------------------------------------------------------------------------------


def _awkward(start, dtype):
    model = Awkward().to(dtype)
    model.load_state_dict({name: value.to(dtype) for name, value in start.items()})
    return model


def _owned(params, world_size, rank):
    """Which elements of the parameters laid end to end are in the rank's slice."""
    total = sum(p.numel() for p in params)
    each = -(-total // world_size)
    return slice(min(rank * each, total), min((rank + 1) * each, total))


@torch.no_grad()
def _spoil(params, mine, nudge):
    """Poison what another rank owns, and add to what this rank owns something that no other rank
    knows. In place, parameter by parameter."""
    flat = _values(params)
    spoilt = torch.full_like(flat, float("nan"))
    spoilt[mine] = flat[mine] + nudge[mine].to(flat)
    for p, part in zip(params, spoilt.split([p.numel() for p in params])):
        p.copy_(part.view_as(p))


def _square(out):
    return out.square().mean()


def zero1(student, start, plans):
    """A few steps on `Awkward` for each plan: batches[step][rank], nudges[step][rank] (flat, for
    the elements that the rank owns), dtype, and the optimizer's keywords. Between backward and
    step, every rank poisons what it does not own and nudges what it does. In the last step of a
    plan, meters watch."""
    zero1_adamw = student.Zero1AdamW  # a file that does not load is told here

    def rank_does(rank, size):
        _keep_mine(plans, rank)
        return [one(rank, size, **plan) for plan in plans]

    def one(rank, size, dtype, batches, nudges, keywords):
        own = [(x[rank], nudge[rank]) for x, nudge in zip(batches, nudges)]
        model = _awkward(start, dtype)
        trainable = [p for p in model.parameters() if p.requires_grad]
        mine = _owned(trainable, size, rank)
        rows = []
        opt = zero1_adamw(model.parameters(), **keywords)
        for x, nudge in own:
            opt.zero_grad()
            _square(model(x.to(dtype))).backward()
            _spoil(trainable, mine, nudge)
            with meters.collectives() as log:
                opt.step()
            rows.append({"values": _values(trainable)} | _payloads(log))
        return {
            "rows": rows,
            "frozen": _values(model.frozen.parameters()),
            "never": [p.grad is None for p in model.never.parameters()],
            "steps": int(opt.steps),
        }

    return _run(rank_does, len(plans[0]["batches"][0]))


def zero1_bytes(student, shapes, world_size, gradients):
    """What two steps leave alive, for parameters of these shapes, and what the optimizer says that
    it holds; gradients[rank] is flat."""
    zero1_adamw = student.Zero1AdamW

    def rank_does(rank, size):
        params = [nn.Parameter(torch.ones(shape)) for shape in shapes]
        pieces = _mine(gradients, rank).split([p.numel() for p in params])
        for p, piece in zip(params, pieces):
            p.grad = piece.reshape(p.shape).clone()
        made = []
        with meters.bytes_by_kind(params, made) as m, meters.collectives() as log:
            made.append(zero1_adamw(params, lr=0.01, wd=0.1, eps=1e-3))
            for _ in range(2):
                made[0].step()
            _let_go(m)
        held = [made[0].exp_avg, made[0].exp_avg_sq]
        return {
            "alive": dict(m.alive),
            "said": made[0].local_state_bytes(),
            "shapes": [tuple(t.shape) for t in held],
            "held": sum(t.untyped_storage().nbytes() for t in held),
            "values": _values(params),
        } | _payloads(log)

    return _run(rank_does, world_size)


def zero1_memory(student, count, numel, gradients, stride):
    """A step of each of `count` optimizers with one parameter of `numel` elements each, whose
    gradient on a rank repeats gradients[rank], and is gone before the next one steps: what lasts is
    what the optimizers keep. Every `stride`-th value."""
    zero1_adamw = student.Zero1AdamW
    _give_back_unused()
    params = [nn.Parameter(torch.ones(numel)) for _ in range(count)]

    def rank_does(rank, size):
        pattern = _mine(gradients, rank)
        opts = [zero1_adamw([p], lr=0.01, wd=0.1, eps=1e-3) for p in params]
        for p, opt in zip(params, opts):
            p.grad = pattern.repeat(numel // len(pattern))
            opt.step()
            opt.zero_grad()
        return [p.detach()[::stride].clone() for p in params]

    return _run(rank_does, len(gradients), checked=False)


def zero1_edges(student, batch, start):
    """On three ranks: a group of ranks 0 and 2 alone; 2 elements for 3 ranks; and whether two
    optimizers keep to themselves."""
    zero1_adamw = student.Zero1AdamW

    def rank_does(rank, size):
        group = dist.new_group([0, 2])
        x = _mine(batch, rank)
        found = {"pair": None}
        if rank != 1:
            model = _awkward(start, torch.float64)
            opt = zero1_adamw(model.parameters(), group, lr=0.05)
            _square(model(x.double())).backward()
            opt.step()
            found["pair"] = _values(p for p in model.parameters() if p.requires_grad)
        few = nn.Parameter(torch.ones(2, dtype=torch.float64))
        opt = zero1_adamw([few, few], lr=0.05)
        few.grad = x.reshape(-1)[:2].double()
        opt.step()
        found |= {"few": few.detach().clone(), "few_bytes": int(opt.local_state_bytes())}
        return found

    return _run(rank_does, 3)


def zero1_pieces(student, start, grads, shard_grads, keywords):
    """On ranks 1 and 2 of 3: `reduce_gradients` and `step_shard` by themselves, three times.
    Parameters as in `start`, the first not contiguous, a frozen one among them; grads[step][rank]
    are their gradients, None where there is none; then shard_grads[step][rank] is stepped."""
    zero1_adamw = student.Zero1AdamW

    def rank_does(rank, size):
        group = dist.new_group([1, 2])
        if rank == 0:
            return None
        params = [nn.Parameter(value.clone()) for value in start]
        params[0] = nn.Parameter(start[0].t().contiguous().t())
        frozen = nn.Parameter(torch.ones(3, dtype=start[0].dtype), requires_grad=False)
        opt = zero1_adamw(iter([params[0], frozen, params[0], *params[1:]]), group, **keywords)
        rows = []
        for own, pieces in zip(grads, shard_grads):
            for p, grad in zip(params, own[rank - 1]):
                p.grad = None if grad is None else grad.clone()
            if params[0].grad is not None:
                params[0].grad = params[0].grad.t().contiguous().t()
            opt.reduce_gradients()  # a second time it is the same: only step_shard takes a step
            mean = opt.reduce_gradients()
            piece = pieces[rank - 1].clone()
            with _noted(student, "Zero1AdamW.step_shard", grad=piece) as changed:
                opt.step_shard(piece)
            kept = [p.grad is not None for p in params]
            opt.zero_grad()
            rows.append(
                {
                    "mean": mean.detach().clone(),
                    "values": _values(params),
                    "moments": [opt.exp_avg.detach().clone(), opt.exp_avg_sq.detach().clone()],
                    "kept": kept,
                    "left": [p.grad is not None for p in params],
                    "changed": " ".join(changed),
                    "steps": int(opt.steps),
                }
            )
        return {"rows": rows, "frozen": frozen.detach().clone(), "numel": int(opt.shard_numel)}

    return _run(rank_does, 3)


def zero1_without(student, start, grads, keywords):
    """Steps on two ranks: grads[step][rank] are the parameters' gradients, None where there is
    none. After each, the parameters and the count of steps."""
    zero1_adamw = student.Zero1AdamW

    def rank_does(rank, size):
        params = [nn.Parameter(value.clone()) for value in start]
        opt = zero1_adamw(params, **keywords)
        rows = []
        for step in grads:
            for p, grad in zip(params, step[rank]):
                p.grad = None if grad is None else grad.clone()
            opt.step()
            rows.append({"values": _values(params), "steps": int(opt.steps)})
        _meet()
        return rows

    return _run(rank_does, 2)


def zero1_refuses(student):
    """Which bad arguments raise ValueError, on one rank; and which good ones do not."""
    zero1_adamw, zero2_model = student.Zero1AdamW, student.Zero2

    def rank_does(rank, size):
        p = [nn.Parameter(torch.ones(2))]
        asks = {
            "no parameter": ([],),
            "only a frozen one": ([nn.Parameter(torch.ones(2), requires_grad=False)],),
            "two dtypes": ([*p, nn.Parameter(torch.ones(2).double())],),
        }
        bad = {"lr": -0.1, "eps": -1e-9, "wd": -0.1}
        bad = [{name: value} for name, value in bad.items()]
        bad += [{"betas": (1.0, 0.9)}, {"betas": (0.9, 1.0)}, {"betas": (-0.1, 0.9)}]
        good = [{"lr": 0.0, "wd": 0.0, "betas": (0.0, 0.0)}]
        found = {}
        for name, args in asks.items():
            found[name] = _raised(lambda args=args: zero1_adamw(*args))
        for keywords in [*bad, *good]:
            found[str(keywords)] = _raised(lambda keywords=keywords: zero1_adamw(p, **keywords))
        for size in (0, 1):
            found[f"Zero2(bucket_bytes={size})"] = _raised(
                lambda size=size: zero2_model(nn.Linear(2, 2), bucket_bytes=size)
            )
        return found

    return _run(rank_does, 1)


def _raised(ask):
    try:
        ask()
    except ValueError:
        return "ValueError"
    return "nothing"


# --- sharding: gradients -------------------------------------------------------------------------


def _cut(params, bucket_bytes):
    """The buckets of `params`, as the task states them."""
    buckets, room = [], -1
    for p in params:
        if p.nbytes > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(p)
        room -= p.nbytes
    return buckets


def zero2(student, start, plans):
    """As `zero1`, with a Zero2 around the model: nudges[step][rank] lie in the order of the
    trainable parameters from the last to the first."""
    zero2_model = student.Zero2

    def rank_does(rank, size):
        _keep_mine(plans, rank)
        return [one(rank, size, **plan) for plan in plans]

    def one(rank, size, dtype, batches, nudges, keywords):
        own = [(x[rank], nudge[rank]) for x, nudge in zip(batches, nudges)]
        model = _awkward(start, dtype)
        trainable = [p for p in model.parameters() if p.requires_grad]
        buckets = _cut(trainable[::-1], keywords["bucket_bytes"])
        zero = zero2_model(model, **keywords)
        rows = []
        for x, nudge in own:
            with meters.collectives(trainable) as log:
                _square(zero(x.to(dtype))).backward()
                left = [p.grad is not None for p in trainable]
                done = [shard is not None for shard in zero.shards]
                shards = list(zero.finish())
                if lost := [index for index, shard in enumerate(shards) if shard is None]:
                    return {"rows": [*rows, {"lost": lost, "count": len(shards)}]}
                shards = [shard.clone() for shard in shards]
                pieces = nudge.split([sum(p.numel() for p in bucket) for bucket in buckets])
                for bucket, piece in zip(buckets, pieces):
                    _spoil(bucket, _owned(bucket, size, rank), piece)
                zero.step()
            calls = [
                [call.operation, call.payload_bytes, call.where, call.gradients_ready]
                for call in log.calls
            ]
            rows.append(
                {
                    "lost": [],
                    "count": len(shards),
                    "values": _values(trainable),
                    "shards": shards,
                    "left": left,
                    "done": done,
                    "calls": calls,
                }
                | _payloads(log)
            )
        return {
            "rows": rows,
            "frozen": _values(model.frozen.parameters()),
            "said": int(zero.local_state_bytes()),
        }

    return _run(rank_does, len(plans[0]["batches"][0]))


class Rows(nn.Module):
    """Layers that do not depend on each other: sum_i a . (W_i x), so that the gradient of every W_i
    is the outer product of a and x."""

    def __init__(self, layers, width):
        super().__init__()
        self.layers = nn.ParameterList(torch.zeros(width, width) for _ in range(layers))

    def forward(self, a, x):
        return sum(torch.dot(a, functional.linear(x, weight)) for weight in self.layers)


def zero2_bytes(student, layers, width, bucket_bytes, vectors):
    """What a backward of `Rows` has alive at most, and at its end; vectors[rank] is (2, width)."""
    zero2_model = student.Zero2

    def rank_does(rank, size):
        a, x = _mine(vectors, rank)
        model = Rows(layers, width)
        zero = zero2_model(model, bucket_bytes=bucket_bytes)
        with meters.bytes_by_kind(model, lambda: [s for s in zero.shards if s is not None]) as m:
            m.mark("forward")
            loss = zero(a, x)
            m.mark("backward")
            loss.backward()
            m.mark("after")
            _let_go(m)
        shards = [shard.clone() for shard in zero.finish()]
        return {
            "most": dict(m.peak_by_kind_by_phase["backward"]),
            "peak": sum(m.peak_by_phase["backward"].values()),
            "before": sum(m.peak_by_phase["forward"].values()),
            "alive": dict(m.alive),
            "shards": shards,
        }

    return _run(rank_does, len(vectors))


def zero2_memory(student, layers, width, bucket_bytes, vectors, stride):
    """The memory of one backward of a large `Rows`, and every `stride`-th element of the shards."""
    zero2_model = student.Zero2
    _give_back_unused()
    model = Rows(layers, width)

    def rank_does(rank, size):
        a, x = _mine(vectors, rank)
        zero = zero2_model(model, bucket_bytes=bucket_bytes)
        zero(a, x).backward()
        return [shard[::stride].clone() for shard in zero.finish()]

    return _run(rank_does, len(vectors), checked=False)


def zero2_orders(student, plans, bucket_bytes, members=None):
    """Steps on `Branches`: plans[step][rank] is {"a", "x", "orders": one for each backward before
    `finish`, "forget": whether zero_grad() follows the backward}. What was sent, how many gradients
    were there then, in which order they came, and the shards."""
    zero2_model = student.Zero2

    def rank_does(rank, size):
        group = dist.new_group(members) if members else None
        if members and rank not in members:
            return None
        place = members.index(rank) if members else rank
        model = Branches()
        params = list(model.parameters())
        zero = zero2_model(model, group, bucket_bytes=bucket_bytes)
        rows = []
        for plan in plans:
            given = plan[place]
            with meters.collectives(params) as log:
                raised = ""
                for order in given["orders"]:
                    try:
                        out = zero(given["a"], given["x"], order)
                        if order:  # without any weight there is nothing to differentiate
                            out.backward()
                    except RuntimeError as error:
                        if len(given["orders"]) == 1:
                            raise
                        raised = type(error).__name__
                waiting = [shard is None for shard in zero.shards]
                shards = []
                if given["forget"]:
                    zero.zero_grad()
                else:
                    shards = [shard.clone() for shard in zero.finish()]
            rows.append(
                {
                    "sent": [
                        [call.payload_bytes, call.where, call.gradients_ready]
                        for call in log.calls
                        if call.operation == "reduce_scatter"
                    ],
                    "came": [event.index for event in log.events if event.kind == "gradient"],
                    "waiting": waiting,
                    "raised": raised,
                    "cleared": all(shard is None for shard in zero.shards),
                    "shards": shards,
                }
            )
            if not given["forget"] and len(given["orders"]) == 1:
                zero.step()
                rows[-1]["cleared"] = all(shard is None for shard in zero.shards)
                rows[-1]["steps"] = [int(opt.steps) for opt in zero.optimizers]
            else:
                zero.zero_grad()
        _meet(group)
        return rows

    return _run(rank_does, 1 + max(members) if members else len(plans[0]))


def zero2_edges(student, batch, start):
    """What a second backward, and bad arguments, raise; and shards after zero_grad()."""
    zero2_model = student.Zero2

    def rank_does(rank, size):
        x = _mine(batch, rank).double()
        zero = zero2_model(_awkward(start, torch.float64), bucket_bytes=256)
        _square(zero(x)).backward()
        found = {"second backward": "nothing", "bucket_bytes=0": "nothing"}
        try:
            _square(zero(x)).backward()
        except RuntimeError:
            found["second backward"] = "RuntimeError"
        zero.zero_grad()
        found["cleared"] = all(shard is None for shard in zero.shards)
        _square(zero(x)).backward()
        found["shards"] = [shard.clone() for shard in zero.finish()]
        try:
            zero2_model(nn.Linear(2, 2), bucket_bytes=0)
        except ValueError:
            found["bucket_bytes=0"] = "ValueError"
        return found

    return _run(rank_does, len(batch))


# --- sharding: parameters ------------------------------------------------------------------------


def _blocks(starts, dtype):
    made = []
    for start in starts:
        block = Block("never" in start).to(dtype)
        block.load_state_dict({name: value.to(dtype) for name, value in start.items()})
        made.append(block)
    return made


def _through(modules, x):
    for module in modules:
        x = module(x)
    return x


def _whole_bytes(blocks):
    """Bytes that the parameters of each block have now; a storage counts once."""
    found = []
    for block in blocks:
        storages = {p.untyped_storage()._cdata: p.untyped_storage() for p in block.parameters()}
        found.append(sum(storage.nbytes() for storage in storages.values()))
    return found


def zero3(student, starts, plans):
    """AdamW steps on the shards of a chain of blocks: batches[step][rank], and between forward and
    backward every rank adds nudges[step][rank] (block by block, in its trainable shard)."""
    zero3_module, chain = student.Zero3Module, student.chain

    def rank_does(rank, size):
        _keep_mine(plans, rank)
        return [one(rank, size, **plan) for plan in plans]

    def one(rank, size, dtype, batches, nudges, prefetch, keywords):
        own = [(x[rank], nudge[rank]) for x, nudge in zip(batches, nudges)]
        blocks = _blocks(starts, dtype)
        modules = [zero3_module(block, prefetch=prefetch) for block in blocks]
        chain(modules)
        looks, idle = [], [_whole_bytes(blocks)]
        for block in blocks:
            block.look = lambda phase: looks.append((phase, _whole_bytes(blocks)))
        trained = [module.shards[0] for module in modules]
        opt = torch.optim.AdamW(trained, foreach=False, **keywords)
        rows = []
        for x, nudge in own:
            opt.zero_grad()
            looks.clear()
            with meters.collectives(trained) as log:
                out = _through(modules, x.to(dtype))
                idle.append(_whole_bytes(blocks))
                for shard, piece in zip(trained, nudge.split([s.numel() for s in trained])):
                    shard.data.add_(piece.to(shard))
                _square(out).backward()
            idle.append(_whole_bytes(blocks))
            grads = [shard.grad.clone() for shard in trained]
            left = [p.grad is not None for block in blocks for p in block.parameters()]
            opt.step()
            rows.append(
                {
                    "out": out.detach(),
                    "grads": grads,
                    "shards": [s.detach().clone() for s in trained],
                    "left": left,
                    "looks": list(looks),
                }
                | _payloads(log)
            )
        return {
            "rows": rows,
            "idle": idle,
            "shapes": [tuple(p.shape) for block in blocks for p in block.parameters()],
            "sizes": [[s.numel() for s in module.shards] for module in modules],
            "needs_grad": [[s.requires_grad for s in module.shards] for module in modules],
            "frozen": [module.shards[1].detach().clone() for module in modules],
        }

    return _run(rank_does, len(plans[0]["batches"][0]))


def zero3_beside_fully_shard(student, starts, batches):
    """One backward, and one more on top of it, of the learner's blocks and of torch's
    `fully_shard` on twins, and then a forward without gradients."""
    zero3_module, chain = student.Zero3Module, student.chain

    def rank_does(rank, size):
        xs = [_mine(x, rank) for x in batches]
        blocks = _blocks(starts, torch.float32)
        twins = copy.deepcopy(blocks)
        modules = [zero3_module(block) for block in blocks]
        chain(modules)
        for twin in twins:
            fully_shard(twin)
        found = []
        for x in xs:
            for parts in (modules, twins):
                _square(_through(parts, x)).backward()
            theirs = [
                torch.cat([_whole_gradient(p) for p in twin.parameters() if p.requires_grad])
                for twin in twins
            ]
            found.append({"grads": [m.shards[0].grad.clone() for m in modules], "theirs": theirs})
        with torch.no_grad():
            outs = [_through(parts, xs[0]) for parts in (modules, twins)]
        return {"found": found, "outs": outs, "idle": _whole_bytes(blocks)}

    return _run(rank_does, len(batches[0]))


def _partly(kinds, starts):
    made = []
    for index, (kind, start) in enumerate(zip(kinds, starts)):
        block = Partly(kind, 6 + index).double()
        block.load_state_dict({name: value.double() for name, value in start.items()})
        made.append(block)
    return made


def _running(log):
    """Payload bytes of the all-gathers that have been issued and not been waited for."""
    over = {event.index for event in log.events if event.kind == "waited"}
    gathers = [call for call in log.calls if call.operation == "all_gather"]
    return sum(call.payload_bytes for call in gathers if call.index not in over)


def zero3_partly(student, kinds, starts, batches, prefetch, members=None):
    """AdamW steps on the shards of a chain of `Partly` blocks: batches[step][rank]. In the middle
    of each block, forward and backward: which blocks are whole, and how much is on its way."""
    zero3_module, chain = student.Zero3Module, student.chain

    def rank_does(rank, size):
        group = dist.new_group(members) if members else None
        if members and rank not in members:
            return None
        xs = [x[members.index(rank) if members else rank].double() for x in batches]
        blocks = _partly(kinds, starts)
        modules = [zero3_module(block, group, prefetch=prefetch) for block in blocks]
        chain(modules)
        first = [[s.detach().clone() for s in module.shards] for module in modules]
        facts = [
            [
                f"{'nn.Parameter' if isinstance(s, nn.Parameter) else type(s).__name__}, "
                f"{'requires a gradient' if s.requires_grad else 'frozen'}"
                for s in m.shards
            ]
            for m in modules
        ]
        looks, logs = [], []
        for index, block in enumerate(blocks):

            def look(phase, index=index):
                looks.append((phase, index, _whole_bytes(blocks), _running(logs[-1])))

            block.look = look
        trained = [m.shards[0] for m, kind in zip(modules, kinds) if kind != "frozen"]
        opt = torch.optim.AdamW(trained, lr=0.05, foreach=False)
        rows = []
        for x in xs:
            opt.zero_grad()
            looks.clear()
            with meters.collectives(trained) as log:
                logs.append(log)
                out = _through(modules, x)
                _square(out).backward()
            grads = [
                [None if s.grad is None else s.grad.clone() for s in module.shards]
                for module in modules
            ]
            left = [p.grad is not None for block in blocks for p in block.parameters()]
            opt.step()
            rows.append(
                {"out": out.detach(), "grads": grads, "looks": list(looks), "left": left}
                | {"idle": _whole_bytes(blocks)}
                | {"shards": [[s.detach().clone() for s in m.shards] for m in modules]}
                | _payloads(log)
            )
        return {"rows": rows, "first": first, "facts": facts}

    return _run(rank_does, 1 + max(members) if members else len(batches[0]))


def zero3_strided(student, base, weight, batch):
    """One block with two dtypes and a parameter that is not contiguous, on each of its outputs."""
    zero3_module = student.Zero3Module

    def rank_does(rank, size):
        x = _mine(batch, rank).double()
        found = []
        for output in (0, 1, 2):
            x = x.detach().requires_grad_(output == 2)
            block = Strided()
            with torch.no_grad():
                block.base.copy_(base)
                block.weight.copy_(weight)
            module = zero3_module(block)
            outs = module(x)
            _square(outs[output]).backward()
            found.append(
                {
                    "out": outs[0].detach(),
                    "shards": [shard.detach().clone() for shard in module.shards],
                    "grad": _cloned(module.shards[0].grad),
                    "shapes": [tuple(p.shape) for p in block.parameters()],
                    "idle": _whole_bytes([block]),
                }
            )
        return found

    return _run(rank_does, len(batch))


def _cloned(grad):
    return None if grad is None else grad.clone()


def _whole_gradient(p):
    if p.grad is None:
        return torch.zeros(p.numel())
    return p.grad.full_tensor().reshape(-1).clone()


class Wide(nn.Module):
    """h + W c: the gradient of W is the outer product of the loss's gradient and c."""

    def __init__(self, width, value):
        super().__init__()
        self.weight = nn.Parameter(torch.full((width, width), value))

    def forward(self, h, c):
        return h + functional.linear(c, self.weight), c


def zero3_memory(student, values, width, vectors, stride):
    """The memory of a forward and a backward through wide blocks, each made, and sharded, before
    the next one is; W_i is values[i] everywhere. The loss is a . h."""
    zero3_module, chain = student.Zero3Module, student.chain
    _give_back_unused()

    def rank_does(rank, size):
        a, c = _mine(vectors, rank)
        modules = [zero3_module(Wide(width, value)) for value in values]
        chain(modules)
        h = torch.zeros(width)
        for module in modules:
            h, _ = module(h, c)
        loss = torch.dot(a, h)
        loss.backward()
        grads = [module.shards[0].grad[::stride].clone() for module in modules]
        return {"loss": float(loss.detach()), "grads": grads}

    return _run(rank_does, len(vectors), checked=False)


def zero3_refuses(student):
    """Which bad arguments raise ValueError, on one rank."""
    zero3_module = student.Zero3Module

    def rank_does(rank, size):
        mixed = [nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()) for _ in range(2)]
        mixed[1].requires_grad_(False)
        asks = {
            "prefetch=-1": lambda: zero3_module(nn.Linear(2, 2), prefetch=-1),
            "two dtypes": lambda: zero3_module(mixed[0]),
            "two dtypes, frozen": lambda: zero3_module(mixed[1]),
        }
        return {name: _raised(ask) for name, ask in asks.items()}

    return _run(rank_does, 1)


# --- for pictures --------------------------------------------------------------------------------


def sharded_course(student, task, weights, batches, lr):
    """The second of two training steps of square layers with these weights, by the learner's
    `task`, or replicated and all-reduced where it is "": on each rank the course of bytes by phase
    and kind, payloads, and the parameters at the end, also those of one process with all rows."""
    made = getattr(student, task) if task else None
    chain = student.chain if task == "Zero3Module" else None
    told = {"lr": lr, "eps": 1e-8}
    weights, batches = ([torch.as_tensor(each) for each in given] for given in (weights, batches))

    def layers():
        found = []
        for weight in weights:
            layer = nn.Linear(*weight.shape, bias=False)
            layer.weight.data.copy_(weight)
            found.append(nn.Sequential(layer, nn.Tanh()))
        return found

    def alone():
        model = nn.Sequential(*layers())
        opt = torch.optim.AdamW(model.parameters(), foreach=False, **told)
        for _ in range(2):
            opt.zero_grad()
            _square(model(torch.cat(batches))).backward()
            opt.step()
        return _values(model.parameters())

    def rank_does(rank, size):
        x = batches[rank]
        tell = []

        def mark(phase):
            if tell:
                tell[-1](phase)

        blocks = layers()
        trained = [p for block in blocks for p in block.parameters()]
        modules, held = blocks, None
        if task == "Zero3Module":
            modules = [made(block) for block in blocks]
            chain(modules)
            trained += [module.shards[0] for module in modules]
            opt = torch.optim.AdamW(trained[len(blocks) :], foreach=False, **told)
        elif task == "Zero2":
            opt = made(nn.Sequential(*blocks), bucket_bytes=trained[0].nbytes, **told)
            modules, held = [opt], opt.optimizers
        elif task == "Zero1AdamW":
            opt = made(trained, **told)
        else:
            opt = torch.optim.AdamW(trained, foreach=False, **told)
        _look(mark, blocks, modules)

        def step():
            mark("forward")
            loss = _square(_through(modules, x))
            mark("backward")
            loss.backward()
            del loss
            mark("step")
            if not task:
                for p in trained:
                    p.grad /= size
                    dist.all_reduce(p.grad)
            opt.step()
            opt.zero_grad(set_to_none=True) if task != "Zero1AdamW" else opt.zero_grad()

        step()
        with meters.bytes_by_kind(trained, held or opt) as m, meters.collectives() as log:
            tell.append(m.mark)
            step()
            tell.clear()
        if task == "Zero3Module":
            whole = [torch.empty(size * s.numel()) for s in trained[len(blocks) :]]
            for piece, shard in zip(whole, trained[len(blocks) :]):
                dist.all_gather_into_tensor(piece, shard.detach())
            values = torch.cat([p[: w.numel()] for p, w in zip(whole, weights)])
        else:
            values = _values(trained)
        return {
            "course": [[phase, *now.values()] for phase, now in m.phases],
            "kinds": list(m.peak),
            "values": values,
        } | _payloads(log)

    return _run(rank_does, len(batches)) | {"alone": alone()}


def _look(mark, blocks, modules):
    """Have the meter look whenever a layer begins or ends: a storage may change its size."""

    def after(module, args, out):
        mark("forward")
        out.register_hook(lambda grad: mark("backward"))

    for module in {*blocks, *modules}:
        module.register_forward_pre_hook(lambda *_: mark("forward"))
        module.register_forward_hook(after)
    for block in blocks:
        for p in block.parameters():
            p.register_post_accumulate_grad_hook(lambda p: mark("backward"))


# --- state: clipping, checkpoints, master weights ------------------------------------------------


def _ranks(function, data, checked=True):
    """A rank is given data[rank], and has nothing of what the others are given."""

    def with_its_own(rank, size):
        mine = data[rank]
        data[:] = [None] * size  # in this process; the others have copies of their own
        return function(rank, size, mine)

    return ranks.outcome(with_its_own, len(data), timeout_s=SECONDS, checked=checked)


def _log_rows(log):
    return [[call.operation, call.payload_bytes] for call in log.calls]


def clip_shards(student, data, checked=True, members=None):
    """data[rank]: a list of {"shards": tensors, "real": counts, "listed": which shard stands at
    each place of the argument, "max_norm", "strict"}; each is clipped, in a group of `members`
    where given. The norm, the shards afterwards, what travelled, and what a strict one raised."""
    clip = student.clip_grad_norm_sharded

    def rank_does(rank, size, cases):
        group = dist.new_group(members) if members else None
        if members and rank not in members:
            return []
        rows = []
        for case in cases:
            shards, listed = [shard.clone() for shard in case["shards"]], case["listed"]
            row = {"norm": None, "raised": "", "shards": shards}
            grads, real = [shards[i] for i in listed], [case["real"][i] for i in listed]
            with meters.collectives() as log:
                try:
                    row["norm"] = clip(grads, real, case["max_norm"], group, case["strict"])
                except RuntimeError as error:
                    if not case["strict"]:
                        raise
                    row["raised"] = type(error).__name__
            rows.append(row | {"calls": _log_rows(log)})
        return rows

    return _ranks(rank_does, data, checked)


def clip_refuses(student, bounds):
    """Which of these as max_norm raise ValueError, on one rank."""
    clip = student.clip_grad_norm_sharded

    def rank_does(rank, size):
        return [_raised(lambda bound=bound: clip([torch.ones(3)], [3], bound)) for bound in bounds]

    return _run(rank_does, 1)


def _named_tensors(tree, name=""):
    """The tensors in a nest of dicts, by their path."""
    if isinstance(tree, torch.Tensor):
        yield name, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from _named_tensors(value, f"{name}/{key}" if name else str(key))


def full_state(student, data, members=None):
    """data[rank]: {"shard": this rank's, "others": what is not sharded, by name, "wide": whether of
    one wide layer, "go_on": whether model and shards change afterwards, "dtype": the model's, where
    it is not that of the shard}. What the learner's
    function returns on each rank, what travelled, the memory behind each tensor, and which of them
    changed with the model or the shards."""
    gather = student.full_state_dict

    def rank_does(rank, size, mine):
        group = dist.new_group(members) if members else None
        if members and rank not in members:
            return None
        model = nn.Linear(200, 100) if mine["wide"] else Odd()
        model.to(mine.get("dtype", mine["shard"]["param"].dtype))
        with torch.no_grad():
            for p in model.parameters():
                p.fill_(float("nan"))  # what a shard is there for must come from the shard
            for name, value in mine["others"].items():
                dict(model.state_dict(keep_vars=True))[name].copy_(value)
        empty = {k: v * 0 for k, v in mine["shard"].items()}
        gather(model, empty, group)  # the checkpoint after that one is looked at
        with meters.collectives() as log:
            full = gather(model, mine["shard"], group)
        row = {"full": full, "calls": _log_rows(log), "behind": {}}
        tensors = dict(_named_tensors(full))
        row["behind"] = {
            name: [t.untyped_storage().nbytes(), t.nbytes] for name, t in tensors.items()
        }
        kept = {name: t.clone() for name, t in tensors.items()}
        if mine["go_on"]:
            with torch.no_grad():
                for t in [*model.parameters(), *model.buffers(), *mine["shard"].values()]:
                    t.fill_(77) if isinstance(t, torch.Tensor) else None
        row["moved"] = [n for n, t in tensors.items() if not torch.equal(t, kept[n])]
        return row

    return _ranks(rank_does, data, checked=False)


def full_state_of_extras(student, data):
    """data[rank]: {"shard": this rank's, "extras": what modules of its model save besides, by
    name}. What the learner's function returns on each rank."""
    gather = student.full_state_dict

    def rank_does(rank, size, mine):
        return gather(Noted(mine["extras"]), mine["shard"])

    return _ranks(rank_does, data, checked=False)


def behind_shards(student, full, rank, world_size):
    """The learner's shards, and the bytes that each of them keeps alive."""
    shard = student.reshard(full, rank, world_size)
    tensors = {key: value for key, value in shard.items() if isinstance(value, torch.Tensor)}
    return shard, {key: t.untyped_storage().nbytes() for key, t in tensors.items()}


def mastered(student, data, members=None):
    """data[rank]: a list of {"params": bfloat16 tensors, "grads": this rank's shard of each step's
    gradient, "adamw": keywords}. After every step, all parameters and the master; what travelled in
    the last step."""
    master_weights = student.MasterWeights

    def rank_does(rank, size, cases):
        group = dist.new_group(members) if members else None
        if members and rank not in members:
            return []
        found = []
        for case in cases:
            params = [nn.Parameter(p.clone()) for p in case["params"]]
            opt = master_weights(params, group, **case["adamw"])
            rows = []
            for grad in case["grads"]:
                mean = grad.clone()
                noted = _noted(student, "MasterWeights.step", grad=mean)
                with noted as changed, meters.collectives() as log:
                    opt.step(mean)
                flat = torch.cat([p.detach().reshape(-1) for p in params])
                row = {"params": flat, "master": opt.master.detach().clone()}
                rows.append(row | {"changed": " ".join(changed)})
            found.append({"rows": rows, "calls": _log_rows(log)})
        return found

    return _ranks(rank_does, data, checked=False)


def master_in_place(student, data):
    """data[rank]: {"params": bfloat16 tensors, the first of them transposed here, "grads": this
    rank's shard of each step's gradient, "adamw"}. Before each step all parameters are NaN; after
    it, what stands where they were, and the master and its moments."""
    master_weights = student.MasterWeights

    def rank_does(rank, size, mine):
        params = [nn.Parameter(p.clone()) for p in mine["params"]]
        params[0] = nn.Parameter(mine["params"][0].t().contiguous().t())
        opt = master_weights(iter(params), **mine["adamw"])
        places = [p.detach() for p in params]
        rows = []
        for grad in mine["grads"]:
            with torch.no_grad():
                for p in params:
                    p.fill_(float("nan"))
            opt.step(grad.clone())
            rows.append(
                {name: getattr(opt, name).detach().clone() for name in _MASTER}
                | {"params": torch.cat([place.reshape(-1) for place in places])}
            )
        return rows

    return _ranks(rank_does, data)


_MASTER = ("master", "exp_avg", "exp_avg_sq")


def held_by_master(student, data):
    """data[rank]: {"shapes", "value", "grad", "steps"}. Bytes that are alive after so many steps
    and were not before the parameters were made, and the first and last parameter's numbers."""
    master_weights = student.MasterWeights

    def rank_does(rank, size, mine):
        grad = mine["grad"]
        with meters.live_bytes() as m:
            params = [
                nn.Parameter(torch.full(shape, mine["value"], dtype=torch.bfloat16))
                for shape in mine["shapes"]
            ]
            opt = master_weights(params, lr=0.25, wd=0.0)
            for _ in range(mine["steps"]):
                opt.step(grad)
        ends = [params[0].detach().reshape(-1)[:4].clone(), params[-1].detach().reshape(-1)[-4:]]
        return {"alive_bytes": m.alive_bytes, "ends": [end.clone() for end in ends]}

    return _ranks(rank_does, data, checked=False)


def growth_with_master(student, data):
    """data[rank]: {"numel", "value", "steps"}. How the rank's process grows, seen from outside,
    while it makes that many parameters and steps; and its first and last parameters."""
    master_weights = student.MasterWeights
    _give_back_unused()

    def rank_does(rank, size, mine):
        p = nn.Parameter(torch.full((mine["numel"],), mine["value"], dtype=torch.bfloat16))
        opt = master_weights([p], lr=0.25, wd=0.0)
        grad = torch.full((-(-mine["numel"] // size),), 1.0, dtype=torch.bfloat16)
        for _ in range(mine["steps"]):
            opt.step(grad)
        return {"ends": [p.detach()[:4].clone(), p.detach()[-4:].clone()]}

    return _ranks(rank_does, data, checked=False)
