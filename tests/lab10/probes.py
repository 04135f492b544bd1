"""Lab 10, beside the learner's code: long runs, of which only the record is sent back."""

from __future__ import annotations

import builtins
import copy
import json
import os
import sys
import time
from collections import deque
from contextlib import nullcontext
from operator import index
from types import SimpleNamespace

from grader import meters

# How an operation's list is handed over: `touch:generator` touches a generator of its blocks.
KINDS = {"generator": lambda items: (item for item in items), "tuple": tuple, "set": set}


def hashes_of(student, tokens, block_size):
    """block_hashes of the same tokens in a list, a tuple, a range of them (they follow one another)
    and an array."""
    from numpy import array

    kinds = (tokens, tuple(tokens), range(tokens[0], tokens[-1] + 1), array(tokens))
    return [student.block_hashes(kind, block_size) for kind in kinds]


def hashes_in_hex(student, function, rows):
    """What `function`, block_hashes, returns for each row: whole numbers in hexadecimal, commas
    between them. Numbers of more than 64 bits take five times as long to send one by one."""
    call = getattr(student, function)
    with student.unchanged(function, rows=rows):
        return [",".join(map(hex, call(*row))) for row in rows]


# Of a script's operations so many are watched one by one, under their own names; the others, of the
# scripts of thousands, together.
WATCHED = 100
UNWATCHED = nullcontext()


def pool_script(student, num_blocks, operations):
    """Each operation on one BlockPool: (what it returned, num_free then). A ValueError is recorded
    as text and ends the script."""
    pool = student.BlockPool(num_blocks)
    record = _run(student, pool, operations[:WATCHED], watched=True)
    if len(record) == WATCHED and not isinstance(record[-1][0], str):
        rest = operations[WATCHED:]
        with student.unchanged("BlockPool", operations=rest):
            record += _run(student, pool, rest, watched=False)
    return record


def _run(student, pool, operations, watched):
    record = []
    for called, *arguments in operations:
        name, _colon, kind = called.partition(":")
        held = {f"argument {place}": each for place, each in enumerate(arguments, 1)}
        if kind:
            arguments = [KINDS[kind](arguments[0])]
        try:
            with student.unchanged(f"BlockPool.{name}", **held) if watched else UNWATCHED:
                result = getattr(pool, name)(*arguments)
        except ValueError as error:
            record.append((f"ValueError: {error}", pool.num_free))
            break
        record.append((result, pool.num_free))
    return record


class _Counted(int):
    """A block's number that counts how often it is compared or hashed."""

    compared = 0


def _counting(name):
    plain = getattr(int, name)

    def method(self, *others):
        _Counted.compared += 1
        return plain(self, *others)

    return method


for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__"):
    setattr(_Counted, _name, _counting(_name))

# What goes through all items of a list or a deque, whatever it is called with; and what goes
# through all items of its first argument.
SEARCHES = ("remove", "index", "count", "copy", "sort", "reverse")
SCANS = (min, max, sorted, sum)


class _Effort:
    """While it is entered: instructions of Python, items that a search in a list or a `min` goes
    through, and comparisons of counted blocks, all together. `names`: the globals of the code."""

    def __init__(self, names):
        self._places = [
            (space, name, scan)
            for space in (vars(builtins), names)
            for name, scan in space.items()
            if any(scan is each for each in SCANS)  # under whatever name
        ]
        self._alarm = meters.alarm()

    def _counting(self, scan):
        def counted(*items, **options):
            self.steps += len(items[0]) if hasattr(items[0], "__len__") else 0
            return scan(*items, **options)

        return counted

    def __enter__(self):
        self.steps = 0
        for space, name, scan in self._places:
            space[name] = self._counting(scan)
        self._compared = _Counted.compared
        self._before = sys.gettrace(), sys.getprofile()
        sys.setprofile(self._called)
        sys.settrace(self._traced)
        self._alarm.__enter__()
        return self

    def __exit__(self, *error):
        try:
            self._alarm.__exit__(*error)
        finally:
            sys.settrace(self._before[0])
            sys.setprofile(self._before[1])
            for space, name, scan in self._places:
                space[name] = scan
        self.steps += _Counted.compared - self._compared

    def _traced(self, frame, event, _argument):
        if frame.f_code.co_filename == _counting.__code__.co_filename:
            return None
        frame.f_trace_opcodes = True
        self.steps += event == "opcode"
        return self._traced

    def _called(self, _frame, event, function):
        if event == "c_call" and function.__name__ in SEARCHES:
            items = getattr(function, "__self__", None)
            self.steps += len(items) if isinstance(items, list | deque) else 0


def pool_effort(student, num_blocks, hits):
    """What so many hits in the middle of a full free queue cost, each of them freed again, with an
    eviction after each. As `_Effort` counts; the pool is made before."""
    pool = student.BlockPool(num_blocks)
    table = pool.alloc(num_blocks - 1)
    for block in table:
        pool.cache(block, block + num_blocks)
    pool.free(table)
    names = getattr(type(pool).touch, "__globals__", {})
    found = []
    for place in range(hits):
        wanted = _Counted(num_blocks // 2 + place)
        with _Effort(names) as effort:
            block = pool.lookup(wanted + num_blocks)
            pool.touch([wanted])
            free = pool.num_free
            pool.free([wanted])
            taken = pool.alloc(1)
            pool.cache(taken[0], -1 - place)
            pool.free(taken)
        found.append((block == wanted and free == num_blocks - 2, effort.steps))
    return all(right for right, _steps in found), sum(steps for _right, steps in found)


class _Shelf:
    """What match_prefix may ask of a pool: lookup, and nothing that changes it. `held`: by how many
    each of its blocks is held."""

    num_free = 0

    def __init__(self, contents, held=0):
        self._contents = contents
        self._held = held
        self.changes = []

    def lookup(self, content):
        return self._contents.get(content)

    def references(self, block):
        return self._held

    def touch(self, blocks):
        self.changes.append("touch")

    def alloc(self, k):
        self.changes.append("alloc")
        return list(range(1, k + 1))

    def free(self, blocks):
        self.changes.append("free")

    def cache(self, block, content):
        self.changes.append("cache")


def prefixes(student, contents, queries, held=0):
    """match_prefix of each (hashes, num_tokens, block_size), over blocks that hold `contents`
    (hash -> block) and are held by so many: the lists, and what changed the pool."""
    shelf = _Shelf(dict(contents), held)
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
    """A Step as plain numbers, in the order of its fields; what is not a whole number raises."""
    return [
        [[index(name), index(tokens)] for name, tokens in step.scheduled.items()],
        [index(name) for name in step.preempted],
        [index(name) for name in step.finished],
        index(step.free_blocks),
        [index(name) for name in step.generated],
        index(step.context_tokens),
    ]


def _stepped(scheduler, requests, most, clock=1.0):
    """Each step, written, until everything that came is done, but no more than so many. `clock`:
    seconds from one step to the next."""
    added = ended = count = 0
    while ended < len(requests) and count < most:
        while added < len(requests) and requests[added][0] <= count:
            scheduler.add(requests[added][1])
            added += 1
        step = _written(scheduler.step(clock * count))
        count += 1
        ended += len(step[2])
        yield step


def replay(student, cases, clock=1.0):
    """Each case (config, [(arrival step, Req), ...], most steps): its steps, as JSON, until
    everything that came is done. With a step too many the record ends."""
    records = []
    for config, requests, most in cases:
        with student.unchanged("Scheduler", config=config, requests=requests):
            steps = _stepped(student.Scheduler(config), requests, most, clock)
            records.append(json.dumps(list(steps)))
    return records


def audit(student, config, requests, most):
    """As `replay` of one case: its steps, and after each of them the references of every block and
    num_free, as the scheduler's pool tells them, and num_unfinished."""
    scheduler = student.Scheduler(config)
    steps, books = [], []
    for step in _stepped(scheduler, requests, most):
        steps.append(step)
        pool = scheduler.pool
        counts = [int(pool.references(block)) for block in range(config.num_blocks)]
        books.append((counts, int(pool.num_free), int(scheduler.num_unfinished)))
    return json.dumps(steps), books


def after_a_run(student, config, requests, most):
    """The requests of one case when all of them are done, as they are then."""
    kept = [(arrival, copy.deepcopy(request)) for arrival, request in requests]
    for _step in _stepped(student.Scheduler(config), kept, most):
        pass
    return [request for _arrival, request in kept]


def refusals(student, config, requests):
    """Of each request, added to a scheduler of its own: what `add` says with a ValueError, or None
    where it takes it; num_unfinished then."""
    said = []
    for request in requests:
        scheduler = student.Scheduler(config)
        try:
            scheduler.add(request)
        except ValueError as error:
            said.append((str(error), int(scheduler.num_unfinished)))
        else:
            said.append((None, int(scheduler.num_unfinished)))
    return said


# === traces, metrics, capacity, simulate ===


def refusal_of(student, function, path):
    """What a loader says of a file with a ValueError, or None where it returns."""
    try:
        getattr(student, function)(path)
    except ValueError as error:
        return str(error)
    return None


def loaded_in(student, function, path, zone):
    """What a loader returns on a machine in this time zone (as POSIX writes it)."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = zone
    time.tzset()
    try:
        return getattr(student, function)(path)
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


class _Stack:
    """A scheduler that gives one token a step to whoever came last, and notes who it is given.
    `context`: the context_tokens that each of its steps claims, `tokens` those it computes."""

    def __init__(self, tokens=1, context=1):
        self.open, self.fresh, self.added = [], [], []
        self._claims = tokens, context

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
            return _step({}, [], 0)
        last = self.open[-1]
        last[1] -= 1
        ended = [last[0]] if not last[1] else []
        if ended:
            self.open.pop()
        tokens, context = self._claims
        return _step({last[0]: tokens}, ended, context)


def _step(scheduled, finished, context):
    return SimpleNamespace(
        scheduled=scheduled,
        preempted=[],
        finished=finished,
        free_blocks=0,
        generated=list(scheduled),
        context_tokens=context,
    )


def last_come_first(student, requests, config, cost, tokens=1, context=1, kind="list"):
    """simulate with a scheduler of another kind, of a trace in a list or in something else: each
    result as a tuple, and who was added when."""
    made = []

    def scheduler(_config):
        made.append(_Stack(tokens, context))
        return made[-1]

    trace = KINDS[kind](requests) if kind in KINDS else requests
    results = student.simulate(trace, config, cost, scheduler)
    rows = [(r.id, float(r.ttft_s), [float(g) for g in r.itl_s], float(r.e2el_s)) for r in results]
    return rows, made[-1].added if made else []


def stands_still(student, requests, config, cost, good_steps=0):
    """simulate with a scheduler that schedules nothing after so many steps: (what simulate raised,
    steps it took that scheduled nothing)."""
    made = []

    class Still(_Stack):
        calls = idle = 0

        def step(self, now=0.0):
            self.calls += 1
            if self.calls <= good_steps:
                return super().step(now)
            self.idle += 1
            if self.idle > 1000:
                raise OverflowError("1,000 steps in which nothing was scheduled")
            return _step({}, [], 0)

    def scheduler(_config):
        made.append(Still())
        return made[-1]

    try:
        student.simulate(requests, config, cost, scheduler)
    except NotImplementedError:
        raise  # the task is not started
    except (RuntimeError, OverflowError) as error:
        return type(error).__name__, made[-1].idle
    return "nothing", made[-1].idle if made else 0
