from grader.lab.skeleton import changed
from grader.suite import lines, misconception

from ._passages import COMMUNICATION

divided_by_the_step = lines(
    """The overlap is divided by the whole time of the trace; a step with little communication
    would look badly overlapped. Divide by the time with communication.""",
    (
        "return both / communication, communication - both",
        "work = [e for e in trace.events if e.cat in GPU_CATEGORIES]\n"
        "    span = max(e.end_us for e in work) - min(e.ts_us for e in work)\n"
        "    return both / span, communication - both",
    ),
)

BOTH = "return both / communication, communication - both"

divided_by_the_computation = lines(
    """The overlap is divided by the time with computation; the question is how much of the
    communication is hidden, so divide by that.""",
    (BOTH, "return both / (computation or 1), communication - both"),
)

divided_by_all_work = lines(
    """The overlap is divided by the time in which either ran; divide by the time with
    communication, of which it is a part.""",
    (BOTH, "return both / either, communication - both"),
)


@misconception(file="trace_analysis.py")
def copies_hide_communication(text):
    """Copies and memsets are counted as computation; a collective beside a copy is not hidden, the
    step still waits for both."""
    return changed(text, ('        return "memory"', '        return "computation"'))


communication_hides_communication = lines(
    """Two collectives that run at once are counted as overlap; one does not hide the other, only
    computation does.""",
    (
        BOTH,
        'at = sorted(t for span in spans["communication"] for t in span)\n'
        '    comm, comp = spans["communication"], spans["computation"]\n'
        "    both = sum(\n"
        "        b - a for a, b in zip(at, at[1:])\n"
        "        if sum(s <= a and b <= e for s, e in comm) > 1)\n"
        "    both += communication + computation - either\n"
        "    return both / communication, communication - both",
    ),
)

everything_hides_communication = lines(
    """The communication is compared with all GPU work, itself included, and everything overlaps
    with itself; compare it with computation.""",
    (
        BOTH,
        "return 1.0, 0.0",
    ),
)

pairs_are_summed = lines(
    """The overlaps of all pairs of a collective and a kernel are added up; where two kernels run
    beside one collective the same time counts twice, and the ratio may pass 1. Merge each side
    first.""",
    (
        BOTH,
        "both = sum(\n"
        "        max(0.0, min(b, d) - max(a, c))\n"
        '        for a, b in spans["communication"] for c, d in spans["computation"])\n'
        "    return both / communication, communication - both",
    ),
)

communication_is_summed = lines(
    """The durations of the collectives are added up; two that run at once on two streams are one
    time. Take the union of the communication, too.""",
    (
        BOTH,
        'total = sum(b - a for a, b in spans["communication"])\n'
        "    return both / total, total - both",
    ),
)

touched_is_hidden = lines(
    """A collective that meets any computation is counted as hidden as a whole; only the part of it
    during which computation runs is.""",
    (
        BOTH,
        "met = [\n"
        '        (a, b) for a, b in spans["communication"]\n'
        '        if any(c < b and a < d for c, d in spans["computation"])]\n'
        "    both = busy_time(met)\n"
        "    return both / communication, communication - both",
    ),
)

hidden_for_exposed = lines(
    """The second number is the hidden time; asked for is the exposed one, for which the step
    waits: the communication less what is hidden.""",
    (BOTH, "return both / communication, both"),
)

the_exposed_ratio = lines(
    """The ratio is that of the exposed part; asked for is the hidden one: 1 is all communication
    behind computation, 0 none.""",
    (BOTH, "return 1 - both / communication, communication - both"),
)

a_ratio_in_percent = lines(
    """The ratio is in percent; it is asked for as a number from 0 to 1.""",
    (BOTH, "return 100 * both / communication, communication - both"),
)

exposed_comes_first = lines(
    """The order is (ratio, exposed_us); it is the other way round here.""",
    (BOTH, "return communication - both, both / communication"),
)

exposed_by_stretch_of_the_gpu = lines(
    """Exposed is counted where communication runs alone, and a copy beside it takes it off; only
    computation hides communication.""",
    (
        BOTH,
        "memory = [(e.ts_us, e.end_us) for e in trace.events\n"
        '              if e.cat in GPU_CATEGORIES and kernel_class(e.name) == "memory"]\n'
        '    rest = spans["computation"] + memory\n'
        '    alone = busy_time(spans["communication"] + rest) - busy_time(rest)\n'
        "    return both / communication, alone",
    ),
)


@misconception(file="trace_analysis.py")
def collectives_in_small_letters(text):
    """Some collectives were not found: their names have nccl in capitals, or not at the beginning.
    The rule is "nccl anywhere in the name, in capitals or not"."""
    return changed(text, (COMMUNICATION, 'if name.startswith("nccl"):'))


SIDES = "if event.cat in GPU_CATEGORIES and kernel_class(event.name) in spans:"

annotations_of_nccl_run = lines(
    """Every event with nccl in its name is taken; "nccl:all_reduce" is an annotation of the host,
    and nothing that the GPU runs. Only GPU_CATEGORIES count.""",
    (
        SIDES + "\n            spans[",
        'if event.cat in GPU_CATEGORIES or "nccl" in event.name:\n'
        "            if kernel_class(event.name) not in spans:\n"
        "                continue\n"
        "            spans[",
    ),
)

streams_add_up = lines(
    """Communication on two streams at once is one time: as a sum, the whole is too large and the
    ratio too small.""",
    (
        '    communication = busy_time(spans["communication"])\n',
        '    communication = sum(end - start for start, end in spans["communication"])\n',
    ),
)

nothing_without_computation = lines(
    """Without computation the answer is (0.0, 0.0) here; then nothing hides the communication, and
    all of it is exposed. Only without *communication* there is nothing to say.""",
    ("    if not communication:\n", "    if not communication or not computation:\n"),
    gate=False,
)

rounded_to_six_decimals = lines(
    """Times may be finer than a nanosecond, and the answer is rounded to six decimals here; of
    kernels that short nothing is left. Round where a number is printed.""",
    (BOTH, "return round(both / communication, 6), round(communication - both, 6)"),
    gate=False,
)
