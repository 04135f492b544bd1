"""Lab 08: states that no tensor holds, traffic past the log, libraries under another name."""

from __future__ import annotations

from .lab_attack import LabAttack

_MOMENTS = "self.exp_avg_sq = torch.zeros(self.shard_numel, dtype=self.dtype)"
_SCATTER = "dist.reduce_scatter_tensor(shard, flat, group=self.pg)\n        return shard"
_OWN = "self.lo : self.lo + self.shard_numel]"

ATTACKS = [
    LabAttack(
        "all-states-in-numpy",
        "Zero1AdamW",
        "every rank keeps both moments of all parameters, in NumPy's memory",
        changes=(
            (
                _MOMENTS,
                _MOMENTS + "\n        import numpy\n"
                "        n = self.world_size * self.shard_numel\n"
                "        self.whole = [numpy.ones(n, dtype=numpy.float32) for _ in range(2)]",
            ),
        ),
        mark=r"kernel|process|MiB",
        passes=("test_every_rank_ends_where_one_process_would",),
    ),
    LabAttack(
        "all-states-in-bytes",
        "Zero1AdamW",
        "the same in an array of bytes",
        changes=(
            (
                _MOMENTS,
                _MOMENTS + "\n        n = 8 * self.world_size * self.shard_numel\n"
                "        self.whole = bytearray(n * b'1')",
            ),
        ),
        mark=r"kernel|process|MiB",
        passes=("test_every_rank_ends_where_one_process_would",),
    ),
    LabAttack(
        "an-all-reduce-past-the-log",
        "Zero1AdamW",
        "all gradients are summed on every rank by the process group itself, not by its functions",
        changes=(
            (
                _SCATTER,
                "group = self.pg or dist.group.WORLD\n"
                "        group.allreduce([flat]).wait()\n"
                f"        shard.copy_(flat[{_OWN})\n"
                "        return shard",
            ),
        ),
        mark=r"all_reduce|allreduce|reduce_scatter",
    ),
    LabAttack(
        "an-all-reduce-in-the-backend",
        "Zero1AdamW",
        "the same by the backend of the process group, which is C++",
        changes=(
            (
                _SCATTER,
                "group = self.pg or dist.group.WORLD\n"
                "        group._get_backend(torch.device('cpu')).allreduce([flat]).wait()\n"
                f"        shard.copy_(flat[{_OWN})\n"
                "        return shard",
            ),
        ),
        mark=r"all_reduce|allreduce|reduce_scatter|kernel",
    ),
    LabAttack(
        "the-library-s-optimizer",
        "Zero1AdamW",
        "torch's ZeroRedundancyOptimizer, from its source under another name",
        """
import inspect
import torch.distributed.optim.zero_redundancy_optimizer as _home
_space = {"__name__": "mine", "__package__": "torch.distributed.optim"}
exec(compile("\\n" + inspect.getsource(_home), "zero_sharding.py", "exec"), _space)
class Zero1AdamW:
    def __init__(self, params, pg=None, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, wd=1e-2):
        self.params = [p for p in dict.fromkeys(params) if p.requires_grad]
        one_dtype(self.params)
        if min(lr, eps, wd) < 0 or not all(0 <= b < 1 for b in betas): raise ValueError("range")
        self.pg, self.steps, self.n = pg, 0, dist.get_world_size(pg)
        self.inner = _space["ZeroRedundancyOptimizer"](
            self.params, torch.optim.AdamW, process_group=pg, lr=lr, betas=betas, eps=eps,
            weight_decay=wd)
    def step(self):
        for p in self.params:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad, group=self.pg)
            p.grad /= self.n
        self.inner.step()
        self.steps += 1
    def zero_grad(self):
        for p in self.params: p.grad = None
    def local_state_bytes(self): return 0
""",
        mark=r"zero_redundancy_optimizer|ZeroRedundancyOptimizer",
    ),
]
