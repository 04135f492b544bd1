"""What a process loads by name before it runs student code; the trusted side says which."""

from __future__ import annotations

import importlib


def load(name: str, *arguments: bytes) -> None:
    """Import a module, `torch`, or call a function of one, `grader.meters:preload`."""
    module, _, function = name.partition(":")
    loaded = importlib.import_module(module)
    if function:
        getattr(loaded, function)(*arguments)
