"""A made-up class: every lab of the kit with its real tasks, and outcomes of a seeded generator.

Students have an ability and tests a difficulty (as in `benchmarks/invented_outcomes.py`); a task
without all of its gates has no points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from grader.classroom.gradebook.results import LETTERS
from grader.classroom.report import building
from grader.classroom.report.class_outcomes import ClassOutcomes, Omission
from grader.classroom.report.class_report import ClassReport, Person
from grader.classroom.report.lab_outcomes import LabMarks, LabOutcomes
from grader.lab.manifest import Lab, Task, all_labs
from grader.status import TaskStatus, TestStatus

ROOT = Path(__file__).resolve().parents[4]
FIRST = """
    Ada Bashir Chloé Dmitri Elif Farah Gustavo Hana Ingrid Jomo Katarzyna Liam Mei Nguyễn Olu
    Priya Quentin Rosa Søren Tariq Uma Viktor Wanjiru Ximena Yusuf Zoë محمد 山田 Ноа שרה
""".split()  # noqa: SIM905
LAST = """
    Abara Bianchi Castillo Dubois Eriksen Farouk García Horvat Ivanova Jensen Kowalska Lindqvist
    Moreau Nakamura Okafor Petrović Quispe Rossi Schäfer Tanaka Ueda Vũ Wójcik Xu Yılmaz Zhang
    Almeida Brandt Chukwu Demir Esposito Fischer Greco Haddad
""".split()  # noqa: SIM905
CAUSES = (
    "Only key/value heads are cached: with query heads Llama-3-8B's 8.0 GiB become 32.",
    "The cache holds K and V: without the factor 2, 8.0 GiB become 4.0.",
    "The running sum is rescaled by exp(m_old - m_new), the accumulator is not.",
    "A mean of per-shard means is the mean of all rows only if the shards are of one size.",
    "Gradients are divided by the world size before they are summed, and again after.",
    "The last block of rows is shorter: without a mask it reads what lies behind the tensor.",
    "Every thread of the warp reads the same bank: 32 wavefronts instead of 1.",
    "The scale is taken over the whole tensor, and one outlier costs all other channels 3 bits.",
)
NAMES = (
    "test_the_worked_example", "test_any_number_of_rows", "test_a_fully_masked_row",
    "test_the_last_block_is_shorter", "test_non_contiguous_inputs", "test_bytes_are_exact",
    "test_large_logits", "test_one_rank_is_all", "test_refused_values",
)  # fmt: skip
PASSED, FAILED, TIMEOUT, NOT_STARTED = (
    ord(LETTERS[status])
    for status in (TestStatus.PASSED, TestStatus.FAILED, TestStatus.TIMEOUT, TestStatus.NOT_STARTED)
)


def outcomes(students: int = 30, labs: Sequence[Lab] = (), seed: int = 7) -> ClassOutcomes:
    """What such a class handed in, for all labs of the kit or for these."""
    rng = np.random.default_rng(seed)
    names = [f"{first} {last}" for last in LAST for first in FIRST]
    order = rng.permutation(len(names))
    people = tuple(
        Person(f"{10400 + 7 * place}", names[order[place % len(names)]], f"Section {place % 3 + 1}")
        for place in range(students)
    )
    ability = rng.normal(size=students)
    made = tuple(_lab(lab, ability, rng) for lab in labs or all_labs(ROOT))
    left = Omission("1 student with marks is in no row of the roster and is left out: eve.", "1.")
    return ClassOutcomes(
        "Systems for AI, spring 2027", "2027-03-14T08:30:00+00:00", people, made, (left,), b"key"
    )


def report(students: int = 30, labs: Sequence[Lab] = (), seed: int = 7) -> ClassReport:
    """The report of such a class."""
    return building.build(outcomes(students, labs, seed))


def repeated(report: ClassReport, times: int) -> ClassReport:
    """The report of a class in which each student sits so many times, with the same statistics."""
    count = len(report.people)
    people = [
        replace(person, id=f"{person.id}-{copy}", name=f"{person.name} {copy}")
        for copy in range(times)
        for person in report.people
    ]
    labs = [
        replace(
            lab,
            marks=list(lab.marks) * times,
            late_days=list(lab.late_days) * times,
            cells=list(lab.cells) * times,
        )
        for lab in report.labs
    ]
    lessons = [
        replace(row, people=tuple(at + count * copy for copy in range(times) for at in row.people))
        for row in report.lessons
    ]
    return replace(report, people=people, labs=labs, lessons=lessons)


def _lab(lab: Lab, ability: np.ndarray, rng: np.random.Generator) -> LabOutcomes:
    tests = [
        (f"{lab.id}/{task.id}/{name}{case}", task.id, gate)
        for task in lab.tasks
        for name, case, gate in _tests_of(task, rng)
    ]
    count = len(tests)
    difficulty = rng.normal(-2.0, 0.9, count)
    easier = np.array([{"core": -0.6, "hard": 0.0, "stretch": 0.6}[t.tier] for t in lab.tasks])
    task_of = np.array([[task.id for task in lab.tasks].index(task) for _, task, _ in tests])
    steep = rng.uniform(1, 2.2, count)
    steep[rng.integers(count)] = -1.5  # one test is the wrong way round
    people, counting, letters = [], [], []
    for person, level in enumerate(ability):
        if rng.random() < 0.08:
            continue
        tries = 1 + rng.binomial(2, 0.25)
        for attempt in range(tries):
            chance = 1 / (
                1 + np.exp(-steep * (level + 0.5 * attempt - difficulty - easier[task_of]))
            )
            passed = rng.random(count) < chance**0.5
            row = np.where(passed, PASSED, FAILED)
            row[~passed & (rng.random(count) < 0.03)] = TIMEOUT
            undone = rng.random(len(lab.tasks)) < 0.08 + 0.12 * (level < -0.5)
            row[undone[task_of]] = NOT_STARTED
            people.append(person)
            counting.append(attempt == tries - 1)
            letters.append(row)
    return _outcomes(lab, tests, task_of, np.array(people), np.array(counting),
                     np.array(letters, np.uint8), len(ability), rng)  # fmt: skip


def _tests_of(task: Task, rng: np.random.Generator) -> list[tuple[str, str, bool]]:
    found = []
    for place in range(int(rng.integers(3, 7))):
        gate = place < 2
        cases = int(rng.integers(1, 8))
        name = NAMES[(place + len(task.id)) % len(NAMES)]
        found += [(name, f"[{case}]" if cases > 1 else "", gate) for case in range(cases)]
    return found


def _outcomes(
    lab: Lab,
    tests: list[tuple[str, str, bool]],
    task_of: np.ndarray,
    people: np.ndarray,
    counting: np.ndarray,
    letters: np.ndarray,
    students: int,
    rng: np.random.Generator,
) -> LabOutcomes:
    gates = np.array([gate for _, _, gate in tests])
    most = np.array([task.points for task in lab.tasks])
    points = np.zeros((len(people), len(lab.tasks)))
    statuses = np.full(points.shape, ord(TaskStatus.WRONG.mark), np.uint8)
    for place in range(len(lab.tasks)):
        mine = task_of == place
        right = letters[:, mine] == PASSED
        reached = right[:, gates[mine]].all(axis=1)
        steps = right[:, ~gates[mine]]
        share = steps.mean(axis=1) if steps.size else np.ones(len(people))
        points[:, place] = np.where(reached, np.round(most[place] * share, 2), 0)
        statuses[points[:, place] > 0, place] = ord(TaskStatus.PARTIAL.mark)
        statuses[points[:, place] == most[place], place] = ord(TaskStatus.DONE.mark)
        undone = (letters[:, mine] == NOT_STARTED).all(axis=1)
        statuses[undone, place] = ord(TaskStatus.NOT_STARTED.mark)
    statuses[rng.random(points.shape) < 0.004] = ord(TaskStatus.DISTURBED.mark)
    marks: list[float | None] = [None] * students
    days = [0] * students
    for row in np.flatnonzero(counting):
        late = int(rng.random() < 0.12) * int(rng.integers(1, 4))
        days[people[row]] = late
        marks[people[row]] = round(float(points[row].sum()) * (1 - 0.1 * late), 2)
    causes = {
        int(people[row]): [
            (task.id, _causes(lab, place, rng))
            for place, task in enumerate(lab.tasks)
            if statuses[row, place] in b"x~" and rng.random() < 0.7
        ]
        for row in np.flatnonzero(counting)
    }
    return LabOutcomes(
        lab, tuple(tests), tuple((task.id, task.points) for task in lab.tasks), people, counting,
        letters, points, np.tile(most, (len(people), 1)), statuses, LabMarks(marks, days), causes,
    )  # fmt: skip


def _causes(lab: Lab, place: int, rng: np.random.Generator) -> tuple[str, ...]:
    of_task = [CAUSES[(place + int(lab.id[3:]) + more) % len(CAUSES)] for more in (0, 3, 5)]
    first = rng.choice(3, p=(0.6, 0.25, 0.15))
    both = rng.random() < 0.15
    return tuple(dict.fromkeys([of_task[first], of_task[(first + 1) % 3]][: 1 + both]))
