"""Pyodide, CPython for the browser: where it is found, and what a page loads of it.

A page is opened from a disk as well as from a server, and from a disk Chromium fetches nothing,
starts no worker from a file and imports no module. Classic scripts are loaded. So Pyodide's files
are written into one such script, compressed and in base64, and the page starts a worker from a
`Blob` of them: the same way everywhere, and no request to any host.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
from pathlib import Path

from grader.errors import LabError

VERSION = "0.29.4"
# From Python 3.12 on `sum` carries the rounding errors of floats along, so the last digit of a long
# sum may be another under 3.11.
PYTHON = "3.13"
FOLDER = "INFRALENS_PYODIDE"
HOW_TO_GET = (
    f"Pyodide {VERSION} was not found, so the site has no calculators. `npm install "
    f"pyodide@{VERSION}` puts it into node_modules; or set {FOLDER} to a folder with its files."
)
# SHA-256 of the files of the package `pyodide` that a page needs.
FILES = {
    "pyodide.js": "7be9e63eddf6bd8786a5ab71c8689c35731d187e3415fe58d7cb95423b50421a",
    "pyodide.asm.js": "fe75e97ef2c7a10c41f23b96344c553c7c1c62821bb206080dbb24941c06d5f3",
    "pyodide.asm.wasm": "10090fe41e019ae669d512e1f747021a8db2aaab0f6dd6f85fa9368c55d681e3",
    "python_stdlib.zip": "92cb24faa546818f3ef4050fd5bd2b6487bd2042efed2113af141d035f30efb4",
    "pyodide-lock.json": "14d2c2dba101277999e17135e653d8f15389ad1437f53eae213bf0c3cdff723d",
}


def find_pyodide() -> Path | None:
    """The folder of Pyodide's files: $INFRALENS_PYODIDE, node_modules/pyodide in the working
    folder, or pyodide-VERSION in the user's cache. None where there is none.

    Raises LabError where the variable names a folder without them.
    """
    given = os.environ.get(FOLDER)
    if given:
        folder = Path(given)
        if not (folder / "pyodide.asm.wasm").is_file():
            raise LabError(f"{FOLDER} is {given}, where pyodide.asm.wasm is missing.")
        return folder
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for folder in (Path("node_modules/pyodide"), cache / "infralens" / f"pyodide-{VERSION}"):
        if (folder / "pyodide.asm.wasm").is_file():
            return folder
    return None


def packed(data: bytes) -> str:
    """Bytes as a script carries them: compressed, without a time of day, in base64."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")


def runtime_script(folder: Path) -> str:
    """A classic script that holds Pyodide. Raises LabError for files of another version."""
    parts = {}
    for name, digest in FILES.items():
        path = folder / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise LabError(f"{path} cannot be read ({error.strerror}). {HOW_TO_GET}") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise LabError(
                f"{path} is not the file of Pyodide {VERSION}: its SHA-256 is another. "
                f"`npm install pyodide@{VERSION}` gets that version."
            )
        parts[name] = packed(data)
    return (
        f"// Pyodide {VERSION}, https://pyodide.org, Mozilla Public License 2.0; unchanged.\n"
        f"self.INFRALENS_PYODIDE = {json.dumps(parts)};\n"
    )
