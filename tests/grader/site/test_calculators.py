"""Calculators: the labs' code gives their figures, in plain Python and in a real browser."""

from __future__ import annotations

import ast
import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grader.errors import LabError
from grader.site.calculators import SENT, find_pyodide, write
from grader.site.calculators.calculator_pages import ROOT, body, data_script, sources
from grader.site.calculators.declaration import (
    Calculator,
    CalculatorLine,
    evaluated,
    exact,
    rounded,
    written,
)
from grader.site.calculators.every_calculator import CALCULATORS, answer
from grader.site.calculators.lab_sources import lab_sources
from grader.site.calculators.pyodide_files import FILES, FOLDER, VERSION
from tests.grader.classroom.report import browser as browsers
from tests.grader.classroom.report.browser import Watched
from tests.grader.site.calculator_cases import compensated_sum, drawn, summed_as_in_browser
from tests.grader.site.lab_modules import whole

PHONE, DESK = 390, 1280
BY_NAME = {one.name: one for one in CALCULATORS}
each_calculator = pytest.mark.parametrize("one", CALCULATORS, ids=list(BY_NAME))


def lines_of(name: str, **texts: str) -> dict[str, CalculatorLine]:
    one = BY_NAME[name]
    return {line.label: line for line in one.compute(one.read(texts), whole).lines}


# --- in plain Python ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "label", "texts", "value"),
    [
        # The numbers of elements in the published weights.
        ("training-memory", "Parameters", {"model": "Llama-2-7B"}, 6_738_415_616),
        ("inference-memory", "Parameters", {"model": "Llama-3-8B"}, 8_030_261_248),
        ("inference-memory", "Parameters", {"model": "GPT-2"}, 124_439_808),
        ("inference-memory", "Active parameters", {"model": "Mixtral-8x7B"}, 12_879_925_248),
        # 34 s b h a layer with dropout (Korthikanti et al. 2022, table 2, selective).
        (
            "training-memory",
            "Activations",
            {"recompute": "selective", "dropout": "true", "logits": "", "batch": "1"},
            32 * 34 * 4096 * 4096,
        ),
        # 2 x 32 layers x 8 heads x 128 x 2 bytes: 128 KiB a token.
        ("inference-memory", "KV cache a token", {"model": "Llama-3-8B"}, 128 * 1024),
        # 8 sequences of 4 KiB tokens: 128 KiB x 32 Ki tokens = 4 GiB.
        ("inference-memory", "KV cache", {"batch": "8"}, 4 * 1024**3),
        # Mistral v0.1 keeps 4,096 tokens of 100,000.
        (
            "inference-memory",
            "KV cache",
            {"model": "Mistral-7B-v0.1", "batch": "1", "seq": "100000"},
            4096 * 128 * 1024,
        ),
        # ZeRO, figure 1: 7.5 billion parameters on 64 ranks take 120, 31.4, 16.6 and 1.9 GB.
        ("zero-by-rank", "DDP", {"model": "count"}, 120_000_000_000),
        ("zero-by-rank", "ZeRO-1", {"model": "count"}, 31_406_250_000),
        ("zero-by-rank", "ZeRO-2", {"model": "count"}, 16_640_625_000),
        ("zero-by-rank", "ZeRO-3", {"model": "count"}, 1_875_000_000),
        # Of 128,256 rows in chunks of 2,004 the last of 64 ranks holds 128,256 - 63 x 2,004.
        ("zero-by-rank", "Rows of the embedding on rank 63", {"rank": "63"}, 2_004),
        # 16 tokens x 128 KiB.
        ("kv-blocks", "Bytes of a block", {}, 2 * 1024**2),
        ("kv-blocks", "Bytes of a block", {"tp": "16"}, 2 * 1024**2 // 8),
        # (0.5 x 40 GiB - 16,060,522,496) / 2 MiB = 2,581.8, and 512 blocks a request.
        (
            "kv-blocks",
            "Blocks",
            {"gpu": "40", "utilization": "0.5", "activations": "0", "other": "0"},
            2581,
        ),
        # 4 + 16 / 128, and 4 + 8 / 32.
        ("format-bits", "Bits a weight of a linear layer", {}, 4.125),
        ("format-bits", "Bits a weight of a linear layer", {"format": "MXFP4"}, 4.25),
        ("format-bits", "Bits a weight of a linear layer", {"format": "bf16"}, 16.0),
        ("format-bits", "Whole model", {"format": "bf16"}, 2 * 8_030_261_248),
        # A quarter of 80 layers on 8 ranks, and an eighth of the embedding.
        (
            "parallel-plan",
            "Weights",
            {},
            2
            * (
                20 * ((2 * 8192**2 + 3 * 8192 * 28672) / 8 + 2 * 8192 * 128 + 2 * 8192)
                + 128256 * 8192 / 8
            ),
        ),
    ],
)
def test_figures_that_are_published_or_made_by_hand(
    name: str, label: str, texts: dict[str, str], value: float
) -> None:
    assert lines_of(name, **texts)[label].value == value


@each_calculator
def test_each_formula_with_its_numbers_gives_its_value(one: Calculator) -> None:
    """50 inputs, as a reader can check it: without the labs."""
    seen = 0
    for texts in drawn(one):
        if "wrong" in answer(one.name, texts, whole):
            continue
        for line in one.compute(one.read(texts), whole).lines:
            if line.filled:
                seen += 1
                # Lines that are a difference lose digits; the floor of a quotient may not.
                same = pytest.approx(line.value, rel=1e-9, abs=1e-12)
                assert evaluated(line.filled) == same, (texts, line)
            elif not isinstance(line.value, str):
                pytest.fail(f"{line.label} has no formula")
    assert seen > 200


@each_calculator
def test_each_line_leads_to_a_heading_of_the_lab_s_page(one: Calculator) -> None:
    """Oracle: the page, with anchors as MkDocs makes them."""
    page = (ROOT / "exercises" / one.lab / "README.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#{2,3} (.+)$", page, re.MULTILINE)
    anchors = {
        re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
        for heading in headings
    }
    for texts in drawn(one)[:20]:
        with contextlib.suppress(KeyError):
            led = {line["section"] for line in answer(one.name, texts, whole)["lines"]}
            assert led <= anchors


@each_calculator
def test_every_choice_and_default_is_read(one: Calculator) -> None:
    """Oracle: the labs know every model that is offered."""
    assert "lines" in answer(one.name, {}, whole)
    for name, _ in one.inputs[0].choices:  # type: ignore[attr-defined]
        if name in whole("types_lab01").CONFIGS:
            said = answer(one.name, {"model": name}, whole)
            assert said.get("wrong") != "model", said


def test_every_model_of_lab_01_is_offered() -> None:
    offered = [value for value, _ in BY_NAME["training-memory"].inputs[0].choices]  # type: ignore[attr-defined]
    assert set(whole("types_lab01").CONFIGS) <= set(offered)


def test_every_format_of_lab_11_is_offered() -> None:
    plans = whole("plans_lab11")
    choice = next(one for one in BY_NAME["format-bits"].inputs if one.name == "format")
    offered = {value for value, _ in choice.choices}  # type: ignore[attr-defined]
    assert {one.name for one in (*plans.FORMATS, plans.W4A16_ASYM)} == offered - {"own"}


LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}
DEEP = "[" * 100_000 + "]" * 100_000
HOSTILE = {
    "": "Paste the text of a config.json here.",
    "   \n": "Paste the text of a config.json here.",
    "Llama": "This is not JSON: Expecting value, at line 1, column 1.",
    '{"model_type": "llama",}': "This is not JSON:",
    "[]": "not an object",
    "null": "not an object",
    '"llama"': "not an object",
    "NaN": "NaN stands in it",
    '{"a": Infinity}': "Infinity stands in it",
    "{}": "no `model_type`",
    DEEP[:150_000]: "nested more than 20 deep",
    '{"a": ' + "9" * 5000 + "}": "This is not a config.json",
    '{"a": "' + "x" * 250_000 + '"}': "at most 200,000",
    '{"model_type": "bert"}': "'bert' is not one of the families here",
    '{"model_type": ["llama"]}': 'must be a name such as "llama"',
    '{"model_type": {"toString": 1}}': 'must be a name such as "llama"',
    '{"model_type": "<img src=x onerror=alert(1)>"}': "is not one of the families here",
    '{"model_type": "llava", "text_config": {}}': "`text_config` alone",
    json.dumps({**LLAMA, "hidden_size": "4096"}): 'hidden_size is "4096"; it must be a whole',
    json.dumps({**LLAMA, "hidden_size": 4096.5}): "hidden_size is 4096.5; it must be a whole",
    json.dumps({**LLAMA, "hidden_size": -1}): "hidden_size is -1; it must be a whole",
    json.dumps({**LLAMA, "hidden_size": True}): "hidden_size is true; it must be a whole",
    json.dumps({**LLAMA, "hidden_size": 10**30}): "it must be a whole number from 1 to",
    json.dumps({**LLAMA, "hidden_size": 8}): "head_dim is 0",
    json.dumps({**LLAMA, "num_attention_heads": 0}): "num_attention_heads is 0",
    json.dumps({**LLAMA, "num_hidden_layers": 10**9}): "num_hidden_layers is 1000000000",
    json.dumps({**LLAMA, "num_key_value_heads": 5}): "32 query heads cannot share 5",
    json.dumps({**LLAMA, "tie_word_embeddings": "yes"}): "must be true or false",
    json.dumps({key: LLAMA[key] for key in list(LLAMA)[:4]}): "needs `num_attention_heads`",
    json.dumps(
        {**LLAMA, "model_type": "gemma2", "head_dim": 128, "layer_types": "sliding"}
    ): "layer_types must be a list",
    json.dumps(
        {**LLAMA, "model_type": "gemma2", "head_dim": 128, "layer_types": [["full_attention"]]}
    ): "layer_types must be a list",
    json.dumps(
        {**LLAMA, "model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 4}
    ): "a token cannot go to more than there are",
}


@each_calculator
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_config_gets_a_sentence(one: Calculator, text: str) -> None:
    said = answer(one.name, {"model": "config.json", "config": text}, whole)
    assert said["wrong"] == "config"
    assert HOSTILE[text] in said["sentence"]
    assert len(said["sentence"]) < 400


@each_calculator
def test_no_field_is_unknown_to_the_labs_reader_with_any_type(one: Calculator) -> None:
    """Every field of every family with values of every type: an answer or a sentence."""
    values: list[Any] = [None, 0, -1, 1.5, 10**40, "x", "", [], [1], {}, {"a": 1}, True, False]
    configs = whole("types_lab01").CONFIGS
    for name in ("Qwen3-30B-A3B", "Gemma-2-9B", "GPT-2", "OPT-13B", "Mistral-7B-v0.1"):
        config = configs[name]
        for field in config:
            for value in values:
                text = json.dumps({**config, field: value})
                said = answer(one.name, {"model": "config.json", "config": text}, whole)
                assert "lines" in said or (said["wrong"] == "config" and said["sentence"])


def test_experts_beyond_counting_are_refused_at_once() -> None:
    config = {
        **LLAMA, "model_type": "mixtral", "num_local_experts": 10**8, "num_experts_per_tok": 2,
    }  # fmt: skip
    texts = {"model": "config.json", "config": json.dumps(config)}
    assert "at most 50,000" in answer("format-bits", texts, whole)["sentence"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "This is nothing; it must be a whole number from 1 to 1,000,000."),
        ("four", "This is four; it must be a whole number from 1 to 1,000,000."),
        ("0", "This is 0; it must"),
        ("-3", "This is -3; it must"),
        ("1e999999999", "This is 1e999999999; it must"),
        ("9" * 5000, "it must be a whole number"),
        ("nan", "This is nan; it must"),
        ("snan", "This is snan; it must"),
        ("Infinity", "This is Infinity; it must"),
        ("1.5", "This is 1.5; it must be a whole number."),
        ("1e-999999999", "it must be a whole number"),
    ],
)
def test_a_wrong_number_gets_a_sentence(text: str, sentence: str) -> None:
    said = answer("training-memory", {"batch": text}, whole)
    assert said["wrong"] == "batch"
    assert sentence in said["sentence"]
    assert len(said["sentence"]) < 120


@pytest.mark.parametrize("text", ["4,096", " 4096 ", "4096.0", "4.096e3"])
def test_numbers_are_read_as_people_write_them(text: str) -> None:
    assert answer("training-memory", {"seq": text}, whole) == answer("training-memory", {}, whole)


def test_a_broken_rule_of_lab_12_stands_at_its_field() -> None:
    said = answer("parallel-plan", {"dp": "3"}, whole)
    assert said["wrong"] == "dp"
    assert said["sentence"].startswith("This plan cannot start: TP 8 x PP 4 x CP 1 x DP 3 = 96")


def test_a_hidden_field_does_not_count() -> None:
    assert answer("zero-by-rank", {"params": "rubbish"}, whole) == answer("zero-by-rank", {}, whole)


@pytest.mark.parametrize(
    ("value", "unit", "digits", "said"),
    [
        (16060522496, "bytes", "16,060,522,496", "14.96 GiB"),
        (16060522496.0, "bytes", "16,060,522,496", "14.96 GiB"),
        (0.1 + 0.2, "s", "0.30000000000000004", "300.00 ms"),
        (12345.678901, "tokens/s", "12,345.678901", "12,345.68 tokens/s"),
        (512, "bytes", "512", ""),
        (4.125, "bits", "4.125", ""),
        (1e300, "bytes", "1e+300", f"{1e300 / 1024**4:,.2f} TiB"),
        ("ZeRO", "", "ZeRO", ""),
    ],
)
def test_how_figures_are_written(value: Any, unit: str, digits: str, said: str) -> None:
    assert (exact(value), rounded(value, unit)) == (digits, said)


def test_how_formulas_are_written() -> None:
    shown = written("2 * 8030261248 - 4096 * 0.123456789 / 9.89e14 + 12345")
    assert shown == "2 × 8,030,261,248 − 4096 × 0.123456789 / 9.89e14 + 12,345"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="`sum` carries errors along from 3.12 on")
def test_the_sum_of_newer_pythons() -> None:
    values = [0.1] * 10 + [1, 1e100, 3, -1e100]
    assert compensated_sum(values) == sum(values)


# --- what is sent to the browser ------------------------------------------------------------------


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sent")
    for name, text in sources().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_the_cut_files_give_what_the_whole_ones_give(sent: Path) -> None:
    """In a Python that has the cut files alone: no kit, no torch, no NumPy."""
    asked = [(one.name, texts) for one in CALCULATORS for texts in drawn(one)]
    script = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from grader.site.calculators.every_calculator import answer_in_browser as ask\n"
        "said = [ask(name, json.dumps(texts)) for name, texts in json.load(sys.stdin)]\n"
        "assert not {'torch', 'numpy', 'msgspec'} & set(sys.modules)\n"
        "print(json.dumps(said))"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(sent)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    for (name, texts), said in zip(asked, json.loads(run.stdout), strict=True):
        assert json.loads(said) == answer(name, texts, whole)


def test_what_stays_of_a_file_stands_on_its_line_to_the_letter(sent: Path) -> None:
    """Oracle: the files themselves."""
    for path in sent.glob("*.py"):
        whole_file = next(
            ROOT / folder / lab / path.name
            for folder in ("solutions", "exercises")
            for lab in ("lab01", "lab08", "lab10", "lab11", "lab12")
            if (ROOT / folder / lab / path.name).is_file()
        )
        original = whole_file.read_text(encoding="utf-8").splitlines()
        kept = path.read_text(encoding="utf-8").splitlines()
        assert len(kept) == len(original)
        for mine, its in zip(kept[1:], original[1:], strict=True):
            assert mine in ("", its) or mine.startswith(("import ", "from "))


def test_modules_of_the_kit_that_are_sent_need_nothing_else() -> None:
    for name in SENT:
        path = ROOT / "grader" / "site" / "calculators" / f"{name}.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [str(node.module)]
            for module in modules:
                its = module.removeprefix("grader.site.calculators.")
                assert its in SENT or module.split(".")[0] in sys.stdlib_module_names


def planted(folder: Path, reference: str, given: str = "") -> Path:
    for name, text in (("solutions", reference), ("exercises", given)):
        (folder / name / "lab01").mkdir(parents=True)
        if text:
            file = "bytes_here.py" if name == "solutions" else "types_here.py"
            (folder / name / "lab01" / file).write_text(text, encoding="utf-8")
    return folder


def test_a_function_that_needs_torch_is_refused(tmp_path: Path) -> None:
    root = planted(tmp_path, "import torch\n\ndef size(n):\n    return torch.tensor(n)\n")
    with pytest.raises(LabError, match=r"line 1: a calculator uses size, which needs torch"):
        lab_sources(root, "lab01", {"bytes_here": ("size",)})


def test_torch_beside_a_function_that_does_not_need_it_is_cut(tmp_path: Path) -> None:
    text = (
        "import torch\n\n@torch.no_grad()\ndef b(x):\n    pass\n\n"
        "def size(n: torch.Tensor):\n    return 2 * n\n"
    )
    cut = lab_sources(planted(tmp_path, text), "lab01", {"bytes_here": ("size",)})["bytes_here"]
    assert "import torch" not in cut
    space: dict[str, Any] = {}
    exec(compile(cut, "bytes_here.py", "exec"), space)
    assert (space["size"](3), "b" in space) == (6, False)


def test_a_statement_that_changes_what_stays_is_refused(tmp_path: Path) -> None:
    text = "SIZES = {}\nSIZES.update(a=1)\n\ndef size():\n    return SIZES\n"
    with pytest.raises(LabError, match=r"line 2: this statement changes something"):
        lab_sources(planted(tmp_path, text), "lab01", {"bytes_here": ("size",)})


def test_a_later_binding_of_a_name_stays(tmp_path: Path) -> None:
    text = "SIZE = 1\nSIZE += 2\nif SIZE:\n    SIZE = 7\n\ndef size():\n    return SIZE\n"
    cut = lab_sources(planted(tmp_path, text), "lab01", {"bytes_here": ("size",)})["bytes_here"]
    space: dict[str, Any] = {}
    exec(cut, space)
    assert space["size"]() == 7


def test_a_given_file_follows_the_names_that_are_used(tmp_path: Path) -> None:
    root = planted(
        tmp_path,
        "from types_here import Big, Other\n\ndef size():\n    return Big\n",
        "import numpy\nBASE = 2\nBig = BASE\nOther = numpy.zeros(3)\n",
    )
    cut = lab_sources(root, "lab01", {"bytes_here": ("size",)})
    assert "Other" not in cut["types_here"] + cut["bytes_here"]
    assert "BASE = 2\nBig = BASE" in cut["types_here"]


def test_a_name_that_is_missing_is_named(tmp_path: Path) -> None:
    root = planted(tmp_path, "def size():\n    return 1\n")
    with pytest.raises(LabError, match="has no sizes, which a calculator uses"):
        lab_sources(root, "lab01", {"bytes_here": ("sizes",)})


def test_the_references_cannot_be_read_in_what_is_written() -> None:
    script = data_script()
    for text in sources().values():
        for line in text.splitlines():
            assert len(line) < 20 or line not in script
    assert data_script() == script


def test_without_pyodide_nothing_is_written(tmp_path: Path) -> None:
    assert write(tmp_path / "new", None) == []
    assert not (tmp_path / "new").exists()


def test_where_pyodide_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    assert find_pyodide() is None
    for folder in (
        tmp_path / "cache" / "infralens" / f"pyodide-{VERSION}",
        Path("node_modules/pyodide"),
        tmp_path / "own",
    ):
        folder.mkdir(parents=True)
        (folder / "pyodide.asm.wasm").touch()
        if folder.name == "own":
            monkeypatch.setenv(FOLDER, str(folder))
        assert find_pyodide() == folder
    monkeypatch.setenv(FOLDER, str(tmp_path / "nowhere"))
    with pytest.raises(LabError, match=r"nowhere, where pyodide.asm.wasm is missing"):
        find_pyodide()


def test_files_of_another_pyodide_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"pyodide.js cannot be read .*npm install pyodide@"):
        write(tmp_path / "out", tmp_path)
    for name in FILES:
        (tmp_path / name).write_text("other")
    with pytest.raises(LabError, match=r"not the file of Pyodide .*SHA-256 is another"):
        write(tmp_path / "out", tmp_path)
    assert not (tmp_path / "out").exists()


@each_calculator
def test_a_form_names_and_describes_each_field(one: Calculator) -> None:
    page = body(one, "../files/", "../exercises/{lab}/index.html#{section}")
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for each in one.inputs:
        assert f'<label for="{one.name}-{each.name}">' in page
        assert (
            f'aria-describedby="{one.name}-{each.name}-hint {one.name}-{each.name}-error"' in page
        )
    assert f'href="../exercises/{one.lab}/index.html"' in page
    assert 'data-lab-page="../exercises/' in page
    assert "{lab}" not in page


# --- in a real browser ----------------------------------------------------------------------------

MISSING = browsers.missing() or ("" if find_pyodide() else f"no Pyodide {VERSION}: set {FOLDER}")
needs_browser = pytest.mark.skipif(bool(MISSING), reason=MISSING)
FRAME = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>@media (prefers-color-scheme: dark) {{ body {{ background: #161a20; color: #e6e9ee; }} }}
</style></head><body><main><h1>{title}</h1>{body}</main></body></html>"""


class Site:
    """A folder with a page of each calculator, and one page, open from the disk, with all."""

    def __init__(self, folder: Path, chromium: Any) -> None:
        self.folder, self.chromium = folder, chromium
        pages = write(
            folder / "files", find_pyodide(), files="files/", lab_page="{lab}.html#{section}"
        )
        for page in pages:
            text = FRAME.format(title=page.title, body=page.body)
            (folder / f"{page.name}.html").write_text(text, encoding="utf-8")
        text = FRAME.format(title="All", body="".join(page.body for page in pages))
        (folder / "all.html").write_text(text, encoding="utf-8")

    def open(self, name: str, width: int = DESK) -> Watched:
        context = self.chromium.new_context(viewport={"width": width, "height": 844})
        watched = Watched(context.new_page())
        page = watched.page
        page.on("console", lambda said: watched.complaints.append(said.text))
        page.on("pageerror", lambda error: watched.complaints.append(str(error)))
        page.on("dialog", lambda box: (watched.complaints.append(box.message), box.dismiss()))
        context.on("request", lambda request: watched.requests.append(request.url))
        page.goto((self.folder / "x").as_uri()[:-1] + name)
        return watched


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with browsers.started() as started:
        yield Site(tmp_path_factory.mktemp("site"), started.chromium)


@pytest.fixture(scope="module")
def every(site: Site) -> Iterator[Watched]:
    watched = site.open("all.html")
    watched.page.wait_for_function(
        "document.querySelectorAll('.calculator[data-answered]').length === 6", timeout=120_000
    )
    yield watched
    assert watched.complaints == []
    assert all(url.startswith(("file:", "blob:")) for url in watched.requests)


@needs_browser
@each_calculator
def test_the_browser_s_figures_are_python_s_to_the_last_digit(
    every: Watched, one: Calculator
) -> None:
    cases = drawn(one)
    said = every.page.evaluate(
        "async ([name, cases]) => { const all = [];"
        " for (const one of cases) all.push(await InfralensCalculators.engine.ask(name, one));"
        " return all; }",
        [one.name, cases],
    )
    with summed_as_in_browser():
        for texts, mine in zip(cases, said, strict=True):
            assert mine == json.loads(json.dumps(answer(one.name, texts, whole))), texts


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_calculators(every: Watched, scheme: str) -> None:
    """Results, hidden fields and an error. Oracle: axe-core."""
    from axe_playwright_python.sync_playwright import Axe

    every.page.emulate_media(color_scheme=scheme)
    wrong = every.page.locator("#training-memory-batch")
    wrong.fill("many")
    every.page.locator("#zero-by-rank-model").select_option("count")
    every.page.wait_for_selector("#training-memory-batch[aria-invalid]")
    # Without a server axe cannot fetch style sheets, which no rule here needs, and would complain.
    found = Axe().run(every.page, options={"preload": False})
    assert found.response["violations"] == [], found.generate_report()
    wrong.fill("4")
    every.page.wait_for_selector("#training-memory-batch:not([aria-invalid])")


@needs_browser
def test_every_hostile_config_is_answered_in_the_browser(every: Watched) -> None:
    asked = [{"model": "config.json", "config": text} for text in HOSTILE]
    said = every.page.evaluate(
        "async (cases) => { const all = []; for (const one of cases)"
        " all.push(await InfralensCalculators.engine.ask('inference-memory', one)); return all; }",
        asked,
    )
    for sentence, mine in zip(HOSTILE.values(), said, strict=True):
        assert mine["wrong"] == "config"
        assert sentence in mine["sentence"]


@needs_browser
def test_a_reader_s_way_through_a_page(site: Site) -> None:
    """By keyboard, on a phone: a shared link, a pasted file, a mistake, and the new link."""
    watched = site.open("inference-memory.html#batch=16&model=Qwen3-8B&rubbish=%3Cb%3E", PHONE)
    page = watched.page
    assert page.locator("form").is_visible()
    page.wait_for_selector(".calculator[data-answered]", timeout=60_000)
    assert page.locator("#inference-memory-batch").input_value() == "16"
    expected = lines_of("inference-memory", model="Qwen3-8B", batch="16")["Total"]
    assert f"{expected.value:,} bytes" in page.locator(".calculator-main").first.inner_text()
    assert watched.overflow() == 0

    page.locator("#inference-memory-model").focus()
    page.keyboard.press("End")  # "Paste a config.json" comes last
    page.keyboard.press("Tab")
    page.keyboard.insert_text('{"model_type": "<img src=x onerror=alert(1)>"}')
    page.wait_for_selector("#inference-memory-config[aria-invalid]")
    error = page.locator("#inference-memory-config-error")
    assert "is not one of the families here" in error.inner_text()
    assert error.inner_text() in page.locator("[role=status]").inner_text()
    assert page.locator(".calculator-result").is_hidden()

    page.locator("#inference-memory-config").fill(json.dumps(LLAMA))
    page.wait_for_selector(".calculator-result:not([hidden])")
    status = page.locator("[role=status]")
    assert "Total: " in status.text_content()
    assert watched.overflow() == 0
    table = page.locator(".calculator-table").inner_text()
    assert (
        page.locator(".calculator-from a").first.get_attribute("href") == "lab01.html#line-by-line"
    )

    left = page.evaluate("location.hash")
    page.evaluate("location.hash = 'batch=1'")
    page.wait_for_function(
        "text => document.querySelector('.calculator-table').innerText !== text", arg=table
    )
    assert page.locator("#inference-memory-model").input_value() == "Llama-3-8B"
    page.evaluate("hash => { location.hash = hash; }", left)
    page.wait_for_function(
        "text => document.querySelector('.calculator-table').innerText === text", arg=table
    )
    assert json.loads(page.locator("#inference-memory-config").input_value()) == LLAMA
    assert watched.complaints == []
    assert all(url.startswith(("file:", "blob:")) for url in watched.requests)
    page.context.close()
