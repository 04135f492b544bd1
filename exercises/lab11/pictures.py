"""What `infralens show lab11` draws: where the bits of one group go, and error against bits with
the Pareto front."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from plans_lab11 import MXFP4, NF4, NVFP4
from tiny_lm import as_tensor, drawn_weights
from types_lab11 import Model

from grader.learner.pictures import (
    Bar,
    Bars,
    Drawing,
    Lines,
    Panel,
    Picture,
    PictureFault,
    Series,
)

# A weight as a trained one looks like: normal, with channels of different sizes.
SHAPE = (256, 1024)
INTEGERS = {  # bits, symmetric, block, bits of a scale, bits of a zero point
    "int4, channel": (4, True, (1, -1), 16, 0),
    "int4, g128": (4, True, (1, 128), 16, 0),
    "int4, g128, zero": (4, False, (1, 128), 16, 4),
    "int4, g32": (4, True, (1, 32), 16, 0),
    "int8, g32": (8, True, (1, 32), 16, 0),
}


def pictures(student: Any) -> Iterator[Picture]:
    yield from format_pictures(student)
    yield from method_pictures(student)


def format_pictures(student: Any) -> Iterator[Picture]:
    yield Picture(
        "Where the bits of a weight go",
        "A bar is the bits that one weight of 256 x 1,024 takes, codes and everything that is "
        "needed to read them; beside it the ratio of signal to rounding noise of the same weight.",
        [
            Panel("qparams", lambda: _integer_bits(student), "integers, scales as fp16"),
            Panel("nf4", lambda: _normal_float_bits(student), "NormalFloat"),
            Panel("to_mx", lambda: _mx_bits(student), "MX"),
            Panel("to_nvfp4", lambda: _nvfp4_bits(student), "NVFP4"),
        ],
        same_scale=True,
    )


def _bars_weight() -> Any:
    rng = np.random.default_rng(11)
    sizes = np.exp2(rng.normal(0, 0.5, (SHAPE[0], 1)))
    return (0.02 * sizes * rng.standard_normal(SHAPE)).astype(np.float32)


def _noise_ratio(w: Any, back: Any, format_: str) -> float:
    """In dB; a Fault where what was stored does not come back at all."""
    noise = float(((w - back.astype(np.float64)) ** 2).sum())
    ratio = 10 * np.log10(float((w.astype(np.float64) ** 2).sum()) / noise) if noise else np.inf
    if not ratio > 10:
        raise PictureFault(
            f"{format_}: noise is {ratio:.1f} dB below the signal, which is no format"
        )
    return float(ratio)


def _bars(rows: list[tuple[str, tuple[float, ...], float]], names: tuple[str, ...]) -> Drawing:
    bars = [
        Bar(name, parts, f"{sum(parts):.4g} bits, {ratio:.1f} dB") for name, parts, ratio in rows
    ]
    told = [f"{name} {sum(parts):.4g} bits a weight, {ratio:.1f} dB" for name, parts, ratio in rows]
    said = "; ".join(told) + "."
    return Bars(bars, alt=said, names=names, colours=("blue", "orange", "purple"), unit="bits")


def _integer_bits(student: Any) -> Drawing:
    w, rows = _bars_weight(), []
    cases = [(w, bits, sym, block) for bits, sym, block, _s, _z in INTEGERS.values()]
    answers = student.probe.there_and_back(cases)
    for (name, case), (back, scale) in zip(INTEGERS.items(), answers, strict=True):
        bits, _sym, _block, scale_bits, zero_bits = case
        blocks = scale.size / w.size
        parts = (float(bits), scale_bits * blocks, zero_bits * blocks)
        rows.append((name, parts, _noise_ratio(w, back, name)))
    return _bars(rows, ("codes", "scales", "zero points"))


def _normal_float_bits(student: Any) -> Drawing:
    w, rows = _bars_weight(), []
    for name, double in (("NF4", False), ("NF4, double", True)):
        (answer,) = student.probe.many("nf4", [(w, 64, double)])
        (back,) = student.probe.round_trips("nf4", [(w, 64, double)])
        first, second = answer["absmax_q"].nbytes, 0
        if answer["absmax_scale"] is not None:
            second = answer["absmax_scale"].nbytes + answer["offset"].nbytes
        sizes = (answer["codes"].nbytes, first, second)
        parts = tuple(8 * size / w.size for size in sizes)
        rows.append((name, parts, _noise_ratio(w, back, name)))
    return _bars(rows, ("codes", "maxima", "second level"))


def _mx_bits(student: Any) -> Drawing:
    w, rows = _bars_weight(), []
    for name, elem in (("MXFP4", "e2m1"), ("MXFP8", "e4m3")):
        (answer,) = student.probe.many("to_mx", [(w, elem, "even")])
        (back,) = student.probe.round_trips("to_mx", [(w, elem, "even")])
        parts = (8 * answer[1].nbytes / w.size, 8 * answer[0].nbytes / w.size)
        rows.append((name, parts, _noise_ratio(w, back, name)))
    return _bars(rows, ("codes", "scales (E8M0)"))


def _nvfp4_bits(student: Any) -> Drawing:
    w = _bars_weight()
    ((payload, scales, whole),) = student.probe.many("to_nvfp4", [(w,)])
    (back,) = student.probe.round_trips("to_nvfp4", [(w,)])
    parts = tuple(8 * part.nbytes / w.size for part in (payload, scales, np.asarray(whole)))
    rows = [("NVFP4", parts, _noise_ratio(w, back, "NVFP4"))]
    return _bars(rows, ("codes", "scales (E4M3)", "global"))


# -- methods, report ------------------------------------------------------------------------------


def method_pictures(student: Any) -> Iterator[Picture]:
    """Error against bits."""
    seen: dict[str, list[tuple[float, float]]] = {}
    yield Picture(
        "Error against bits",
        "A point is a format with 65,536 normal weights: the further left the fewer bits a weight, "
        "scales included, and the lower the smaller the error; nothing beats a point on the front.",
        [
            Panel("qparams", lambda: _points(seen, "integers, groups of 32", _integers(student))),
            Panel("nf4", lambda: _points(seen, "NF4", _nf4(student))),
            Panel("to_mx", lambda: _points(seen, "MXFP4 and MXFP8", _mx(student))),
            Panel("to_nvfp4", lambda: _points(seen, "NVFP4", _nvfp4(student))),
            Panel("report", lambda: _front(student, seen)),
        ],
        together=True,
    )
    yield Picture(
        "Errors that make up for each other",
        "Both lines have the same grid and the same bits; what differs is the error of the layer's "
        "outputs, for inputs that share most of what they do.",
        [Panel("gptq", lambda: _outputs(student), "gptq")],
    )


def _points(seen: dict[str, list[tuple[float, float]]], name: str, points: list[Any]) -> Lines:
    for bits, error in points:
        if not 0 < error < 1:
            raise PictureFault(f"{name} at {bits:.3g} bits has a relative error of {error:.3g}")
    seen[name] = sorted(points)
    told = "; ".join(f"{bits:.3g} bits {error:.2%}" for bits, error in seen[name])
    return Lines(
        [Series(name, seen[name], joined=len(points) > 2)],
        f"{name}: relative error at {told}.",
        x_name="bits a weight",
        y_name="error, root mean square over that of the weights",
        y_log=True,
        size=(520.0, 300.0),
    )


def _error(w: Any, back: Any) -> float:
    w, back = w.numpy().astype(np.float64), np.asarray(back, dtype=np.float64)
    if back.shape != w.shape:
        raise PictureFault(f"weights of shape {list(w.shape)} came back as {list(back.shape)}")
    return float(np.sqrt(np.sum((w - back) ** 2) / np.sum(w**2)))


def _integers(student: Any) -> list[tuple[float, float]]:
    w = drawn_weights()
    points = []
    for bits in (2, 3, 4, 5, 6, 8):
        scale, zero = student.qparams(w, bits, True, (1, 32))
        back = student.dequant(student.quant(w, scale, zero, bits), scale, zero)
        points.append((bits + 16 * scale.numel() / w.numel(), _error(w, back)))
    return points


def _nf4(student: Any) -> list[tuple[float, float]]:
    w = drawn_weights()
    points = []
    for double in (False, True):
        q = student.nf4(w, 64, double)
        parts = (q.codes, q.absmax_q, q.absmax_scale, q.offset)
        size = sum(8 * part.numel() * part.itemsize for part in parts if part is not None)
        points.append((size / w.numel(), _error(w, student.nf4_dequant(q, tuple(w.shape), 64))))
    return points


def _mx(student: Any) -> list[tuple[float, float]]:
    w = drawn_weights()
    points = []
    for elem in ("e2m1", "e4m3"):
        scales, payload = student.to_mx(w, elem)
        size = 8 * (scales.numel() + payload.numel())
        points.append((size / w.numel(), _error(w, student.from_mx(scales, payload, elem))))
    return points


def _nvfp4(student: Any) -> list[tuple[float, float]]:
    w = drawn_weights()
    payload, scales, whole = student.to_nvfp4(w)
    size = 8 * (payload.numel() + scales.numel()) + 32
    return [(size / w.numel(), _error(w, student.from_nvfp4(payload, scales, whole)))]


def _front(student: Any, seen: dict[str, list[tuple[float, float]]]) -> Lines:
    """What no other point beats, in bits by `plan_bytes` where it knows the format."""
    if not seen:
        raise PictureFault(
            "the front lies below the other tasks' points: ask for the picture of the lab"
        )
    known = {"NF4": NF4, "MXFP4 and MXFP8": MXFP4, "NVFP4": NVFP4}
    w = drawn_weights()
    for name, fmt in known.items():
        model = Model("picture", {"w": tuple(w.shape)}, (0, 0), {})
        bits = 8 * student.plan_bytes(model, fmt) / w.numel()
        stored = seen[name][0][0] if name in seen else bits
        if abs(bits - stored) > 0.01:
            text = f"by plan_bytes {fmt.name} has {bits:.4g} bits a weight"
            raise PictureFault(f"{text}, and what came back to store has {stored:.4g}")
    front: list[tuple[float, float]] = []
    for point in sorted(point for points in seen.values() for point in points):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    told = ", ".join(f"{bits:.3g}" for bits, _error in front)
    alt = f"The Pareto front has the formats with {told} bits a weight."
    return Lines([Series("Pareto front", front, dashed=True, marks=False)], alt)


def _outputs(student: Any) -> Lines:
    draw = np.random.default_rng(11)
    w = drawn_weights(16, 64).double()
    x = draw.normal(size=(192, 16)) @ draw.normal(size=(16, 64)) + 0.3 * draw.normal(size=(192, 64))
    h = x.T @ x
    rounded, moved = [], []
    for bits in (2, 3, 4, 5, 6, 8):
        plain = student.to_grid(w, student.int_scale(w, bits), bits)
        better = student.gptq(w, as_tensor(h), bits)
        for points, q in ((rounded, plain), (moved, better)):
            if q.shape != w.shape:
                raise PictureFault(f"weights of shape {list(w.shape)} came back as {list(q.shape)}")
            noise, w_ = (x @ one.numpy().T for one in (w - q, w))
            points.append((float(bits), float(np.sqrt(np.sum(noise**2) / np.sum(w_**2)))))
    told = "; ".join(
        f"{bits:g} bits {a:.1%} and {b:.1%}"
        for (bits, a), (_bits, b) in zip(rounded, moved, strict=True)
    )
    return Lines(
        [Series("rounding to nearest", rounded, dashed=True), Series("GPTQ", moved)],
        f"Relative error of the outputs with rounding and with GPTQ: {told}.",
        x_name="bits of a code",
        y_name="error of the outputs, relative",
        y_log=True,
    )
