"""Where the kit keeps what it can make again: fetched data, compiled kernels, replays."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """`infralens` in the user's cache folder (`XDG_CACHE_HOME`, or `~/.cache`); it may not be
    there."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "infralens"
