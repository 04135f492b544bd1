"""What `infralens show lab13` draws: the seams of your own tiling, as a map of the image, and where
the peak of the toy pipeline is with each knob."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from grader.learner.pictures import (
    Bar,
    Bars,
    Cell,
    Drawing,
    Grid,
    Key,
    Panel,
    Picture,
    PictureFault,
)


def pictures(student: Any) -> Iterator[Picture]:
    yield from seam_pictures(student)
    yield from byte_pictures(student)


# -- the seams of a tiling -------------------------------------------------------------------------

SIDE, TILE, SCALE = 20, 8, 4
OVERLAPS = (0, 2, 4)
# Up to which multiple of an even spread, or up to which share of the image's spread of values.
STEPS = ((0.01, "faint", "flat"), (1.1, "blue", "an even ramp"), (math.inf, "red", "a seam"))
LOSSES = (
    (0.02, "faint", "below 2 %"),
    (0.1, "pale", "2 to 10 %"),
    (0.5, "orange", "10 to 50 %"),
    (math.inf, "red", "more"),
)
Array = np.ndarray[Any, Any]


def seam_pictures(student: Any) -> Iterator[Picture]:
    """The steepest step in each latent pixel, and how far tiles are from the whole image."""
    z = np.random.default_rng(13).normal(size=(1, 4, SIDE, SIDE)).astype(np.float32)
    yield Picture(
        "Where your tiles can be seen",
        f"Each tile of {TILE} latent pixels is flat, at a level of its own. A cell is a latent "
        "pixel; its colour is the largest step in it from one image pixel to the next, measured "
        "against the difference of two tiles spread evenly over what they share.",
        [
            Panel("tiled_decode", partial(_steps, student, z, overlap), _shared(overlap))
            for overlap in OVERLAPS
        ],
        keys=[Key(colour, text) for _limit, colour, text in STEPS],
    )
    yield Picture(
        "What tiles change in an image",
        "A decoder with convolutions and GroupNorm, in tiles and whole. A cell is a latent pixel; "
        "its colour is their mean difference in it, as a share of the image's standard deviation.",
        [
            Panel("tiled_decode", partial(_losses, student, z, overlap), _shared(overlap))
            for overlap in OVERLAPS
        ],
        keys=[Key(colour, text) for _limit, colour, text in LOSSES],
    )


def _shared(overlap: int) -> str:
    return f"tiles that share {overlap}" if overlap else "tiles that share nothing"


def _image(value: Any) -> Array:
    """(3, height, width) of a probe's image."""
    found = np.asarray(value, dtype=np.float64)
    want = (1, 3, SCALE * SIDE, SCALE * SIDE)
    if found.shape != want:
        raise PictureFault(f"the image has the shape {found.shape}, and {want} is right")
    if not np.isfinite(found).all():
        raise PictureFault("the image has pixels that are NaN or infinite")
    return found[0]


def _cells(image: Array) -> Array:
    """The pixels of each latent pixel: (SIDE, SIDE, channels * SCALE * SCALE)."""
    parts = image.reshape(-1, SIDE, SCALE, SIDE, SCALE)
    return parts.transpose(1, 3, 0, 2, 4).reshape(SIDE, SIDE, -1)


def _map(values: Array, limits: tuple[tuple[float, str, str], ...], alt: str) -> Drawing:
    rows = [
        [Cell(next(colour for limit, colour, _ in limits if value <= limit)) for value in row]
        for row in values
    ]
    return Grid(rows, alt=alt, cell=(11.0, 11.0), gap=1.0, caption=alt)


def _steps(student: Any, z: Array, overlap: int) -> Drawing:
    image = _image(student.probe.flat_tiles(z, TILE, overlap, SCALE))
    step = np.zeros_like(image)
    step[:, 1:] = np.abs(np.diff(image, axis=1))
    step[:, :, 1:] = np.maximum(step[:, :, 1:], np.abs(np.diff(image, axis=2)))
    even = _largest_difference(z, overlap) / max(1, SCALE * overlap)
    worst = _cells(step).max(-1) / even
    if overlap == 0:
        # Nothing is shared, so nothing can be spread: whatever is not flat is a seam.
        worst = np.where(worst > STEPS[0][0], math.inf, 0.0)
    seams = int((worst > STEPS[1][0]).sum())
    ramps = int((worst > STEPS[0][0]).sum()) - seams
    return _map(
        worst, STEPS, f"{seams} of {SIDE * SIDE} latent pixels hold a seam, {ramps} a ramp."
    )


def _largest_difference(z: Array, overlap: int) -> float:
    """Of two tiles side by side or one above the other."""
    begin = [0]
    while begin[-1] + TILE < SIDE:
        begin.append(begin[-1] + TILE - overlap)
    levels = np.array(
        [[z[0, :3, a : a + TILE, b : b + TILE].mean((1, 2)) for b in begin] for a in begin]
    )
    return float(max(np.abs(np.diff(levels, axis=axis)).max() for axis in (0, 1)))


def _losses(student: Any, z: Array, overlap: int) -> Drawing:
    seen = student.probe.normed_tiles(z, [(TILE, overlap)], SCALE)
    image, whole = _image(seen["images"][0]), _image(seen["whole"])
    gap = _cells(np.abs(image - whole)).mean(-1) / whole.std()
    return _map(
        gap,
        LOSSES,
        f"On average {100 * gap.mean():.0f} % of a standard deviation, "
        f"{100 * gap.max():.0f} % in the worst latent pixel.",
    )


# -- attention, offload, choose -------------------------------------------------------------------


MIB = 2**20
KNOBS = {
    "sliced_attention": "attention a head and 100 queries at a time",
    "ModelOffloadChain": "one component at a time",
    "GroupOffload": "two of the denoiser's ten blocks at a time",
    "SequentialOffload": "one module at a time",
    "sliced_decode": "one latent at a time, and there is one",
    "tiled_decode": "a tile of 8 latent pixels at a time",
}


def byte_pictures(student: Any) -> Iterator[Picture]:
    yield Picture(
        "Peak bytes by component and knob",
        "The toy pipeline with one of your knobs at a time, each component without the knob and "
        "with it: the most weights in fast memory while it runs, and behind them the most of all "
        "else.",
        [Panel(knob, partial(_peaks, student, knob), text) for knob, text in KNOBS.items()],
    )


def _peaks(student: Any, knob: str) -> Drawing:
    seen = student.probe.peaks(knob)
    plain = student.probe.peaks("")
    image, want = (np.asarray(run["image"]) for run in (seen, plain))
    rounding = knob != "tiled_decode"  # tiles make another image
    if image.shape != want.shape or (rounding and not np.allclose(image, want, atol=1e-3)):
        raise PictureFault("With it the pipeline's image is another one: look at the tests first.")
    bars, alt = [], []
    for name, before in plain["peaks"].items():
        after = seen["peaks"][name]
        text = name.replace("_", " ")
        for label, (weights, rest) in ((text, before), ("with it", after)):
            total = (weights + rest) / MIB
            bars.append(Bar(label, (weights / MIB, rest / MIB), f"{total:.2f}"))
        alt.append(f"{text}: {sum(before) / MIB:.2f} MiB without, {sum(after) / MIB:.2f} with")
    return Bars(
        bars,
        "; ".join(alt) + ".",
        names=("weights", "activations"),
        colours=("blue", "orange"),
        unit="MiB",
        label_name="runs",
    )
