"""In every lab a right value does not save an answer that changed its argument.

Each row is the reference with one thing more: it writes to an argument. Its values stay right, so
no other test has anything to say. Oracle: the row itself names the function and the parameter."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.lab.manifest import find_root, load_lab
from grader.suite.model import load_suite
from grader.suite.run import reference_backend, run_case, seed_of

ROOT = find_root(Path(__file__))


def after(name: str, parameters: str, deed: str) -> tuple[str, str]:
    """Code behind the reference's: its function does the deed when its value is made."""
    call = ", ".join(part.partition("=")[0].strip("* ") for part in parameters.split(","))
    return "", (
        f"\n\n_right_{name} = {name}\n\n\ndef {name}({parameters}):\n"
        f"    _result = _right_{name}({call})\n    {deed}\n    return _result\n"
    )


# lab, task, (old text, new text), what is said
PLANTED: list[tuple[str, str, tuple[str, str], str]] = [
    (
        "lab01",
        "bottleneck",
        after("bottleneck", "ledger", "object.__setattr__(ledger, 'weights', -1.0)"),
        "`bottleneck` changed its argument `ledger`: ledger.weights was ",
    ),
    (
        "lab02",
        "LossScaler",
        ("return loss * self.current", "return loss.mul_(self.current)"),
        "`LossScaler.scale` changed its argument `loss`: loss was ",
    ),
    (
        "lab02",
        "summarize_snapshot",
        after("summarize_snapshot", "segments", "segments.append({})"),
        "`summarize_snapshot` changed its argument `segments`: it had ",
    ),
    (
        "lab03",
        "assign_buckets",
        after("assign_buckets", "nbytes, caps", "caps.pop(0)"),
        "`assign_buckets` changed its argument `caps`: it had ",
    ),
    (
        "lab04",
        "reduce_atomic",
        (
            "    // END SOLUTION\n",
            "    if (blockIdx.x == 0 && threadIdx.x == 0 && n > 0) ((float *)in)[0] = 12345;\n"
            "    // END SOLUTION\n",
        ),
        "`reduce_atomic` changed its argument `in`: in[0] was ",
    ),
    (
        "lab05",
        "conflict_degree",
        after("conflict_degree", "byte_addresses, width", "byte_addresses.append(0)"),
        "`conflict_degree` changed its argument `byte_addresses`",
    ),
    (
        "lab06",
        "naive_softmax",
        after("naive_softmax", "x", "x.add_(1)"),
        "`naive_softmax` changed its argument `x`: x[",
    ),
    (
        "lab06",
        "softmax_backward",
        ("return softmax_backward(p, dp)", "return p.copy_(softmax_backward(p, dp))"),
        "`SoftmaxFunction.backward` changed its argument `p`: p[",
    ),
    (
        "lab06",
        "softmax_dropout",
        after("softmax_dropout_backward", "p, dout, rate, seed", "p.copy_(_result)"),
        "`softmax_dropout_backward` changed its argument `p`: p[",
    ),
    (
        "lab07",
        "naive_attention",
        after("naive_attention", "q, k, v, causal=False, scale=None", "q *= 0.5"),
        "`naive_attention` changed its argument `q`: q[",
    ),
    (
        "lab07",
        "flash_forward",
        (
            's = torch.einsum("bhgqd,bhkd->bhgqk", q_i, k_j) * scale\n',
            "if j == 0:\n                q_i *= scale\n"
            '            s = torch.einsum("bhgqd,bhkd->bhgqk", q_i, k_j)\n',
        ),
        "`flash_forward` changed its argument `q`: q[",
    ),
    (
        "lab08",
        "flat_partition",
        after("flat_partition", "numels, N, align=1", "numels.clear()"),
        "`flat_partition` changed its argument `numels`",
    ),
    (
        "lab08",
        "MasterWeights",
        ("grad = grad.float()\n", "grad.mul_(1.5)\n        grad = grad.float() / 1.5\n"),
        "`MasterWeights.step` changed its argument `grad`: grad[",
    ),
    (
        "lab09",
        "roofline",
        after("roofline", "rows, peaks", "rows.reverse()"),
        "`roofline` changed its argument `rows`",
    ),
    (
        "lab10",
        "BlockPool",
        (
            "references, hash_of = self._references, self._hash_of\n",
            "references, hash_of = self._references, self._hash_of\n"
            "        blocks, given = list(blocks), blocks\n"
            "        if isinstance(given, list):\n"
            "            given.clear()\n",
        ),
        "`BlockPool.free` changed its argument ",
    ),
    (
        "lab10",
        "Scheduler",
        (
            "known = [*req.prompt_tokens, *[GENERATED_TOKEN] * req.out_tokens]\n",
            "known = req.prompt_tokens\n"
            "            known.extend([GENERATED_TOKEN] * req.out_tokens)\n",
        ),
        "`Scheduler` changed its argument `requests`",
    ),
    (
        "lab11",
        "gptq",
        ("w, h = w.clone(), h.to(w.dtype)\n", "h = h.to(w.dtype)\n"),
        "`gptq` changed its argument `w`: w[",
    ),
    (
        "lab12",
        "memory",
        after("memory", "plan, model", "object.__setattr__(plan, 'micro', plan.micro + 1)"),
        "`memory` changed its argument `plan`: plan.micro was ",
    ),
    (
        "lab13",
        "blend",
        after("blend", "prev, cur, extent, dim", "cur.copy_(_result + 1)"),
        "`blend` changed its argument `cur`: cur[",
    ),
    (
        "lab13",
        "blend",
        ("out = cur.clone()\n", "out = cur\n"),
        "`blend` changed its argument `cur`: cur[",
    ),
    (
        "lab13",
        "blend",
        ("return cur.clone()\n", "return cur\n"),
        "`blend` returned its argument `cur` itself",
    ),
    (
        "lab06",
        "softmax_scaled_masked",
        after("softmax_scaled_masked", "x, scale=1.0, mask=None", "x.zero_()"),
        "`softmax_scaled_masked` changed its argument `x`: x[",
    ),
]


def planted(source: str, change: tuple[str, str]) -> str:
    old, new = change
    if not old:
        return source + new
    assert old in source
    return source.replace(old, new, 1)


@pytest.mark.parametrize(
    ("lab_id", "task", "change", "sentence"),
    PLANTED,
    ids=[f"{lab_id}-{task}-{at}" for at, (lab_id, task, _, _) in enumerate(PLANTED)],
)
def test_an_answer_that_changes_its_argument_is_refused_by_name(
    tmp_path: Path, lab_id: str, task: str, change: tuple[str, str], sentence: str
) -> None:
    lab = load_lab(ROOT, lab_id)
    suite = load_suite(lab)
    lab.copy_to(tmp_path / lab_id)
    file = tmp_path / lab_id / lab.task(task).file
    file.write_text(planted(file.read_text(), change))
    with reference_backend(suite, file.parent) as backend:
        outcomes = [
            run_case(suite, case, backend, file.parent, seed_of(case))
            for case in suite.cases_of(task)
        ]
    failed = [each for each in outcomes if each.case.test.gate and each.lines]
    said = [line for each in failed if not each.status.is_pass for line in each.lines]
    assert [line for line in said if sentence in line], said[:5]
    named = next(each for each in failed if any(sentence in line for line in each.lines))
    assert named.site[1] > 0
    assert named.because


def test_every_lab_has_a_row() -> None:
    assert {row[0] for row in PLANTED} == {f"lab{number:02}" for number in range(1, 14)}


@pytest.mark.parametrize("lab_id", sorted({row[0] for row in PLANTED}))
def test_what_a_manifest_names_is_in_the_reference(lab_id: str) -> None:
    """Functions and parameters of `mutates` and `returns_new` stand in the reference's text."""
    lab = load_lab(ROOT, lab_id)
    text = "\n".join((lab.solution / name).read_text() for name in lab.edit)
    for row in lab.mutates:
        function, _, parameter = row.rpartition(".")
        lines = text.partition(f"def {function.rpartition('.')[2]}(")[2].partition(") ->")[0]
        assert f"{parameter}:" in lines, row
    for name in lab.new:
        assert f"def {name.rpartition('.')[2]}(" in text, name
