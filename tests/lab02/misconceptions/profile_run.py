from grader.suite import lines

forgets_prof_step = lines(
    """prof.step() is never called, so the profiler stays in its first step for ever: the schedule
    counts the steps that it is told of, not the calls of your function.""",
    (
        "if repeat < 1 or active < 1:\n"
        '        raise ValueError(f"repeat is {repeat} and active is {active}; each must '
        'be at least 1.")\n'
        "    events: list[dict[str, Any]] = []",
        "events = []",
    ),
    ('encoding="utf-8"', ""),
    (") as prof:", "):"),
    ("            prof.step()\n", ""),
)

averages_the_warm_up = lines(
    """Warm-up steps are recorded and averaged with the others; they pay for caches and for the
    profiler's own start, which is why the schedule throws them away.""",
    ("warmup=warmup, active=active,", "warmup=0, active=warmup + active,"),
)

keeps_the_last_cycle = lines(
    """Only the last cycle's trace is kept: on_trace_ready is called once a cycle, and each time the
    profiler has forgotten the cycle before.""",
    ("            events.extend(", "            events[:] = ("),
)

skips_nothing = lines(
    """skip_first is not passed on, so the very first steps, with their allocations and imports,
    are in the plan.""",
    ("repeat=repeat, skip_first=skip_first", "repeat=repeat"),
)

one_cycle_only = lines(
    """The run ends after one cycle: skip_first + repeat x (wait + warmup + active) steps belong to
    the plan.""",
    (
        "range(skip_first + repeat * (wait + warmup + active))",
        "range(skip_first + wait + warmup + active)",
    ),
)

children_count_twice = lines(
    """The whole duration of an operator is counted as its own, its children's included: linear,
    addmm and copy_ then add up to more than the time that passed.""",
    ('            self_us[around[-1]["name"]] -= op["dur"]', "            pass"),
)

all_descendants_are_subtracted = lines(
    """Grandchildren are subtracted from an operator as well, whose time its child's already
    contains: subtract one level only.""",
    (
        """        if around and around[-1]["counts"]:
            self_us[around[-1]["name"]] -= op["dur"]""",
        """        for outer in (outer for outer in around if outer["counts"]):
            self_us[outer["name"]] -= op["dur"]""",
    ),
)

threads_are_mixed = lines(
    """An operator on another thread is taken for a child because it runs at the same time; a child
    is on its parent's thread.""",
    ('(op.get("pid"), op.get("tid"))', "(0, 0)"),
)

counts_outside_the_steps = lines(
    """Operators before, between and after the recorded steps are counted, too; only what starts
    inside a ProfilerStep belongs to a step.""",
    ('any(start <= op["ts"] < start + length for _, start, length in steps)', "True"),
)

steps_are_numbered_anew = lines(
    """The recorded steps are numbered 0, 1, 2, ...; the k of ProfilerStep#k counts every step of
    the run, the skipped ones too.""",
    ("        [k for k, _, _ in steps],", "        list(range(len(steps))),"),
)

steps_in_the_order_of_the_file = lines(
    """The steps come in the order in which the file has them; a trace is no sorted list: sort by
    k.""",
    (
        """    steps = sorted(
        (int(event""",
        """    steps = list(
        (int(event""",
    ),
)

nests_what_counts = lines(
    """Operators that start in no step are dropped before the nesting, so the time of such a child
    stays with its parent: nest all operators, then count those that start inside a step.""",
    (
        "        # Every operator takes part in the nesting, also one that does not count.\n",
        "        if not any(first <= op['ts'] < first + length for _, first, length in steps):\n"
        "            continue\n",
    ),
    gate=False,
)

refuses_a_plan_without_wait = lines(
    """A plan with wait or warmup of 0 is refused; only repeat and active must be at least 1.""",
    ("if repeat < 1 or active < 1:", "if min(wait, warmup, active, repeat) < 1:"),
)

threads_by_number_only = lines(
    """An operator of another process is taken for a child because its thread has the same number;
    a thread is known by its process and its number together.""",
    ('(op.get("pid"), op.get("tid"))', 'op.get("tid")'),
)

sorts_by_beginnings_alone = lines(
    """Operators that begin together are nested in the order of the file, so an inner one that
    stands first becomes the outer one: of two that begin together, the longer is outside.""",
    ('key=lambda event: (event["ts"], -event["dur"]),', 'key=lambda event: event["ts"],'),
    gate=False,
)
