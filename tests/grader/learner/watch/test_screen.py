"""The screen of `infralens watch`: with Textual's own pilot, and once in a real terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList, Static

from grader.lab.manifest import load_lab
from grader.learner import history
from grader.learner.watch.screen import WIDE, Question, TextScreen, WatchScreen
from tests.grader.conftest import WRONG, MiniKit
from tests.grader.learner.watch.conftest import (
    RIGHT,
    Opened,
    environment,
    processes_of,
    renamed,
    wait_until,
)

TURNS = 600
"""Tenths of a second after which a screen will not change any more."""


def shown(app: WatchScreen, name: str) -> str:
    return str(app.screen_stack[0].query_one(f"#{name}", Static).content)


def tasks(app: WatchScreen) -> list[str]:
    found = app.screen_stack[0].query_one("#tasks", OptionList)
    return [str(found.get_option_at_index(at).prompt) for at in range(found.option_count)]


async def until(pilot: Pilot[int], true: Callable[[], bool]) -> None:
    for _ in range(TURNS):
        if true():
            return
        await pilot.pause(0.1)
    app = pilot.app
    assert isinstance(app, WatchScreen)
    raise AssertionError("\n".join([shown(app, "top"), *tasks(app), shown(app, "message")]))


def with_screen(
    kit: MiniKit,
    act: Callable[[WatchScreen, Pilot[int]], Awaitable[None]],
    size: tuple[int, int] = (80, 24),
    only: str = "",
) -> None:
    """Run the screen on the mini kit, and `act` when its first round has ended."""

    async def run() -> None:
        app = WatchScreen(load_lab(kit.root, "lab90"), only)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: "points" in shown(app, "top") and ended(app))
            await act(app, pilot)

    asyncio.run(run())


def ended(app: WatchScreen) -> bool:
    return app.live is not None and bool(app.live.rows) and not app.live.running


def test_a_save_changes_the_state_the_points_and_the_message(kit: MiniKit) -> None:
    kit.write(WRONG)

    async def act(app: WatchScreen, pilot: Pilot[int]) -> None:
        assert tasks(app)[0].split() == (
            ["x", "running_mean", "core", "0/2", "wrong", "(1", "of", "2", "tests", "pass)"]
        )
        assert "0 of 2 points" in shown(app, "top")
        assert "Why: entry i is the mean of the first i" in shown(app, "message")
        kit.write(RIGHT)
        await until(pilot, lambda: "2 of 2 points" in shown(app, "top") and ended(app))
        assert tasks(app)[0].split() == ["+", "running_mean", "core", "2/2", "done"]
        assert "running_mean is done" in shown(app, "message")
        assert "1 more test passes" in shown(app, "bottom")

    with_screen(kit, act)
    assert [entry.how for entry in history.read(kit.root)] == ["watch", "watch"]


def test_what_the_code_prints_stands_under_its_message(kit: MiniKit) -> None:
    kit.write(WRONG.replace("    return", "    print('so far', '[bold]', '\\x1b[31m')\n    return"))

    async def act(app: WatchScreen, pilot: Pilot[int]) -> None:
        assert "   it printed\n   | so far [bold] \\x1b[31m" in shown(app, "message")

    with_screen(kit, act)


def test_a_missing_file_is_said_and_its_return_answered(kit: MiniKit) -> None:
    kit.write(WRONG)

    async def act(app: WatchScreen, pilot: Pilot[int]) -> None:
        kit.main.unlink()
        await until(pilot, lambda: "running_mean.py is missing" in shown(app, "bottom"))
        renamed(kit.main, RIGHT)
        await until(pilot, lambda: "2 of 2 points" in shown(app, "top"))

    with_screen(kit, act)


def test_the_warm_process_that_is_killed_is_started_again(kit: MiniKit) -> None:
    kit.write("import os, signal\ndef running_mean(values):\n    os.kill(os.getppid(), 9)\n")

    async def act(app: WatchScreen, pilot: Pilot[int]) -> None:
        kit.write(RIGHT)
        await until(pilot, lambda: "2 of 2 points" in shown(app, "top") and ended(app))

    async def run() -> None:
        app = WatchScreen(load_lab(kit.root, "lab90"))
        async with app.run_test() as pilot:
            await until(pilot, lambda: "it was started again" in shown(app, "bottom"))
            await act(app, pilot)

    asyncio.run(run())


def test_hints_come_one_by_one(kit: MiniKit) -> None:
    kit.write(WRONG)

    async def act(app: WatchScreen, pilot: Pilot[int]) -> None:
        for count in (1, 2, 3, 3):
            await pilot.press("h")
            await pilot.pause()
            numbers = [f"   {number}. " in shown(app, "message") for number in (1, 2, 3)]
            assert numbers == [number <= count for number in (1, 2, 3)]

    with_screen(kit, act)


@pytest.mark.parametrize(("key", "line"), [("l", "lab90.running_mean"), ("a", "lab90")])
def test_lists_open_and_close(kit: MiniKit, key: str, line: str) -> None:
    kit.write(WRONG)

    async def act(app: WatchScreen, pilot: Pilot[int]) -> None:
        await pilot.press(key)
        await pilot.pause()
        assert isinstance(app.screen, TextScreen)
        assert any(line in row for row in app.screen.text)
        kit.write(RIGHT)
        await until(pilot, lambda: app.live is not None and bool(app.live.seconds) and ended(app))
        await pilot.press("escape")
        await until(pilot, lambda: "2 of 2 points" in shown(app, "top"))
        assert app.screen is app.screen_stack[0]

    with_screen(kit, act)


def test_compare_asks_before_the_task_is_done(kit: MiniKit) -> None:
    kit.write(WRONG)

    async def act(app: WatchScreen, pilot: Pilot[int]) -> None:
        await pilot.press("c")
        await pilot.pause()
        assert isinstance(app.screen, Question)
        await pilot.press("n")
        await pilot.pause()
        assert app.screen is app.screen_stack[0]
        assert history.answers_read(kit.root) == set()
        await pilot.press("c", "y")
        await pilot.pause()
        assert isinstance(app.screen, TextScreen)
        assert any("the reference" in row for row in app.screen.text)
        assert history.answers_read(kit.root) == {"lab90.running_mean"}

    with_screen(kit, act)


def test_compare_of_a_task_that_is_done_does_not_ask(kit: MiniKit) -> None:
    kit.write(RIGHT)

    async def act(app: WatchScreen, pilot: Pilot[int]) -> None:
        await pilot.press("c")
        await pilot.pause()
        assert isinstance(app.screen, TextScreen)
        assert history.answers_read(kit.root) == set()

    with_screen(kit, act)


def test_keys_that_have_nothing_to_do_say_so(kit: MiniKit, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.write(RIGHT)
    for name in ("EDITOR", "VISUAL"):
        monkeypatch.delenv(name, raising=False)
    said: list[str] = []
    monkeypatch.setattr(WatchScreen, "notify", lambda self, text, **_: said.append(text))

    async def act(app: WatchScreen, pilot: Pilot[int]) -> None:
        await pilot.press("n", "p", "d", "e")
        await pilot.pause()

    with_screen(kit, act)
    assert said == [
        "Every task of this lab that can be verified here is done.",
        "lab90 has no pictures.",
        "No test of running_mean fails.",
        "Set EDITOR to your editor's command first.",
    ]


def test_next_goes_round_the_tasks_that_ask_for_work(kit: MiniKit) -> None:
    second = '\n[[task]]\nid = "spread"\ntitle = "Spread"\ntier = "core"\npoints = 1\n'
    second += 'minutes = 5\nfile = "running_mean.py"\nneeds = []\n'
    path = kit.exercise / "lab.toml"
    path.write_text(path.read_text() + second)
    (kit.suite / "test_spread.py").write_text(
        "from grader.suite import expect, task\n\n\n"
        '@task("spread")\ndef test_of_one(student):\n    """Of one value it is 0."""\n'
        '    expect.equal(student.spread([1.0]), 0.0, "one value has no spread")\n'
    )
    kit.write(WRONG + "\n\ndef spread(values):\n    return 1.0\n")

    async def act(app: WatchScreen, pilot: Pilot[int]) -> None:
        assert app.chosen.id == "running_mean"
        await pilot.press("n")
        await pilot.pause()
        assert app.chosen.id == "spread"
        assert "one value has no spread" in shown(app, "message")
        await pilot.press("n")
        await pilot.pause()
        assert app.chosen.id == "running_mean"

    with_screen(kit, act)


def test_a_resized_terminal_puts_tasks_and_message_beside_each_other(kit: MiniKit) -> None:
    kit.write(WRONG)

    async def act(app: WatchScreen, pilot: Pilot[int]) -> None:
        listed, message = app.query_one("#tasks"), app.query_one("#right")
        assert message.region.y >= listed.region.bottom
        await pilot.resize_terminal(WIDE + 20, 50)
        await pilot.pause()
        assert message.region.y == listed.region.y
        assert message.region.x >= listed.region.right
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
        assert message.region.y >= listed.region.bottom
        assert message.region.height >= 4

    with_screen(kit, act)


def test_one_task_alone(kit: MiniKit) -> None:
    kit.write(WRONG)

    async def act(app: WatchScreen, pilot: Pilot[int]) -> None:
        assert len(tasks(app)) == 1

    with_screen(kit, act, only="running_mean")


def test_in_a_terminal_with_an_editor_beside_it(
    kit: MiniKit, terminal: Opened, tmp_path: Path
) -> None:
    """A round, a save as editors make it, the editor by `e`, and out by `q`: the terminal is as it
    was (the alternate screen is left), and nothing runs on."""
    kit.write(WRONG)
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\necho "$@" > "$(dirname "$0")/asked"\n')
    editor.chmod(0o755)
    env = {**environment(), "EDITOR": str(editor)}
    env.pop("VISUAL", None)
    here = terminal("watch", "lab90", size=(80, 24), env=env)
    here.wait_for("0 of 2 points")
    renamed(kit.main, RIGHT)
    here.wait_for("2 of 2 points")
    here.press("e")
    assert wait_until(lambda: here.read(0.05) and (tmp_path / "asked").exists())
    assert (tmp_path / "asked").read_text().split()[0].startswith("+")
    renamed(kit.main, WRONG)
    here.wait_for("0 of 2 points")
    here.press("q")
    assert here.end() == 0
    assert "\x1b[?1049l" in here.text
    assert "Traceback" not in here.text
    assert wait_until(lambda: processes_of(kit) == [])


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_gives_the_terminal_back(kit: MiniKit, terminal: Opened, name: str) -> None:
    import signal

    kit.write(RIGHT)
    here = terminal("watch", "lab90", size=(80, 24))
    here.wait_for("2 of 2 points")
    os.kill(here.process.pid, getattr(signal, name))
    assert here.end() == 0
    assert "\x1b[?1049l" in here.text
    assert wait_until(lambda: processes_of(kit) == [])
    assert history.read(kit.root)[-1].tasks["running_mean"][1] == 2.0


def test_a_closed_terminal_ends_the_screen(kit: MiniKit, terminal: Opened) -> None:
    kit.write(RIGHT)
    here = terminal("watch", "lab90", size=(80, 24))
    here.wait_for("2 of 2 points")
    os.close(here.master)
    here.master = -1
    assert wait_until(lambda: here.process.poll() is not None)
    assert wait_until(lambda: processes_of(kit) == [])
