"""Lab 03: collectives that another one did, logs that student code writes, a library under another
name."""

from __future__ import annotations

from .lab_attack import LabAttack

# The probe's row of what the meter saw is overwritten when the rank's function returns.
_FORGED_RING = """
import sys
def ring_all_reduce_(flat, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    members = dist.get_process_group_ranks(group or dist.group.WORLD)
    DEED
    chunks = flat.tensor_split(size)
    sends = [chunks[(rank - step) % size].nbytes for step in range(size - 1)]
    sends += [chunks[(rank + 1 - step) % size].nbytes for step in range(size - 1)]
    frame = sys._getframe()
    while frame.f_code.co_name != "rank_does":
        frame = frame.f_back
    row = frame.f_locals["row"]
    def forge(frame, event, value):
        if event == "return":
            row.update(sends=sends, to=[members[(rank + 1) % size]], others=[])
        return forge
    frame.f_trace = forge
    sys.settrace(lambda *given: None)
    return sum(sends)
"""
_BY_LINK = r"sent .* to rank \d, by the kernel's count"

# One blocking all-reduce when backward is over: the mean is right, and nothing overlaps.
_LATE = """
class _Late(nn.Module):
    def __init__(self, module, bucket_cap_bytes=25 << 20, first_cap_bytes=1 << 20,
                 find_unused=False):
        super().__init__()
        self.module, self.events = module, []
        self.caps = [first_cap_bytes, bucket_cap_bytes]
        sync_module_(module)
        self.waiting, self.synced = False, True
        self.params = [p for p in reversed(list(module.parameters())) if p.requires_grad]
        for p in self.params:
            p.register_post_accumulate_grad_hook(self._seen)
    def _seen(self, p):
        if not self.waiting:
            self.waiting = True
            torch.autograd.Variable._execution_engine.queue_callback(self._all)
    def _all(self):
        self.waiting = False
        flat = torch.cat([p.grad.reshape(-1) for p in self.params]).mul_(1 / dist.get_world_size())
        dist.all_reduce(flat)
        for p, mean in zip(self.params, flat.split([p.numel() for p in self.params])):
            p.grad.copy_(mean.view_as(p))
    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)
"""
_TOLD = '''
import contextlib, sys, types
def _told(params, caps):
    """The log that a right answer would have left."""
    sizes = [p.numel() * p.element_size() for p in params]
    buckets, size = [[]], 0
    for i, n in enumerate(sizes):
        buckets[-1].append(i)
        size += n
        if size >= caps[min(len(buckets), 2) - 1]:
            buckets.append([]); size = 0
    buckets = [b for b in buckets if b]
    calls, ready = [], 0
    for index, b in enumerate(buckets):
        ready += len(b)
        calls.append(types.SimpleNamespace(
            index=index, operation="all_reduce", payload_bytes=sum(sizes[i] for i in b),
            where="backward", gradients_ready=ready, gradients_when_waited=len(sizes)))
    events = [types.SimpleNamespace(kind="waited", index=i) for i in range(len(calls))]
    events.append(types.SimpleNamespace(kind="backward ended", index=1))
    return types.SimpleNamespace(calls=calls, events=events, count=lambda op="": len(calls))
_last = []
class _Log:
    def __init__(self, *given): pass
    def __enter__(self): return self
    def __exit__(self, *error): return None
    def __getattr__(self, name):
        return getattr(_told(_last[-1].params, _last[-1].caps), name)
'''
_BUCKETS = (
    _LATE
    + _TOLD
    + """
class BucketedDDP(_Late):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        _last.append(self)
        DEED
"""
)
_PROBES = """frame = sys._getframe()
        while frame.f_globals.get("__name__") != "probes":
            frame = frame.f_back
        """
_ROWS = """[vars(call) for call in _Log().calls]"""
_DDP_BITS = ("test_two_ranks_are_ddp_to_the_bit",)
_PLANNED = """
def _planned(plan, nbytes, caps):
    if not nbytes:
        return []
    tensors = [torch.empty(n, dtype=torch.uint8) for n in nbytes]
    return plan(tensors, caps)[0]
"""
_PLANNER = r"your code used `torch\.distributed\._compute_bucket_assignment_by_size`"
_SAMPLER = r"your code used `torch\.utils\.data\.distributed`"
_DDP = r"your code used `torch\.nn\.parallel\.distributed\.DistributedDataParallel`"


def _told(id: str, tries: str, mark: str, deed: str = "pass", at_import: str = "") -> LabAttack:
    """One late all-reduce, with the log of overlapping buckets; `deed` is done in a rank."""
    code = _BUCKETS.replace("DEED", deed) + at_import
    return LabAttack(id, "BucketedDDP", tries, code, mark=mark)


def _taken(
    id: str, task: str, tries: str, mark: str, code: str, passes: tuple[str, ...] = ()
) -> LabAttack:
    """A library's own under another name: right in every value."""
    return LabAttack(id, task, tries, code, mark=mark, passes=passes)


ATTACKS = [
    LabAttack(
        "all-reduce-behind-a-forged-log",
        "ring_all_reduce_",
        "the library's all_reduce, and a log of sends that student code wrote",
        _FORGED_RING.replace("DEED", "dist.all_reduce(flat, group=group)"),
        mark=r"your code used `torch\.distributed\.distributed_c10d\.all_reduce`",
    ),
    LabAttack(
        "all-reduce-by-link",
        "ring_all_reduce_",
        "the same where nothing is forbidden: only the kernel's counters are left",
        _FORGED_RING.replace("DEED", "dist.all_reduce(flat, group=group)"),
        mark=_BY_LINK,
        passes=("test_every_rank_has_the_same_sum",),
        lifts_forbids=True,
    ),
    LabAttack(
        "reduce-and-broadcast-by-link",
        "ring_all_reduce_",
        "a reduce to one rank and a broadcast from it, told as a ring",
        _FORGED_RING.replace(
            "DEED",
            "dist.reduce(flat, members[0], group=group);"
            " dist.broadcast(flat, members[0], group=group)",
        ),
        mark=_BY_LINK,
        passes=("test_every_rank_has_the_same_sum",),
        lifts_forbids=True,
    ),
    _told(
        "a-factory-at-import",
        "replaces the factory of the log at import",
        r"grader\.meters\.collectives was replaced",
        at_import='sys.modules["grader.meters"].collectives = lambda *given: _Log()\n',
    ),
    _told(
        "a-class-in-a-rank",
        "replaces the class that the factory makes, in the process of a rank",
        r"collective_log\.CollectiveLog was replaced",
        'sys.modules["grader.meters.collective_log"].CollectiveLog = _Log',
    ),
    _told(
        "inside-what-is-bound",
        "changes what the probes' module of meters holds, in a rank",
        r"probes\.meters was replaced",
        _PROBES + 'object.__setattr__(frame.f_globals["meters"],'
        ' "_Bound__attributes", {"collectives": _Log})',
    ),
    _told(
        "the-row-of-the-probe",
        "writes the log of overlapping buckets into the probe's rows",
        r"sent by rank 0 before its last gradients, by the kernel's count",
        """frame = sys._getframe()
        while frame.f_code.co_name != "rank_does":
            frame = frame.f_back
        def forge(frame, event, value):
            if event == "return" and isinstance(value, dict):
                for row in value.get("rows", []):
                    row.update(calls=ROWS, operations=["all_reduce"],
                               order=[("waited", 0), ("backward ended", 1)])
            return forge
        frame.f_trace = forge
        sys.settrace(lambda *given: None)""".replace("ROWS", _ROWS),
    ),
    _taken(
        "a-copy-of-ddp",
        "BucketedDDP",
        "DDP's source under another name of file and class",
        r"DistributedDataParallel|torch\\.distributed\\.Reducer",
        """
import inspect
import torch.nn.parallel.distributed as _home
_source = inspect.getsource(_home).replace("DistributedDataParallel", "Buckets")
_space = {"__name__": "mine", "__package__": "torch.nn.parallel"}
exec(compile("\\n" + _source, "train_ddp.py", "exec"), _space)
class BucketedDDP(nn.Module):
    def __init__(self, module, bucket_cap_bytes=25 << 20, first_cap_bytes=1 << 20,
                 find_unused=False):
        super().__init__()
        self.inner = _space["Buckets"](
            module, bucket_cap_mb=bucket_cap_bytes / 2**20, find_unused_parameters=find_unused)
        self.events = []
    def forward(self, *a, **k): return self.inner(*a, **k)
""",
        (),
    ),
    _taken(
        "the-reducer",
        "BucketedDDP",
        "DDP's reducer, which is C++, by another name",
        r"your code used `torch\.distributed\.Reducer`",
        """
class BucketedDDP(nn.Module):
    def __init__(self, module, bucket_cap_bytes=25 << 20, first_cap_bytes=1 << 20,
                 find_unused=False):
        super().__init__()
        self.module, self.events = module, []
        sync_module_(module)
        params = [p for p in module.parameters() if p.requires_grad]
        nbytes = [p.numel() * p.element_size() for p in reversed(params)]
        plan = assign_buckets(nbytes, [first_cap_bytes, bucket_cap_bytes])
        n = len(params)
        caps = [first_cap_bytes] + [bucket_cap_bytes] * (len(plan) - 1)
        self.reducer = make(
            params, [[n - 1 - i for i in b] for b in plan], caps, dist.group.WORLD,
            [False] * n, bucket_cap_bytes, find_unused, False, {}, first_cap_bytes)
        self.reducer.prepare_for_backward([])
        self.r = self.reducer
    def forward(self, *a, **k):
        out = self.module(*a, **k)
        if torch.is_grad_enabled(): self.r.prepare_for_backward([])
        return out
make = dist.Reducer
""",
        (),
    ),
    _taken(
        "the-planner",
        "assign_buckets",
        "the reducer's planner by another name",
        _PLANNER,
        _PLANNED
        + """
_plan = dist._compute_bucket_assignment_by_size
def assign_buckets(nbytes, caps):
    return _planned(_plan, nbytes, caps)
""",
    ),
    _taken(
        "the-planner-by-map",
        "assign_buckets",
        "the same, called from C",
        _PLANNER,
        _PLANNED
        + """
_plan = dist._compute_bucket_assignment_by_size
def assign_buckets(nbytes, caps):
    return _planned(lambda *given: next(map(_plan, *([one] for one in given))), nbytes, caps)
""",
    ),
    _taken(
        "the-planner-as-a-partial",
        "assign_buckets",
        "the same, as a partial",
        _PLANNER,
        _PLANNED
        + """
import functools
_plan = dist._compute_bucket_assignment_by_size
def assign_buckets(nbytes, caps):
    return _planned(functools.partial(_plan), nbytes, caps)
""",
    ),
    _taken(
        "the-planner-in-an-older-thread",
        "assign_buckets",
        "the same in a thread that began at import",
        _PLANNER,
        _PLANNED
        + """
from concurrent.futures import ThreadPoolExecutor
_pool = ThreadPoolExecutor(1)
_pool.submit(int).result()
_plan = dist._compute_bucket_assignment_by_size
def assign_buckets(nbytes, caps):
    return _pool.submit(_planned, _plan, nbytes, caps).result()
""",
    ),
    _taken(
        "the-planner-in-a-child",
        "assign_buckets",
        "the same in a forked process",
        _PLANNER,
        _PLANNED
        + """
import multiprocessing
_plan = dist._compute_bucket_assignment_by_size
def assign_buckets(nbytes, caps):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(_in_a_child, (nbytes, caps))
def _in_a_child(*given):
    return _planned(_plan, *given)
""",
    ),
    _taken(
        "the-samplers-code",
        "shard_indices",
        "torch's sampler in functions made anew from its code",
        _SAMPLER,
        """
import types
from torch.utils.data import DistributedSampler as _S
def _of(f):
    code = f.__code__.replace(co_filename="train_ddp.py", co_name="mine", co_qualname="mine")
    names = {**f.__globals__, "__name__": "train_ddp"}
    return types.FunctionType(code, names, "mine", f.__defaults__, f.__closure__)
def shard_indices(n, rank, world_size, epoch=0, seed=0, shuffle=True, drop_last=False):
    class Mine: pass
    s = Mine()
    _of(_S.__init__)(s, range(n), world_size, rank, shuffle, seed, drop_last)
    s.epoch = epoch
    return [int(i) for i in _of(_S.__iter__)(s)]
""",
        (),
    ),
    _taken(
        "the-sampler",
        "shard_indices",
        "torch's sampler, as a base class with another name",
        _SAMPLER,
        """
from torch.utils.data import DistributedSampler
class _Rows(DistributedSampler):
    pass
def shard_indices(n, rank, world_size, epoch=0, seed=0, shuffle=True, drop_last=False):
    rows = _Rows(range(n), world_size, rank, shuffle, seed, drop_last)
    rows.set_epoch(epoch)
    return [int(row) for row in rows]
""",
    ),
    _taken(
        "the-sampler-in-an-older-thread",
        "shard_indices",
        "torch's sampler, in a thread that began at import",
        _SAMPLER,
        """
from concurrent.futures import ThreadPoolExecutor
from torch.utils.data import DistributedSampler
_pool = ThreadPoolExecutor(1)
_pool.submit(int).result()
def _rows(n, rank, world_size, epoch=0, seed=0, shuffle=True, drop_last=False):
    rows = DistributedSampler(range(n), world_size, rank, shuffle, seed, drop_last)
    rows.set_epoch(epoch)
    return [int(row) for row in rows]
def shard_indices(*given, **named):
    return _pool.submit(_rows, *given, **named).result()
""",
    ),
    _taken(
        "the-broadcast-by-map",
        "sync_module_",
        "torch's broadcast of a module, which is C++, called from C",
        r"your code used `torch\.distributed\._broadcast_coalesced`",
        """
def sync_module_(module, src=0):
    tensors, total = [], 0
    with torch.no_grad():
        dense = [t.contiguous() for t in [*module.parameters(), *module.buffers()]]
        flats = [t.detach() for t in dense]
        list(map(dist._broadcast_coalesced, [dist.group.WORLD], [flats], [1 << 28], [src]))
        for t, d in zip([*module.parameters(), *module.buffers()], flats):
            t.copy_(d); total += t.numel() * t.element_size()
    return total
""",
        (),
    ),
    _taken(
        "a-ddp-that-syncs",
        "sync_module_",
        "what DDP's constructor does",
        r"your code used `torch\.distributed\.utils\._sync_module_states`",
        """
def sync_module_(module, src=0):
    from torch.distributed.utils import _sync_module_states as go
    go(module, dist.group.WORLD, 250 << 20, src, [])
    return sum(t.nbytes for t in [*module.parameters(), *module.buffers()])
""",
    ),
]
