"""One small change of a reference, as text: what every module of operators yields."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """One change of a task's blocks: `old` at `start` of the file's text becomes `new`."""

    operator: str
    start: int
    old: str
    new: str

    def applied(self, text: str) -> str:
        """The text with the change in it. Raises ValueError if `old` does not stand there."""
        end = self.start + len(self.old)
        if text[self.start : end] != self.old:
            raise ValueError(f"{self.old!r} does not stand at character {self.start}")
        return f"{text[: self.start]}{self.new}{text[end:]}"
