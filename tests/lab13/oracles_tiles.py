"""What slices and tiles are held against: NumPy in float64, each pixel's weights in closed form."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import numpy as np

PUBLISHED = {
    row["id"]: row for row in json.loads(Path(__file__).with_name("published.json").read_text())
}

STACK = ("none", "+model offload", "+sequential", "+vae slicing", "+vae tiling")


def starts(length: int, tile: int, overlap: int) -> list[int]:
    """Where tiles begin: as many as are needed to reach `length`, and no more."""
    count = max(1, -(-(length - overlap) // (tile - overlap)))
    return [number * (tile - overlap) for number in range(count)]


def covered(length: int, grid: list[tuple[int, int, int, int]]) -> list[int]:
    """How often each pixel comes into the image."""
    times = [0] * length
    for _start, _stop, low, high in grid:
        for place in range(max(low, 0), min(high, length)):
            times[place] += 1
    return times


def ramp(extent: int) -> np.ndarray:
    """The new tile's weight for each pixel of what two tiles share."""
    return np.arange(extent, dtype=np.float64) / max(extent, 1)


def blended(prev: np.ndarray, cur: np.ndarray, extent: int, axis: int) -> np.ndarray:
    """Pixel by pixel."""
    extent = min(extent, prev.shape[axis], cur.shape[axis])
    old, new = np.moveaxis(prev.astype(np.float64), axis, 0), np.moveaxis(cur, axis, 0)
    out = new.astype(np.float64).copy()
    for y in range(extent):
        w = y / extent
        out[y] = (1 - w) * old[len(old) - extent + y] + w * new[y]
    return np.moveaxis(out, 0, axis)


def weights(length: int, tile: int, overlap: int, scale: int) -> np.ndarray:
    """(tiles, scale * length): what each tile weighs in each pixel of one axis.

    In a pixel the newest tile t that shows it weighs r_t, the one before it (1 - r_t) r_{t-1}, and
    so on, with r_t = y / extent in the y-th pixel of tile t while y < extent, else 1; the first
    tile has no ramp.
    """
    begin = [scale * start for start in starts(length, tile, overlap)]
    found = np.zeros((len(begin), scale * length))
    extent = scale * overlap
    for pixel in range(scale * length):
        left = 1.0
        for number in range(len(begin) - 1, -1, -1):
            inside = pixel - begin[number]
            if inside < 0:
                continue
            mine = inside / extent if number and inside < extent else 1.0
            found[number, pixel] = left * mine
            left *= 1.0 - mine
            if left == 0.0:
                break
    return found


def uneven(z: np.ndarray, scale: int) -> np.ndarray:
    """What the probes' decoder `Uneven` computes: each tile has its own mean and its own slope."""
    z = z.astype(np.float64)
    big = z[:, :3].repeat(scale, axis=2).repeat(scale, axis=3)
    down = np.arange(big.shape[2]) / big.shape[2]
    right = np.arange(big.shape[3]) / big.shape[3]
    return big + 2 * z.mean((2, 3), keepdims=True)[:, :3] + down[:, None] ** 2 - right**2


def tiled(z: np.ndarray, tile: int, overlap: int, scale: int) -> np.ndarray:
    """`uneven` in tiles: sum over tiles of wy * wx * tile, for every pixel."""
    height, width = z.shape[2:]
    wy, wx = weights(height, tile, overlap, scale), weights(width, tile, overlap, scale)
    out = np.zeros((len(z), 3, scale * height, scale * width))
    for i, top in enumerate(starts(height, tile, overlap)):
        for j, left in enumerate(starts(width, tile, overlap)):
            part = uneven(z[:, :, top : top + tile, left : left + tile], scale)
            rows = slice(scale * top, scale * top + part.shape[2])
            columns = slice(scale * left, scale * left + part.shape[3])
            weight = wy[i, rows, None] * wx[j, None, columns]
            out[:, :, rows, columns] += weight * part
    return out


def nearest(z: np.ndarray, scale: int) -> np.ndarray:
    """What the probes' decoder `Widened` computes: nearest upsampling of three channels."""
    return z[:, :3].repeat(scale, axis=2).repeat(scale, axis=3)


@lru_cache(maxsize=1)
def sd_vae_parameters() -> dict[str, int]:
    """Parameters of Stable Diffusion's AutoencoderKL, layer by layer from its configuration:
    widths 128, 256, 512, 512, two resnets a stage (three in the decoder), 4 latent channels."""
    widths = (128, 256, 512, 512)

    def conv(a: int, b: int, kernel: int = 3) -> int:
        return a * b * kernel * kernel + b

    def resnet(a: int, b: int) -> int:
        return 2 * a + conv(a, b) + 2 * b + conv(b, b) + (conv(a, b, 1) if a != b else 0)

    attention = 2 * 512 + 4 * (512 * 512 + 512)
    middle = 2 * resnet(512, 512) + attention
    encoder = conv(3, widths[0]) + middle + 2 * widths[-1] + conv(widths[-1], 2 * 4)
    decoder = conv(4, widths[-1]) + middle + 2 * widths[0] + conv(widths[0], 3)
    last = widths[0]
    for place, width in enumerate(widths):
        encoder += resnet(last, width) + resnet(width, width)
        encoder += conv(width, width) if place < 3 else 0
        last = width
    for place, width in enumerate(reversed(widths)):
        decoder += resnet(last, width) + 2 * resnet(width, width)
        decoder += conv(width, width) if place < 3 else 0
        last = width
    quant, post_quant = conv(8, 8, 1), conv(4, 4, 1)
    return {"encoder": encoder + quant, "decoder": decoder + post_quant}
