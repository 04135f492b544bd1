"""What can go wrong, by who can mend it: the call, a lab, the kit or machine, student code."""

from __future__ import annotations

from grader.status import TestStatus


class LabError(Exception):
    """A lab that cannot be used as it stands; the text says what to mend."""


class SuiteFault(TypeError):
    """The suite asked for something that the wall does not do: not the student's fault."""


class RemoteError(Exception):
    """Base: a call into student code that gave no value. `where` is `file:line` in student code."""

    status = TestStatus.FAILED

    def __init__(self, text: str, where: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.where = where


class StudentError(RemoteError):
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


class NotStarted(RemoteError):
    """The call reached a placeholder; `task` is the name in it (`lab07.merge`)."""

    status = TestStatus.NOT_STARTED

    def __init__(self, task: str, where: str = "") -> None:
        super().__init__(f"{task} is not started", where)
        self.task = task


class LoadFailed(RemoteError):
    """A student's file does not import; the text is the one message that a learner needs."""

    status = TestStatus.ERROR


class Missing(RemoteError):
    """The name that a test calls is not in the student's files."""


class Refused(RemoteError):
    """Something that must not cross the wall tried to."""


class MalformedReply(Refused):
    """The process of student code sent what no server sends."""


class Timeout(RemoteError):
    """A call ran into its deadline."""

    status = TestStatus.TIMEOUT


class Crashed(RemoteError):
    """The process of the student's code ended in the middle of a call. `killed`: by a signal that
    could have come from elsewhere; another try says which."""

    status = TestStatus.ERROR

    def __init__(self, text: str, where: str = "", killed: bool = False) -> None:
        super().__init__(text, where)
        self.killed = killed


class OverLimit(Crashed):
    """The student's code took more than a worker has, and was ended."""


class WallFailed(Exception):
    """The wall around student code failed: not the student's fault."""


class MeasurementDisturbed(Exception):
    """A meter was tampered with, or was kept from seeing; the text says what was noticed."""


class Disturbed(RemoteError):
    """A meter found that what it measures with was tampered with."""

    status = TestStatus.ERROR


class CallError(Exception):
    """The call cannot be carried out; the text is a sentence for the instructor (exit status 2)."""


class Infrastructure(Exception):
    """The kit or the machine failed while a unit was graded: tried again, then listed, never a
    grade."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail
