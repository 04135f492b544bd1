"""The kinds of faults of a launch, each with its sentence for a person."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grader.kernels.findings import Element, KernelFinding

_EVERY_THREAD = "every thread of a block must reach"
_PARTNER = (
    "warp-level function on {at}: {who} waits for {other}, which is in the mask but never gets "
    "there (it waits "
)
_RACE = "race: {thread} {acts} {element} ({at}) which {other} "
_TOO_LONG = "too long between two barriers: the warps of {block} made more than {limit:,} "
_FEWER = "({at}): if no loop there is endless, launch more threads or a smaller input"
_OUTSIDE = (
    "out of bounds: {program} {does} {element} (line {line}; {wrong:,} of {lanes:lane} {lie} "
    "outside): {array} has {elements:element}{shaped}"
)
_BIT_PATTERNS = (
    "line {line} {computes} in {type}, of which the interpreter takes the bit patterns for "
    "numbers; convert to tl.float32 first"
)


class FindingKind(Enum):
    """A kind of fault: its name, in the CUDA runtime and in reports, and its sentence, with the
    places that `sentence_of` fills."""

    sentence: str

    def __new__(cls, name: str, sentence: str) -> FindingKind:
        kind = object.__new__(cls)
        kind._value_ = name
        kind.sentence = sentence
        return kind

    # A thread of a CUDA kernel and one of its accesses.
    NULL_POINTER = "null_pointer", "out of bounds: {who} {does} through a null pointer ({at})"
    LOCAL_MEMORY = (
        "local_memory",
        "out of bounds: {who} {does} local memory that is not its own ({at}): beyond the end of a "
        "local array, or another thread's",
    )
    NO_ARRAY = "no_array", "out of bounds: {who} {does} memory that is no array ({at})"
    OUT_OF_BOUNDS = (
        "out_of_bounds",
        "out of bounds: {who} {does} {element} ({at}), but {array} has {elements:element}",
    )
    OUT_OF_SHARED = (
        "out_of_shared",
        "out of bounds: {who} {does} {element} ({at}), but {array} has {bytes} bytes",
    )
    PAST_SHARED = (
        "past_shared",
        "out of bounds of shared memory: {who} {does} {element} ({at}), past the end of `{array}` "
        "({whole})",
    )
    BEFORE_SHARED = (
        "before_shared",
        "out of bounds of shared memory: {who} {does} {element} ({at}), before the beginning of "
        "`{array}` ({whole})",
    )
    NO_DYNAMIC_SHARED = (
        "no_dynamic_shared",
        "out of bounds: {who} {does} {element} ({at}), but {array} has 0 bytes: the launch gives "
        "no dynamic shared memory",
    )
    MISALIGNED = (
        "misaligned",
        "misaligned: {who} {does} {size} bytes at once at {element} ({at}), whose address is no "
        "multiple of {size}",
    )
    READ_ONLY = "read_only", "{who} writes {element} ({at}), which is constant"
    UNINITIALIZED = (
        "uninitialized",
        "uninitialized: {who} reads {element} ({at}), which no thread of the block has written",
    )
    RACE_OF_BLOCKS = (
        "race_of_blocks",
        f"{_RACE}of {{other_block}} {{did}} at {{other_at}}: nothing orders two blocks of a launch "
        "({block}; {count:such access})",
    )
    RACE_IN_BLOCK = (
        "race_in_block",
        f"{_RACE}{{did}} at {{other_at}} with no __syncthreads() between "
        "({block}; {count:such access})",
    )
    RACE_IN_WARP = (
        "race_in_warp",
        f"{_RACE}{{did}} at {{other_at}} with no __syncwarp() or __syncthreads() between: lanes of "
        "a warp need not run in step ({block}; {count:such access})",
    )

    # Threads of a CUDA kernel that wait, and those that do not end.
    DIVERGENT_BARRIER = (
        "divergent_barrier",
        "divergent barrier: {thread} waits at __syncthreads() on {at} while {other} waits at the "
        f"one on {{other_at}} ({{block}}): {_EVERY_THREAD} the same one",
    )
    ENDED_BEFORE_BARRIER = (
        "ended_before_barrier",
        "divergent barrier: {ended:thread} (such as {other}) had already returned when {thread} "
        f"reached __syncthreads() on {{at}} ({{block}}): here {_EVERY_THREAD} it, on a GPU since "
        "Volta every thread that has not returned",
    )
    STUCK_COLLECTIVE = (
        "stuck_collective",
        "warp-level function on {at}: {who} waits for lanes of its mask {mask:#010x} that never "
        "get there",
    )
    PARTNER_AT_BARRIER = "partner_at_barrier", f"{_PARTNER}at __syncthreads() on {{other_at}})"
    PARTNER_WITH_OTHER_MASK = (
        "partner_with_other_mask",
        f"{_PARTNER}on {{other_at}} with another mask, {{other_mask:#010x}} instead of "
        "{mask:#010x})",
    )
    PARTNER_ELSEWHERE = "partner_elsewhere", f"{_PARTNER}at another function on {{other_at}})"
    NOT_IN_MASK = (
        "not_in_mask",
        "warp-level function on {at}: {who} is lane {lane} and not in its own mask {mask:#010x}",
    )
    SHUFFLE_WIDTH = (
        "shuffle_width",
        "shuffle on {at}: width is {width}, it must be a power of two up to 32",
    )
    ENDLESS = "endless", "endless: {who} took more than {limit:,} steps and is in a loop at {at}"
    TOO_MANY_REQUESTS = "too_many_requests", f"{_TOO_LONG}requests to memory {_FEWER}"
    TOO_MANY_STEPS = "too_many_steps", f"{_TOO_LONG}different steps {_FEWER}"
    TOO_LONG = (
        "too_long",
        "too long: the threads of this launch take more than {limit:,} steps together; launch "
        "fewer threads or a smaller input",
    )
    TOO_LARGE = (
        "too_large",
        "this launch is too large to be watched ({at}): launch fewer threads",
    )
    TOO_DEEP = "too_deep", "{who} is more than 64 calls or loops deep ({at})"

    # What ends the thread of a CUDA kernel, or the process that runs it.
    ASSERTION = "assertion", "assertion failed: {text} ({who}, {at})"
    TRAP = "trap", "{who} called __trap() ({at})"
    DIVISION = (
        "division",
        "{who} divides an integer by zero (or the least one by -1) near {at}",
    )
    STACK = "stack", "{who} uses more than 128 KiB of local memory near {at}"
    LOCAL_ARRAY = "local_array", "{who} wrote beyond the end of a local array, before {at}"
    FAULT = "fault", "{who} touched memory that it may not, near {at}"
    TIMEOUT = "timeout", "the kernel did not end within {seconds:g} s"
    EXITED = "exited", "the kernel ended its process with exit code {code} {text}"
    REFUSED = "refused", "{text}"
    NO_REPORT = (
        "no_report",
        "the kernel left no readable report: it wrote where nothing of its own is",
    )

    # A program of a Triton kernel and one of its accesses.
    OUT_OF_ARGUMENTS = (
        "out_of_arguments",
        "out of bounds: {program} {does} memory that no argument of the launch has "
        "(line {line}; {wrong:,} of {lanes:,} lanes)",
    )
    OUT_OF_ARGUMENT = "out_of_argument", _OUTSIDE
    BETWEEN_ELEMENTS = "between_elements", f"{_OUTSIDE}, and this one lies between them"
    MISALIGNED_BLOCK = (
        "misaligned_block",
        "misaligned: {program} {does} {size} bytes at byte {byte} of {array} (line {line}), whose "
        "address is no multiple of {size}",
    )
    RACE_OF_PROGRAMS = (
        "race_of_programs",
        "race: {program} {does} {element} (line {line}) which {other_program} {did} (line "
        "{other_line}): nothing orders two programs of a launch ({count:element})",
    )
    RACE_OF_LANES = (
        "race_of_lanes",
        "race: lanes of {program} write different values to {element} (line {line}): which of them "
        "stays is open ({count:element})",
    )
    TOO_MANY_LINES = (
        "too_many_lines",
        "the kernel accesses memory on more than {limit:,} lines",
    )

    # What a GPU does not accept in a Triton kernel, or Triton's interpreter computes wrongly.
    CONDITION = (
        "condition",
        "condition: line {line} asks whether a block of {shape} elements is true, and no GPU can "
        "branch on a block: choose with tl.where, and join masks with & | ~",
    )
    NOT_INTERPRETED = "not_interpreted", "not interpreted: {what} (line {line}): {instead}"
    BF16 = "bf16", f"bf16: {_BIT_PATTERNS}"
    FP8 = "fp8", f"fp8: {_BIT_PATTERNS}"
    BF16_DOT = (
        "bf16_dot",
        "bf16: tl.dot of bfloat16 (line {line}): the interpreter takes its bit patterns for "
        "numbers; convert both blocks to tl.float32 first",
    )
    SMALL_DOT = (
        "small_dot",
        "dot: tl.dot of {m} x {k} and {k} x {n} (line {line}): a GPU takes no K below {least}, "
        "which is {k} here",
    )
    NO_GRID = (
        "no_grid",
        "grid: {kernel} is called without a grid: write {kernel}[grid](...), with a tuple",
    )
    GRID_SIZE = (
        "grid_size",
        "grid: {kernel} is launched with {sizes}; a GPU takes at most {most} there, and most along "
        "axis 0 (2,147,483,647)",
    )
    NUMPY_ARGUMENT = (
        "numpy_argument",
        "argument: `{argument}` of {kernel} is a NumPy array, which no GPU reads: give a tensor "
        "(torch.from_numpy)",
    )

    @property
    def wording(self) -> str:
        """The sentence with the names of its places."""
        return self.sentence.replace("{", "").replace("}", "")


_DOES = {"": "", "read": "reads", "write": "writes", "atomic": "changes"}
_ACTS = {**_DOES, "atomic": "changes by an atomic"}
_DID = {"": "", "read": "read", "write": "wrote", "atomic": "changed by an atomic"}


class _Count(int):
    """A number that a sentence may give a noun: `{elements:element}`."""

    def __format__(self, form: str) -> str:
        if not form[:1].isalpha():
            return super().__format__(form)
        ending = "" if self == 1 else "es" if form.endswith("s") else "s"
        return f"{int(self):,} {form}{ending}"


def sentence_of(finding: KernelFinding) -> str:
    """The sentence for people; raises KeyError, TypeError or ValueError where a detail is missing
    or is of another type."""
    by, other = finding.by, finding.other
    thread, block = f"thread {_place(by.place)}", f"block {_place(by.block)}"
    return finding.kind.sentence.format_map(
        {
            **{name: _shown(value) for name, value in finding.details.items()},
            "who": f"{thread} of {block}",
            "thread": thread,
            "block": block,
            "program": f"program {_place(by.place)}",
            "other": f"thread {_place(other.place)}",
            "other_block": f"block {_place(other.block)}",
            "other_program": f"program {_place(other.place)}",
            "line": by.line,
            "other_line": other.line,
            "at": _line(by.line),
            "other_at": _line(other.line),
            "does": _DOES[by.access],
            "acts": _ACTS[by.access],
            "did": _DID[other.access],
            "array": finding.element.array,
            "element": _element(finding.element),
            "shaped": _shaped(finding.details),
            "lie": "lies" if finding.details.get("wrong") == 1 else "lie",
        }
    ).rstrip()


def _shown(value: Any) -> Any:
    if isinstance(value, tuple):
        return " x ".join(map(str, value))
    return _Count(value) if isinstance(value, int) else value


def _place(place: tuple[int, ...]) -> str:
    """`7`, `(7, 0)` or `(7, 0, 0)`."""
    return str(place[0]) if len(place) == 1 else str(place)


def _line(line: int) -> str:
    return f"line {line}" if line else "an unknown line"


def _element(element: Element) -> str:
    """`tile[3][0]`, `in[1000]` or `total`."""
    within = f" (its byte {element.byte})" if element.byte else ""
    return element.array + "".join(f"[{at}]" for at in element.index) + within


def _shaped(details: Mapping[str, Any]) -> str:
    if "shape" not in details:
        return ""
    strides = f", strides {list(details['strides'])}" if "strides" in details else ""
    return f" (shape {list(details['shape'])}{strides})"
