"""`infralens lint` on the tests that a lab's manifest calls public: learners get these, and all
that they reach."""

from __future__ import annotations

from collections.abc import Iterator

from grader.lab.manifest import Task
from grader.suite import secret_lines
from grader.suite.line_index import LineIndex
from grader.suite.model import Suite, Test
from grader.suite.reachable import Closure, TestName, public_tests
from grader.suite.secret_lines import NotSecret


def faults(suite: Suite) -> Iterator[str]:
    """A sentence for each public test that is none, and for what one must not reach."""
    tests = {(case.test.task, case.test.name): case.test for case in suite.cases}
    public = {task.id: task.public for task in suite.lab.tasks}
    for task in suite.lab.tasks:
        yield from _of_task(task, tests, public)
    yield from _of_closure(suite)


def _of_task(
    task: Task, tests: dict[TestName, Test], public: dict[str, tuple[str, ...]]
) -> Iterator[str]:
    where = f"exercises/{task.lab}/lab.toml: task `{task.id}`"
    found = []
    for name in task.public:
        test = tests.get((task.id, name))
        if test is None:
            yield f"{where}: public lists {name}, and the suite has no such test of the task."
            continue
        found.append(test)
        for other in (each.task for each in tests.values() if each.function is test.function):
            if name not in public[other]:
                yield f"{where}: {name} is a test of `{other}` as well; call it public there, too."
    if not any(test.gate and test.scored for test in found):
        yield f"{where} has no public gate: list one in `public` that shows a right answer's form."


def _of_closure(suite: Suite) -> Iterator[str]:
    lab = suite.lab
    wanted = public_tests(lab)
    closure = Closure(lab, wanted)
    for name, module in closure.modules.items():
        for index, test in module.tests:
            if index in closure.kept[name] and test[1] not in lab.public:
                yield f"tests/{lab.id}/{name}.py: a public test reaches the hidden {test[1]}."
    allowed = NotSecret(lab, "public")
    lines = LineIndex((each.words, each) for each in secret_lines.of_reference(lab))
    for name, text in closure.texts().items():
        file = f"tests/{lab.id}/{name}"
        for secret, at in lines.found_in(text):
            if not allowed.allows(secret.words, file):
                line = text.count("\n", 0, at) + 1
                yield (
                    f"{file}: public tests reach {secret.text!r} (line {line} of what is handed "
                    f"out), which stands at {secret.place}; choose another public test."
                )
