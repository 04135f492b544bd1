"""What `infralens site` refuses, by planted faults: in a kit with one lab, and in built pages."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.errors import LabError
from grader.lab.manifest import find_root
from grader.site import inline_pictures, markup, mkdocs_build, site_check, site_command, used_styles
from grader.site.inline_pictures import Drawings
from grader.site.site_links import LinkMap, into_kit
from grader.site.site_pages import SiteFault, SitePage

pytest.importorskip("mkdocs", reason="no mkdocs: pip install -e '.[dev]'")
ROOT = find_root(Path(__file__).parent)
TEXTS = (
    *("README.md", "CLUSTER.md", "CONTRIBUTING.md", "INTERVIEW.md", "SECURITY.md", "TEACHING.md"),
    "pyproject.toml",
)


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kit with the texts and lab 07 alone."""
    root = tmp_path_factory.mktemp("kit")
    for name in TEXTS:
        shutil.copy(ROOT / name, root)
    readme = (root / "README.md").read_text(encoding="utf-8")
    rows = [line for line in readme.splitlines() if not line.startswith("| [lab")]
    (root / "README.md").write_text("\n".join(rows), encoding="utf-8")
    shutil.copytree(ROOT / "exercises/lab07", root / "exercises/lab07")
    shutil.copytree(ROOT / "tests/lab07", root / "tests/lab07")
    shutil.copytree(ROOT / "solutions/lab07", root / "solutions/lab07")
    (root / "exercises/README.md").write_text("# The labs\n\n[07](lab07/README.md)\n", "utf-8")
    roles = '[kernels]\ntitle = "Kernels"\nlabs = { lab07 = 3 }\ncode = ["lab07.merge"]\n'
    (root / "exercises/roles.toml").write_text(roles, encoding="utf-8")
    for name in ("sandbox", "meters", "kernels/cuda", "kernels/triton"):
        shutil.copytree(ROOT / "grader" / name, root / "grader" / name)
    results = root / "benchmarks/results"
    results.mkdir(parents=True)
    shutil.copy(ROOT / "benchmarks/results/gpu-flash.md", results)
    shutil.copy(ROOT / "benchmarks/results/gpu-emulator.md", results)
    return root


def planted(kit: Path, path: str, change: Callable[[str], str], out: Path) -> tuple[int, list[str]]:
    """Exit status and words of a build of the kit with one file changed."""
    file = kit / path
    was = file.read_text(encoding="utf-8")
    said: list[str] = []
    try:
        file.write_text(change(was), encoding="utf-8")
        return site_command.run(kit, out, said.append), said
    finally:
        file.write_text(was, encoding="utf-8")


PAGE = "exercises/lab07/README.md"
PICTURE = "exercises/lab07/what-is-alive-at-once.svg"


@pytest.mark.parametrize(
    ("path", "change", "sentence"),
    [
        (
            PAGE,
            lambda text: text + "\n[gone](../lab07/gone.py)\n",
            "exercises/lab07/README.md: a link leads to `exercises/lab07/gone.py`, which is not in "
            "the kit; mend or remove it.",
        ),
        (
            PAGE,
            lambda text: text.replace("## Concept goal", "[up](#nowhere)\n\n## Concept goal"),
            "exercises/lab07/index.html: a link leads to #nowhere, and no such place is on that "
            "page; mend it.",
        ),
        (
            PICTURE,
            lambda text: text.replace('aria-label="', 'data-said="', 1),
            "exercises/lab07/index.html: a drawing has no text alternative; say in words what it "
            "shows.",
        ),
    ],
    ids=["link", "anchor", "picture"],
)
def test_a_planted_fault_is_one_sentence(
    kit: Path, tmp_path: Path, path: str, change: Callable[[str], str], sentence: str
) -> None:
    out = tmp_path / "out"
    status, said = planted(kit, path, change, out)
    assert said == [sentence, f"Not built: 1 fault; {out} is as it was."]
    assert status == 1
    assert not out.exists()


def test_the_same_kit_without_a_fault_is_built_and_built_again(kit: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    said: list[str] = []
    assert site_command.run(kit, out, said.append) == 0
    assert "Open" in said[-1]
    (out / "of-an-earlier-build.html").write_text("", encoding="utf-8")
    first = (out / PAGE).with_name("index.html").read_bytes()
    assert site_command.run(kit, out, said.append) == 0
    assert not (out / "of-an-earlier-build.html").exists()
    assert (out / PAGE).with_name("index.html").read_bytes() == first


EDIT = re.compile(r"https://x\.example/r/edit/HEAD/([^\"'> ]+)")


def test_a_page_can_be_edited_where_the_repository_has_an_address(
    kit: Path, tmp_path: Path
) -> None:
    """Each link leads to the file that the page is made of. Without an address none is shown."""
    url = '\n[project.urls]\nRepository = "https://x.example/r/"\n'
    for name, change in (("plain", str), ("linked", lambda text: text + url)):
        assert planted(kit, "pyproject.toml", change, tmp_path / name)[0] == 0
    pages = {name: sorted((tmp_path / name).rglob("*.html")) for name in ("plain", "linked")}
    assert not any("/edit/" in page.read_text(encoding="utf-8") for page in pages["plain"])
    edited = {
        page.relative_to(tmp_path / "linked").as_posix(): EDIT.findall(page.read_text("utf-8"))
        for page in pages["linked"]
    }
    assert edited["exercises/lab07/index.html"] == [PAGE]
    assert edited["TEACHING.html"] == ["TEACHING.md"]
    assert [page for page, files in edited.items() if not files] == [
        "benchmarks/results/index.html"
    ]
    assert all((kit / name).is_file() for files in edited.values() for name in files)


@pytest.mark.parametrize("what", ["folder", "file", "link"])
def test_what_it_did_not_make_is_left_alone(tmp_path: Path, what: str) -> None:
    out = tmp_path / "mine"
    if what == "folder":
        out.mkdir()
        (out / "thesis.tex").write_text("years of work", encoding="utf-8")
    elif what == "file":
        out.write_text("years of work", encoding="utf-8")
    else:
        out.symlink_to(tmp_path)
    with pytest.raises(LabError, match=r"mine (holds files that|is not a folder)"):
        site_command.run(ROOT, out, print)
    assert out.exists()


def test_without_mkdocs_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mkdocs_build.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LabError, match=r"No mkdocs here: pip install 'infralens-labs\[site\]'"):
        mkdocs_build.refuse_without_mkdocs()


@pytest.mark.parametrize("name", ["README.md", "SECURITY.md", "exercises/lab07/hints.toml"])
def test_a_missing_text_is_named(kit: Path, tmp_path: Path, name: str) -> None:
    aside = tmp_path / "aside"
    shutil.move(kit / name, aside)
    try:
        with pytest.raises(LabError, match=f"{name} is missing"):
            site_command.build(kit, tmp_path / "out")
    finally:
        shutil.move(aside, kit / name)


def write(folder: Path, body: str) -> site_check.SiteCount:
    folder.mkdir(exist_ok=True)
    (folder / "other.html").write_text('<p id="there">x</p>', encoding="utf-8")
    (folder / "page.html").write_text(body, encoding="utf-8")
    return site_check.check(folder)


@pytest.mark.parametrize(
    "body",
    [
        '<a href="gone.html">x</a>',
        '<a href="other.html#gone">x</a>',
        '<a href="#gone">x</a>',
        '<a href="../outside.html">x</a>',
        '<img src="data:image/gif;base64,R0" alt="">',
        '<img src="data:image/gif;base64,R0">',
        '<svg role="img"><path/></svg>',
        '<svg role="img" aria-label=" "><path/></svg>',
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/x.css">',
        '<script src="gone.js"></script>',
        '<p id="a">x</p><p id="a">y</p>',
        "<p>" + "x" * site_check.MOST_BYTES + "</p>",
    ],
)
def test_a_faulty_page_is_found(tmp_path: Path, body: str) -> None:
    (found,) = write(tmp_path / "site", body).faults
    assert found.startswith("page.html: ")
    assert found.endswith(".")


def test_a_good_page_is_counted(tmp_path: Path) -> None:
    body = '<a href="other.html#there">x</a><a href="https://x.example">y</a><svg role="img" '
    count = write(tmp_path / "site", body + 'aria-label="a line"><path/></svg>')
    assert (count.faults, count.pages, count.links, count.pictures) == ([], 2, 1, 1)


def linked(tmp_path: Path, target: str, repository: str = "") -> tuple[str, list[str]]:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/a.py").write_text("", encoding="utf-8")
    treated = markup.Treatment(lambda target, words: "", lambda to: into_kit("docs/one.md", to))
    pages = [
        SitePage(f"docs/{name}.md", name, markup.render(text, treated), f"docs/{name}.md")
        for name, text in (("one", f"[words]({target})"), ("two", "## A place"))
    ]
    return LinkMap(tmp_path, pages, repository).linked(pages[0])


@pytest.mark.parametrize(
    ("target", "repository", "shown"),
    [
        ("two.md", "", '<a href="two.html">words</a>'),
        ("two.md#a-place", "", '<a href="two.html#a-place">words</a>'),
        ("../docs/two.md", "", '<a href="two.html">words</a>'),
        ("#here", "", '<a href="#here">words</a>'),
        ("https://x.example/a", "", '<a href="https://x.example/a">words</a>'),
        ("mailto:a@x.example", "", '<a href="mailto:a@x.example">words</a>'),
        ("../code/a.py", "", 'words (<code class="path">code/a.py</code>)'),
        ("../code/a.py", "https://x.example/r", '<a href="https://x.example/r/blob/HEAD/code/a.py">words</a>'),
        ("../code", "https://x.example/r", '<a href="https://x.example/r/tree/HEAD/code">words</a>'),
    ],
)  # fmt: skip
def test_where_a_link_leads(tmp_path: Path, target: str, repository: str, shown: str) -> None:
    assert linked(tmp_path, target, repository) == (f"<p>{shown}</p>\n", [])


@pytest.mark.parametrize(
    "target", ["gone.md", "../code/b.py", "../../outside", "../../../etc/passwd"]
)
def test_a_link_out_of_the_kit_is_dead(tmp_path: Path, target: str) -> None:
    (sentence,) = linked(tmp_path, target, "https://x.example/r")[1]
    assert "which is not in the kit" in sentence


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("- [ ] one\n- [x] two", ["<input", 'checked aria-label="to say"> two']),
        ("text\n- a\n- b", ["<ul>"]),
        ("- a\n\n      code\n\n  more of a", ["<pre>", "<p>more of a</p>\n</li>"]),
        ("| a | b |\n|---|---|\n| `x|y` | 2 |", ['<table class="rows">']),
        ("| a |\n|---|\n| `x\\|y` |", ["<code>x|y</code>"]),
        ("<!-- table: sizes -->\n| a |\n|---|\n| 1 |\n<!-- end -->\n", ["<td>1</td>"]),
        ("before <!-- excerpt --> after", ["before  after"]),
        ("## A & `b_c`: d\n## A & `b_c`: d", ['id="a--b_c-d"', 'id="a--b_c-d-1"']),
        ("```cu\n__global__ void f();\n```", ['class="highlight"']),
        ("```no-such-language\n<b>\n```", ["&lt;b&gt;"]),
    ],
)
def test_markdown_is_read_as_github_does(text: str, shown: list[str]) -> None:
    treated = markup.Treatment(lambda target, words: "", lambda target: target)
    made = markup.render(text, treated).html
    assert [part for part in shown if part not in made] == []
    assert "<!--" not in made


def test_a_drawing_keeps_every_mark_when_it_is_shortened() -> None:
    """Oracle: the texts and the steps of the paths in the file."""
    path = ROOT / "exercises/lab05/what-each-line-costs.svg"
    source = path.read_text(encoding="utf-8")
    made = inline_pictures.figure(path, "words", Drawings())
    assert made.count("<text") == source.count("<text")
    assert made.count("M") >= sum(part.count("M") for part in source.split('d="')[1:])
    assert len(made) < len(source)


def test_a_large_drawing_is_a_file_for_each_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline_pictures, "MOST_INSIDE", 100)
    drawings = Drawings("../")
    made = inline_pictures.figure(ROOT / PICTURE, "words", drawings)
    assert "<svg" not in made
    assert made.count('loading="lazy"') == made.count('alt="') == len(drawings.files) == 2
    assert all(f"../{name}#only-" in made for name in drawings.files)


STYLE = (
    '@charset "utf-8";:root{--used:1px;--icon:url("data:x;{}<a.b>");--chain:var(--last);--last:2}'
    ".kept,.dropped>.kept{width:var(--used)}.dropped{width:var(--icon)}"
    ".kept:not(.dropped){top:var(--chain)}@media print{.dropped{top:0}.kept{top:0}}"
    "@media screen{.dropped{top:0}}[data-md-color-primary=red] p{top:0}"
    """a[href$=".kept,"]::after{content:"}"}"""
)


def test_a_style_keeps_what_a_page_can_use() -> None:
    made = "".join(used_styles.without_unasked([used_styles.used(STYLE, {"kept"})], []))
    assert made == (
        '@charset "utf-8";:root{--used:1px;--chain:var(--last);--last:2}'
        ".kept{width:var(--used)}.kept:not(.dropped){top:var(--chain)}"
        '@media print{.kept{top:0}}a[href$=".kept,"]::after{content:"}"}'
    )


def test_squeezing_leaves_code_as_it_is() -> None:
    page = "<ul>\n\n   <li>a\n  b</li>\n</ul><pre>\n  x\n\n    y</pre>\n\n\n<p>c</p>"
    assert used_styles.squeezed(page) == (
        "<ul>\n<li>a\nb</li>\n</ul><pre>\n  x\n\n    y</pre>\n<p>c</p>"
    )


def test_several_faults_are_several_sentences() -> None:
    assert SiteFault(["one.", "two."]).sentences == ["one.", "two."]
