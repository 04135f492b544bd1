"""What a copy of the kit was handed out with."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.errors import LabError
from grader.lab import handed_out


def test_the_kit_itself_holds_all_tests(tmp_path: Path) -> None:
    assert handed_out.tests(tmp_path) == "all"


@pytest.mark.parametrize("which", ["all", "public", "none"])
def test_a_note_is_read_as_it_was_written(tmp_path: Path, which: handed_out.Tests) -> None:
    (tmp_path / handed_out.FILE).write_text(handed_out.note(which))
    assert handed_out.tests(tmp_path) == which


def test_a_note_that_was_edited_is_refused(tmp_path: Path) -> None:
    (tmp_path / handed_out.FILE).write_text('tests = "every"\n')
    with pytest.raises(LabError, match="'every'; unpack the release again"):
        handed_out.tests(tmp_path)
