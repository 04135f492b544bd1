"""sliced_decode and tiled_decode: the same image, at another peak."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from grader.suite import expect, task

from . import oracles_tiles as oracles

MIB = 2**20
ONE_BY_ONE = "one call of the decoder for each latent, with its batch axis of 1"
WEIGHTS = (
    "a tile's weight is the product of its two ramps, also where four tiles meet, and the ramp is "
    "as long as what two tiles share, in pixels of the image"
)
SIZE = "the image is scale times as large as the latent, whatever the tile and the overlap"


DTYPE = "an image is in the dtype of the decoder, whatever its latent's is"


def _latent(rng, *shape):
    return torch.from_numpy(rng.normal(size=shape).astype(np.float32))


def _views(z):
    """Latents that do not lie in memory as their axes say, and what they are."""
    last = z.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    yield from (
        ("channels last", last),
        ("gaps", z[::2]),
        ("one image expanded", z[:1].expand_as(z)),
    )


def _gradients(student, rng, function, arguments, scale=2):
    """Of sum(image * pull) with w z^2 in each pixel of a latent pixel's square: 2 w z and z^2 times
    what pulls at that square."""
    z, weight = _latent(rng, 2, 3, 7, 5), _latent(rng, 3)
    pull = _latent(rng, 2, 3, 7 * scale, 5 * scale)
    found = student.probe.gradients(function, z, weight, pull, scale, arguments)
    z, weight, pull = (part.double().numpy() for part in (z, weight, pull))
    pulls = pull.reshape(2, 3, 7, scale, 5, scale).sum((3, 5))
    wants = (2 * weight[:, None, None] * z * pulls, (z**2 * pulls).sum((0, 2, 3)))
    for name, got, want in zip(("z", "the decoder's weights"), found, wants, strict=True):
        reached = got is not None
        because = f"the image is computed from {name}, so a gradient reaches {name}"
        expect.true(reached, because=because, observed=f"none for {name}")
        expect.close(got, want, because=because, n=70, dtype="float32", what=f"gradient of {name}")


# --- sliced_decode -------------------------------------------------------------------------------


@task("sliced_decode", holds=("images", "one_by_one", "batch_axis", "one"))
@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 8])
def test_each_latent_is_decoded_alone(student, rng, batch):
    """The images, in order, and what the decoder was called with.   Oracle: the decoder in NumPy,
    in float64; the shapes of its calls."""
    z = _latent(rng, batch, 4, 5, 3)
    seen = student.probe.sliced(z, 2)
    expect.close(
        seen["images"],
        oracles.uneven(z.numpy(), 2),
        because="slicing changes no pixel: image b is the decoder's of latent b",
        n=30,
        dtype="float32",
        what="the images",
    )
    calls = [tuple(shape) for shape in seen["calls"]]
    expect.equal(calls, [(1, 4, 5, 3)] * batch, because=ONE_BY_ONE, what="calls of the decoder")


@task("sliced_decode", holds=("peak",))
def test_the_peak_is_that_of_one_image_and_the_batch_of_images(student):
    """Bytes alive at once for 6 images of 96 x 96, through 16 maps each.   Oracle: the storage
    meter; the same decoder on one latent; the images of the same call."""
    batch, side, scale = 6, 24, 4
    many, one = (student.probe.sliced_bytes(count, side, scale) for count in (batch, 1))
    image = 3 * (side * scale) ** 2 * 4
    expect.close(
        many["images"],
        oracles.nearest(many["z"].numpy(), 1),
        because="slicing changes no pixel",
        n=4,
        dtype="float32",
        what="the images of the measured call",
    )
    expect.at_most(
        many["sliced"],
        2 * batch * image + one["whole"],
        because="beside the images, only one latent's activations are alive at a time",
        what="the peak of 6 images",
        unit="bytes",
    )
    expect.at_least(
        many["sliced"],
        batch * image,
        because="the images of the batch are alive in the end",
        what="the peak of 6 images",
        unit="bytes",
    )


@task("sliced_decode", holds=("decoders_dtype",))
@pytest.mark.parametrize(("latent", "image"), [("float32", "float64"), ("float64", "float32")])
def test_the_images_have_the_decoders_dtype(student, rng, latent, image):
    """A decoder that computes in another precision than its latent's, as with a VAE in float32
    behind a denoiser in fp16.   Oracle: the decoder in NumPy, in float64."""
    z = torch.from_numpy(rng.normal(size=(3, 4, 5, 3))).to(getattr(torch, latent))
    seen = student.probe.sliced(z, 2, getattr(torch, image))
    expect.dtype(seen["images"], image, because=DTYPE, what="the images")
    because = "the images are as precise as the decoder that made them"
    want = oracles.uneven(z.numpy(), 2)
    expect.close(seen["images"], want, because=because, n=30, dtype=image, what="the images")


@task("sliced_decode", gate=False, holds=("strides",))
def test_a_batch_may_be_a_view(student, rng):
    """A latent whose channels lie last, every other one of a batch, and one that is expanded.
    Oracle: the decoder in NumPy, in float64, on the same numbers."""
    z = _latent(rng, 6, 4, 5, 3)
    for name, view in _views(z):
        expect.close(
            student.probe.sliced(view, 2)["images"],
            oracles.uneven(np.ascontiguousarray(view.numpy()), 2),
            because="strides are no values",
            n=30,
            dtype="float32",
            what=f"the images of a latent with {name}",
        )


@task("sliced_decode", gate=False, holds=("gradients",))
def test_gradients_pass_through_slices(student, rng):
    """As for whoever tunes a latent or the decoder.   Oracle: the derivative of w z^2, by hand."""
    _gradients(student, rng, "sliced_decode", ())


@task("sliced_decode", gate=False, holds=("one_saves_nothing",))
def test_a_batch_of_one_gains_nothing(student):
    """The published step from 16 GB to 16 GB: the peak at B = 1, in slices and whole.   Oracle: the
    storage meter; diffusers' ConsisID table, rows +sequential and +slicing."""
    one = student.probe.sliced_bytes(1, 24, 4)
    image = 3 * 96 * 96 * 4
    expect.within(
        one["sliced"] - one["whole"],
        0,
        image,
        because="a batch of one is already one slice: the decoder's peak is what it was",
        what="what slicing adds at B = 1",
        unit="bytes",
    )
    table = dict(zip(oracles.STACK, oracles.PUBLISHED["consisid_table"]["expected"], strict=True))
    expect.equal(table["+vae slicing"], table["+sequential"], because="as the table says")


@task("sliced_decode", gate=False, holds=("four_axes", "no_latent"))
@pytest.mark.parametrize("shape", [(4, 5, 3), (0, 4, 5, 3), (2, 4, 1, 5, 3)])
def test_what_is_no_batch_of_latents_is_refused(student, shape):
    """No batch axis, an empty batch, a video.   Oracle: the contract."""
    with expect.raises(ValueError, because=f"a latent of shape {shape} is not (B, C, h, w)"):
        student.probe.sliced(torch.zeros(shape), 2)


# --- tiled_decode --------------------------------------------------------------------------------


TILINGS = [(6, 2, 2), (5, 1, 3), (4, 0, 2), (6, 3, 2), (5, 4, 2), (64, 16, 2)]
# Where one of the two axes fits into a tile, to the last pixel and with room, the other one not.
TILINGS += [(9, 2, 2), (10, 3, 1), (13, 5, 2)]


@task(
    "tiled_decode",
    holds=("image", "size", "ramps", "product", "three", "one_axis_fits", "fits", "batch"),
)
@pytest.mark.parametrize(
    "latent",
    [(13, 9), (9, 13), (13, 2), (1, 13)],
    ids=["upright", "wide", "two columns", "one row"],
)
def test_each_pixel_is_its_tiles_weighted(student, rng, latent):
    """Tiles that disagree, each with its own mean and slopes, for nine tilings of 13 x 9 latent
    pixels, also where five tiles of an axis share a pixel, and of latents that are narrower than
    the overlap.
    Oracle: NumPy in float64, each tile's weight in each pixel in closed form."""
    height, width = latent
    z = _latent(rng, 2, 4, height, width)
    for (tile, overlap, scale), (image, _calls) in zip(
        TILINGS, student.probe.tiles(z, TILINGS), strict=True
    ):
        what = f"tiles of {tile} that share {overlap}, scale {scale}"
        expect.shape(image, (2, 3, height * scale, width * scale), because=SIZE, what=what)
        expect.close(
            image,
            oracles.tiled(z.numpy(), tile, overlap, scale),
            because=WEIGHTS,
            n=40,
            dtype="float32",
            what=what,
        )


@task("tiled_decode", holds=("size", "every_overlap", "share"))
def test_a_pointwise_decoder_gives_the_whole_image(student, rng):
    """Every tile of up to 7 and every overlap, and shares of 0.2, 0.25 and 0.3.   Oracle: the same
    decoder in one call: it makes each latent pixel's square by itself, so tiles agree."""
    cases = [(tile, overlap) for tile in range(1, 8) for overlap in range(tile)]
    cases += [(tile, share) for tile in (7, 8, 16) for share in (0.0, 0.2, 0.25, 0.3)]
    for scale in (2, 3):
        seen = student.probe.pointwise_tiles(_latent(rng, 1, 4, 9, 6), cases, scale)
        for (tile, overlap), image in zip(cases, seen["images"], strict=True):
            what = f"tiles of {tile}, overlap {overlap}, scale {scale}"
            expect.shape(image, (1, 3, 9 * scale, 6 * scale), because=SIZE, what=what)
            expect.close(
                image,
                seen["whole"].numpy(),
                because="tiles that agree are blended into what they agree on",
                n=16,
                dtype="float32",
                what=what,
            )


@task("tiled_decode", holds=("size", "once"))
@pytest.mark.parametrize(("tile", "share"), [(16, 0.2), (16, 0.3), (10, 0.25), (12, 0.3)])
def test_the_size_is_right_where_a_share_is_no_whole_number(student, rng, tile, share):
    """A latent of 40 x 20 and scale 4, for shares of a tile that are no whole pixels.   Oracle:
    4 x 40 and 4 x 20; diffusers makes 172 and 163 rows of the first two."""
    image, _calls = student.probe.tiles(_latent(rng, 1, 4, 40, 20), [(tile, share, 4)])[0]
    expect.shape(
        image,
        (1, 3, 160, 80),
        because="round the share to latent pixels once; stride, ramp and crop all come from it",
        what=f"tiles of {tile} that share {share}",
    )


BYTES = {"height": 84, "width": 16, "tile": 8, "overlap": 4, "scale": 4}


@task("tiled_decode", holds=("peak",))
def test_the_peak_is_one_tile_two_rows_and_the_image(student):
    """Bytes alive at once for 20 x 3 tiles, whose pixels are 2.9 times those of the image.
    Oracle: the storage meter, for this call and for one tile; the pixels of the same call."""
    seen = student.probe.tiled_bytes(**BYTES)
    expect.close(
        seen["image"],
        oracles.nearest(seen["z"].numpy(), 1),
        because="tiles that agree are blended into what they agree on",
        n=16,
        dtype="float32",
        what="the image of the measured call",
    )
    scale = BYTES["scale"]
    image = 3 * BYTES["height"] * BYTES["width"] * scale**2 * 4
    a_tile = 3 * (BYTES["tile"] * scale) ** 2 * 4
    columns = len(oracles.starts(BYTES["width"], BYTES["tile"], BYTES["overlap"]))
    expect.at_most(
        seen["tiled"],
        image + seen["tile"] + 2 * columns * a_tile + 4 * a_tile,
        because="the image once, one call of the decoder and two rows of tiles are enough",
        what="the peak of tiled_decode",
        unit="bytes",
    )


@task("tiled_decode", holds=("peak",))
def test_the_process_grows_by_the_image_and_little_more(student, rng):
    """An image of 1280 x 1280 (18.8 MiB), whose 81 tiles have 60.8 MiB and whose 16 maps 100 MiB.
    Oracle: the operating system's account of the process; nearest upsampling."""
    z = _latent(rng, 1, 4, 160, 160)
    student.probe.large_tiles(z[..., :40, :40], 32, 16, 8)
    with student.peak_memory() as peak:
        got = student.probe.large_tiles(z, 32, 16, 8)
    expect.close(
        got,
        z[:, :3].numpy(),
        because="tiles that agree are blended into what they agree on",
        n=16,
        dtype="float32",
        what="one pixel for each latent pixel",
    )
    if peak.available:
        expect.at_most(
            peak.growth_bytes,
            60 * MIB,
            because="neither all tiles nor the whole decoder's maps are in memory at once",
            what="growth of the process",
            unit="bytes",
            noise=expect.GROWTH_NOISE,
        )


@task("tiled_decode", gate=False, holds=("tiles", "decoded_once", "one_axis_fits", "fits"))
@pytest.mark.parametrize("latent", [(13, 9), (9, 13)], ids=["upright", "wide"])
def test_each_tile_is_decoded_once(student, rng, latent):
    """Calls of the decoder for 13 x 9 latent pixels.   Oracle: the shapes of the tiles, from their
    number in closed form; one call for a latent that fits into a tile."""
    height, width = latent
    z = _latent(rng, 2, 4, height, width)
    for (tile, overlap, _scale), (_image, calls) in zip(
        TILINGS, student.probe.tiles(z, TILINGS), strict=True
    ):
        want = sorted(
            (2, 4, min(tile, height - top), min(tile, width - left))
            for top in oracles.starts(height, tile, overlap)
            for left in oracles.starts(width, tile, overlap)
        )
        expect.equal(
            sorted(tuple(shape) for shape in calls),
            want,
            because="each tile is decoded once, and nothing larger than a tile",
            what=f"what the decoder was called with, for tiles of {tile} that share {overlap}",
        )


@task("tiled_decode", gate=False, holds=("ramps", "expanded"))
def test_there_is_no_seam_at_a_border(student, rng):
    """Flat tiles, each at its own level and all of its pixels in one place of memory: the largest
    step between two neighbouring pixels.   Oracle: the largest difference of two tiles, spread
    over the ramp."""
    tile, overlap, scale = 8, 4, 4
    z = _latent(rng, 1, 4, 20, 20)
    image = student.probe.flat_tiles(z, tile, overlap, scale)
    expect.shape(image, (1, 3, 80, 80), because=SIZE, what="the image")
    begin = oracles.starts(20, tile, overlap)
    levels = np.stack(
        [
            [z[0, :3, a : a + tile, b : b + tile].double().mean((1, 2)).numpy() for b in begin]
            for a in begin
        ]
    )
    for axis, name in ((0, "down"), (1, "to the right")):
        steps = np.abs(np.diff(image[0].double().numpy(), axis=1 + axis))
        most = np.abs(np.diff(levels, axis=axis)).max()
        expect.at_most(
            float(steps.max()),
            1.1 * most / (overlap * scale),
            because="a ramp spreads the difference of two tiles evenly over what they share",
            what=f"the largest step from a pixel to the next one {name}",
            unit=None,
        )


@task("tiled_decode", gate=False, holds=("untouched", "view_of_z", "scale_one"))
def test_the_latent_stays_as_it_is(student, rng):
    """A decoder of scale 1 that returns its own argument, a view of the latent.   Oracle: z."""
    z = _latent(rng, 1, 3, 9, 9)
    seen = student.probe.untouched_tiles(z, 4, 2)
    for name in ("z", "image"):
        expect.close(
            seen[name],
            z.numpy(),
            because="what the decoder returns is not written to, nor is z",
            n=16,
            dtype="float32",
            what=name if name == "image" else "z after tiled_decode",
        )


@task("tiled_decode", holds=("share", "whole_pixels"))
def test_a_share_is_a_number_of_pixels(student, rng):
    """Floats and the ints that they stand for.   Oracle: 0.25 of 8 is 2, 0.3 of 9 nearly 3, 0.05 of
    9 nearly 0 and 0.3 of 13 nearly 4, also where an axis is shorter; and an int is never a share: 1
    is a pixel."""
    z = _latent(rng, 1, 4, 14, 11)
    cases = [(8, 0.25, 2), (8, 2, 2), (9, 0.3, 2), (9, 3, 2), (7, 0.0, 2), (7, 0, 2)]
    cases += [
        (13, 0.3, 2),
        (13, 4, 2),
        (9, 0.05, 2),
        (9, 0, 2),
        (6, 0.7, 2),
        (6, 4, 2),
        (5, 1, 2),
        (5, 1, 2),
    ]
    images = [image for image, _calls in student.probe.tiles(z, cases)]
    for place in range(0, len(cases), 2):
        expect.close(
            images[place],
            oracles.tiled(z.numpy(), *cases[place + 1]),
            because="a float is a share of the tile, rounded to the nearest whole latent pixel",
            n=40,
            dtype="float32",
            what=f"tiles of {cases[place][0]} that share {cases[place][1]}",
        )


@task("tiled_decode", holds=("dtype",))
@pytest.mark.parametrize(
    ("latent", "image"), [("float64", "float64"), ("float32", "float64"), ("float64", "float32")]
)
def test_the_image_has_the_decoders_precision(student, rng, latent, image):
    """A decoder that computes in its latent's precision, and two in another one, as with a VAE in
    float32 behind a denoiser in fp16.   Oracle: NumPy in float64, to rounding of the decoder's
    dtype."""
    z = torch.from_numpy(rng.normal(size=(1, 4, 11, 8))).to(getattr(torch, latent))
    for tile, overlap in ((5, 2), (16, 4)):
        [(got, _calls)] = student.probe.tiles(z, [(tile, overlap, 2)], getattr(torch, image))
        what = f"the image in tiles of {tile}"
        expect.dtype(got, image, because=DTYPE, what=what)
        because = "ramps are as precise as the tiles that they mix"
        want = oracles.tiled(z.numpy(), tile, overlap, 2)
        expect.close(got, want, because=because, n=40, dtype=image, what=what)


@task("tiled_decode", gate=False, holds=("dtype", "channels"))
@pytest.mark.parametrize(("channels", "dtype"), [(1, "bfloat16"), (5, "float16"), (4, "float32")])
def test_channels_and_dtype_are_the_decoders(student, rng, channels, dtype):
    """As many channels as the decoder gives, in its dtype.   Oracle: nearest upsampling, in which
    tiles agree."""
    z = _latent(rng, 2, channels, 9, 7)
    [image] = student.probe.plain_tiles(z, [(4, 2, 3)], getattr(torch, dtype))
    expect.dtype(image, dtype, because=DTYPE, what="the image")
    expect.shape(image, (2, channels, 27, 21), because="the decoder decides on the channels")
    expect.close(
        image.double(),
        z.double().numpy().repeat(3, axis=2).repeat(3, axis=3),
        because="tiles that agree are blended into what they agree on",
        n=2,
        dtype=dtype,
        what="the image",
    )


@task("tiled_decode", gate=False, holds=("strides",))
def test_a_latent_may_be_a_view(student, rng):
    """A latent whose channels lie last, every other one of a batch, and one that is expanded.
    Oracle: NumPy in float64, on the same numbers."""
    z = _latent(rng, 4, 4, 9, 7)
    for name, view in _views(z):
        [(image, _calls)] = student.probe.tiles(view, [(5, 2, 2)])
        expect.close(
            image,
            oracles.tiled(np.ascontiguousarray(view.numpy()), 5, 2, 2),
            because="strides are no values",
            n=40,
            dtype="float32",
            what=f"the image of a latent with {name}",
        )


@task("tiled_decode", gate=False, holds=("gradients",))
@pytest.mark.parametrize("tiling", [(3, 1), (8, 2)], ids=["tiles", "one tile"])
def test_gradients_pass_through_tiles(student, rng, tiling):
    """Tiles that agree, so that the weights of a pixel add up to 1 in its gradient, too.
    Oracle: the derivative of w z^2, by hand."""
    _gradients(student, rng, "tiled_decode", (*tiling, 2))


@task("tiled_decode", gate=False, holds=("untouched",))
def test_the_decoders_tiles_stay_as_they_are(student, rng):
    """A decoder that keeps what it returns.   Oracle: copies made when it returned them."""
    z = _latent(rng, 1, 4, 9, 7)
    seen = student.probe.kept_tiles(z, 4, 2, 2)
    because = "a decoder's output may be needed by somebody else: blend into a new tensor"
    expect.equal(seen["changed"], 0, because=because, what="tiles that were written to")
    expect.equal(seen["tiles"], 4 * 3, because="4 x 3 tiles of 4 that share 2 show 9 x 7 pixels")
    want = oracles.tiled(z.numpy(), 4, 2, 2)
    expect.close(seen["image"], want, because=WEIGHTS, n=40, dtype="float32", what="the image")


@task("tiled_decode", gate=False, holds=("no_tiling", "no_scale", "no_share", "rounds_to_zero"))
@pytest.mark.parametrize(
    ("tile", "overlap", "scale"),
    [
        *((0, 0, 2), (4, 4, 2), (4, -1, 2), (4, 1.0, 2), (4, -0.5, 2), (4, -0.01, 2), (4, 2.0, 2)),
        *((4, 0.95, 2), (4, 1, 0), (4, 1, -2)),
        *((16, 16, 2), (16, -1, 2), (16, -0.01, 2), (16, 4, 0)),
    ],
)
def test_what_is_no_tiling_of_an_image_is_refused(student, tile, overlap, scale):
    """Tiles that never advance, shares outside of [0, 1) and one that is rounded to a whole tile,
    images of no size; for latents that need several tiles and for one that fits.
    Oracle: the contract."""
    because = f"tiles of {tile} that share {overlap} at a scale of {scale} do not cover an image"
    with expect.raises(ValueError, because=because):
        student.probe.tiles(torch.zeros(1, 4, 9, 9), [(tile, overlap, scale)])


@task("tiled_decode", gate=False, holds=("tile_size", "any_tile"))
@pytest.mark.parametrize(
    "more", [(1, 0), (0, 1), (-1, 0), (0, -1), (2, 2), "turned", "whole"], ids=str
)
def test_a_decoder_of_another_scale_is_refused(student, more):
    """Decoders whose tiles have more or fewer rows, or columns, have them turned, or are always as
    large as a whole tile, also where the last one is cut off.   Oracle: the contract."""
    because = "a tile's image is scale times as high and as wide as its latent, or nothing fits"
    # 7 by 7 in tiles of 4 that share 2: in each row and column the last tile has 3 pixels.
    tilings = [((7, 7), 4, 2)]
    tilings += [((4, 7), 4, 2), ((7, 4), 4, 2)]
    tilings += [((3, 4), 4, 2)]
    for (height, width), tile, overlap in tilings:
        with expect.raises(ValueError, because=because):
            z = torch.zeros(1, 4, height, width)
            student.probe.misshapen_tiles(z, tile, overlap, 2, more)


@task("tiled_decode", gate=False, holds=("size",))
def test_a_latent_becomes_48_times_as_many_numbers(student):
    """4 x 64 x 64 in tiles of 32, scale 8.   Oracle: published.json, latent_compression."""
    [(image, _calls)] = student.probe.tiles(torch.zeros(1, 4, 64, 64), [(32, 0.25, 8)])
    expect.shape(image, (1, 3, 512, 512), because=SIZE, what="the image")
    pixels = int(np.prod(image.shape))
    expect.published(pixels / (4 * 64 * 64), oracles.PUBLISHED["latent_compression"])


@task("tiled_decode", gate=False, holds=("peak",))
def test_only_tiling_lowers_the_peak_of_one_image(student):
    """The decoder whole and in tiles, one image.   Oracle: the storage meter; the order of
    diffusers' ConsisID table, from 16 GB to 5 GB allocated."""
    seen = student.probe.tiled_bytes(32, 32, 8, 2, 4)
    table = dict(zip(oracles.STACK, oracles.PUBLISHED["consisid_table"]["expected"], strict=True))
    expect.true(table["+vae tiling"][0] < table["+vae slicing"][0], because="as the table says")
    expect.at_most(
        seen["tiled"],
        seen["whole"] / 2,
        because="one image has one slice but many tiles: here only tiling helps",
        what="the peak in 5 x 5 tiles",
        unit="bytes",
    )


# --- held against diffusers ----------------------------------------------------------------------


@task("tiled_decode", extra=("diffusers",))
def test_diffusers_makes_the_same_image_except_where_four_tiles_meet(student):
    """A random AutoencoderKL with groups and attention.   Oracle: its own tiled_decode at its
    overlap of 0.25, for latents in which it begins no tile behind the one that reaches the end. It
    writes into tiles, so where four meet, the tile above has been blended with its left neighbour
    before: the pixels of those corners are left out."""
    tile, scale = 8, 2
    latents = [(6, 22), (22, 6), (22, 16)]
    seen = student.probe.autoencoder_kl(2, latents, tile, scale)
    expect.equal(seen["sizes"], (tile, tile * scale), because="the tiles are those that were meant")
    for (height, width), found in zip(latents, seen["found"], strict=True):
        theirs, mine = found["theirs"], found["mine"]
        expect.shape(mine, tuple(theirs.shape), because=SIZE, what="the image")
        corner = _in_ramp(height, tile, 2, scale)[:, None] & _in_ramp(width, tile, 2, scale)
        outside = torch.from_numpy(~corner)
        expect.close(
            mine[..., outside],
            theirs[..., outside].numpy(),
            because="tiles, ramps and crops are those of AutoencoderKL.tiled_decode",
            n=64,
            dtype="float32",
            what=f"a latent of {height} x {width}",
        )


@task("tiled_decode", extra=("diffusers",))
def test_diffusers_weighs_the_corner_unevenly(student, rng):
    """Where four flat tiles meet.   Oracle: in AutoencoderKL, run here, the upper tiles weigh
    (1 - wy)(1 - wx^2) and (1 - wy) wx^2, which leaves a step of up to a quarter of what they differ
    by; in the learner's image all four weights are products of the two ramps."""
    tile, scale, shared = 8, 4, 2
    z = torch.from_numpy(rng.normal(size=(1, 4, 12, 12)))
    seen = student.probe.upstream_corner(z, tile, scale)
    begin = oracles.starts(12, tile, shared)
    upper_left, upper, left, new = (
        z[0, :3, a : a + tile, b : b + tile].mean((1, 2))[:, None, None].numpy()
        for a in begin
        for b in begin
    )
    w = oracles.ramp(scale * shared)
    wy, wx = w[:, None], w
    lower = wy * ((1 - wx) * left + wx * new)
    corner = slice(scale * begin[1], scale * (begin[1] + shared))
    for name, share in (("theirs", wx**2), ("mine", wx)):
        expect.close(
            seen[name][0, :, corner, corner],
            (1 - wy) * ((1 - share) * upper_left + share * upper) + lower,
            because="the weights of the tiles that meet are these",
            n=16,
            what="diffusers' corner" if name == "theirs" else "the corner",
        )


def _in_ramp(length, tile, overlap, scale):
    """Which pixels of an axis are blended."""
    ramped = np.zeros(scale * length, dtype=bool)
    for start in oracles.starts(length, tile, overlap)[1:]:
        ramped[scale * start : scale * (start + overlap)] = True
    return ramped


@task("sliced_decode", extra=("diffusers",))
def test_diffusers_gives_the_same_slices(student):
    """A random AutoencoderKL.   Oracle: its own decode after enable_slicing()."""
    seen = student.probe.autoencoder_kl(3, [(6, 5)], 8, 2)
    expect.close(
        seen["found"][0]["my_slices"],
        seen["found"][0]["their_slices"].numpy(),
        because="slicing is a loop over the batch",
        n=64,
        dtype="float32",
        what="the images",
    )


@task("tiled_decode", extra=("diffusers",))
def test_diffusers_itself_has_the_wrong_size(student, rng):
    """160 rows become 172 at an overlap of 0.2 and 163 at 0.3.   Oracle: AutoencoderKL, run here;
    the learner's own image of the same latent."""
    shares = (0.2, 0.25, 0.3)
    sizes = student.probe.upstream_sizes(40, 16, 4, shares)
    expect.equal(sizes, [172, 160, 163], because="it rounds the stride and the crop apart")
    cases = [(16, share, 4) for share in shares]
    for image, _calls in student.probe.tiles(_latent(rng, 1, 4, 40, 40), cases):
        expect.shape(image, (1, 3, 160, 160), because=SIZE, what="the image")
