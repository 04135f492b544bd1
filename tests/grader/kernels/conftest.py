"""Compiling a text of kernels once for all tests of a file."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from grader import kernels


@pytest.fixture(scope="module")
def cu(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], kernels.Module]:
    """Compiles a text under the name `k.cu`."""
    folder = tmp_path_factory.mktemp("cu")

    def built(text: str) -> kernels.Module:
        path = folder / "k.cu"
        path.write_text(text, encoding="utf-8")
        return kernels.compile(path)

    return built
