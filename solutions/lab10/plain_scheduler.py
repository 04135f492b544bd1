"""Given: a scheduler that `simulate` can run before you have written your own.

It is what serving engines did before paged memory: a request is admitted only when blocks for its
whole prompt *and* everything it will generate are free, and keeps them until it ends. So nothing is
ever preempted, nothing is shared, and memory that a request will need later lies idle until then.
It has the methods of `Scheduler` and fills in the same `Step`.
"""

from __future__ import annotations

from collections import deque

from types_lab10 import Req, SchedulerConfig, Step


class PlainScheduler:
    """First come first served, chunked prefill, memory reserved up to the last token."""

    def __init__(self, cfg: SchedulerConfig) -> None:
        self.cfg = cfg
        self.free_blocks = cfg.num_blocks - 1
        self.waiting: deque[list[int]] = deque()
        self.running: list[list[int]] = []

    @property
    def num_unfinished(self) -> int:
        """Requests that are waiting or running."""
        return len(self.waiting) + len(self.running)

    def add(self, req: Req) -> None:
        """`req` waits, behind all that do. ValueError for one that never fits."""
        prompt = req.prompt_tokens if isinstance(req.prompt_tokens, int) else len(req.prompt_tokens)
        if prompt < 1 or req.out_tokens < 1:
            raise ValueError(f"request {req.id}: {prompt} prompt and {req.out_tokens} out tokens.")
        blocks = -(-(prompt + req.out_tokens - 1) // self.cfg.block_size)
        if blocks > self.cfg.num_blocks - 1:
            raise ValueError(f"request {req.id} needs {blocks} blocks; there are fewer.")
        # id, known tokens, computed tokens, tokens still to generate, blocks
        self.waiting.append([req.id, prompt, 0, req.out_tokens, blocks])

    def step(self, now: float = 0.0) -> Step:
        """One step. `now`, in seconds, is not needed."""
        cfg, budget = self.cfg, self.cfg.max_num_batched_tokens
        while self.waiting and len(self.running) < cfg.max_num_seqs:
            if self.waiting[0][4] > self.free_blocks:
                break
            self.free_blocks -= self.waiting[0][4]
            self.running.append(self.waiting.popleft())
        scheduled: dict[int, int] = {}
        generated: list[int] = []
        finished: list[int] = []
        context_tokens = 0
        for request in self.running:
            tokens = min(request[1] - request[2], budget)
            if not tokens:
                break
            budget -= tokens
            scheduled[request[0]] = tokens
            request[2] += tokens
            context_tokens += request[2]
            if request[2] == request[1]:
                generated.append(request[0])
                request[1] += 1
                request[3] -= 1
                if not request[3]:
                    finished.append(request[0])
                    self.free_blocks += request[4]
        self.running = [request for request in self.running if request[3]]
        return Step(scheduled, [], finished, self.free_blocks, generated, context_tokens)
