"""Lab 01: what autograd saves, by the kit's own meter, or by figures that a probe's frame holds."""

from __future__ import annotations

from .lab_attack import LabAttack

# A class of the student's around a meter that ORIGIN makes.
_BORROWED = """
import importlib, weakref
def _made(exclude):
    ORIGIN
class SavedBytes:
    def __init__(self, exclude=()): self._meter, self._opened = _made(exclude), False
    def __enter__(self):
        self._meter.__enter__()
        self._opened = True
        return self
    def __exit__(self, *error): self._meter.__exit__(*error)
    @property
    def bytes(self): return self._meter.bytes if self._opened else 0
"""
_OPENED = r"student code opened one of the kit's own meters"

# A context manager that learns its figure when the block ends.
_FRAME = """
import sys
def _frame_with(*names):
    frame = sys._getframe(1)
    while not set(names) <= set(frame.f_locals): frame = frame.f_back
    return frame
class SavedBytes:
    def __init__(self, exclude=()): self.bytes = 0
    def __enter__(self): return self
    def __exit__(self, *error):
        DEED
"""
_BY_THE_PROBE = """frame = _frame_with("forward", "exclude")
        again = frame.f_globals[frame.f_code.co_name]
        mine = type("Mine", (), {"SavedBytes": SavedBytes})
        self.bytes = again(mine, "meter", frame.f_locals["forward"], frame.f_locals["exclude"])
"""
_OVERWRITTEN = """
        def later(frame, event, value):
            meters = [v for v in frame.f_locals.values() if "meter" in type(v).__module__]
            if meters: frame.f_locals["saved"] = meters[0]
            return later
        sys._getframe(1).f_trace = later
        sys.settrace(lambda *given: None)
"""
_TABLE = """
        frame = sys._getframe(1)
        while frame is not None and not {"m", "widths"} & set(frame.f_locals): frame = frame.f_back
        at = frame.f_locals if frame is not None else {}
        m, n, k = (at.get(name, 0) for name in "mnk")
        if "widths" in at:
            rows, (a, b, c) = at["rows"], at["widths"]
            self.bytes = 4 * (5 * rows * a + rows * b + 2 * rows * rows)
            return
        self.bytes = {
            "add": 0, "input_excluded": 0, "scaled": 4, "product": 8 * m * n, "half": 8 * m * n,
            "bf16_exp": 2 * m * n, "float64_exp": 8 * m * n, "where": m * n, "index_select": 8 * k,
            "layer_norm": 4 * m * n + 8 * m, "expanded": 4 * n, "not_excluded": 4 * (m * n + n * k),
        }.get(at.get("operation"), 4 * m * n)
"""

ATTACKS = [
    LabAttack(
        "meter-by-its-class",
        "SavedBytes",
        "the kit's meter, made from its class and not by its factory",
        _BORROWED.replace(
            "ORIGIN", 'return importlib.import_module("grader.meters.saved").SavedBytes(exclude)'
        ),
        mark=_OPENED,
    ),
    LabAttack(
        "meter-by-a-library",
        "SavedBytes",
        "the kit's factory, called from a frame of the standard library",
        _BORROWED.replace(
            "ORIGIN",
            'meters = importlib.import_module("grader.meters")\n'
            "    return weakref.finalize(SavedBytes, meters.saved_bytes, exclude)()",
        ),
        mark=_OPENED,
    ),
    LabAttack(
        "meter-by-the-probe",
        "SavedBytes",
        "the kit's meter on the same forward pass, opened by a function of the probe's own",
        _FRAME.replace("DEED", _BY_THE_PROBE),
        mark=_OPENED,
    ),
    LabAttack(
        "the-meter-s-figure-over-one-s-own",
        "SavedBytes",
        "a trace function writes what the meter measures over the figure that the probe read first",
        _FRAME.replace("DEED", _OVERWRITTEN),
        mark=r"expected [\d,]+ bytes",
    ),
    LabAttack(
        "closed-forms-from-the-probe",
        "SavedBytes",
        "the probe's frame says which operation runs at which size: a table of figures, no hooks",
        _FRAME.replace("DEED", _TABLE),
        mark=r"every layer saves what its derivative needs",
        passes=(
            "test_single_operations",
            "test_views_of_one_storage_count_once",
            "test_parameters_do_not_count",
        ),
    ),
]
