"""The figures of lab 13's page: closed forms, and runs of the reference on the toy pipeline, which
`make_page_runs.py` keeps in `page_runs.json`."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

from grader.author.page_claims import assumed, claim, fact, figures, measured, published, table
from grader.author.page_figures import plain, written

from .oracles_offload import flux_parts, parameter_counts, video_tokens
from .oracles_tiles import PUBLISHED, sd_vae_parameters, starts

RUNS = json.loads(Path(__file__).with_name("page_runs.json").read_text(encoding="utf-8"))
METER = f"grader.meters.live_bytes, the reference with torch {RUNS['torch']}"
# Published counts without a closed form here: diffusers 0.42 and transformers 5.23, each module
# built on meta from its published configuration.
UNET, SAFETY, SDXL_UNET = 859_520_964, 303_981_588, 2_567_463_684
COUNTS = parameter_counts()
CLIP = COUNTS["p_clip_l_text"]
VAE = sum(sd_vae_parameters().values())
SD15 = UNET + CLIP + VAE + SAFETY
SDXL = SDXL_UNET + CLIP + COUNTS["p_clip_bigg_text_proj"] + VAE
OFFLOAD = "diffusers, pull request 2269: Stable Diffusion 1.5, TITAN RTX"
MEMORY = {"none": Fraction("6.2"), "model": Fraction("5.2"), "sequential": Fraction("3.6")}
SECONDS = {"none": Fraction("3.18"), "model": Fraction("4.34"), "sequential": Fraction("21.42")}
GROUPS = "diffusers, pull request 11106: five forwards of the Flux transformer"
QUANTIZED = "diffusers documentation, speed-memory-optims.md"
COGVIDEO = "diffusers documentation, CogVideoX"
LATENCIES = "diffusers documentation v0.24.0, Speed up inference: TITAN RTX, 50 steps"
SDXL_PEAK = "diffusers documentation, loading.md"
SIDES, SLICES = (16, 32, 64, 96), (1, 2, 4, 8)
TILES = ((8, 0), (8, 4), (16, 0), (16, 2), (16, 4), (16, 8), (32, 4), (32, 8))


def scores(side):
    """Bytes of one layer's scores of Stable Diffusion 1.5: 8 heads, two images, fp16."""
    return 2 * 8 * (side // 8) ** 4 * 2


def mib(size):
    return plain(Fraction(size, 2**20), 2)


def percent(run):
    return plain(100 * run["difference"], 1)


def tiles_of(side, tile, overlap):
    """Tiles of an image, and how often its latent is decoded over."""
    places = starts(side, tile, overlap)
    decoded = sum(min(tile, side - start) for start in places)
    tiles, run = len(places) ** 2, RUNS[f"{side} {tile} {overlap}"]
    if run["tiles"] != tiles:
        raise ValueError(f"{run['tiles']} tiles in page_runs.json, {tiles} by their starts")
    return tiles, Fraction(decoded, side) ** 2


@table("slices")
def slices(code):
    runs = [RUNS["slices"][str(batch)] for batch in SLICES]
    yield "batch of 32 x 32 latents", *SLICES
    yield "whole", *(mib(whole) for whole, _ in runs)
    yield "in slices", *(mib(sliced) for _, sliced in runs)


@table("tiling")
def tiling(code):
    yield (
        "latent", "image", "image, MiB", "whole", "in tiles", "tiles",
        "mean difference, % of the image's standard deviation",
    )  # fmt: skip
    for side in SIDES:
        run, pixels = RUNS[f"{side} 16 4"], 8 * side
        image = 4 * 3 * pixels**2
        if run["image"] != image:
            raise ValueError(f"the image of {side} has {run['image']} bytes, not {image}")
        sizes = (mib(size) for size in (image, run["whole"], run["tiled"]))
        difference = percent(run) if run["difference"] else "0"
        square = f"{pixels} x {pixels}"
        tiles, _ = tiles_of(side, 16, 4)
        yield f"{side} x {side}", square, *sizes, tiles, difference


@table("overlaps")
def overlaps(code):
    yield "tile", "shared", "tiles", "latent pixels decoded", "difference, %", "peak, MiB"
    for tile, overlap in TILES:
        run = RUNS[f"48 {tile} {overlap}"]
        tiles, over = tiles_of(48, tile, overlap)
        yield tile, overlap, tiles, f"{plain(over, 2)} x", percent(run), mib(run["tiled"])


@table("weights")
def weights(code):
    yield "", "parameters", "weights"
    rows = (
        ("Stable Diffusion 1.5: UNet", UNET),
        ("CLIP text encoder", CLIP),
        ("VAE", VAE),
        ("safety checker", SAFETY),
        ("all four", SD15),
        ("SDXL: UNet, two text encoders, VAE", SDXL),
        ("FLUX.1-dev: transformer, T5-XXL, CLIP, VAE", sum(flux_parts().values())),
    )
    for name, count in rows:
        size = written(2 * count, "GB", 2)
        size += f", {written(2 * count, 'GiB', 2)}" if count == SDXL else ""
        yield name, plain(count), size + (" (bf16)" if "FLUX" in name else "")


@table("scores")
def scores_of_a_layer(code):
    yield "image", "tokens", "scores"
    for side in (512, 768, 1024):
        yield f"{side} x {side}", plain((side // 8) ** 2), written(scores(side), "MiB")


@figures
def read_first(code):
    where = "**Three parts, three peaks.** Text"
    yield claim(2 * SD15, "bytes", "Stable Diffusion 1.5 in fp16", where=where)
    yield claim(2 * UNET / 1e9, "", "its UNet, GB", where=where)
    layer = "**The denoiser: scores.**"
    for side in (512, 1024):
        yield claim(scores(side), "bytes", f"scores at {side}", where=layer)
    maps = "**The decoder: maps.**"
    image, latent = 3 * 512**2, 4 * 64**2
    yield claim(image, "", "numbers of an image", where=maps)
    yield claim(latent, "", "numbers of its latent", where=maps)
    yield claim(Fraction(image, latent), "times", "image / latent", where=maps)
    yield claim(256 * 1024 * 1024 * 4, "bytes", "one map of the decoder", where=maps)
    decoder = 4 * sd_vae_parameters()["decoder"]
    if 5 * decoder >= 256 * 1024**2 * 4:
        raise ValueError("a map is not more than five times the decoder's weights")
    yield claim(decoder, "bytes", "the decoder in float32", where=maps)
    say = "The decoder: a map of 256 x 1024 x 1024"
    yield claim(256 * 1024 * 1024 * 4, "bytes", "one map of the decoder", where=say)
    run = "Published for Stable Diffusion 1.5 (appendix)"
    for seconds in SECONDS.values():
        yield published(seconds, "s", OFFLOAD, where=run)


@figures
def what_to_notice(code):
    stack = PUBLISHED["consisid_table"]
    slicing = "In the published table of the appendix"
    yield published(stack["expected"][3][0], "GB", stack["source"], where=slicing)
    floor = "**Tiling has a floor.**"
    yield measured(RUNS["16 16 4"]["whole"], "bytes", METER, where=floor)
    _, over = tiles_of(64, 16, 4)
    yield claim(over, "times", "what tiles of 16 that share 4 decode", where=floor)
    yield claim(sum(min(16, 64 - s) for s in starts(64, 16, 4)), "", "pixels", where=floor)
    knobs = "**Each knob moves its own peak.**"
    for knob, part in (
        ("no knob", "decoder"),
        ("ModelOffloadChain", "decoder"),
        ("SequentialOffload", "denoiser"),
        ("no knob", "denoiser"),
        ("sliced_attention", "denoiser"),
        ("tiled_decode", "decoder"),
    ):
        yield measured(RUNS[knob][part] / 2**20, "", f"{part}, {knob}: {METER}", where=knobs)


@figures
def the_link(code):
    where = "**Small copies do not fill a link.**"
    extra = SECONDS["sequential"] - SECONDS["none"]
    yield claim(extra, "s", f"what sequential offload adds: {OFFLOAD}", where=where)
    yield claim(2 * UNET, "bytes", "the UNet in fp16", where=where)
    yield claim(50 * 2 * UNET / extra, "bytes/s", "50 copies of it in that time", where=where)
    yield fact("PCIe 3.0 x16 one way", where=where)
    saved = MEMORY["none"] - MEMORY["model"]
    yield claim(saved, "GB", f"what model offload saves: {OFFLOAD}", where=where)
    yield claim(2 * (CLIP + VAE + SAFETY), "bytes", "CLIP, VAE, safety checker", where=where)
    slower = "It makes possible what did not fit"
    for mode in ("model", "sequential"):
        times = SECONDS[mode] / SECONDS["none"]
        yield claim(times, "times", f"{mode} offload: {OFFLOAD}", where=slower)
    largest = "It is the largest component and its activations"
    yield claim(2 * UNET, "bytes", "the UNet in fp16", where=largest)
    yield claim(2 * SD15 / 4 / 1e9, "", "GB of all by four", where=largest)
    yield claim(2 * SD15 / 1e9, "", "GB of all", where=largest)
    order = "Then everything has been resident once"
    reported = "diffusers, issue 1934: GTX 1080, sequential offload after .to('cuda')"
    yield published(5101, "MB", reported, where=order)
    yield published(4539, "", reported, where=order)
    rate = 12
    steps = "50 steps of sequential offload copy"
    yield claim(2 * UNET, "bytes", "the UNet in fp16", where=steps)
    yield assumed(rate, "GB/s", "a link of the answer's own", where=steps)
    yield claim(50 * 2 * UNET / (rate * 10**9), "s", "50 copies", where=steps)
    once = "Model offload copies it once"
    yield claim(2 * UNET / (rate * 10**9), "s", "one copy", where=once)


@figures
def appendix_weights(code):
    where = "Stable Diffusion's autoencoder has"
    vae = sd_vae_parameters()
    yield claim(vae["encoder"], "parameters", "to encode", where=where)
    yield claim(vae["decoder"], "", "to decode", where=where)
    yield claim(4 * vae["decoder"], "bytes", "its decoder in float32", where=where)
    peak = PUBLISHED["flux_bf16_weights"]
    yield published(peak["expected"], "GB", peak["source"], where=where)
    yield published(12.5e9, "parameters", "diffusers documentation, memory.md", where=where)
    yield claim(COUNTS["p_flux_dev_transformer"], "parameters", "its transformer", where=where)
    for width in (2, 4):
        size = width * sum(flux_parts().values()) / 1e9
        yield claim(size, "", f"FLUX in {width} bytes a parameter, GB", where=where)
    t5 = COUNTS["p_t5_xxl_encoder"]
    yield claim(t5, "parameters", "T5-XXL's encoder", where=where)
    yield claim(2 * t5, "bytes", "T5-XXL's encoder in bf16", where=where)
    twice = t5 + 32_128 * 4096
    yield claim(twice, "", "with its embedding twice", where=where)
    yield claim(2 * twice, "bytes", "with its embedding twice", where=where)
    sdxl = Fraction("10.47")
    yield published(sdxl, "GiB", SDXL_PEAK, where=where)
    yield claim(sdxl * 2**30 - 2 * SDXL, "bytes", "without its weights", where=where)
    video = "CogVideoX with 49 frames"
    tokens = video_tokens(49, 480, 720, 226)
    yield claim(tokens, "tokens", "latent patches and text", where=video)
    yield claim(2 * tokens**2, "bytes", "one head's scores in 16 bits", where=video)


@figures
def appendix_offload(code):
    rows = {
        "none": "| everything resident | 6",
        "model": "| only the UNet resident | 5",
        "sequential": "| sequential | 3",
    }
    for mode, where in rows.items():
        yield published(MEMORY[mode], "GB", OFFLOAD, where=where)
        yield published(SECONDS[mode], "s", OFFLOAD, where=where)
        if mode != "none":
            times = SECONDS[mode] / SECONDS["none"]
            yield claim(times, "times", "as long as with all resident", where=where)
    stack = PUBLISHED["consisid_table"]
    for index, where in enumerate(("| allocated | 37", "| reserved | 44")):
        for pair in stack["expected"]:
            yield published(pair[index], "", stack["source"], where=where)
    whole = "**Tile and overlap.**"
    yield measured(RUNS["48 8 0"]["whole"], "bytes", METER, where=whole)
    leaves = "**Leaf by leaf, every weight crosses"
    for size, seconds, host in ((10.59, 9.75, 31.4), (0.53, 9.48, 22.8)):
        yield published(size, "GB", GROUPS, where=leaves)
        yield published(seconds, "s", GROUPS, where=leaves)
        yield published(host, "GB", f"{GROUPS}, low_cpu_mem_usage", where=leaves)
    yield published(35.3, "GB", GROUPS, where=leaves)
    for seconds in (38.07, 13.72):
        yield published(seconds, "s", f"{GROUPS}, low_cpu_mem_usage", where=leaves)


@figures
def appendix_knobs(code):
    where = "**Knobs take back what others gave.**"
    runs = ((32.602, 14.9453), (25.847, 14.9448), (32.312, 12.2369))
    for seconds, size in runs:
        yield published(seconds, "s", QUANTIZED, where=where)
        yield published(size, "GB", QUANTIZED, where=where)
    _, (seconds, size), (longer, smaller) = runs
    yield claim(100 * (1 - smaller / size), "%", "less memory", where=where)
    yield claim(100 * (longer / seconds - 1), "%", "more time", where=where)
    peaks = "**Published peaks say little about time.**"
    yield published(33, "GB", COGVIDEO, where=peaks)
    for size in (19, 11, 4):
        yield published(size, "", COGVIDEO, where=peaks)
    latencies = (9.5, 3.61, 3.3, 3.21, 2.63)
    for seconds in latencies:
        yield published(seconds, "s", LATENCIES, where=peaks)
    for seconds in latencies:
        yield claim(latencies[0] / seconds, "times", "as fast as in float32", where=peaks)
