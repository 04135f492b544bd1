"""A TOML file of the kit or of a course, as a table; every fault is a sentence."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from grader.errors import LabError


def read(path: Path, missing: str = "") -> dict[str, Any]:
    """The table that a file holds. `missing`: the sentence for a file that is not there. A byte
    order mark is left out. Raises LabError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise LabError(missing or f"{path} is missing.") from None
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise LabError(
            f"{path} is not valid TOML: it is not UTF-8 (byte {error.start}); save it as UTF-8."
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise LabError(f"{path} is not valid TOML: {error}.") from error
