"""Lab 10, beside the learner's code: long runs, of which only the record is sent back."""

from __future__ import annotations

import json
from types import SimpleNamespace


def pool_script(student, num_blocks, operations):
    """Each operation on one BlockPool: (what it returned, num_free then). A ValueError is recorded
    as text and ends the script."""
    pool = student.BlockPool(num_blocks)
    record = []
    for name, *arguments in operations:
        held = {f"argument {place}": each for place, each in enumerate(arguments, 1)}
        try:
            with student.unchanged(f"BlockPool.{name}", **held):
                result = getattr(pool, name)(*arguments)
        except ValueError as error:
            record.append((f"ValueError: {error}", pool.num_free))
            break
        record.append((result, pool.num_free))
    return record


class _Shelf:
    """What match_prefix may ask of a pool: lookup, and nothing that changes it."""

    def __init__(self, contents):
        self._contents = contents
        self.changes = []

    def lookup(self, content):
        return self._contents.get(content)

    def references(self, block):
        return 0

    def touch(self, blocks):
        self.changes.append("touch")

    def alloc(self, k):
        self.changes.append("alloc")
        return list(range(1, k + 1))

    def free(self, blocks):
        self.changes.append("free")

    def cache(self, block, content):
        self.changes.append("cache")


def prefixes(student, contents, queries):
    """match_prefix of each (hashes, num_tokens, block_size), over blocks that hold `contents`
    (hash -> block): the lists, and what changed the pool."""
    shelf = _Shelf(dict(contents))
    found = [student.match_prefix(shelf, hashes, n, size) for hashes, n, size in queries]
    return found, shelf.changes


def endless_cache(student, rows, block_size):
    """Requests (num_tokens, hashes) one after the other over a cache that forgets nothing: how many
    blocks each one found."""
    shelf = _Shelf({})
    found = []
    for num_tokens, hashes in rows:
        found.append(len(student.match_prefix(shelf, hashes, num_tokens, block_size)))
        for content in hashes[: num_tokens // block_size]:
            shelf._contents.setdefault(content, len(shelf._contents) + 1)
    return found


def _written(step):
    """A Step as plain numbers, in the order of its fields."""
    return [
        [[int(name), int(tokens)] for name, tokens in step.scheduled.items()],
        [int(name) for name in step.preempted],
        [int(name) for name in step.finished],
        int(step.free_blocks),
        [int(name) for name in step.generated],
        int(step.context_tokens),
    ]


def _stepped(scheduler, requests, most):
    """Each step, written, until everything that came is done, but no more than so many."""
    added = ended = count = 0
    while ended < len(requests) and count < most:
        while added < len(requests) and requests[added][0] <= count:
            scheduler.add(requests[added][1])
            added += 1
        step = _written(scheduler.step(float(count)))
        count += 1
        ended += len(step[2])
        yield step


def replay(student, cases):
    """Each case (config, [(arrival step, Req), ...], most steps): its steps, as JSON, until
    everything that came is done. With a step too many the record ends."""
    records = []
    for config, requests, most in cases:
        with student.unchanged("Scheduler", config=config, requests=requests):
            records.append(json.dumps(list(_stepped(student.Scheduler(config), requests, most))))
    return records


def audit(student, config, requests, most):
    """As `replay` of one case: its steps, and after each of them the references of every block and
    num_free, as the scheduler's pool tells them."""
    scheduler = student.Scheduler(config)
    steps, books = [], []
    for step in _stepped(scheduler, requests, most):
        steps.append(step)
        pool = scheduler.pool
        counts = [int(pool.references(block)) for block in range(config.num_blocks)]
        books.append((counts, int(pool.num_free)))
    return json.dumps(steps), books


def refusals(student, config, requests):
    """What `add` says of each request with a ValueError, or None where it takes it."""
    said = []
    for request in requests:
        try:
            student.Scheduler(config).add(request)
        except ValueError as error:
            said.append(str(error))
        else:
            said.append(None)
    return said


# === traces, metrics, capacity, simulate ===


def refusal_of(student, function, path):
    """What a loader says of a file with a ValueError, or None where it returns."""
    try:
        getattr(student, function)(path)
    except ValueError as error:
        return str(error)
    return None


class _Stack:
    """A scheduler that gives one token a step to whoever came last, and notes who it is given."""

    def __init__(self):
        self.open, self.fresh, self.added = [], [], []

    @property
    def num_unfinished(self):
        return len(self.open)

    def add(self, req):
        self.open.append([req.id, req.out_tokens])
        self.fresh.append(req.id)

    def step(self, now=0.0):
        self.added += [(number, float(now)) for number in self.fresh]
        self.fresh = []
        if not self.open:
            return _step({}, [])
        last = self.open[-1]
        last[1] -= 1
        ended = [last[0]] if not last[1] else []
        if ended:
            self.open.pop()
        return _step({last[0]: 1}, ended)


def _step(scheduled, finished):
    return SimpleNamespace(
        scheduled=scheduled,
        preempted=[],
        finished=finished,
        free_blocks=0,
        generated=list(scheduled),
        context_tokens=len(scheduled),
    )


def last_come_first(student, requests, config, cost):
    """simulate with a scheduler of another kind: each result as a tuple, and who was added when."""
    made = []

    def scheduler(_config):
        made.append(_Stack())
        return made[-1]

    results = student.simulate(requests, config, cost, scheduler)
    rows = [(r.id, float(r.ttft_s), [float(g) for g in r.itl_s], float(r.e2el_s)) for r in results]
    return rows, made[-1].added


def stands_still(student, requests, config, cost):
    """simulate with a scheduler that schedules nothing."""

    class Still(_Stack):
        calls = 0

        def step(self, now=0.0):
            self.calls += 1
            if self.calls > 1000:
                raise OverflowError("1,000 steps in which nothing was scheduled")
            return _step({}, [])

    student.simulate(requests, config, cost, lambda _config: Still())
