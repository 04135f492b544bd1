"""The whole site, built once and read in Chromium as its readers do: links, search, hints, phone,
print, dark and light.

A few pages have their turn in each run; with `INFRALENS_EVERY_PAGE=1` all have.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from grader.lab import task_hints
from grader.lab.manifest import all_labs, find_root
from grader.site import class_walk, site_check, site_command, text_parts
from grader.site.calculators import HOW_TO_GET, find_pyodide
from tests.grader.classroom.report import browser as browsers
from tests.grader.site.built_site import BuiltSite

with contextlib.suppress(ModuleNotFoundError):
    from playwright.sync_api import TimeoutError as PlaywrightTimeout

pytest.importorskip("mkdocs", reason="no mkdocs: pip install -e '.[dev]'")
pytest.importorskip("material", reason="no material: pip install -e '.[dev]'")
needs_browser = pytest.mark.skipif(bool(browsers.missing()), reason=browsers.missing())

ROOT = find_root(Path(__file__).parent)
LABS = all_labs(ROOT)
PHONE, DESK = 390, 1280
A4_PIXELS = 718  # 190 mm at 96 dots an inch: the page without its margins
CLIPPED = """() => [...document.querySelectorAll('pre > code, table, svg, img')].filter(one => {
  const box = one.getBoundingClientRect();
  return box.width && (one.scrollWidth > one.clientWidth + 1 && one.matches('code')
    || box.right > document.documentElement.clientWidth + 1);
}).map(one => one.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    out = tmp_path_factory.mktemp("site") / "out"
    return out, site_command.build(ROOT, out)


@pytest.fixture(scope="module")
def site(built: tuple[Path, list[str]]) -> Iterator[BuiltSite]:
    with browsers.started() as browser:
        yield BuiltSite(*built, browser)


class Reader(HTMLParser):
    """Links and anchors of a page, read apart from the build's own check."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "href" and tag == "a":
                self.links.append(value or "")
            elif name == "id":
                self.names.append(value or "")


def read(folder: Path) -> dict[str, Reader]:
    return {
        path.relative_to(folder).as_posix(): Reader(path.read_text(encoding="utf-8"))
        for path in folder.rglob("*.html")
    }


def test_every_link_and_anchor_is_there(built: tuple[Path, list[str]]) -> None:
    """Oracle: the files, and the links resolved by urllib."""
    folder, table = built
    pages = read(folder)
    checked, dead = 0, []
    for url, page in pages.items():
        for link in page.links:
            target = urlsplit(urljoin(f"http://site/{url}", link))
            if target.netloc != "site":
                continue
            checked += 1
            path = unquote(target.path).lstrip("/")
            anchor = unquote(target.fragment)
            if path not in pages or (anchor and anchor not in pages[path].names):
                dead.append((url, link))
    assert dead == []
    assert f"internal links checked  {checked:>9,}" in table
    assert checked > 1000


def test_every_text_of_the_kit_has_its_page(built: tuple[Path, list[str]]) -> None:
    """Oracle: the folders."""
    pages = set(read(built[0]))
    expected = {f"exercises/{lab.id}/index.html" for lab in LABS}
    results = sorted((ROOT / "benchmarks/results").glob("*.md"))
    expected |= {f"benchmarks/results/{path.stem}.html" for path in results}
    expected |= {f"{name}.html" for name in ("SECURITY", "CONTRIBUTING", "CLUSTER", "index")}
    expected |= {f"how/{name}.html" for name in ("wall", "emulator", "meters")}
    assert expected <= pages


def test_no_marker_and_no_raw_box_is_shown(built: tuple[Path, list[str]]) -> None:
    for path in built[0].rglob("*.html"):
        text = re.sub(r"<(pre|code)\b.*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.S)
        assert "<!--" not in text, path
        assert "[ ]" not in text, path
        assert "\n|---" not in text, path


def test_every_table_of_a_page_is_a_table(built: tuple[Path, list[str]]) -> None:
    """Oracle: the lines under a table's head in the Markdown files."""
    for lab in LABS:
        text = (lab.exercise / "README.md").read_text(encoding="utf-8")
        text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        heads = re.findall(r"^ *\|[-| :]*---[-| :]*\|$", text, flags=re.M)
        page = (built[0] / f"exercises/{lab.id}/index.html").read_text(encoding="utf-8")
        assert page.count('<table class="rows">') == len(heads), lab.id


def test_every_hint_is_on_its_page_behind_the_one_before(built: tuple[Path, list[str]]) -> None:
    """Oracle: hints.toml."""
    for lab in LABS:
        page = (built[0] / f"exercises/{lab.id}/index.html").read_text(encoding="utf-8")
        assert page.count('<details class="hint">') == 3 * len(task_hints.read(lab).keys())
        assert page.count('<details class="spoiler">') == 1
        assert "<details open" not in page


def test_the_search_knows_no_hint_and_no_answer(built: tuple[Path, list[str]]) -> None:
    text = (built[0] / "search/search_index.js").read_text(encoding="utf-8")
    rows = json.loads(text.removeprefix("var __index = "))["docs"]
    said = " ".join(row["text"] for row in rows if row["location"].startswith("exercises/lab"))
    assert "Hint 1" not in said
    assert "naive_attention" in said
    spoilers = [row for row in rows if row["location"].endswith("#after-you-solved-it")]
    assert len(spoilers) == len(LABS)
    assert {row["text"].strip() for row in spoilers} == {""}


@needs_browser
def test_what_a_browser_loads_is_what_the_build_counted(site: BuiltSite) -> None:
    """Oracle: Chromium's requests for the heaviest page, and the sizes of these files."""
    heaviest = re.search(r"([\d,]+) bytes \((.*)\)", "\n".join(site.table))
    assert heaviest is not None
    with site.opened(heaviest[2]) as watched:
        watched.page.wait_for_timeout(300)
        names = {unquote(urlsplit(one).path) for one in watched.requests if "data:" not in one}
    loaded = sum(Path(name).stat().st_size for name in names)
    assert loaded <= int(heaviest[1].replace(",", "")) <= site_check.MOST_BYTES


def finds(page: Any, words: str, place: str) -> bool:
    page.fill(".md-search__input", words)
    page.dispatch_event(".md-search__input", "keyup")
    result = page.locator(f".md-search-result__link[href$='{place}']").first
    try:
        result.wait_for(state="attached", timeout=2000)
    except PlaywrightTimeout:
        return False
    return True


def test_the_page_on_teaching_shows_what_its_commands_printed(
    built: tuple[Path, list[str]],
) -> None:
    """Oracle: the commands of TEACHING.md. No path of this machine is on the page."""
    text = (built[0] / "TEACHING.html").read_text(encoding="utf-8")
    section = text_parts.section(ROOT / class_walk.SOURCE, class_walk.SECTION)
    assert text.count('class="printed') == section.count("```bash") >= 9
    assert f"{class_walk.STUDENTS} attempts: {class_walk.STUDENTS} graded now" in text
    assert f"{class_walk.STUDENTS} students, 1 lab" in text
    assert tempfile.gettempdir() not in text


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pictures_of_a_class_are_seen_when_they_are_reached(
    site: BuiltSite, scheme: str
) -> None:
    """On paper of its scheme each loads, in the shape that the page kept free for it; the others
    are not asked for."""
    with site.opened("TEACHING.html", DESK, scheme) as watched:
        assert not any(url.endswith(".webp") for url in watched.requests)
        pictures = watched.page.locator(f".seen img[src$='only-{scheme}']")
        assert pictures.count() == 4
        for place in range(4):
            one = pictures.nth(place)
            one.scroll_into_view_if_needed()
            one.evaluate("one => one.decode()")
            wide, high, kept = one.evaluate(
                "one => [one.naturalWidth, one.naturalHeight, one.width / one.height]"
            )
            assert wide / high == pytest.approx(kept, rel=0.01)
        loaded = {url for url in watched.requests if ".webp" in url}
        assert len(loaded) == 4
        assert all(f"-{scheme}.webp" in url for url in loaded)


@needs_browser
def test_search_finds_every_task(site: BuiltSite) -> None:
    """A result of a task's id, or of its id and title where many pages have that word, leads to
    the task's own place on its lab's page."""
    missed = []
    with site.opened("index.html", DESK) as watched:
        page = watched.page
        page.set_default_timeout(5000)
        page.keyboard.press("/")
        for lab in LABS:
            for task in lab.tasks:
                place = f"{lab.id}/index.html#{task.id}"
                asked = (task.id, f"{task.id} {task.title}")
                if not any(finds(page, words, place) for words in asked):
                    missed.append(task.name)
                assert len(missed) < 3, missed
    assert missed == []


@needs_browser
def test_hints_unfold_by_keyboard_one_after_the_other(site: BuiltSite) -> None:
    with site.opened("exercises/lab07/index.html", DESK) as watched:
        page = watched.page
        hints = page.locator("#merge + section summary, #merge ~ section summary")
        assert [hints.nth(at).is_visible() for at in range(3)] == [True, False, False]
        hints.nth(0).focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Hint 2: the invariant"
        page.keyboard.press("Space")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Hint 3: the place"
        page.keyboard.press("Enter")
        assert page.locator("#merge ~ section p").nth(2).is_visible()


@needs_browser
def test_a_link_into_what_is_folded_unfolds_it(site: BuiltSite) -> None:
    with site.opened("exercises/lab07/index.html#after-you-solved-it") as watched:
        assert not watched.page.locator(".spoiler li").first.is_visible()
        watched.page.evaluate("document.querySelector('.spoiler li').id = 'inside'")
        watched.page.evaluate("location.hash = '#inside'")
        watched.page.wait_for_selector(".spoiler[open]")


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(site: BuiltSite, scheme: str) -> None:
    """With everything unfolded, on a desk in light and on a phone in dark. Oracle: axe-core."""
    for url in ["exercises/lab05/index.html", "TEACHING.html", *site.some(1)]:
        with site.opened(url, DESK if scheme == "light" else PHONE, scheme) as watched:
            unfold(watched.page)
            assert [url, *serious(watched.page)] == [url]


def unfold(page: Any) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")


def serious(page: Any) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"preload": False}).response["violations"]
    return [
        f"{row['id']}: {[node['html'][:200] for node in row['nodes'][:3]]}"
        for row in found
        if row["impact"] in ("serious", "critical")
    ]


@needs_browser
def test_pages_are_silent_and_fit_a_phone(site: BuiltSite) -> None:
    """No page scrolls sideways, says anything to the console or asks a host."""
    for url in ["index.html", "exercises/lab12/index.html", "TEACHING.html", *site.some(6)]:
        with site.opened(url, PHONE) as watched:
            unfold(watched.page)
            assert (url, watched.overflow()) == (url, 0)


@needs_browser
@pytest.mark.skipif(find_pyodide() is None, reason=HOW_TO_GET)
def test_a_calculator_answers_in_the_site(site: BuiltSite) -> None:
    """The search stands in for the Workers of a page that is a file, but not for the calculators'.
    Oracle: the page of lab 01, an 8 B model's 128 KiB a token."""
    with site.opened("calculators/kv-blocks.html") as watched:
        watched.page.wait_for_selector(".calculator-result", state="visible", timeout=120_000)
        row = watched.page.locator("tr", has_text="Bytes of a block").first
        assert f"{131_072 * 16:,} bytes" in row.inner_text()


@needs_browser
def test_print_cuts_no_code_off(site: BuiltSite) -> None:
    """On paper every line of code, table and picture lies within the page."""
    for url in ["exercises/lab07/index.html", *site.some(3)]:
        with site.opened(url, A4_PIXELS) as watched:
            unfold(watched.page)
            watched.page.emulate_media(media="print")
            assert (url, watched.page.evaluate(CLIPPED)) == (url, [])


@needs_browser
def test_a_page_becomes_a_pdf(site: BuiltSite) -> None:
    with site.opened("exercises/lab01/index.html") as watched:
        assert watched.page.pdf(format="A4").startswith(b"%PDF-")
