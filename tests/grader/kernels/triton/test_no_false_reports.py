"""Right kernels are not blamed, in any order of their programs, and give right values."""

from __future__ import annotations

import pytest
import torch

from grader import kernels

from . import right_kernels


@pytest.mark.parametrize("case", right_kernels.CASES, ids=lambda case: case.__name__)
@pytest.mark.filterwarnings("ignore:tl.make_block_ptr")
def test_a_right_kernel_is_not_blamed(case: right_kernels.Case) -> None:
    for seed in (0, 1, 2):
        value, reports = kernels.watched(case, seed=seed)
        found = [kernels.Report.from_plain(report) for report in reports]
        assert found, "nothing was launched"
        assert [text for report in found for text in report.sentences] == []
        assert value is not None
        got, want = value
        torch.testing.assert_close(got, want, equal_nan=False)


def test_the_list_is_long_enough() -> None:
    names = [case.__name__ for case in right_kernels.CASES]
    assert len(names) == len(set(names)) >= 25
