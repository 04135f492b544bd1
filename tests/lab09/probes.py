"""Lab 09, beside the learner's code: what would be too much to send back."""

from __future__ import annotations

import contextlib
import enum
import importlib.abc
import importlib.machinery
import io
import os
import sys
import tempfile
import traceback
import types
from collections import Counter
from pathlib import Path


def refusal(student, path):
    """What load_trace says of a file with a ValueError, or None where it returns."""
    try:
        student.load_trace(path)
    except ValueError as error:
        return str(error)
    return None


def of_a_generator(student, intervals):
    """busy_time of intervals that can be gone through once."""
    return student.busy_time(interval for interval in intervals)


def of_an_absent_file(student, name):
    """(what nsys_queries raises for a path without a file, or "", the files in its folder then)."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            student.nsys_queries(Path(folder) / name)
            said = ""
        except ValueError as error:
            said = f"ValueError: {error}"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        return said, sorted(os.listdir(folder))


def counted(student, path):
    """A real trace as load_trace reads it: events a category, and base_ns."""
    trace = student.load_trace(path)
    return dict(Counter(event.cat for event in trace.events)), trace.base_ns


# -- commands: the text of `python -c`, with stand-ins for torch and train -------------------------

MOST_STEPS = 5000


class _Anything:
    """What the stand-in for torch has not: it can be called, entered and looked into."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()

    def __call__(self, *args, **kwargs):
        return _Anything()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules below torch, each of them a stand-in."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith("torch."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


class ProfilerActivity(enum.Enum):
    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    PrivateUse1 = 6


class ProfilerAction(enum.Enum):
    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class _Watch:
    """What a text did: its program's steps, and its profiles."""

    def __init__(self):
        self.steps = 0
        self.profiles = []

    def step(self):
        """train.step(): how many steps there have been."""
        if self.steps >= MOST_STEPS:
            raise RuntimeError(f"train.step() was called more than {MOST_STEPS:,} times")
        for profile in self.profiles:
            if profile.records:
                profile.trace.append(self.steps)
        self.steps += 1
        return self.steps

    def modules(self):
        """The stand-ins by name. torch.profiler is that of torch 2.13: the signatures, the
        schedule's arithmetic, and when a trace begins, ends and is handed over."""
        watch = self

        class profile(_Profile):
            def __init__(self, **keywords):
                super().__init__(watch, **keywords)

        torch, profiler, cuda, train = (
            _Module(name) for name in ("torch", "torch.profiler", "torch.cuda", "train")
        )
        torch.__path__, torch.profiler, torch.cuda = [], profiler, cuda
        torch.__version__ = "2.13.0"
        cuda.is_available = lambda: True
        cuda.device_count = lambda: 1
        profiler.profile = profile
        profiler.schedule = _schedule
        profiler.ProfilerActivity, profiler.ProfilerAction = ProfilerActivity, ProfilerAction
        profiler.supported_activities = lambda: {ProfilerActivity.CPU, ProfilerActivity.CUDA}
        profiler.tensorboard_trace_handler = _handler
        profiler.record_function = lambda *args: _Anything()
        train = types.ModuleType("train")
        train.step = self.step
        return {m.__name__: m for m in (torch, profiler, cuda, train)}


def _schedule(*, wait, warmup, active, repeat=0, skip_first=0, skip_first_wait=0):
    numbers = dict(locals())
    least = {"active": 1}
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"schedule()'s {name} is {number!r}, not a whole number")
        if number < least.get(name, 0):
            raise AssertionError(f"Invalid profiler schedule arguments: {name}={number}")

    def action(step):
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait != 0:
            step += wait
        length = wait + warmup + active
        if repeat > 0 and step / length >= repeat:
            return ProfilerAction.NONE
        place = step % length
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == length - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    action.numbers = numbers
    return action


def _handler(dir_name, worker_name=None, use_gzip=False):
    return lambda prof: prof.export_chrome_trace(  # its names carry the time: each is another one
        f"{dir_name}/{worker_name or 'worker'}.{len(prof.written)}.pt.trace.json"
    )


class _Profile:
    def __init__(
        self,
        watch,
        *,
        activities=None,
        schedule=None,
        on_trace_ready=None,
        record_shapes=False,
        profile_memory=False,
        with_stack=False,
        with_flops=False,
        with_modules=False,
        experimental_config=None,
        execution_trace_observer=None,
        acc_events=False,
        use_cuda=None,
        custom_trace_id_callback=None,
        post_processing_timeout_s=None,
    ):
        self.schedule, self.on_trace_ready, self.use_cuda = schedule, on_trace_ready, use_cuda
        both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        self.activities = list(both if activities is None else activities)
        for activity in self.activities:
            if not isinstance(activity, ProfilerActivity):
                raise TypeError(f"activities has {activity!r}, which is no ProfilerActivity")
        self.trace, self.records, self.open = None, False, False
        self.step_num = 0
        self.actions = []  # what the schedule said, step by step
        self.action = self._planned()
        self.traces, self.written = [], {}  # what each file holds in the end
        frame = sys._getframe()
        while frame and frame.f_code.co_filename != TEXT:
            frame = frame.f_back
        self.line = frame.f_lineno if frame else 1
        watch.profiles.append(self)

    def _planned(self):
        if not self.schedule:
            return ProfilerAction.RECORD
        action = self.schedule(self.step_num)
        if not isinstance(action, ProfilerAction):
            raise TypeError(f"the schedule gives {action!r}, which is not a ProfilerAction")
        self.actions.append(action)
        return action

    def _numbers(self):
        """A schedule's numbers: as torch.profiler.schedule was given them, or counted from what a
        callable of the learner's own has said, up to the end of its first recording."""
        if numbers := getattr(self.schedule, "numbers", None):
            return dict(numbers)
        recording = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        said = list(self.actions)
        with contextlib.suppress(Exception):  # it need not know of more steps than there are
            while len(said) < MOST_STEPS and ProfilerAction.RECORD_AND_SAVE not in said:
                said.append(self.schedule(len(said)))
        first = next((at for at, one in enumerate(said) if one in recording), len(said))
        warm = end = first
        while warm and said[warm - 1] == ProfilerAction.WARMUP:
            warm -= 1
        while end < len(said) and said[end] in recording:
            end += 1
            if said[end - 1] == ProfilerAction.RECORD_AND_SAVE:
                break
        numbers = {"wait": warm, "warmup": first - warm, "active": end - first, "skip_first": 0}
        return numbers | {"own": True}

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        self.open = True
        self._go(ProfilerAction.NONE, self.action)

    def stop(self):
        if self.open:
            self._go(self.action, None)
        self.open = False

    def step(self):
        if not self.open:
            return
        before = self.action
        self.step_num += 1
        self.action = self._planned()
        self._go(before, self.action)

    def _go(self, before, after):
        recording = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        saves = before == ProfilerAction.RECORD_AND_SAVE
        ends = before in recording and (saves or after not in recording)
        if ends:
            self.records = False
            if (saves or after is None) and self.on_trace_ready:
                self.on_trace_ready(self)
        begins = after not in (None, ProfilerAction.NONE)
        if begins and (ends or before == ProfilerAction.NONE):
            self.trace = []
            self.traces.append(self.trace)
        if after in recording:
            self.records = True

    def export_chrome_trace(self, path):
        if self.trace is None:
            raise AssertionError("Profiler must be initialized before exporting chrome trace")
        if not str(path):
            raise FileNotFoundError("export_chrome_trace is given no name")
        self.written[str(path)] = list(self.trace)

    def events(self):
        return []

    def __getattr__(self, name):  # key_averages, export_stacks, add_metadata, ...
        return getattr(_Anything(), name)

    def seen(self):
        return {
            "schedule": self._numbers() if self.schedule else None,
            "activities": sorted({a.name for a in self.activities}),
            "use_cuda": bool(self.use_cuda),
            "steps": self.step_num,
            "asks": self.on_trace_ready is not None,
            "recorded": [list(trace) for trace in self.traces],
            "written": list(self.written.values()),
            "line": self.line,
        }


TEXT = "<python -c>"


def python_text(student, text, arguments, environment):
    """What a text would have recorded: {"error", "steps", "profiles"}."""
    watch, finder, error = _Watch(), _Finder(), None
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if _replaced(name)}
    argv, folder, variables = sys.argv, os.getcwd(), dict(os.environ)
    sys.modules |= watch.modules()
    sys.meta_path.insert(0, finder)
    try:
        with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
            os.chdir(place)
            os.environ.update(environment)
            sys.argv = ["-c", *arguments]
            try:
                exec(compile(text, TEXT, "exec"), {"__name__": "__main__"})
            except SystemExit as end:
                error = ["SystemExit", 1, str(end.code)] if end.code else None
            except BaseException as raised:
                error = _told(raised)
            finally:
                os.chdir(folder)
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _replaced(name)]:
            del sys.modules[name]
        sys.modules |= kept
        sys.argv = argv
        os.environ.clear()
        os.environ.update(variables)
    profiles = [profile.seen() for profile in watch.profiles]
    return {"error": error, "steps": watch.steps, "profiles": profiles}


def _replaced(name):
    return name in ("torch", "train") or name.startswith("torch.")


def _told(error):
    lines = [
        row.lineno for row in traceback.extract_tb(error.__traceback__) if row.filename == TEXT
    ]
    said = str(error).replace("_Profile.", "profile.").replace("_schedule()", "schedule()")
    said = said.replace("_Watch.modules.<locals>.", "")
    return [type(error).__name__, lines[-1] if lines else 1, said[:200]]
