"""What can go wrong on the far side of the wall, as the trusted side sees it."""

from __future__ import annotations

from grader.status import TestStatus


class SuiteFault(TypeError):
    """The suite asked for something that the wall does not do: no fault of the student's."""


class FarSideError(Exception):
    """Base: a call into student code that gave no value. `where` is `file:line` in student code."""

    status = TestStatus.FAILED

    def __init__(self, text: str, where: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.where = where


class StudentError(FarSideError):
    """Student code raised. `type_name` and `bases` are names only: no class crosses the wall."""

    def __init__(
        self,
        type_name: str,
        text: str,
        where: str = "",
        bases: tuple[str, ...] = (),
        trace: tuple[str, ...] = (),
    ) -> None:
        super().__init__(text, where)
        self.type_name = type_name
        self.bases = bases or (type_name,)
        self.trace = trace

    def __str__(self) -> str:
        return f"{self.type_name}: {self.text}"


class NotStarted(FarSideError):
    """The call reached a placeholder; `task` is the name in it (`lab07.merge`)."""

    status = TestStatus.NOT_STARTED

    def __init__(self, task: str, where: str = "") -> None:
        super().__init__(f"{task} is not started", where)
        self.task = task


class LoadFailed(FarSideError):
    """A student's file does not import; the text is the one message that a learner needs."""

    status = TestStatus.ERROR


class Missing(FarSideError):
    """The name that a test calls is not in the student's files."""


class Refused(FarSideError):
    """Something that must not cross the wall tried to."""


class Timeout(FarSideError):
    """A call ran into its deadline."""

    status = TestStatus.TIMEOUT


class Crashed(FarSideError):
    """The process of the student's code ended in the middle of a call. `killed`: by a signal that
    could have come from elsewhere; the same again tells."""

    status = TestStatus.ERROR

    def __init__(self, text: str, where: str = "", killed: bool = False) -> None:
        super().__init__(text, where)
        self.killed = killed


class OverLimit(Crashed):
    """The student's code took more than a worker has, and was ended."""


class WallFailed(Exception):
    """What stands around student code failed: no fault of the student's."""


class MeasurementDisturbed(Exception):
    """A meter was tampered with, or was kept from seeing; the text says what was noticed."""


class Disturbed(FarSideError):
    """A meter found that what it measures with was tampered with."""

    status = TestStatus.ERROR
