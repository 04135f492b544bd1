"""Lab 13: questions of an interview with figures that can be done on paper."""

from types_lab13 import Comp

from grader.suite.questions import Ask, question

GB = 10**9


def _grid(L, tile, overlap):
    """Where tiles begin."""
    starts, at = [0], 0
    while at + tile < L:
        at += tile - overlap
        starts.append(at)
    return starts


def _case(rng):
    return rng.choice([(128, 64, 16), (96, 64, 16), (160, 64, 16), (200, 64, 32), (256, 96, 16)])


@question("number_of_tiles", task="tile_grid", section="Line by line")
def number_of_tiles(rng):
    """A tile begins tile - overlap behind the one before it, until one reaches the end."""
    L, tile, overlap = _case(rng)
    starts = _grid(L, tile, overlap)
    square = len(starts) ** 2
    return Ask(
        f"A square latent of {L} x {L} pixels is decoded in tiles of {tile} x {tile} whose "
        f"neighbours share {overlap} pixels. How many tiles are decoded?",
        lambda code: len(code.tile_grid(L, tile, overlap)) ** 2,
        working=[
            f"along an axis tiles begin at {', '.join(map(str, starts))}: {len(starts)}",
            f"{len(starts)} x {len(starts)} = {square}",
        ],
        check=square,
    )


@question("last_tile", task="tile_grid")
def last_tile(rng):
    """The last tile is cut off at the end of the axis."""
    L, tile, overlap = _case(rng)
    start = _grid(L, tile, overlap)[-1]
    return Ask(
        f"An axis of {L} latent pixels is cut into tiles of at most {tile} with {overlap} pixels "
        "shared. How many pixels does the last tile have?",
        lambda code: (lambda row: row[1] - row[0])(code.tile_grid(L, tile, overlap)[-1]),
        working=[
            f"tiles begin {tile - overlap} apart; the last one begins at {start}",
            f"{L} - {start} = {L - start}",
        ],
        check=L - start,
    )


@question("crop_of_a_tile", task="tile_grid", minutes=1.5)
def crop_of_a_tile(rng):
    """What two tiles share belongs to the later one."""
    L, tile, overlap = _case(rng)
    return Ask(
        f"An axis of {L} latent pixels, tiles of {tile} with {overlap} shared; what two tiles "
        "share comes into the image from the later one. How many pixels come from the first tile?",
        lambda code: (lambda row: row[3] - row[2])(code.tile_grid(L, tile, overlap)[0]),
        working=[
            f"the second tile begins at {tile} - {overlap} = {tile - overlap}",
            f"so the first gives pixels 0 to {tile - overlap - 1}: {tile - overlap}",
        ],
        check=tile - overlap,
    )


@question("pixels_decoded_twice", task="tile_grid", minutes=2)
def pixels_decoded_twice(rng):
    """All tiles' pixels over the image's."""
    L, tile, overlap = rng.choice([(112, 64, 16), (160, 64, 16), (224, 64, 32), (96, 64, 32)])
    starts = _grid(L, tile, overlap)
    decoded = sum(min(tile, L - start) for start in starts)
    return Ask(
        f"Along one axis of {L} latent pixels, tiles of {tile} share {overlap} pixels. How many "
        "pixels are decoded in all, those that are decoded twice counted twice?",
        lambda code: sum(row[1] - row[0] for row in code.tile_grid(L, tile, overlap)),
        working=[
            f"tiles of {', '.join(str(min(tile, L - s)) for s in starts)} pixels",
            f"{' + '.join(str(min(tile, L - s)) for s in starts)} = {decoded}",
        ],
        check=decoded,
    )


def _pipeline(rng):
    """A text encoder, a transformer that runs in a loop, a VAE: gigabytes of weights and of
    activations, calls, seconds of a call."""
    text, model, vae = rng.choice([(10, 24, 1), (5, 12, 1), (9, 20, 2)])
    steps = rng.choice([20, 28, 50])
    return [
        Comp("text", text * GB, 1 * GB, 1, 0.1, 10, text * GB // 10, 100, text * GB // 100),
        Comp("model", model * GB, 4 * GB, steps, 0.5, 10, model * GB // 10, 100, model * GB // 100),
        Comp("vae", vae * GB, 6 * GB, 1, 1.0, 10, vae * GB // 10, 100, vae * GB // 100),
    ], (text, model, vae, steps)  # fmt: skip


def _said(sizes):
    text, model, vae, steps = sizes
    return (
        f"A pipeline: a text encoder of {text} GB (activations 1 GB, called once), a transformer "
        f"of {model} GB (activations 4 GB, called {steps} times), a VAE of {vae} GB (activations "
        "6 GB, called once), one after another"
    )


@question("peak_when_all_is_resident", task="choose", unit="bytes", minutes=1.5)
def peak_when_all_is_resident(rng):
    """All weights, and the activations of whichever runs: the largest decides."""
    parts, sizes = _pipeline(rng)
    text, model, vae, _ = sizes
    peak = text + model + vae + 6
    return Ask(
        f"{_said(sizes)}. Everything stays on the GPU. What is the peak?",
        lambda code: code.choose(parts, 1000 * GB, 25e9).peak_bytes,
        working=[
            f"weights: {text} + {model} + {vae} = {text + model + vae} GB",
            f"the largest activations are the VAE's: {text + model + vae} + 6 = {peak} GB",
        ],
        check=peak * GB,
    )


@question("seconds_when_all_is_resident", task="choose", unit="s")
def seconds_when_all_is_resident(rng):
    """Calls times seconds, and no copies."""
    parts, sizes = _pipeline(rng)
    seconds = 0.1 + 0.5 * sizes[3] + 1.0
    return Ask(
        f"{_said(sizes)}. A call takes 0.1 s, 0.5 s and 1 s. Everything stays on the GPU. How long "
        "does a run take?",
        lambda code: code.choose(parts, 1000 * GB, 25e9).seconds,
        working=[
            f"0.1 + {sizes[3]} x 0.5 + 1 = {seconds:g} s",
        ],
        check=seconds,
        within=0.001,
    )


@question("one_model_at_a_time", task="choose", unit="s", minutes=2, section="Read first")
def one_model_at_a_time(rng):
    """A component that comes once pays for its weights once, not at every call."""
    parts, sizes = _pipeline(rng)
    text, model, vae, steps = sizes
    # the transformer and its activations alone: nothing else may stay
    budget = (model + 4) * GB
    copied = text + vae + model
    seconds = 0.1 + 0.5 * steps + 1.0 + copied / 25
    return Ask(
        f"{_said(sizes)}; a call takes 0.1 s, 0.5 s and 1 s. The card has just {model + 4} GB, so "
        "each component comes whole before its first call and leaves after its last. The link "
        "carries 25 GB/s, the way back is free, nothing overlaps. How long does a run take?",
        lambda code: code.choose(parts, budget, 25e9, 0.0).seconds,
        working=[
            f"calls: 0.1 + {steps} x 0.5 + 1 = {1.1 + 0.5 * steps:g} s",
            f"copies: ({text} + {model} + {vae}) / 25 = {copied / 25:g} s, each once",
            f"{1.1 + 0.5 * steps:g} + {copied / 25:g} = {seconds:g} s",
        ],
        check=seconds,
        within=0.001,
    )


@question("least_budget", task="choose", unit="bytes", minutes=2)
def least_budget(rng):
    """Sequential offload holds one leaf at a time; activations stay."""
    parts, sizes = _pipeline(rng)
    least = max(part.leaf_bytes + part.act_bytes for part in parts)
    return Ask(
        f"{_said(sizes)}. Sequential offload brings one of a component's leaves at a time, each a "
        "hundredth of its weights. What is the smallest peak that any offloading reaches?",
        lambda code: _least(code, parts),
        working=[
            "a component then holds one leaf and its activations: "
            + ", ".join(f"{(p.leaf_bytes + p.act_bytes) / GB:g}" for p in parts)
            + " GB",
            f"the largest of these: {least / GB:g} GB",
        ],
        check=least,
        within=0.001,
    )


def _least(code, parts):
    low, high = 1, 1000 * GB
    while low < high:
        middle = (low + high) // 2
        try:
            code.choose(parts, middle, 25e9)
            high = middle
        except ValueError:
            low = middle + 1
    return low
