"""Independent truth for the second half of lab 13: attention and units in NumPy's float64, bytes
of an offload in closed form, and every plan there is."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np

_ROWS = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
PUBLISHED = {row["id"]: row for row in _ROWS}


def attention(q, k, v):
    """softmax(q k^T / sqrt(D)) v of arrays (B, H, S, D), in float64 and one piece."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scores = np.einsum("bhsd,bhtd->bhst", q, k) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhst,bhte->bhse", weights / weights.sum(-1, keepdims=True), v)


# -- units in a row, as probes.py has them ---------------------------------------------------------


class Row:
    """Units in float64, with how often each has been called; `rows` are (weight, bias, gain)."""

    def __init__(self, rows, tie=None, keeps=False, within=False):
        self.rows = [[np.asarray(part, np.float64) for part in row] for row in rows]
        if tie:
            self.rows[tie[1]][0] = self.rows[tie[0]][0]
        for row in self.rows if within else ():
            row[1] = row[2]
        self.keeps = keeps
        self.calls = [0] * len(self.rows)

    def __call__(self, x, skip=()):
        x = np.asarray(x, np.float64)
        for place, (weight, bias, gain) in enumerate(self.rows):
            if place not in skip:
                self.calls[place] += 1
                x = x + np.tanh(x @ weight.T + bias) * gain / self.calls[place]
        return x @ self.rows[0][0].T if self.keeps else x


class Layers:
    """What the probes' Layers compute, in float64: `rows` are (weight, gain), and each layer has a
    total of what it has seen and a number of calls."""

    def __init__(self, rows, order):
        self.rows = [[np.asarray(part, np.float64) for part in row] for row in rows]
        self.order = order
        self.totals = [np.zeros_like(gain) for _weight, gain in self.rows]
        self.calls = [0] * len(rows)

    def __call__(self, x, times):
        """The output, and the number of calls of each layer that ran."""
        x, counts = np.asarray(x, np.float64), []
        for place in self.order:
            weight, gain = self.rows[place]
            self.calls[place] += 1
            self.totals[place] = self.totals[place] + x.mean(0)
            x = times * (x @ weight.T) * 2 * gain + self.totals[place] / self.calls[place]
            counts.append(self.calls[place])
        return x, counts


def layer_bytes(dim):
    """A layer's weight, gain and total in float32, and its number of calls in int64."""
    return 4 * (dim * dim + 2 * dim) + 8


def sizes(dim, dtype_bytes=4):
    """Bytes of a unit's weight and of the rest of its dense layer; of what the unit holds itself
    (gain and calls)."""
    return dim * dim * dtype_bytes, dim * dtype_bytes, 2 * dim * dtype_bytes


def group_bytes(groups, dim, tie=None):
    """Bytes of each group of units: a weight that two units of a group share counts once."""
    weight, bias, own = sizes(dim)
    shared = [tie is not None and set(tie) <= set(group) for group in groups]
    return [
        len(group) * (weight + bias + own) - weight * twice
        for group, twice in zip(groups, shared, strict=True)
    ]


def counted(moves, direction):
    """How often each tensor went in this direction."""
    return dict(Counter(name for way, name, *_ in moves if way == direction))


def travelled(moves, direction):
    return sum(row[2] for row in moves if row[0] == direction)


# -- choose ----------------------------------------------------------------------------------------


def priced(components, picks, link_Bps, copy_s):
    """(seconds, peak) of one plan: `picks` gives each component's place and cut ("" for none)."""
    seconds, peak = 0.0, 0
    for comp, (place, cut) in zip(components, picks, strict=True):
        link = comp.weight_bytes / link_Bps
        copies = {
            "": 0.0,
            "model": link + copy_s,
            "group": comp.calls * (link + comp.groups * copy_s),
            "sequential": comp.calls * (link + comp.leaves * copy_s),
        }
        held = {
            "": comp.weight_bytes,
            "model": comp.weight_bytes,
            "group": comp.group_bytes,
            "sequential": comp.leaf_bytes,
        }
        act, extra = comp.act_bytes, 0.0
        for one in comp.cuts:
            if one.name == cut:
                act, extra = one.act_bytes, one.seconds
        beside = sum(
            other.weight_bytes
            for other, (where, _cut) in zip(components, picks, strict=True)
            if other is not comp and where == ""
        )
        seconds += comp.calls * (comp.seconds + extra) + copies[place]
        peak = max(peak, held[place] + act + beside)
    return seconds, peak


def every_plan(components, link_Bps, copy_s):
    """All plans: ((seconds, peak, number of knobs), picks)."""
    places = ("", "model", "group", "sequential")
    each = [
        list(itertools.product(places, ["", *(cut.name for cut in comp.cuts)]))
        for comp in components
    ]
    for picks in itertools.product(*each):
        knobs = sum(bool(part) for pick in picks for part in pick)
        yield (*priced(components, picks, link_Bps, copy_s), knobs), picks


def picks_of(components, knobs):
    """The picks that a plan's knobs name; a sentence for what they cannot mean."""
    places = {comp.name: ["", ""] for comp in components}
    cuts = {comp.name: [cut.name for cut in comp.cuts] for comp in components}
    for knob in knobs:
        name, _, what = str(knob).partition(".")
        if name not in places:
            return f"{knob!r} names no component"
        slot = 1 if what in cuts[name] else 0
        if slot == 0 and what not in ("model", "group", "sequential"):
            return f"{knob!r} names no knob of that component"
        if places[name][slot]:
            return f"{knob!r} and {name}.{places[name][slot]} cannot both be turned"
        places[name][slot] = what
    return [tuple(places[comp.name]) for comp in components]


# -- parameters from shapes ------------------------------------------------------------------------


def _clip_text(layers, width, projection=0):
    """A CLIP text encoder: 49,408 tokens, 77 places, MLPs of 4 widths, biases everywhere."""
    layer = 4 * (width * width + width) + 8 * width * width + 5 * width + 4 * width
    return (49_408 + 77) * width + layers * layer + 2 * width + projection * width


def _t5_encoder(layers=24, width=4096, inner=10_240, heads=64):
    """A T5 v1.1 encoder: no biases, gated MLP, relative positions in 32 buckets, tied embedding
    once."""
    layer = 4 * width * width + 3 * width * inner + 2 * width
    return 32_128 * width + layers * layer + 32 * heads + width


def _linear(into, out):
    return into * out + out


def _flux(guidance, width=3072, head_dim=128):
    """19 double and 38 single blocks; `guidance` embeds the distilled guidance as well."""
    norms = 2 * head_dim  # of queries and keys
    stream = _linear(width, 6 * width) + 4 * _linear(width, width) + norms
    stream += _linear(width, 4 * width) + _linear(4 * width, width)
    single = _linear(width, 3 * width) + 3 * _linear(width, width) + norms
    single += _linear(width, 4 * width) + _linear(5 * width, width)
    ends = _linear(64, width) + _linear(4096, width) + _linear(width, 2 * width)
    ends += _linear(width, 64)
    embeds = 2 * _linear(256, width) if guidance else _linear(256, width)
    embeds += (2 if guidance else 1) * _linear(width, width)
    embeds += _linear(768, width) + _linear(width, width)
    return 19 * 2 * stream + 38 * single + ends + embeds


def _cogvideox(layers=42, width=3072, time=512, head_dim=64):
    """A transformer over text and latent patches of 2 x 2; both norms of a block are set by the
    time."""
    norm = _linear(time, 6 * width) + 2 * width
    block = 2 * norm + 4 * _linear(width, width) + 4 * head_dim
    block += _linear(width, 4 * width) + _linear(4 * width, width)
    ends = _linear(16 * 4, width) + _linear(4096, width) + _linear(width, 64)
    ends += _linear(width, time) + _linear(time, time)
    ends += 2 * width + _linear(time, 2 * width) + 2 * width
    return layers * block + ends


def video_tokens(frames, high, wide, text):
    """CogVideoX: latents 4 times shorter (the first frame is one) and 8 times smaller, in patches
    of 2 x 2, behind the text."""
    return ((frames - 1) // 4 + 1) * (high // 16) * (wide // 16) + text


def parameter_counts():
    return {
        "p_clip_l_text": _clip_text(12, 768),
        "p_clip_bigg_text_proj": _clip_text(32, 1280, projection=1280),
        "p_t5_xxl_encoder": _t5_encoder(),
        "p_flux_dev_transformer": _flux(guidance=True),
        "p_flux_schnell_transformer": _flux(guidance=False),
        "p_cogvideox_5b_transformer": _cogvideox(),
    }


def flux_parts():
    """FLUX.1-dev's components; the VAE's count is that of the module built from its config."""
    counts = parameter_counts()
    return {
        "transformer": counts["p_flux_dev_transformer"],
        "t5": counts["p_t5_xxl_encoder"],
        "clip": counts["p_clip_l_text"],
        "vae": 83_819_683,
    }
