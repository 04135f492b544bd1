"""In which order torch's pipelining schedules work, as `schedules.json`.

    python tests/lab12/make_schedules.py

GPipe and 1F1B are run: a stage that computes nothing and talks to nobody writes down which chunk
it is asked for, as `torch.distributed.pipelining` asks it. (The `_get_pipeline_order` of 1F1B in
torch 2.13 is a drawing of it, in which the last rank's first forward is micro-batch 1.) Interleaved
1F1B is computed by `ScheduleInterleaved1F1B` before it runs, so its list is taken.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TARGET = Path(__file__).with_name("schedules.json")
CASES: list[tuple[str, int, int, int]] = [
    *(("gpipe", p, m, 1) for p, m in ((1, 3), (2, 5), (4, 4), (4, 8))),
    *(("1f1b", p, m, 1) for p, m in ((1, 3), (2, 5), (4, 4), (4, 8), (8, 8))),
    *(("interleaved", p, m, v) for p, m, v in ((2, 2, 2), (2, 6, 3), (4, 4, 2), (4, 8, 2))),
    ("interleaved", 4, 16, 3),
    ("interleaved", 8, 16, 2),
]
Work = list[tuple[str, int, int]]


class _Witness:
    """A stage without a model: it notes the chunks that a schedule asks for."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.stage_index = self.group_rank = rank
        self.num_stages = self.group_size = ranks
        self.is_first, self.is_last = rank == 0, rank == ranks - 1
        self.has_backward = True
        self.stage_index_to_group_rank = {i: i for i in range(ranks)}
        self.submod = self.group = None
        self.work: Work = []

    def forward_one_chunk(self, micro: int, *_: Any, **__: Any) -> int:
        self.work.append(("F", micro, 0))
        return micro

    def backward_one_chunk(self, micro: int, *_: Any, **__: Any) -> None:
        self.work.append(("B", micro, 0))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: []  # no sends, no receives, nothing to prepare


def _witnessed(kind: Any, p: int, m: int) -> list[Work]:
    found = []
    for rank in range(p):
        stage = _Witness(rank, p)
        schedule = kind(stage, m, loss_fn=lambda *_: 0.0)
        schedule._stage_initialized = schedule._stage_forward_initialized = True
        schedule._stages_initialized = schedule._stages_forward_initialized = True
        schedule._initialize_stage = lambda *_, **__: None
        schedule._maybe_compute_loss = lambda *_, **__: None
        schedule._maybe_get_loss = lambda *_, **__: None
        schedule._update_losses = lambda *_, **__: None
        schedule._step_microbatches([()] * m, [{}] * m, [0] * m, [])
        found.append(stage.work)
    return found


def _listed(p: int, m: int, v: int) -> list[Work]:
    from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B

    rounds = max(1, m // p)
    found = []
    for rank in range(p):
        asked = SimpleNamespace(
            n_local_stages=v,
            pp_group_size=p,
            _n_microbatches=m,
            number_of_rounds=rounds,
            microbatches_per_round=m // rounds,
        )
        actions = ScheduleInterleaved1F1B._calculate_single_rank_operations(asked, rank)
        kinds = {"FORWARD": "F", "FULL_BACKWARD": "B"}
        found.append(
            [
                (kinds[a.computation_type.name], a.microbatch_index, a.stage_index // p)
                for a in actions
                if a is not None and a.computation_type.name in kinds
            ]
        )
    return found


def order(schedule: str, p: int, m: int, v: int) -> list[Work]:
    """Each rank's (kind, micro-batch, chunk) in torch's order."""
    from torch.distributed.pipelining.schedules import Schedule1F1B, ScheduleGPipe

    if schedule == "interleaved":
        return _listed(p, m, v)
    return _witnessed(Schedule1F1B if schedule == "1f1b" else ScheduleGPipe, p, m)


def record(cases: list[tuple[str, int, int, int]] = CASES) -> dict[str, Any]:
    """What the file holds: work as "F3.1", forward of micro-batch 3 through the rank's chunk 1."""
    import torch

    rows = []
    for schedule, p, m, v in cases:
        ranks = [" ".join(f"{k}{i}.{c}" for k, i, c in work) for work in order(schedule, p, m, v)]
        rows.append({"schedule": schedule, "p": p, "m": m, "v": v, "ranks": ranks})
    return {"torch": torch.__version__, "cases": rows}


if __name__ == "__main__":
    TARGET.write_text(json.dumps(record(), indent=1) + "\n", encoding="utf-8")
    print(TARGET)
