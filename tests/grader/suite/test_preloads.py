"""What of the kit a text uses, read off its imports."""

from __future__ import annotations

import pytest

from grader.suite import preloads


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("from grader import meters", [preloads.METERS]),
        ("    from grader import kernels, meters\n", [preloads.METERS]),
        ("import grader.meters as m", [preloads.METERS]),
        ("from grader.meters import op_log", [preloads.METERS]),
        ("from grader import ranks", [preloads.METERS]),
        ("from grader import (\n    kernels,\n    ranks,\n)", [preloads.METERS]),
        ("from grader import kernels\nkernels.watched(f)", [preloads.TRITON_GUARD]),
        (
            "from grader import kernels, meters\nkernels.watched(f)",
            [preloads.TRITON_GUARD, preloads.METERS],
        ),
        ("from grader import kernels  # no meters", []),
        ("def parameters(meters): watched(kernels)", []),
        ("", []),
    ],
)
def test_entry_points_follow_from_the_imports(text: str, names: list[str]) -> None:
    assert preloads.of_texts([text, text]) == names
