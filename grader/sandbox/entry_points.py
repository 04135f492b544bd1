"""What a process loads before it runs student code, by names that the trusted side gives."""

from __future__ import annotations

import importlib


def load(name: str, *arguments: bytes) -> None:
    """Import a module, `torch`, or call a function of one, `grader.meters:preload`."""
    module, _, function = name.partition(":")
    loaded = importlib.import_module(module)
    if function:
        getattr(loaded, function)(*arguments)
