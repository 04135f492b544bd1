"""Makes a built site small: no rule of a style sheet that no page can use, no empty columns.

Material's style covers everything that its pages may hold, in 150 KB. A rule stays unless it asks
for a class that stands in no page and that no script of the site gives to anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_CLASSES = re.compile(r'\bclass="?([^">]*)')
_SCRIPTED = re.compile(r"\b(?:md-[\w-]+|js|focus-visible|no-js)\b")
_NEVER = re.compile(
    r"md-(?:annotation|author|banner|consent|feedback|progress|social|source|status|tag|version)(?![a-z])"
)
"""Components that Material's script knows and that no page here has."""
_COLOUR = re.compile(r"data-md-color-(?:primary|accent)=\"?([\w-]+)")
_CLASS = re.compile(r"\.((?:\\.|[\w-])+)")
_ARGUMENT = re.compile(r":(?:not|is|where)\([^()]*\)")
_VARIABLE = re.compile(r"(--[\w-]+):(?:url\((?:\"[^\"]*\"|'[^']*'|[^)]*)\)|[^;{}\"'])*;?")
_AS_WRITTEN = re.compile(r"(<(pre|script|style|textarea)\b.*?</\2>)", re.DOTALL)


def reduce(site: Path) -> None:
    """Shorten pages and style sheets of a built site, and remove what none of them loads."""
    for path in (*site.rglob("*.map"), *site.glob("assets/javascripts/lunr/**/*.js")):
        path.unlink()  # for a developer's tools, and the search in other languages
    for path in (*site.rglob("*.css"), *site.rglob("*.js")):
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(r"/[/*]# sourceMappingURL=[^\n*]*(\*/)?\n?", "", text), "utf-8")
    words = set[str]()
    for path in site.rglob("*.html"):
        text = squeezed(path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
        for names in (*_CLASSES.findall(text), *_COLOUR.findall(text)):
            words.update(names.split())
    for path in (site / "assets").rglob("*.js"):
        found = _SCRIPTED.findall(path.read_text(encoding="utf-8"))
        words.update(word for word in found if not _NEVER.match(word))
    sheets = sorted((site / "assets" / "stylesheets").glob("*.css"))
    styles = [used(path.read_text(encoding="utf-8"), words) for path in sheets]
    own = [path.read_text(encoding="utf-8") for path in site.glob("assets/*.css")]
    for path, style in zip(sheets, without_unasked(styles, own), strict=True):
        path.write_text(style, encoding="utf-8")


def squeezed(page: str) -> str:
    """A page without the white space that a browser does not show, and with a name for Material's
    search, which has none."""
    page = page.replace(' role="dialog">', ' role="dialog" aria-label="Search">')
    parts = _AS_WRITTEN.split(page)
    kept = []
    for index in range(0, len(parts), 3):
        kept.append(re.sub(r"\s*\n\s*", "\n", parts[index]))
        kept += parts[index + 1 : index + 2]
    return "".join(kept)


def used(style: str, words: Iterable[str]) -> str:
    """The rules of a style sheet whose classes are all among the words."""
    return "".join(_rules(style, set(words)))


def without_unasked(styles: list[str], others: list[str]) -> list[str]:
    """Style sheets without the variables that neither they nor the others ask for."""
    while True:
        asked = set(re.findall(r"var\((--[\w-]+)", "".join((*styles, *others))))
        shorter = [_with_variables(style, asked) for style in styles]
        if shorter == styles:
            return styles
        styles = shorter


def _with_variables(style: str, asked: set[str]) -> str:
    kept = _VARIABLE.sub(lambda row: row[0] if row[1] in asked else "", style)
    return re.sub(r"[^{}]*\{\}", "", kept)


def _rules(style: str, words: set[str]) -> Iterator[str]:
    for head, body in _blocks(style):
        if body is None:
            yield head
        elif head.lstrip().startswith(("@media", "@supports", "@layer", "@container")):
            inside = "".join(_rules(body, words))
            if inside:
                yield f"{head}{{{inside}}}"
        elif head.lstrip().startswith("@"):
            yield f"{head}{{{body}}}"
        else:
            alive = [one for one in _selectors(head) if _may_match(one, words)]
            if alive:
                yield f"{','.join(alive)}{{{body}}}"


def _may_match(selector: str, words: set[str]) -> bool:
    """Whether a page could have all classes of a selector; what `:not()` and `:is()` hold says
    nothing."""
    bare = selector
    while (shorter := _ARGUMENT.sub("", bare)) != bare:
        bare = shorter
    asked = [*_CLASS.findall(bare), *_COLOUR.findall(bare)]
    return all(name.replace("\\", "") in words for name in asked)


def _blocks(style: str) -> Iterator[tuple[str, str | None]]:
    """Head and body of each block at the top of a style sheet, and statements without a body."""
    start = at = 0
    for at, char in _outside_strings(style):
        if at < start:
            continue
        if char == ";":
            yield style[start : at + 1], None
            start = at + 1
        elif char == "{":
            end = _closing(style, at)
            yield style[start:at], style[at + 1 : end]
            start = end + 1


def _outside_strings(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """Every character that is not in a string, a comment or a `url()`, with its place."""
    pattern = re.compile(
        r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|/\*.*?\*/|url\([^\"')]*\)|.", re.S
    )
    for match in pattern.finditer(text, start):
        if len(match[0]) == 1:
            yield match.start(), match[0]


def _closing(text: str, opening: int) -> int:
    depth = 0
    for at, char in _outside_strings(text, opening):
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return at
    raise ValueError("a block of the style sheet has no end")


def _selectors(head: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, char in _outside_strings(head):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append(head[start:at])
            start = at + 1
    return [*parts, head[start:]]
