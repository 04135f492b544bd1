"""Attacks by files: what lies beside the files that are taken, or in their place."""

from __future__ import annotations

from .catalogue import APART, EVERYTHING, Attack

_HIJACK = """
import os
os.environ["HIJACKED"] = "yes"
print("hijacked")
"""
_LOOK = """
tell("modules from here:", *sorted(n for n, m in sys.modules.items()
     if str(getattr(m, "__file__", "")).startswith(os.path.dirname(__file__)) and n != __name__))
attempt("hijacked", lambda: os.environ.get("HIJACKED"))
"""

ATTACKS = [
    Attack(
        "pytest-files",
        ("2.4", "2.23"),
        "brings a conftest.py, pytest.ini, pyproject.toml, setup.cfg and a suite of its own",
        _LOOK,
        files={
            "conftest.py": "import pytest\n@pytest.hookimpl(hookwrapper=True)\n"
            "def pytest_runtest_makereport(item, call):\n    outcome = yield\n"
            "    outcome.get_result().outcome = 'passed'\n" + _HIJACK,
            "pytest.ini": "[pytest]\naddopts = --collect-only -p hijack\n",
            "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--collect-only'\n",
            "setup.cfg": "[tool:pytest]\naddopts = --collect-only\n",
            "test_answers.py": "def test_fine(): pass\n",
            "probes.py": "def doubled(student, values): return [2 * v for v in values]\n",
            "../tests/lab91/test_answers.py": "def test_fine(): pass\n",
            "../.github/workflows/grade.yml": "on: push\n",
        },
        mark=r"modules from here: types_lab91",
        noted=dict.fromkeys(APART, "Ignored.*conftest.py"),
    ),
    Attack(
        "start-up-files",
        ("2.5",),
        "brings sitecustomize.py, usercustomize.py, a .pth and shadows of modules",
        _LOOK + "\nimport json, numpy, msgspec, random\n" + _LOOK,
        files={
            "sitecustomize.py": _HIJACK,
            "usercustomize.py": _HIJACK,
            "hijack.pth": "import os; os.environ['HIJACKED'] = 'yes'\n",
            "torch.py": _HIJACK,
            "numpy/__init__.py": _HIJACK,
            "msgspec.py": _HIJACK,
            "json.py": _HIJACK,
            "random.py": _HIJACK,
            "grader/__init__.py": _HIJACK,
            "answers/__init__.py": _HIJACK,
            "answers.pyc": "not code",
            "__init__.py": _HIJACK,
        },
        mark=r"modules from here: types_lab91",
        noted=dict.fromkeys(APART, "Ignored"),
    ),
    Attack(
        "given-files-replaced",
        ("2.5", "2.23"),
        "brings types, a manifest and a README of its own",
        _LOOK,
        files={
            "types_lab91.py": "class Point:\n    def __init__(self, *a): pass\n"
            "    def __eq__(self, other): return True\n" + _HIJACK,
            "lab.toml": 'id = "lab91"\ncall_seconds = 1e9\n',
            "README.md": "full marks, please\n",
        },
        mark=r"modules from here: types_lab91",
        noted=dict.fromkeys(APART, "types_lab91.py differs"),
    ),
    Attack(
        "shadows-at-run-time",
        ("2.5", "2.19"),
        "writes shadows of modules where the next worker starts, and ends this one",
        """
_places = [os.getcwd(), os.path.dirname(os.path.abspath(__file__)), os.path.expanduser("~")]
for _place in _places + ["/tmp", "/dev/shm"] * boxed():
    for _name in ("msgspec.py", "sitecustomize.py", "usercustomize.py", "struct.py"):
        try:
            if not os.path.exists(os.path.join(_place, _name)):
                with open(os.path.join(_place, _name), "w") as _file:
                    _file.write("import os\\nos.environ['HIJACKED'] = 'yes'\\n")
        except OSError: pass
sys.path.insert(0, os.getcwd())
os.environ["PYTHONPATH"] = os.getcwd()
def add(a, b): os._exit(3)
"""
        + _LOOK,
        mark="modules from here: types_lab91",
        may_lose=False,
        noted={},
    ),
    Attack(
        "answers-is-a-link",
        ("2.18",),
        "hands in a link to the reference",
        files={"answers.py": "-> @KIT@/solutions/lab91/answers.py"},
        mark="is a link and was not taken",
        loses=EVERYTHING,
    ),
    Attack(
        "answers-is-the-key",
        ("2.18",),
        "hands in a link to the course key, to have it printed",
        files={"answers.py": "-> @KEY@"},
        mark="is a link and was not taken",
        loses=EVERYTHING,
    ),
    Attack(
        "answers-is-a-pipe",
        ("2.18",),
        "hands in a named pipe, which nobody writes to",
        files={"answers.py": "(fifo)"},
        mark="is not a regular file and was not taken",
        loses=EVERYTHING,
    ),
    Attack(
        "answers-is-a-device",
        ("2.18",),
        "hands in a link to a device without end",
        files={"answers.py": "-> /dev/zero"},
        mark="is a link and was not taken",
        loses=EVERYTHING,
    ),
    Attack(
        "answers-is-huge",
        ("2.16", "2.18"),
        "hands in 20 MB of source",
        code="#" + "x" * 20_000_000,
        mark="larger than",
        loses=EVERYTHING,
    ),
    Attack(
        "deep-source",
        ("2.16", "2.14"),
        "hands in source that no compiler likes",
        code="x = " + "(" * 5000 + ")" * 5000 + "\ny = " + "-" * 100_000 + "1\n",
        mark="does not import|ended",
        loses=EVERYTHING,
    ),
]
