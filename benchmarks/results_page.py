"""How a benchmark ends: the page that it writes, with the machine and the date, and its faults."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from pathlib import Path


def made(command: str) -> str:
    """How, when and where a page was made."""
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    return f"`{command} --write`, {time.strftime('%Y-%m-%d')}, {machine}."


def told(lines: Sequence[str], faults: Sequence[str], page: Path | None) -> int:
    """Print the page and each fault, write it to `page` if there is one; the exit status."""
    text = "\n".join([*lines, "", f"Faults: {len(faults)}.", ""])
    print(text)
    for fault in faults:
        print(f"FAULT {fault}")
    if page:
        page.write_text(text, encoding="utf-8")
    return 1 if faults else 0
