"""Markdown as GitHub shows it, for pages of the site: the kit's texts are written for that reading.

MkDocs reads another dialect, in which a list needs an empty line before it and four columns of
indentation; so its pages get their HTML from here.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

_TAGS = re.compile(r"<[^>]+>")
_LANGUAGES = {"cu": "cuda", "sh": "bash", "": "text"}
_PLAIN = re.compile(r'<span class="(?:bp|n|nn|o|p|w)">([^<]*)</span>')
"""Names, signs and spaces, which have the colour of the text."""
_BOX = re.compile(r"\[([ xX])\] ")


@dataclass(frozen=True)
class Heading:
    """A heading of a page: where a link finds it, and what it says."""

    level: int
    anchor: str
    text: str


@dataclass(frozen=True)
class Rendered:
    """A page's HTML, and its headings in order."""

    html: str
    headings: list[Heading]


@dataclass
class Treatment:
    """What becomes of a page's parts. `picture(target, words)`: the HTML of an image.
    `link(target)`: where a link leads. `after`: HTML that is put at the end of the section with
    that heading. `folded`: headings whose section is shown when it is asked for, with the words of
    the button."""

    picture: Callable[[str, str], str]
    link: Callable[[str], str]
    after: Mapping[str, str] = field(default_factory=dict)
    folded: Mapping[str, str] = field(default_factory=dict)


def render(text: str, treatment: Treatment) -> Rendered:
    """A page's HTML."""
    parser = _parser()
    tokens = parser.parse(text)
    headings = _anchored(tokens)
    for token in tokens:
        for part in token.children or ():
            if part.type == "link_open":
                part.attrSet("href", treatment.link(str(part.attrGet("href") or "")))
    options, environment = parser.options, {"picture": treatment.picture}
    parts = []
    for section in _sections(tokens):
        title = section[1].content if section[0].type == "heading_open" else ""
        head, body = (section[:3], section[3:]) if title else ([], section)
        shown = parser.renderer.render(body, options, environment) + treatment.after.get(title, "")
        if words := treatment.folded.get(title):
            shown = unsearched(fold(words, shown, "spoiler"))
        parts.append(parser.renderer.render(head, options, environment) + shown)
    return Rendered("".join(parts), headings)


def fold(words: str, body: str, kind: str = "") -> str:
    """HTML that a click or the Enter key unfolds."""
    named = f' class="{kind}"' if kind else ""
    return f"<details{named}><summary>{html.escape(words)}</summary>\n{body}</details>\n"


def unsearched(body: str) -> str:
    """HTML that the search does not look into. (Material's reader knows the end of such a part by
    its tag, so nothing in it may be a section too.)"""
    return f"<section data-search-exclude>\n{body}</section>\n"


def inline(text: str) -> str:
    """One line of Markdown as HTML."""
    return str(_parser().renderInline(text, {"picture": lambda target, words: words}))


def slug(text: str, taken: dict[str, int]) -> str:
    """The anchor that GitHub gives to a heading."""
    base = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") or "section"
    count = taken.get(base, 0)
    taken[base] = count + 1
    return f"{base}-{count}" if count else base


def code_block(code: str, language: str) -> str:
    """A block of code, coloured where its language is known."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(_LANGUAGES.get(language, language), stripnl=False)
    except ClassNotFound:
        lexer = get_lexer_by_name("text", stripnl=False)
    formatter = HtmlFormatter(wrapcode=True, cssclass="highlight")
    return _PLAIN.sub(r"\1", highlight(code, lexer, formatter))


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("code_block", _indented)
    parser.add_render_rule("image", _image)
    parser.add_render_rule("html_block", _raw)
    parser.add_render_rule("html_inline", _raw)
    parser.add_render_rule("table_open", _table_open)
    parser.add_render_rule("table_close", _table_close)
    parser.core.ruler.push("task_lists", _task_lists)
    return parser


def _anchored(tokens: list[Token]) -> list[Heading]:
    found, taken = [], dict[str, int]()
    for opening, content in pairwise(tokens):
        if opening.type == "heading_open":
            said = _TAGS.sub("", inline(content.content))
            anchor = slug(html.unescape(said), taken)
            opening.attrSet("id", anchor)
            found.append(Heading(int(opening.tag[1]), anchor, said))
    return found


def _sections(tokens: list[Token]) -> list[list[Token]]:
    """The tokens before the first heading of level 2, and those of each section after it."""
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.type == "heading_open" and token.tag == "h2" and token.level == 0:
            parts.append([])
        parts[-1].append(token)
    return [part for part in parts if part]


def _task_lists(state: Any) -> None:
    """`- [ ] a point` becomes a box and the point."""
    for item, _, token in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        if token.type != "inline" or item.type != "list_item_open":
            continue
        if match := _BOX.match(token.content):
            token.children[0].content = token.children[0].content[match.end() :]
            checked = " checked" if match[1] != " " else ""
            box = Token("html_inline", "", 0)
            box.content = f'<input type="checkbox" disabled{checked} aria-label="to say"> '
            token.children.insert(0, box)
            item.attrSet("class", "point")


def _fence(self: Any, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    return code_block(token.content, (token.info.split() or [""])[0])


def _indented(self: Any, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    return code_block(tokens[index].content, "text")


def _image(self: Any, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    return str(env["picture"](str(token.attrGet("src") or ""), token.content))


def _raw(self: Any, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    """HTML in a text is a marker, which vanishes; the boxes of a task list are our own."""
    content = tokens[index].content
    return content if content.startswith("<input ") else re.sub(r"<!--.*?-->\n?", "", content)


def _table_open(self: Any, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    return '<div class="wide"><table class="rows">\n'


def _table_close(self: Any, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    return "</table></div>\n"
