"""Text of a submission as people read it: in a terminal, Markdown, HTML, a spreadsheet, JSON."""

import ast
import html.parser
import json
import unicodedata
from pathlib import Path

import markdown_it
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader import readable

PACKAGE = Path(readable.__file__).parent
HOSTILE = [
    "\x1b[2Jall passed\r",
    "\u202egnp.exe",
    "\u200f\u061c\U000e0041",
    "a\u200bb\ufeffc\u3164d\u2800",
    "\ud800 alone",
    "\x00\x07\x9b31m",
    "\u2028next\u2029",
    "e" + "\u0301" * 400,
    "![a](b)",
    "[x](javascript:alert(1))",
    "<script>alert(1)</script>",
    "<!-- never closed",
    "&lt;b&gt;",
    "`code` ``` ~~~ **bold** __bold__ _it_ ~~gone~~",
    "# a heading",
    "1. an item",
    "- an item",
    "+ an item",
    "===",
    "| a | b |",
    "$x^2$",
    "a\n\n# b",
    "=cmd|' /C calc'!A0",
    "  =1+1",
    "-rf",
    "@SUM(A1)",
    "\t=1",
]
PLACES = [readable.text, readable.line, readable.markdown, readable.html, readable.csv_cell]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("raw", HOSTILE)
def test_nothing_unseen_is_left(place, raw):
    shown = place(raw)
    assert not [char for char in shown if readable.unseen(char) and char not in "\n\t"]
    assert shown.encode("utf-8")


@pytest.mark.parametrize("place", PLACES)
@given(raw=st.text(max_size=300), most=st.integers(10, 100))
def test_the_length_has_a_bound(place, raw, most):
    """Oracle: the bound; entities and backslashes may double or sextuple what is within it."""
    assert len(place(raw, most)) <= 6 * (most + len(readable.CUT))
    if place in (readable.text, readable.line):
        assert len(place(raw, most)) <= most + len(readable.CUT)


@pytest.mark.parametrize(
    "plain", ["running_mean([1, 2])", "Zoë Müller", "محمد", "שלום", "Nguyễn Thị", "山田 太郎", "👍"]
)
def test_ordinary_text_stays(plain):
    """Names of every script, and a call; in a terminal as they are."""
    assert readable.text(plain) == readable.line(plain) == readable.csv_cell(plain) == plain
    assert unicodedata.normalize("NFD", plain) == readable.text(unicodedata.normalize("NFD", plain))


def test_lines_and_tabs_stay_only_in_texts():
    assert readable.text("a\n\tb\rc") == "a\n\tb\\rc"
    assert readable.line("a\n\tb\rc") == "a\\n\\tb\\rc"


@pytest.mark.parametrize("raw", HOSTILE)
def test_markdown_is_the_text_itself(raw):
    """What a renderer makes of it is one paragraph, and its words are the line's.
    Oracle: markdown-it with the rules of GitHub."""
    tokens = (
        markdown_it.MarkdownIt("commonmark")
        .enable(["table", "strikethrough"])
        .parse(readable.markdown(raw))
    )
    assert [token.type for token in tokens] in (
        [],
        ["paragraph_open", "inline", "paragraph_close"],
    )
    inline = tokens[1].children if tokens else []
    assert {token.type for token in inline} <= {"text", "text_special"}
    said = "".join(token.content for token in inline)
    assert said.strip() == readable.line(raw, readable.MAX_TEXT).strip()


@pytest.mark.parametrize("raw", [*HOSTILE, "```\n# out\n```", "a\n    b\n\nc\rd\x0be\x85f"])
def test_a_block_of_markdown_cannot_be_left(raw):
    """Oracle: markdown-it."""
    page = "\n".join(["before", "", *readable.markdown_block(f"x{raw}"), "", "after"])
    kinds = [token.type for token in markdown_it.MarkdownIt("commonmark").parse(page)]
    assert kinds.count("code_block") == 1
    assert set(kinds) == {"paragraph_open", "inline", "paragraph_close", "code_block"}


@pytest.mark.parametrize("raw", HOSTILE)
def test_html_is_the_text_itself(raw):
    """Oracle: the standard library's parser, in an element and in an attribute."""
    found: list[str] = []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag, attrs):
            found.append(f"{tag}:{dict(attrs)['title']}")

        def handle_data(self, data):
            found.append(data)

    reader = Reader()
    reader.feed(f'<p title="{readable.html(raw)}">{readable.html(raw)}</p>')
    assert found[0] == f"p:{readable.text(raw)}"
    assert "".join(found[1:]) == readable.text(raw)


@pytest.mark.parametrize("raw", HOSTILE)
def test_a_cell_is_no_formula(raw):
    assert readable.csv_cell(raw).lstrip()[:1] not in ("=", "+", "-", "@", "\t", "\r", "\n")


@given(
    st.recursive(
        st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner, max_size=3)
    )
)
def test_json_means_the_same(value):
    """Oracle: json."""
    encoded = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    safe = readable.json_bytes(encoded)
    assert json.loads(safe) == json.loads(encoded.decode("utf-8", "surrogatepass"))
    assert not [c for c in safe.decode() if not c.isascii() and readable.unseen(c)]


# -- nothing prints what a submission brought in another way ---------------------------------------

FROM_SUBMISSIONS = {
    "student",
    "reason",
    "detail",
    "message",
    "notes",
    "note",
    "printed",
    "skipped",
    "faults",
    "folder",
    "text",
}
"""Names of fields and variables whose text a submission may have written."""
PEOPLE_READ = (
    "classroom/autograder/classroom_run.py",
    "classroom/autograder/github_bundle.py",
    "classroom/autograder/gradescope_bundle.py",
    "classroom/autograder/gradescope_run.py",
    "classroom/feedback.py",
    "classroom/grade_command.py",
    "classroom/course/adjust_command.py",
    "classroom/course/hand_back.py",
    "classroom/course/history_command.py",
    "classroom/course/intake_command.py",
    "classroom/course/kept_attempts.py",
    "classroom/course/regrade_command.py",
    "classroom/course/status_command.py",
    "classroom/course/withdraw_command.py",
    "classroom/export/export_command.py",
    "classroom/report/report_command.py",
    "classroom/similarity/similarity_command.py",
)


def printed_raw(source: str) -> list[str]:
    """What a module prints, writes or puts into a line without `readable`: `line: code`."""
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def is_made_safe(node: ast.AST) -> bool:
        while node in parents:
            node = parents[node]
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(
                ("readable.", "_reasons", "_printed")
            ):
                return True
        return False

    found = []
    for node in ast.walk(tree):
        shown: list[ast.AST] = []
        if isinstance(node, ast.FormattedValue):
            shown = [node.value]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTS:
            shown = list(node.args)
        elif isinstance(node, ast.List) and isinstance(parents[node], ast.AugAssign):
            shown = list(node.elts)
        for value in shown:
            names = {
                getattr(each, "attr", getattr(each, "id", "")) for each in ast.walk(value)
            } & FROM_SUBMISSIONS
            calls = [each for each in ast.walk(value) if isinstance(each, ast.Call)]
            safe = any(ast.unparse(each.func).startswith("readable.") for each in calls)
            if names and not safe and not is_made_safe(value):
                found.append(f"{node.lineno}: {ast.unparse(value)}")
    return found


PRINTS = ("print", "Text", "typer.echo", "Console().print", "made.add_row", "say")


def test_some_names_and_how_many_more():
    assert readable.some([], 2) == ""
    assert readable.some(["a", "b"], 2) == "a, b"
    shown = readable.some(["a\x1b", "b" * 9, "c", "d"], 2, 8)
    assert shown == f"a\\x1b, {readable.line('b' * 9, 8)} and 2 more"
    assert readable.some([str(n) for n in range(1_234)], 1) == "0 and 1,233 more"


@pytest.mark.parametrize("module", PEOPLE_READ)
def test_nothing_else_prints_what_a_submission_brought(module):
    assert printed_raw((PACKAGE / module).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "planted",
    [
        "print(unit.reason)",
        "print(f'No result of {unit.student}')",
        "for note in record.notes:\n    lines += ['', note]",
        "table.add_row(Text(student))",
        "typer.echo(f'{row.message}')",
    ],
)
def test_a_planted_one_is_found(planted):
    assert printed_raw(planted)


def test_only_these_modules_of_the_classroom_print():
    """Oracle: the sources."""
    speaking = {
        str(path.relative_to(PACKAGE))
        for path in (PACKAGE / "classroom").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTS
    }
    # a release reads the kit's own files alone
    assert speaking - {"classroom/release/release_command.py"} <= set(PEOPLE_READ)
