"""What a script that starts profilers must do, rule by rule: each rule gives its faults, with a
line and a sentence. The script is read (`shell.py`), never run; options are those of `flags.json`.
The text of `python -c` is run beside the learner's code, with stand-ins for torch and train
(`probes.py`), and judged by what it would have recorded.

The program of the task: 200 steps, of which the first 20 warm up; a step launches 180 kernels, 3 of
them with gemm or conv in their names; the profiler's range is steps 20 to 24.
"""

from __future__ import annotations

import ast
import difflib
import json
import posixpath
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
    "cutlass_80_tensorop_s1688gemm_128x64_16x6_nn_align1",
    "gemmk1_kernel",
    "conv2d_grouped_direct_kernel",
    "cudnn_infer_ampere_scudnn_winograd_convolve_tile",
    "implicit_convolve_sgemm",
)
LEFT_OUT = (
    "vectorized_elementwise_kernel",
    "softmax_warp_forward",
    "reduce_kernel",
    "gemv2T_kernel_val",
    "multi_tensor_apply_kernel",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "vectorized_layer_norm_kernel",
    "CatArrayBatchedCopy_contig",
    "flash_fwd_kernel",
    "nchwToNhwcKernel",
    "max_pool_forward_nchw",
    "indexSelectLargeIndex",
    "fused_dropout_kernel_vec",
    "triton_poi_fused_add_relu_0",
    "DeviceReduceSingleTileKernel",
    "cunn_ClassNLLCriterion_updateOutput_kernel",
    "unrolled_elementwise_kernel",
    "bn_fw_tr_1C11_singleread",
    "compute_grad_weight",
    "distribution_elementwise_grid_stride_kernel",
)
METRICS = (
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__time_duration.sum",
)
REPORTS = ("cuda_gpu_kern_sum", "cuda_api_sum", "cuda_gpu_mem_time_sum")
PROGRAMS = ("nsys", "ncu", "python", "python3", "torchrun")
_TOOLS = {"tee", "grep", "head", "tail", "ls", "rm", "cp", "mv", "gzip", "cat", "sleep", "sort"}
_TOOLS |= {"sqlite3", "nvidia-smi", "column", "date", "test", "touch", "which", "awk", "sed", "jq"}
_HEAD_ENDS = "The text of `python -c` is tried, with stand-ins"  # up to it nothing is the learner's
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
    moves: bool  # it changes its folder, so names of files are compared without theirs
    jobs: list[tuple[shell.Start, list[tuple[int, shell.Start]]]]
    calls: list[Call]
    faults: list[Fault]

    @property
    def programs(self) -> list[shell.Start]:
        """What runs once, or as rank 0 of a job."""
        return [start for _, job in self.jobs for rank, start in job if rank == 0]

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
    head = [line for line, note in notes if _HEAD_ENDS in note]
    notes = [(line, note) for line, note in notes if line > max(head, default=0)]
    moves = re.search(r"(?m)(^|[;&|({]|\b(then|do|else))[ \t]*(cd|pushd)[ \t]", text) is not None
    script = Script(starts, notes, moves, [], [], [])
    for start in starts:
        try:
            script.jobs.append((start, list(shell.ranks(start))))
        except shell.Unreadable:
            if not shell.put_in_early(start):
                raise
            list(shell.ranks(shell.as_meant(start)))  # what nobody can read is refused all the same
            script.jobs.append((start, []))  # a fault of `one_rank` only
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
        faults += _value(tool, verb, long, argument, row)
        if long in call.options and not row.get("repeat"):
            text = f"`{long}` stands twice in one command; {tool} takes one"
            faults.append(Fault("option twice", word.line, text))
        elif long in call.options:  # as if it had been one list
            both = f"{call.options[long].text},{argument.text}"
            argument = shell.Argument(both, argument.line, argument.bare)
        call.options[long] = argument
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
            if item != item.strip() and item.strip():
                text = f"a blank stands beside `{item.strip()}` in the list of `{name}`"
                yield Fault("space in list", line, text)
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


def faults(text: str, rule: Callable[[Script], Iterator[Fault]]) -> list[Fault]:
    """What a rule finds in a script."""
    return list(rule(read(text)))


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
    for start in script.programs:
        name = start.program
        known = name in PROGRAMS or name in _TOOLS or _PYTHON.fullmatch(name)
        if known or start.piped or start.words[0].startswith("-"):
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
    names: dict[str, int] = {}
    for call in script.of("nsys", "profile"):
        name = _report(call)
        if name and "%" not in name and name in names:
            text = f"two commands write {name}.nsys-rep (the other in line {names[name]})"
            yield Fault("one name for two reports", call.line, text)
        names[name] = call.line
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
    if not call.value("--output"):
        text = "`nsys profile` is given no name for its report (--output), so nothing can read it"
        yield Fault("no output", call.line, text)


def _range(call: Call) -> Iterator[Fault]:
    kind = call.value("--capture-range")
    end = call.value("--capture-range-end") or "stop-shutdown"
    if kind in ("", "none"):
        if call.number("--delay") > 0:
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
    if call.number("--duration") > 0 and call.value("--kill") != "none":
        text = "--duration ends the program with the recording: leave it out, or say --kill=none"
        yield Fault("duration", call.line, text)
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


_PYTHON = re.compile(r"python[0-9.]*")


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
    elif posixpath.basename(words[0]) == "train.py":
        text = f"`{call.tool}` runs `{words[0]}` itself, which is a text: python runs it"
        yield Fault("no python", call.line, text)
    elif not _trains(shell.Start(call.rest, call.start.environment, call.line)):
        text = f"`{call.tool}` runs `{' '.join(words[:3])}`, not python train.py"
        yield Fault("other program", call.line, text)


def _trains(start: shell.Start) -> bool:
    """Whether a command runs train.py with python, itself or through `bash -c` or torchrun."""
    try:
        children = [child for rank, child in shell.ranks(start) if rank == 0]
    except shell.Unreadable:
        return False
    return any(_runs(child.words) for child in children)


def _runs(words: list[str]) -> bool:
    if not _PYTHON.fullmatch(posixpath.basename(words[0])):
        return False
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "-m":
            return words[at + 1 : at + 2] == ["train"]
        if words[at] in ("-c", "-"):
            return False
        at += 2 if words[at] in ("-X", "-W") else 1
    return at < len(words) and posixpath.basename(words[at]) == "train.py"


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
        found = list(_job(start, job))
        text = shell.put_in_early(start)
        if text and any(fault.key in _ROLES for fault in found):
            meant = shell.as_meant(start)
            left = list(_job(meant, list(shell.ranks(meant))))
            if not job or not any(fault.key in _ROLES for fault in left):
                yield _wrong_shell(text)
                found = left
        yield from found


_ROLES = ("rank runs twice", "ranks left out", "no rank", "many ranks")


def _wrong_shell(text: shell.Argument) -> Fault:
    name = text.early[0]
    said = (
        f"the text of `bash -c` stands in double quotes, so the shell that starts torchrun puts in "
        f"${name}, which is empty there: single quotes leave it for each rank's own shell"
    )
    return Fault("wrong shell", text.line, said)


def _job(start: shell.Start, job: list[tuple[int, shell.Start]]) -> Iterator[Fault]:
    count = shell.rank_count(start)
    if count != RANKS:
        text = f"the job has {RANKS} ranks, this starts {count}: --nproc-per-node={RANKS}"
        yield Fault("ranks", start.line, text)
        return
    calls = {rank: [] for rank in range(count)}
    for rank, child in job:
        watches = child.program == "nsys" and child.words[1:2] == ["profile"]
        call = _call(child)[0] if watches else None
        rest = shell.Start(call.rest, child.environment, child.line) if call else child
        if rest.arguments and _trains(rest):
            calls[rank].append(call)
    for rank, mine in sorted(calls.items(), key=lambda item: len(item[1]) > 1):
        if len(mine) != 1:
            words = [" ".join(s.words) for r, s in job if r == rank]
            did = " and ".join(f"`{text[:80]}`" for text in words)
            did = f"starts {did}" if words else "starts nothing"
            text = f"every rank must run python train.py once, and rank {rank} {did}"
            yield Fault("rank runs twice" if mine else "ranks left out", start.line, text)
            return
    watched = [rank for rank, mine in calls.items() if mine[0]]
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
        yield from _recorded(calls[watched[0]][0])


def reports(script: Script) -> Iterator[Fault]:
    """The first report is exported to SQLite and summed as CSV, once it is there."""
    made = _Files(script)
    single = [c for c in script.of("nsys", "profile") if not _under_launcher(script, c)]
    first = {made.name(_report(call)) for call in single if _ranks_of(call) == 1}
    faults: list[Fault] = []
    exported, tables, plain, stats = False, set(), {}, None
    for call in [c for c in script.calls if c.tool == "nsys"]:
        if call.verb == "profile":
            made.profiled(call)
        elif call.verb in ("export", "stats"):
            found = list(made.reads(call))
            faults += found
            of_first = not found and any(made.same(one, made.stem(call)) for one in first)
            if call.verb == "export":
                exported = exported or (of_first and call.value("--type") == "sqlite")
                if call.value("--type") != "sqlite":
                    text = "`nsys export` needs --type=sqlite: that is what `nsys_queries` reads"
                    faults.append(Fault("not sqlite", call.line, text))
                made.exported(call)
                continue
            stats = stats or call
            for name, form in _sums(call):
                if of_first and form == "csv":
                    tables.add(name)
                elif of_first:
                    plain[name] = call
            made.exported(call)
    for verb, what in (("export", "exported to SQLite"), ("stats", "summed up")):
        if not script.of("nsys", verb):
            yield Fault(f"no {verb}", 0, f"no report is {what}: `nsys {verb}` is missing")
    yield from faults
    if faults:
        return
    if script.of("nsys", "export") and first and not exported:
        line = script.of("nsys", "export")[0].line
        text = "`nsys export` reads another report than that of the run on one GPU"
        yield Fault("other report", line, text)
    if stats is None:
        return
    for name in [*REPORTS, "nvtx_"]:
        if any(_sums_up(name, one) for one in tables):
            continue
        late = next((call for one, call in plain.items() if _sums_up(name, one)), None)
        if late is not None:
            text = "`nsys stats` prints a table for people; a script reads --format csv"
            yield Fault("not csv", late.line, text)
            return
        if name == "nvtx_":
            text = "`nsys stats` sums no NVTX ranges: add nvtx_sum or nvtx_gpu_proj_sum"
            yield Fault("no nvtx report", stats.line, text)
        else:
            text = f"no `nsys stats` of the run on one GPU is asked for {name} (--report)"
            yield Fault(f"no {name}", stats.line, text)


def _sums_up(wanted: str, name: str) -> bool:
    if wanted == "nvtx_":
        return name.startswith("nvtx_") and name.endswith("_sum")
    return name == wanted


def _sums(call: Call) -> list[tuple[str, str]]:
    """(report, format) of `nsys stats`: the last format goes with all reports that are left."""
    forms = [item.partition(":")[0] for item in call.items("--format")] or ["column"]
    names = [item.partition(":")[0] for item in call.items("--report")]
    return [(name, forms[min(at, len(forms) - 1)]) for at, name in enumerate(names)]


def _report(call: Call) -> str:
    name = call.value("--output").removesuffix(".nsys-rep")
    return posixpath.normpath(name) if name else ""


@dataclass
class _Files:
    """The files that have been written so far."""

    script: Script
    reports: list[str] = field(default_factory=list)
    databases: list[str] = field(default_factory=list)

    def name(self, path: str) -> str:
        path = posixpath.normpath(path)
        return posixpath.basename(path) if self.script.moves else path

    def stem(self, call: Call) -> str:
        return self.name(re.sub(r"\.(nsys-rep|sqlite)$", "", call.rest[0].text))

    def same(self, written: str, read: str) -> bool:
        """Whether the file that is read is the one written; nsys puts numbers for its %p, %h."""
        parts = re.split(r"(%q\{\w+\}|%[a-zA-Z])", written)
        regex = "".join(".+" if at % 2 else re.escape(part) for at, part in enumerate(parts))
        return written == read or (len(parts) <= 9 and re.fullmatch(regex, read) is not None)

    def profiled(self, call: Call) -> None:
        name = self.name(_report(call))
        self.reports.append(name)
        wanted = call.value("--stats").lower() in ("true", "yes", "on", "1")
        if wanted or "sqlite" in call.items("--export"):
            self.databases.append(name)

    def exported(self, call: Call) -> None:
        if len(call.rest) != 1:
            return
        output = call.value("--output") if call.verb == "export" else call.value("--sqlite")
        self.databases.append(self.name(output.removesuffix(".sqlite") or self.stem(call)))

    def reads(self, call: Call) -> Iterator[Fault]:
        files = [a.text for a in call.rest]
        if len(files) != 1:
            text = f"`nsys {call.verb}` takes one file, after its options; here stand {len(files)}"
            yield Fault("input", call.line, text)
            return
        name, stem = posixpath.basename(files[0]), self.stem(call)
        database = name.endswith(".sqlite") and call.verb == "stats"
        if not name.endswith(".nsys-rep") and not database:
            text = f"`nsys {call.verb}` reads {name!r}; a report ends in .nsys-rep"
            yield Fault("input", call.line, text)
            return
        if any(self.same(one, stem) for one in (self.databases if database else self.reports)):
            return
        later = [self.name(_report(c)) for c in self.script.of("nsys", "profile")]
        if database:
            later += [self.stem(c) for c in self.script.of("nsys", "export") if len(c.rest) == 1]
        if any(self.same(one, stem) for one in later if one != "."):
            text = f"`nsys {call.verb}` reads {name} before there is one: a later command writes it"
            yield Fault("too early", call.line, text)
            return
        known = ", ".join(f"{one}.nsys-rep" for one in sorted({*later} - {"."})) or "no report"
        text = f"`nsys {call.verb}` reads {name}, but the script writes {known}"
        yield Fault("input", call.line, text)


def few_launches(script: Script) -> Iterator[Fault]:
    """ncu replays a few launches of the kernels in question, after warm-up."""
    calls = [c for c in script.of("ncu") if "--import" not in c.options]
    if not calls:
        yield Fault("no ncu", 0, "no `ncu ... python train.py` is in the script")
    written: set[str] = set()
    for call in script.of("ncu"):
        if "--import" in call.options:
            name = posixpath.basename(call.value("--import")).removesuffix(".ncu-rep")
            if name not in written and not any("%" in one for one in written):
                text = f"`ncu --import` reads {call.value('--import')} before a command writes it"
                yield Fault("too early", call.line, text)
        elif name := posixpath.basename(call.value("--export")).removesuffix(".ncu-rep"):
            written.add(name)
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
    by_range = by_range and "--disable-profiler-start-stop" not in call.options
    includes = call.items("--nvtx-include")
    by_nvtx = "--nvtx" in call.options and any("measure" in one for one in includes)
    if "--nvtx-include" in call.options and "--nvtx" not in call.options:
        yield Fault("no --nvtx", call.line, "--nvtx-include does nothing without --nvtx")
    elif includes and not by_nvtx:
        text = f"the program has no range {call.value('--nvtx-include')!r}; it is called measure"
        yield Fault("no nvtx range", call.line, text)
    if by_nvtx and not set(call.value("--nvtx-include")) & set("/[]"):
        text = (
            "--nvtx-include measure means a range that is started and ended; one that is pushed "
            "and popped, as PyTorch's are, is called measure/"
        )
        yield Fault("nvtx slash", call.line, text)
    if call.value("--filter-mode") == "per-launch-config":
        text = (
            "--filter-mode per-launch-config counts for each grid and block apart, and how many "
            "of those there are nobody has said; use --launch-skip as it is"
        )
        yield Fault("filter mode", call.line, text)
        return
    # Launches that match and are left out: those of whole steps, and those that are counted.
    before = 0 if by_range or by_nvtx else call.number("--launch-skip-before-match")
    steps = 5 if by_range or by_nvtx else STEPS
    skip = before // LAUNCHES * MATCHING + call.number("--launch-skip")
    warm = 0 if by_range or by_nvtx else WARM_STEPS * MATCHING
    if skip >= steps * MATCHING or nth_launch > steps * MATCHING:
        text = (
            f"--launch-skip counts launches that match, and the {'run' if warm else 'range'} "
            f"has {steps * MATCHING} of them: after {max(skip, nth_launch - 1):,} nothing is left "
            "to profile"
        )
        yield Fault("skips all", call.line, text)
    elif before and skip < warm:
        text = (
            f"--launch-skip-before-match counts every launch, {LAUNCHES} a step: {before:,} of "
            f"them are no {WARM_STEPS} steps"
        )
        yield Fault("skips little", call.line, text)
    elif skip < warm and nth_launch <= warm:
        text = (
            f"the first {warm} matching launches are warm-up, and --launch-skip "
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
        else:
            yield from _clocks(script, call)
        if not call.value("--export") and "--csv" not in call.options:
            text = "what ncu finds is only printed, as a table for people: add --export, or --csv"
            yield Fault("no ncu output", call.line, text)


# What a comment on clocks may say that free ones buy, and that they cost. Many words are right:
# when in doubt a comment is accepted.
_BUYS = (
    r"\b(real|true|actual|honest|prod(uct|\b)|own\b|normal|natural|usual|typical|user|deploy|train"
    r"|live\b|practice|wild\b|everyday|faithful|representative|authentic|serv(e|es|ed|ing|ice)\b"
    r"|match(es)?\b|mirror|reflect|agree|equal|resembl|correspond"
    r"|same (as|speed|clock|duration|time)|boost|full speed|nsys|timeline|in the field|epoch"
    r"|too (long|slow|low)|buys?\b"
    r"|gain|benefit|advantage|upside|pros?:|in (return|exchange)|what .{1,30}\b(get|see)"
    r"|as (it|they|the \w+) (is|are|does|do|run|will)"
    r"|(of|like|in) (the|your|our|my|a) (\w+ )?(run|job|workload|program|step|model|application)\b)"
)
_COSTS = (
    r"\b(vary|varies|varied|varying|variat|varian|variab|differ|repeat|reproduc|nois|wander|drift"
    r"|jitter|fluctuat|oscillat|temperatur|thermal|throttl|heat|hot(ter)?\b|warm(er|th)\b|cold|cool"
    r"|power|weather|compar|stabl|stabil|unstabl|unstead|chang|spread|scatter|exact|precis|steady"
    r"|steadi|deviat|random|determinis|(in)?consisten|wobbl|jump|shift|swing|bounc|sway|median"
    r"|mean of|average|error bar|uncertain|unpredict|unreliab|trust|twice|no guarantee"
    r"|several (runs|times)|run[- ]to[- ]run|(each|every|other) run|less (certain|sure|reliab)"
    r"|between (\w+ )?(runs|measure)|two (\w+ )?(runs|meas)|after (one )?run (to|after)"
    r"|costs?\b|price|pay\b|downside|drawback|disadvantage|expense|trade|cons?:|caveat|risk)"
)
_FREE = (
    r"(\b(free|unlocked|unpinned|unfixed|floating|not locked|never locked|left alone|boosting)\b"
    r"|clock[- ]control[ =:]*(is |of |to |at )?[\"'`]?(none|off)\b)"
)
_LOCKED = r"\b((?<!not )(?<!never )locked|locking|(?<!not )fixed|pinned|base clocks?)\b"
_NOT = (
    r"not|no|never|less|hardly|rarely|barely|nor|neither|harder?|without|lose|lost|cost|than|up|away"
    r"|un\w+|non\w*|in\w+able|too|only|instead|differ\w*|impossible|cannot|but|free|locked|fixed|pinned"
    r"|\w+n't|far|little|at|for|would"
)
_GIVES = (
    r"\b(is|are|give|gives|make|makes|mean|means|yield|yields|produce|produces|show|shows|ensure|ensures"
    r"|guarantee|guarantees|buy|buys|bring|brings|have|has|keep|keeps)"
)
_STEADY = r"(repeatab|reproducib|stabl[ey]|stability|steady|constant|deterministic)\w*(?! enough)"
_TIMES = r"(durations?|times?|timings?|speeds?|runs?|jobs?|numbers|workloads?)"
_STABLE = rf"{_GIVES}( (?!({_NOT})\b)\w+){{0,4}} {_STEADY}"
_HARDLY = r"(?!.*\b(harder|hard|impossible|difficult|unlikely|less|no|not|never|lost|only|if|when)"
_HARDLY += r"\b)"
_FREE_ONES, _LOCKED_ONES = (rf"{one}( (?!({_NOT})\b)\w+){{0,4}}" for one in (_FREE, _LOCKED))
_RESULTS = r"( (clocks|ones|results|times|durations|runs|measurements))?"
# What has it the wrong way round, as far as that can be told of one clause: free clocks that
# repeat, locked ones that are those of production or vary, and advice against what was chosen.
_TURNED = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_FREE_ONES} {_STABLE}{_HARDLY}",
        rf"{_FREE_ONES} (repeat\b|(do not|don't|never) (vary|wander|drift|jitter))",
        rf"{_FREE_ONES} {_GIVES}( \w+){{0,2}} (no|less|without) (jitter|noise|spread|varia\w+)",
        rf"{_LOCKED_ONES} {_GIVES}( (?!({_NOT})\b)\w+){{0,4}} "
        rf"(production|training|((real|true|actual) {_TIMES}))\b(?! (base|clock))",
        rf"{_LOCKED}{_RESULTS} (vary|jitter|drift|wander|fluctuate|are (noisy|not repeatable))\b"
        r"(?! less)",
        r"\b((do not|don't|never) (use|choose|take|set|leave|run|want|pick|measure)|avoid)\b"
        rf"(?!.*({_LOCKED}|\b(base|default|lock|instead|unless|if|when)\b)).*{_FREE}",
    )
)
_CLAUSES = re.compile(r"[.;:!?,()]+|\b(?:but|while|whereas|although|though|however|yet)\b")


def _clocks(script: Script, call: Call) -> Iterator[Fault]:
    """A comment of adjacent lines speaks of clocks, what free ones buy and what they cost."""
    notes: list[str] = []
    last = -1
    for line, note in script.notes:
        if line == last + 1:
            notes[-1] += f" {note}"
        else:
            notes.append(note)
        last = line
    for key, text in clock_faults(notes):
        yield Fault(key, call.line, text)


def clock_faults(notes: list[str]) -> list[tuple[str, str]]:
    """What is wrong with comments as an explanation of free clocks: [] if one of them says it."""
    said = [" ".join(note.lower().split()) for note in notes]
    said = [note for note in said if "clock" in note and len(set(note.split())) >= 6]
    if not said:
        text = (
            "--clock-control none has a price, and no comment on clocks says it: write what it "
            "buys and what it costs"
        )
        return [("clocks unexplained", text)]
    buys = [note for note in said if re.search(_BUYS, note)]
    if not buys:
        text = "the comment on clocks does not say what free ones buy: whose durations are these?"
        return [("clocks without a gain", text)]
    both = [note for note in buys if re.search(_COSTS, note)]
    if not both:
        text = "the comment on clocks does not say what free ones cost: do two runs agree?"
        return [("clocks without a cost", text)]
    turned = [_turned_round(note) for note in both]
    if all(turned):
        text = (
            f"the comment on clocks has it the wrong way round in `{turned[0]}`: free clocks show "
            "the durations of production and vary, locked ones repeat and are too long"
        )
        return [("clocks turned round", text)]
    return []


def _turned_round(note: str) -> str:
    """A clause that has it the wrong way round, or nothing."""
    for clause in _CLAUSES.split(note):
        words = " ".join(clause.split())
        if any(pattern.search(words) for pattern in _TURNED):
            return words[:80]
    return ""


# -- torch.profiler -------------------------------------------------------------------------------

Run = Callable[[str, list[str], dict[str, str]], dict]


def torch_profiler(script: Script, run: Run) -> Iterator[Fault]:
    """A schedule with a warm-up, stepped, and a trace that is written."""
    found = [(start, at) for start in script.programs if (at := _text_at(start))]
    judged: list[list[Fault]] = []
    for start, at in found:
        argument = start.arguments[at]
        try:
            tree = ast.parse(argument.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = argument.line + (getattr(error, "lineno", None) or 1) - 1
            said = getattr(error, "msg", "it cannot be read")
            text = f"the text of `python -c` is no Python ({said}); mind the quotes inside it"
            judged.append([Fault("python syntax", line, text)])
            continue
        names = _identifiers(tree)
        if not names & {"profile", "profiler"} and "train" not in names:
            continue  # another small thing that Python does
        seen = run(argument.text, start.words[at + 1 :], start.environment)
        judged.append(list(_profile(names, seen, argument.line - 1)))
    if not judged:
        yield Fault("no python -c", 0, "no `python -c '...'` with torch.profiler is in the script")
    for faults in judged:
        yield from faults


def _text_at(start: shell.Start) -> int:
    """Where the text of `python -c` stands among the words; 0 without one."""
    words = start.words
    if not _PYTHON.fullmatch(start.program):
        return 0
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "-c":
            return at + 1 if at + 1 < len(words) else 0
        if words[at] == "-m":
            return 0
        at += 2 if words[at] in ("-X", "-W") else 1
    return 0


def _identifiers(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {part for alias in node.names for part in alias.name.split(".")}
            names |= set((getattr(node, "module", None) or "").split("."))
    return names


def _profile(names: set[str], seen: dict, base: int) -> Iterator[Fault]:
    if seen["error"]:
        kind, line, said = seen["error"]
        text = f"the text of `python -c` ends in {kind}: {said}"
        yield Fault(f"python {kind}", base + max(1, line), text)
        return
    if not seen["profiles"] or "profile" not in names:
        text = "the text of `python -c` opens no torch.profiler.profile"
        yield Fault("no profile", base + 1, text)
        return
    if not seen["steps"]:
        yield Fault("no steps", base + 1, "the text of `python -c` never calls train.step()")
        return
    for profile in seen["profiles"]:
        yield from _one_profile(profile, seen["steps"], base + max(1, profile["line"]))


def _one_profile(profile: dict, steps: int, line: int) -> Iterator[Fault]:
    if profile["use_cuda"]:
        text = (
            "use_cuda is an old spelling: activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        )
        yield Fault("obsolete", line, text)
    if not {"CPU", "CUDA"} <= set(profile["activities"]):
        text = "activities leaves out the CPU or the GPU: launches and kernels belong together"
        yield Fault("activities", line, text)
    plan = profile["schedule"]
    if plan is None:
        text = (
            "profile() has no schedule: it records from the first step on, warm-up included, and "
            "keeps every event of the run in memory"
        )
        yield Fault("no schedule", line, text)
        return
    if plan["active"] < 1:
        yield Fault("never records", line, "the schedule gives no step to record")
        return
    active, no_warm_up = f"active={plan['active']}", "warmup=0"
    again = "repeat=1, or a name that changes"
    if plan.get("own"):  # a callable of the learner's own, which has no such names
        active = f"the schedule has {plan['active']} steps to record"
        no_warm_up = "no step before the first recorded one is ProfilerAction.WARMUP"
        again = "a name that changes"
    if plan["warmup"] < 1:
        text = (
            f"{no_warm_up}: the profiler's own start falls into the first recorded step, which "
            "looks slower than it is"
        )
        yield Fault("no warm-up step", line, text)
    recorded = [window for window in profile["recorded"] if window]
    begins = plan["skip_first"] + plan["wait"] + plan["warmup"]
    if not profile["steps"]:
        text = (
            "the profiler's own step() is never called: without it the schedule does not move, "
            "and nothing is recorded"
        )
        yield Fault("no step", line, text)
    elif not recorded:
        text = (
            f"the loop makes {steps} steps, and the schedule records from its step {begins} on: "
            "nothing is written"
        )
        yield Fault("too few steps", line, text)
    elif min(map(min, recorded)) < WARM_STEPS:
        text = (
            f"step {min(map(min, recorded))} of the program is recorded, and its first "
            f"{WARM_STEPS} warm up: let them pass with skip_first= or wait="
        )
        yield Fault("records warm-up", line, text)
    elif len(recorded[0]) < plan["active"] and recorded[0][-1] == steps - 1:
        text = (
            f"the loop makes {steps} steps, and the schedule is not complete before step "
            f"{recorded[0][0] + plan['active'] - 1} has been made: {len(recorded[0])} of "
            f"{plan['active']} are recorded"
        )
        yield Fault("loop ends early", line, text)
    elif len(recorded[0]) != plan["active"]:
        text = (
            f"{active}, and {len(recorded[0])} of the program's steps are recorded: "
            "the profiler's step() belongs once behind each train.step(), until the schedule is "
            "complete"
        )
        yield Fault("steps do not fit", line, text)
    elif profile["written"] and not any(window == recorded[0] for window in profile["written"]):
        text = (
            f"the trace of the steps {recorded[0][0]} to {recorded[0][-1]} is overwritten when the "
            f"schedule begins again: {again} (prof.step_num)"
        )
        yield Fault("trace overwritten", line, text)
    elif not any(len(window) == plan["active"] for window in profile["written"]):
        text = (
            "no Chrome trace of the recorded steps is written: on_trace_ready= gets a function "
            "that writes one, or export_chrome_trace comes at the end; a table is no trace"
        )
        asked = profile["asks"] or profile["written"]
        yield Fault("no trace" if asked else "nobody asks", line, text)


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
    boxes = [
        (line, match[1].strip(), match[2])
        for line, note in script.notes
        if (match := re.match(r"\[([ xX]?)\]\s*(.*)", note))
    ]
    ticked = [line for line, mark, _ in boxes if mark]
    if ticked:
        yield Fault("ticked", ticked[0], "the box is ticked already; a checklist begins as `# [ ]`")
    rows = [(line, text.lower()) for line, _, text in boxes]
    if len(rows) < len(STAGES):
        text = f"the checklist has {len(rows)} lines `# [ ] ...`; five steps are the least"
        yield Fault("short checklist", rows[0][0] if rows else 0, text)
        return
    for line, said in rows:
        if len(set(re.findall(r"[a-z]{2,}", said))) < 3:
            text = f"`[ ] {said[:40]}` says too little: who has only this line must know what to do"
            yield Fault("bare words", line, text)
            return
    at = -1
    for what, pattern in STAGES:
        places = [i for i, (_, text) in enumerate(rows) if re.search(pattern, text)]
        if not places:
            yield Fault(f"no {what}", rows[0][0], f"no line of the checklist is about {what}")
            return
        later = [place for place in places if place > at]
        if not later:
            text = (
                f"{what} comes too early, or has no line of its own: first the symptom as a "
                "number, then the timeline, a counter, one change, and the gain measured again"
            )
            yield Fault(f"early {what}", rows[places[-1]][0], text)
            return
        at = later[0]


Rule = Callable[[Script], Iterator[Fault]]
