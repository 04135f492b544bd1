"""What a script that starts profilers must do, rule by rule: each rule gives its faults, with a
line and a sentence. The script is read (`shell.py`), never run; options are those of `flags.json`.

The program of the task: 200 steps, of which the first 20 warm up; a step launches 180 kernels, 3 of
them with gemm or conv in their names; the profiler's range is steps 20 to 24.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import shell

TABLE = json.loads((Path(__file__).parent / "flags.json").read_text(encoding="utf-8"))
MAX_SCRIPT = 20_000
WARM_STEPS, STEPS, MATCHING, LAUNCHES = 20, 200, 3, 180
RANKS = 8
PROFILED = (
    "ampere_sgemm_32x32_sliced1x4_tn",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
    "implicit_convolve_sgemm",
)
LEFT_OUT = ("vectorized_elementwise_kernel", "softmax_warp_forward", "reduce_kernel")
METRICS = (
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__time_duration.sum",
)
REPORTS = ("cuda_gpu_kern_sum", "cuda_api_sum", "cuda_gpu_mem_time_sum")
PROGRAMS = ("nsys", "ncu", "python", "python3", "torchrun")
_TOOLS = {"tee", "grep", "head", "tail", "ls", "rm", "cp", "mv", "gzip", "cat", "sleep", "sort"}
_TOOLS |= {"sqlite3", "nvidia-smi", "column", "date", "test"}
_ASKED = "clocks not locked, and a comment"  # in the file's head, which is not the learner's
_BOOLEANS = {"true", "false", "yes", "no", "on", "off", "0", "1"}


@dataclass(frozen=True)
class Fault:
    """A broken rule. key: which one, the same for whoever breaks it; line: 0 if something is
    missing altogether."""

    key: str
    line: int
    text: str

    @property
    def shown(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


@dataclass
class Call:
    """A command of nsys or ncu: its options by their long names, and the program that it runs."""

    tool: str
    verb: str
    start: shell.Start
    options: dict[str, shell.Argument] = field(default_factory=dict)
    rest: list[shell.Argument] = field(default_factory=list)

    @property
    def line(self) -> int:
        return self.start.line

    def value(self, name: str) -> str:
        return self.options[name].text if name in self.options else ""

    def number(self, name: str) -> int:
        """A whole number, 0 where there is none: that is another rule's fault."""
        text = self.value(name)
        return int(text) if re.fullmatch("[0-9]{1,9}", text) else 0

    def items(self, name: str) -> list[str]:
        return [item for item in self.value(name).split(",") if item]


@dataclass
class Script:
    """A script with all that it would start. job: (launcher's start, [(rank, start)])."""

    starts: list[shell.Start]
    notes: list[tuple[int, str]]
    jobs: list[tuple[shell.Start, list[tuple[int, shell.Start]]]]
    calls: list[Call]
    faults: list[Fault]

    def of(self, tool: str, verb: str = "") -> list[Call]:
        return [call for call in self.calls if call.tool == tool and verb in ("", call.verb)]


def read(text: str) -> Script:
    """The script; raises shell.Unreadable."""
    if len(text) > MAX_SCRIPT:
        raise shell.Unreadable(1, f"a script of {len(text):,} characters; {MAX_SCRIPT:,} will do")
    notes = shell.comments(text)
    try:
        starts = shell.starts(shell.parse(text), {"HOME": "/home/you", "PWD": "/home/you"})
    except RecursionError:
        raise shell.Unreadable(1, "brackets or conditions are nested too deeply") from None
    script = Script(starts, notes, [], [], [])
    for start in starts:
        script.jobs.append((start, list(shell.ranks(start))))
    for _, job in script.jobs:
        for rank, start in job:
            if start.program in ("nsys", "ncu"):
                call, faults = _call(start)
                if rank == 0 or call.line not in {other.line for other in script.calls}:
                    script.calls.append(call)
                    script.faults += faults
    return script


# -- options --------------------------------------------------------------------------------------


def _rows(tool: str, verb: str) -> dict[str, dict]:
    rows = TABLE["ncu"] if tool == "ncu" else TABLE["nsys"].get(verb, [])
    return {name: row for row in rows for name in row["names"]}


def _call(start: shell.Start) -> tuple[Call, list[Fault]]:
    tool, arguments = start.program, start.arguments[1:]
    faults: list[Fault] = []
    verb = ""
    if tool == "nsys":
        verb = arguments[0].text if arguments else ""
        call = Call(tool, verb, start)
        if verb not in TABLE["nsys"]:
            known = ", ".join(TABLE["nsys"])
            near = _near(verb, TABLE["nsys"])
            text = f"`nsys {verb}` is not read here; the script needs nsys {known}{near}"
            return call, [Fault("nsys verb", start.line, text)]
        arguments = arguments[1:]
    call = Call(tool, verb, start)
    rows = _rows(tool, verb)
    at = 0
    while at < len(arguments) and arguments[at].text.startswith("-"):
        word = arguments[at]
        at += 1
        if word.text == "--":
            break
        name, equals, value = word.text.partition("=")
        row = rows.get(name)
        if row is None:
            faults.append(_unknown(tool, verb, name, word.line, rows))
            if not equals and at + 1 < len(arguments) and not arguments[at].text.startswith("-"):
                at += arguments[at].text not in ("python", "python3", "torchrun", "bash")
            continue
        long = row["names"][-1]
        if row["value"] == "none":
            call.options[long] = shell.Argument("", word.line)
            continue
        if equals:
            argument = shell.Argument(value, word.line, word.bare.partition("=")[2])
        elif row["value"] == "optional":
            argument = shell.Argument("", word.line)
        elif at < len(arguments):
            argument = arguments[at]
            at += 1
        else:
            text = f"`{name}` needs a value, and nothing follows it"
            faults.append(Fault("no value", word.line, text))
            break
        if long in call.options and not row.get("repeat"):
            text = f"`{long}` stands twice in one command; {tool} takes one"
            faults.append(Fault("option twice", word.line, text))
        call.options[long] = argument
        faults += _value(tool, verb, long, argument, row)
    call.rest = arguments[at:]
    return call, faults


def _unknown(tool: str, verb: str, name: str, line: int, rows: dict[str, dict]) -> Fault:
    where = f"{tool} {verb}".strip()
    version = TABLE["versions"][tool]
    newer = TABLE["obsolete"][tool].get(name)
    if newer:
        text = f"`{name}` is an old spelling; {where} {version} calls it `{newer}`"
        return Fault("obsolete", line, text)
    if tool == "nsys":
        for other in TABLE["nsys"]:
            if other != verb and name in _rows(tool, other):
                text = f"`{name}` is an option of nsys {other}, not of {where}"
                return Fault("unknown option", line, text)
    text = f"`{name}` is no option of {where} {version}{_near(name, rows)}"
    return Fault("unknown option", line, text)


def _near(word: str, known: object) -> str:
    found = difflib.get_close_matches(word[:60], list(known), 1, 0.5)
    return f"; the nearest is `{found[0]}`" if found else ""


def _value(tool: str, verb: str, name: str, argument: shell.Argument, row: dict) -> Iterator[Fault]:
    value, kind, line = argument.text, row["value"], argument.line
    allowed = row.get("allowed", [])
    if kind == "bool" and value.lower() not in _BOOLEANS:
        text = f"`{name}` takes true or false, not {value!r}"
        yield Fault("value", line, text)
    elif kind == "int" and not re.fullmatch("[0-9]{1,9}", value):
        yield Fault("value", line, f"`{name}` takes a whole number, not {value!r}")
    elif kind == "pattern" and not re.fullmatch(row["pattern"], value):
        text = f"`{name}` takes {', '.join(allowed)}, not {value!r}{_near(value, allowed)}"
        yield Fault("value", line, text)
    elif kind in ("choice", "list"):
        items = [value] if kind == "choice" else value.split(",")
        for item in items:
            bare = item.partition(row["suffix"])[0] if row.get("suffix") else item
            if bare in allowed:
                continue
            newer = TABLE["obsolete"]["reports"].get(bare) if name == "--report" else None
            if newer:
                text = f"the report `{bare}` is an old spelling; nsys stats calls it `{newer}`"
                yield Fault("obsolete", line, text)
            elif not bare:
                text = f"`{name}` ends in a comma, so the shell took what follows for another word"
                yield Fault("space in list", line, text)
            else:
                many = "one of " if kind == "choice" else ""
                near = _near(bare, allowed)
                shown = f" {', '.join(allowed)}," if len(allowed) <= 8 else ""
                text = f"`{name}` does not know {bare!r}; it takes {many}{shown.strip() or 'names'}"
                yield Fault("value", line, text.rstrip(",") + near)
    if name in ("--metrics",):
        yield from _metrics(argument)
    for old, new in TABLE["obsolete"]["suffixes"].items():
        if value.endswith(old):
            text = f"{value!r} has the old suffix {old}; files end in {new} now"
            yield Fault("obsolete", line, text)


def _metrics(argument: shell.Argument) -> Iterator[Fault]:
    for item in argument.text.split(","):
        if not item.strip():
            text = "the list of metrics has an empty entry: no blank and no comma too many, please"
            yield Fault("space in list", argument.line, text)
        elif item != item.strip():
            text = f"a blank stands beside `{item.strip()}`; ncu takes it for a part of the name"
            yield Fault("space in list", argument.line, text)
        elif item.startswith(("regex:", "group:", "breakdown:")) or item in TABLE["metrics"]:
            continue
        elif not re.fullmatch(r"[a-z0-9]+__[a-z0-9_]+(\.[a-z0-9_]+)*", item):
            text = f"{item!r} is no metric: names are unit__counter.rollup, as in dram__bytes.sum"
            yield Fault("metric", argument.line, text)
        elif near := difflib.get_close_matches(item[:90], TABLE["metrics"], 1, 0.93):
            text = f"the metric {item!r} is unknown; the nearest is `{near[0]}`"
            yield Fault("metric", argument.line, text)


# -- rules ----------------------------------------------------------------------------------------


def readable(script: Script) -> Iterator[Fault]:
    """Every line starts a program that there is."""
    before: shell.Start | None = None
    for start in script.starts:
        bare = [a for a in before.arguments if "regex:" in a.text] if before else []
        if start.piped and bare and before and before.program == "ncu":
            text = (
                f"an unquoted | is a pipe: it ends the expression at `{bare[-1].text}` "
                f"and starts a program called `{start.words[0]}`; put the expression in quotes"
            )
            yield Fault("unquoted pipe", start.line, text)
        elif start.words[0].startswith("-"):
            text = (
                f"`{start.words[0]}` stands there as a command of its own: the command before it "
                "has ended, for want of a backslash or by a comment after one"
            )
            yield Fault("stray option", start.line, text)
        before = start
    for start in [start for _, job in script.jobs for rank, start in job if rank == 0]:
        name = start.program
        if name in PROGRAMS or name in _TOOLS or start.piped or start.words[0].startswith("-"):
            continue
        newer = TABLE["obsolete"]["programs"].get(name)
        if newer:
            text = f"`{name}` is an old tool; use {newer}"
            yield Fault("obsolete program", start.line, text)
        else:
            text = f"`{start.words[0]}` is no program of this task{_near(name, PROGRAMS)}"
            yield Fault("unknown program", start.line, text)


def options(script: Script) -> Iterator[Fault]:
    """Every option is known, with a value that it takes."""
    yield from script.faults


def timeline(script: Script) -> Iterator[Fault]:
    """nsys records the measured steps of the program on one GPU, and nothing else."""
    single = [c for c in script.of("nsys", "profile") if not _under_launcher(script, c)]
    single = [c for c in single if _ranks_of(c) == 1]
    if not single:
        yield Fault("no timeline", 0, "no `nsys profile ... python train.py` is in the script")
    for call in single:
        yield from _recorded(call)
        yield from _program(call)


def _under_launcher(script: Script, call: Call) -> bool:
    return any(
        shell.rank_count(start) > 1 and any(s is call.start for _, s in job)
        for start, job in script.jobs
    )


def _ranks_of(call: Call) -> int:
    """How many processes the program of a command is."""
    if not call.rest:
        return 1
    child = shell.Start(call.rest, call.start.environment, call.line)
    return shell.rank_count(child)


def _recorded(call: Call) -> Iterator[Fault]:
    traces = call.items("--trace")
    for wanted, why in (
        ("cuda", "kernels, copies and the calls that launch them"),
        ("nvtx", "the ranges that say which part of a step a kernel belongs to"),
        ("osrt", "the host's waits in the operating system"),
    ):
        if not any(item == wanted or item.startswith(f"{wanted}-") for item in traces):
            text = f"`nsys profile` does not trace {wanted}: {why} are missing (--trace)"
            yield Fault(f"no {wanted}", call.line, text)
    yield from _range(call)
    if "--output" not in call.options:
        text = "`nsys profile` is given no name for its report (--output), so nothing can read it"
        yield Fault("no output", call.line, text)


def _range(call: Call) -> Iterator[Fault]:
    kind = call.value("--capture-range")
    end = call.value("--capture-range-end") or "stop-shutdown"
    if kind in ("", "none"):
        if call.number("--delay") > 0 and call.number("--duration") > 0:
            text = (
                "a delay in seconds is a guess about when warm-up ends; the program marks its "
                "measured steps, so use --capture-range"
            )
            yield Fault("delay", call.line, text)
            return
        text = (
            "`nsys profile` records from the program's first instruction: contexts, allocations, "
            "autotuning and 20 steps of warm-up; --capture-range starts it with the measured steps"
        )
        yield Fault("start-up", call.line, text)
        return
    if kind == "hotkey":
        yield Fault("hotkey", call.line, "nobody presses a key in a batch job: use another range")
        return
    if kind == "nvtx":
        if not call.value("--nvtx-capture"):
            text = "--capture-range=nvtx needs the name of the range, as --nvtx-capture=measure"
            yield Fault("no nvtx range", call.line, text)
        elif call.value("--nvtx-capture").partition("@")[0] != "measure":
            text = (
                f"the program has no range {call.value('--nvtx-capture')!r}; it is called measure"
            )
            yield Fault("no nvtx range", call.line, text)
        settings = f"{call.value('--env-var')},{_environment(call)}"
        if "NSYS_NVTX_PROFILER_REGISTER_ONLY=0" not in settings.replace('"', ""):
            text = (
                "nsys compares --nvtx-capture with registered strings only, and PyTorch's ranges "
                "are none: set NSYS_NVTX_PROFILER_REGISTER_ONLY=0, or nothing is ever recorded"
            )
            yield Fault("registered strings", call.line, text)
    if "shutdown" in end and call.value("--kill") != "none":
        text = (
            f"at the end of the range `{end}` closes the session and ends the program with it, and "
            "this one has a checkpoint to write: --capture-range-end=stop, or --kill=none"
        )
        yield Fault("shutdown", call.line, text)
    elif end == "none":
        text = "--capture-range-end=none records on after the range: say `stop`"
        yield Fault("no end", call.line, text)


def _environment(call: Call) -> str:
    return ",".join(f"{key}={value}" for key, value in call.start.environment.items())


def _program(call: Call) -> Iterator[Fault]:
    words = [a.text for a in call.rest]
    if not words:
        tool = f"{call.tool} {call.verb}".strip()
        yield Fault("no program", call.line, f"`{tool}` is given no program to run")
    elif "__" in words[0] or "," in words[0]:
        text = (
            f"{call.tool} takes `{words[0]}` for the program to run: a blank after a comma has "
            "ended the list before it"
        )
        yield Fault("space in list", call.rest[0].line, text)
    elif "train.py" not in " ".join(words):
        text = f"`{call.tool}` runs `{' '.join(words[:3])}`, not train.py"
        yield Fault("other program", call.line, text)


def one_rank(script: Script) -> Iterator[Fault]:
    """Of a job of eight ranks, nsys watches one; all eight run the program."""
    whole = [c for c in script.of("nsys", "profile") if _ranks_of(c) > 1]
    for call in whole:
        text = (
            f"nsys stands in front of the launcher and records all {_ranks_of(call)} ranks into "
            "one file, slowing each of them; let the launcher start nsys, for one rank"
        )
        yield Fault("every rank", call.line, text)
    jobs = [(start, job) for start, job in script.jobs if shell.rank_count(start) > 1]
    if not jobs:
        if not whole:
            text = "no torchrun with --nproc-per-node=8 is in the script, for the job of 8 ranks"
            yield Fault("no job", 0, text)
        return
    for start, job in jobs:
        yield from _job(start, job)


def _job(start: shell.Start, job: list[tuple[int, shell.Start]]) -> Iterator[Fault]:
    count = shell.rank_count(start)
    if count != RANKS:
        text = f"the job has {RANKS} ranks, this starts {count}: --nproc-per-node={RANKS}"
        yield Fault("ranks", start.line, text)
        return
    watched = sorted({rank for rank, s in job if s.words[:2] == ["nsys", "profile"]})
    for rank in range(count):
        mine = [" ".join(s.words) for r, s in job if r == rank]
        if sum("train.py" in text for text in mine) != 1:
            did = (
                f"starts {' and '.join(f'`{text}`' for text in mine)}" if mine else "starts nothing"
            )
            text = f"every rank must run train.py once, and rank {rank} {did}"
            yield Fault("ranks left out", start.line, text)
            return
    if not watched:
        text = "no rank of this job is profiled: let one of them start under nsys"
        yield Fault("no rank", start.line, text)
    elif len(watched) > 1:
        text = (
            f"ranks {', '.join(map(str, watched))} are profiled; each slows its rank down and all "
            'wait for the slowest: one is enough, as in if [ "$RANK" = 0 ]'
        )
        yield Fault("many ranks", start.line, text)
    else:
        call, _ = _call(next(s for r, s in job if r == watched[0] and s.program == "nsys"))
        yield from _recorded(call)


def reports(script: Script) -> Iterator[Fault]:
    """The report is exported to SQLite and summed as CSV."""
    written = {name for c in script.of("nsys", "profile") for name in _written(c)}
    for verb, what in (("export", "exported to SQLite"), ("stats", "summed up")):
        calls = script.of("nsys", verb)
        if not calls:
            yield Fault(f"no {verb}", 0, f"no report is {what}: `nsys {verb}` is missing")
        for call in calls:
            yield from _input(call, written)
    for call in script.of("nsys", "export"):
        if call.value("--type") != "sqlite":
            text = "`nsys export` needs --type=sqlite here: that is what `nsys_queries` reads"
            yield Fault("not sqlite", call.line, text)
    for call in script.of("nsys", "stats"):
        names = [item.partition(":")[0] for item in call.items("--report")]
        for wanted in REPORTS:
            if wanted not in names:
                text = f"`nsys stats` is not asked for {wanted} (--report)"
                yield Fault(f"no {wanted}", call.line, text)
        if not any(name.startswith("nvtx_") for name in names):
            text = "`nsys stats` sums no NVTX ranges: add nvtx_sum or nvtx_gpu_proj_sum"
            yield Fault("no nvtx report", call.line, text)
        if not call.value("--format").startswith("csv"):
            text = "`nsys stats` prints a table for people; a script reads --format csv"
            yield Fault("not csv", call.line, text)


def _written(call: Call) -> list[str]:
    name = call.value("--output").rpartition("/")[2].removesuffix(".nsys-rep")
    return [name] if name else []


def _input(call: Call, written: set[str]) -> Iterator[Fault]:
    files = [a.text for a in call.rest]
    if len(files) != 1:
        text = f"`nsys {call.verb}` takes one file, after its options; here stand {len(files)}"
        yield Fault("input", call.line, text)
        return
    name = files[0].rpartition("/")[2]
    stem = re.sub(r"\.(nsys-rep|sqlite)$", "", name)
    if stem == name:
        text = f"`nsys {call.verb}` reads {name!r}; a report ends in .nsys-rep"
        yield Fault("input", call.line, text)
    elif stem not in written and not any("%" in other for other in written):
        known = ", ".join(f"{other}.nsys-rep" for other in sorted(written)) or "no report"
        text = f"`nsys {call.verb}` reads {name}, but the script writes {known}"
        yield Fault("input", call.line, text)


def few_launches(script: Script) -> Iterator[Fault]:
    """ncu replays a few launches of the kernels in question, after warm-up."""
    calls = [c for c in script.of("ncu") if "--import" not in c.options]
    if not calls:
        yield Fault("no ncu", 0, "no `ncu ... python train.py` is in the script")
    for call in calls:
        yield from _program(call)
        yield from _names(call)
        yield from _limits(call)


def _names(call: Call) -> Iterator[Fault]:
    given = call.options.get("--kernel-name")
    name = given.text if given else ""
    if not given and (identity := call.options.get("--kernel-id")):
        match = re.fullmatch(r"[^:]*:[^:]*:(.*):[^:]*", identity.text)
        given, name = identity, match[1] if match else ""
    if given is None:
        text = (
            "ncu is told no kernel, so it replays each of the 36,000 launches of the run, several "
            "times over; pick those of interest with --kernel-name"
        )
        yield Fault("no kernel filter", call.line, text)
        return
    if not name.startswith("regex:"):
        text = (
            f"{name!r} matches a kernel that is called exactly so; a part of a name needs "
            "--kernel-name 'regex:...'"
        )
        yield Fault("no regex", given.line, text)
        return
    if loose := sorted(set(given.bare) & set("*?[]{}\\!")):
        text = (
            f"the shell looks at the unquoted {' '.join(loose)} of `{name}` before ncu does; put "
            "the expression in single quotes"
        )
        yield Fault("unquoted", given.line, text)
    expression = name.removeprefix("regex:")
    if len(expression) > 200 or re.search(r"\)\s*[*+?{]|[*+}].*[*+}].*[*+}].*[*+}]", expression):
        text = "the expression is more involved than it needs to be: parts of names, with | between"
        yield Fault("involved regex", given.line, text)
        return
    try:
        pattern = re.compile(expression)
    except re.error as error:
        yield Fault("bad regex", given.line, f"{expression!r} is no regular expression: {error}")
        return
    missed = [kernel for kernel in PROFILED if not pattern.search(kernel)]
    caught = [kernel for kernel in LEFT_OUT if pattern.search(kernel)]
    if missed:
        text = f"{expression!r} does not find the kernel {missed[0]}; wanted are gemm and conv"
        yield Fault("regex misses", given.line, text)
    elif caught:
        text = f"{expression!r} also matches {caught[0]}, which nobody asked about"
        yield Fault("regex catches", given.line, text)


def _limits(call: Call) -> Iterator[Fault]:
    count = call.value("--launch-count")
    nth = call.value("--kernel-id").rpartition(":")[2]
    nth_launch = int(nth) if re.fullmatch("[0-9]{1,9}", nth) else 0
    if not count and not nth_launch:
        text = (
            "ncu is told no --launch-count: it replays every matching launch of the run, some "
            f"{(STEPS - WARM_STEPS) * MATCHING} of them, dozens of passes each"
        )
        yield Fault("no launch count", call.line, text)
    elif count and not 1 <= call.number("--launch-count") <= 50:
        text = f"--launch-count is {count}; a few launches, 1 to 50, tell it all"
        yield Fault("launch count", call.line, text)
    by_range = call.value("--profile-from-start").lower() in ("off", "no", "false", "0")
    by_nvtx = "--nvtx" in call.options and "measure" in call.value("--nvtx-include")
    skip = call.number("--launch-skip")
    before = call.number("--launch-skip-before-match")
    single = call.value("--filter-mode") == "per-launch-config"
    if "--nvtx-include" in call.options and "--nvtx" not in call.options:
        yield Fault("no --nvtx", call.line, "--nvtx-include does nothing without --nvtx")
    if by_nvtx and not set(call.value("--nvtx-include")) & set("/[]"):
        text = (
            "--nvtx-include measure means a range that is started and ended; one that is pushed "
            "and popped, as PyTorch's are, is called measure/"
        )
        yield Fault("nvtx slash", call.line, text)
    if single:
        text = (
            "--filter-mode per-launch-config counts for each grid and block apart, and how many "
            "of those there are nobody has said; use --launch-skip as it is"
        )
        yield Fault("filter mode", call.line, text)
        return
    if skip >= STEPS * MATCHING and not (by_range or by_nvtx):
        text = (
            f"--launch-skip counts launches that match, and the whole run has {STEPS * MATCHING} "
            f"of them: after {skip:,} nothing is left to profile"
        )
        yield Fault("skips all", call.line, text)
    elif before and before < WARM_STEPS * LAUNCHES and skip < WARM_STEPS * MATCHING:
        text = (
            f"--launch-skip-before-match counts every launch, {LAUNCHES} a step: {before:,} of "
            f"them are no {WARM_STEPS} steps"
        )
        yield Fault("skips little", call.line, text)
    elif not (by_range or by_nvtx or before) and skip < WARM_STEPS * MATCHING:
        if nth_launch > WARM_STEPS * MATCHING:
            return
        text = (
            f"the first {WARM_STEPS * MATCHING} matching launches are warm-up, and --launch-skip "
            f"leaves out {skip}: autotuning and cold caches would be what you measure"
        )
        yield Fault("ncu warm-up", call.line, text)


def counters(script: Script) -> Iterator[Fault]:
    """ncu's metrics are named, and its clocks explained."""
    for call in script.of("ncu"):
        if "--import" in call.options:
            continue
        items = call.items("--metrics")
        for wanted in METRICS:
            if wanted not in items:
                yield Fault(f"no {wanted}", call.line, f"ncu is not asked for {wanted} (--metrics)")
        control = call.value("--clock-control")
        if control != "none":
            text = (
                "ncu locks the clocks to their base unless told --clock-control none, so its "
                "durations are not those of your run"
            )
            yield Fault("clocks locked", call.line, text)
        elif not any(_is_about_clocks(note) for _, note in script.notes):
            text = (
                "--clock-control none has a price, and no comment says it: write what it buys and "
                "what it costs"
            )
            yield Fault("clocks unexplained", call.line, text)
        if not ({"--export", "--log-file", "--csv"} & set(call.options)):
            text = "what ncu finds goes nowhere: give --export, or --csv --page raw"
            yield Fault("no ncu output", call.line, text)


def _is_about_clocks(note: str) -> bool:
    """Whether a comment says something of clocks, and is not the sentence that asks for it."""
    words = note.lower().split()
    return "clock" in note.lower() and len(words) >= 6 and _ASKED not in note


def torch_profiler(script: Script) -> Iterator[Fault]:
    """A schedule with a warm-up, stepped, and a trace that is written."""
    found = [s for s in script.starts if s.program.startswith("python") and "-c" in s.words[1:3]]
    if not found:
        yield Fault("no python -c", 0, "no `python -c '...'` with torch.profiler is in the script")
    for start in found:
        at = start.words.index("-c") + 1
        if at >= len(start.words):
            yield Fault("no python -c", start.line, "`python -c` is given no text")
            continue
        argument = start.arguments[at]
        try:
            tree = ast.parse(argument.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = argument.line + (getattr(error, "lineno", None) or 1) - 1
            said = getattr(error, "msg", "it cannot be read")
            text = f"the text of `python -c` is no Python ({said}); mind the quotes inside it"
            yield Fault("python syntax", line, text)
            continue
        yield from _profile(tree, argument.line - 1)


def _name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _profile(tree: ast.Module, base: int) -> Iterator[Fault]:
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    profiles = [c for c in calls if _name(c.func) == "profile"]
    if not profiles:
        yield Fault(
            "no profile", base + 1, "the text of `python -c` opens no torch.profiler.profile"
        )
        return
    call = profiles[0]
    line = base + call.lineno
    keywords = {k.arg: k.value for k in call.keywords if k.arg}
    for name in keywords:
        if name not in TABLE["torch.profiler"]["profile"]:
            near = _near(name, TABLE["torch.profiler"]["profile"])
            yield Fault("profile keyword", line, f"profile() has no argument {name!r}{near}")
    if "use_cuda" in keywords:
        text = (
            "use_cuda is an old spelling: activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        )
        yield Fault("obsolete", line, text)
    if "activities" in keywords:
        shown = ast.unparse(keywords["activities"])
        if "CUDA" not in shown or "CPU" not in shown:
            text = "activities leaves out the CPU or the GPU: launches and kernels belong together"
            yield Fault("activities", line, text)
    total = yield from _schedule(keywords.get("schedule"), calls, line, base)
    yield from _steps(tree, call, total, base)
    saved = "on_trace_ready" in keywords or any(
        _name(c.func) in ("export_chrome_trace", "tensorboard_trace_handler") for c in calls
    )
    if not saved:
        text = "the trace is written nowhere: on_trace_ready, or export_chrome_trace at the end"
        yield Fault("no trace", line, text)


def _schedule(
    given: ast.expr | None, calls: list[ast.Call], line: int, base: int
) -> Iterator[Fault]:
    if given is None:
        text = (
            "profile() has no schedule: it records from the first step on, warm-up included, and "
            "keeps every event of the run in memory"
        )
        yield Fault("no schedule", line, text)
        return 0
    made = given if isinstance(given, ast.Call) else None
    if made is None:
        made = next((c for c in calls if _name(c.func) == "schedule"), None)
    if made is None or _name(made.func) != "schedule":
        yield Fault("no schedule", line, "schedule= is not made by torch.profiler.schedule(...)")
        return 0
    line = base + made.lineno
    if made.args:
        yield Fault("schedule keyword", line, "schedule() takes its numbers by name only")
        return 0
    values: dict[str, int] = {}
    for keyword in made.keywords:
        if keyword.arg not in TABLE["torch.profiler"]["schedule"]:
            near = _near(keyword.arg or "", TABLE["torch.profiler"]["schedule"])
            text = f"schedule() has no argument {keyword.arg!r}{near}"
            yield Fault("schedule keyword", line, text)
        elif isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, int):
            values[keyword.arg] = keyword.value.value
        else:
            text = f"schedule's {keyword.arg} is {ast.unparse(keyword.value)}; write the number"
            yield Fault("schedule number", line, text)
    for name in ("wait", "warmup", "active"):
        if name not in values:
            yield Fault("schedule keyword", line, f"schedule() needs {name}=")
            return 0
    if values["warmup"] < 1:
        text = (
            "warmup=0: the profiler's own start falls into the first recorded step, which looks "
            "slower than it is"
        )
        yield Fault("no warm-up step", line, text)
    if values["active"] < 1:
        yield Fault("no active step", line, "active=0 records no step at all")
    if values["wait"] + values.get("skip_first", 0) + values["warmup"] < 2:
        text = "the program's first steps are not typical: let some pass with wait= or skip_first="
        yield Fault("no wait", line, text)
    return values.get("skip_first", 0) + values["wait"] + values["warmup"] + values["active"]


def _steps(tree: ast.Module, call: ast.Call, total: int, base: int) -> Iterator[Fault]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            for item in node.items:
                if item.context_expr is call and isinstance(item.optional_vars, ast.Name):
                    names.add(item.optional_vars.id)
        if isinstance(node, ast.Assign) and node.value is call:
            names |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    loops = [n for n in ast.walk(tree) if isinstance(n, ast.For | ast.While)]
    stepped = [
        loop
        for loop in loops
        for c in ast.walk(loop)
        if isinstance(c, ast.Call)
        and isinstance(c.func, ast.Attribute)
        and c.func.attr == "step"
        and isinstance(c.func.value, ast.Name)
        and c.func.value.id in names
    ]
    if not stepped:
        text = (
            "the profiler's own step() is not called in a loop: without it the schedule never "
            "moves, and nothing is recorded"
        )
        yield Fault("no step", base + call.lineno, text)
        return
    for loop in stepped:
        inner = loop.iter if isinstance(loop, ast.For) else None
        if isinstance(inner, ast.Call) and _name(inner.func) == "range" and len(inner.args) == 1:
            count = inner.args[0]
            steps = count.value if isinstance(count, ast.Constant) else total
            if isinstance(steps, int) and steps < total:
                text = (
                    f"the loop makes {steps} steps, and the schedule is complete after {total}: "
                    "nothing is written"
                )
                yield Fault("too few steps", base + loop.lineno, text)


STAGES = (
    (
        "the symptom, as a number",
        r"symptom|baseline|step time|tokens? (a|per) second|slow|how long",
    ),
    ("the timeline", r"timeline|nsys|idle|gap|torch\.profiler|kineto"),
    ("a counter", r"counter|ncu|roofline|metric|nsight compute"),
    ("one change", r"one change|change one|single change|change|fix"),
    ("the gain, measured again", r"again|re-?measure|gain|speed-?up|compare|faster"),
)


def checklist(script: Script) -> Iterator[Fault]:
    """Boxes, from the symptom to the measured gain."""
    rows = [
        (line, match[1])
        for line, note in script.notes
        if (match := re.match(r"\[ ?\]\s*(.*)", note))
    ]
    ticked = [line for line, note in script.notes if re.match(r"\[[xX]\]", note)]
    if ticked:
        yield Fault("ticked", ticked[0], "the box is ticked already; a checklist begins as `# [ ]`")
    if len(rows) < len(STAGES):
        text = f"the checklist has {len(rows)} lines `# [ ] ...`; five steps are the least"
        yield Fault("short checklist", rows[0][0] if rows else 0, text)
        return
    at = 0
    for what, pattern in STAGES:
        places = [i for i, (_, text) in enumerate(rows) if re.search(pattern, text.lower())]
        if not places:
            yield Fault(f"no {what}", rows[0][0], f"no line of the checklist is about {what}")
            return
        later = [place for place in places if place >= at]
        if not later:
            text = (
                f"{what} comes too early: first the symptom as a number, then the timeline, a "
                "counter, one change, and the gain measured again"
            )
            yield Fault(f"early {what}", rows[places[-1]][0], text)
            return
        at = later[0]


Rule = Callable[[Script], Iterator[Fault]]
