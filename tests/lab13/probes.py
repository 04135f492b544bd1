"""Lab 13, beside the learner's code: decoders to slice and tile, and meters around the calls."""

from __future__ import annotations

import re
import traceback

import numpy
import torch
from torch import nn
from torch.nn import functional

from grader import meters

# -- slices and tiles ----------------------------------------------------------------------------


class Uneven:
    """A decoder in which a tile shows what it is: nearest upsampling, and the tile's own mean and
    slopes, which its neighbour does not share. It computes in `dtype`, or in its latent's. Notes
    the shape of each call."""

    def __init__(self, scale, dtype=None):
        self.scale, self.dtype = scale, dtype
        self.calls = []

    def __call__(self, z):
        self.calls.append(tuple(z.shape))
        z = z.to(self.dtype or z.dtype)
        big = z[..., :3, :, :].repeat_interleave(self.scale, -2).repeat_interleave(self.scale, -1)
        high, wide = big.shape[-2:]
        down = torch.arange(high, dtype=z.dtype) / high
        right = torch.arange(wide, dtype=z.dtype) / wide
        mean = z.mean((-2, -1), keepdim=True)[..., :3, :, :]
        return big + 2 * mean + down[:, None] ** 2 - right**2


class Level:
    """A decoder whose image is flat: the mean of the latent that it is given, everywhere. It is
    expanded, so all of its pixels lie in one place and none can be written to."""

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, z):
        mean = z[:, :3].mean((2, 3), keepdim=True)
        return mean.expand(-1, -1, self.scale * z.shape[2], self.scale * z.shape[3])


class Normed(nn.Module):
    """A small decoder as real ones are: convolutions, which see neighbours, and GroupNorm, which
    sees everything that it is given."""

    def __init__(self, scale, width=16):
        super().__init__()
        self.into = nn.Conv2d(4, width, 3, padding=1)
        self.grow = nn.Upsample(scale_factor=scale, mode="bilinear")
        self.norm = nn.GroupNorm(4, width)
        self.last = nn.Conv2d(width, 3, 3, padding=1)
        generator = torch.Generator().manual_seed(11)
        for parameter in (self.into.weight, self.last.weight):
            fan_in = parameter[0].numel()
            nn.init.normal_(parameter, 0, fan_in**-0.5, generator=generator)
        self.requires_grad_(False)

    def forward(self, z):
        return self.last(functional.silu(self.norm(self.grow(self.into(z)))))


class Widened:
    """Nearest upsampling of three channels by way of 16 maps of the image's size, as a decoder
    with wide last layers has them."""

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, z):
        maps = functional.interpolate(z.repeat(1, 4, 1, 1), scale_factor=self.scale)
        return (maps[:, 0:3] + maps[:, 4:7]) / 2


def _same(z):
    """The decoder of scale 1 that gives its own argument back, not a copy."""
    return z


def _nearest(z, scale):
    return z.repeat_interleave(scale, -2).repeat_interleave(scale, -1)


class Misshapen:
    """A decoder of three channels whose tiles have another size than `scale` says: `more` rows and
    columns, axes in the wrong order, or always the size of a whole tile."""

    def __init__(self, scale, tile, more):
        self.scale, self.tile, self.more = scale, tile, more

    def __call__(self, z):
        high, wide = self.scale * z.shape[-2], self.scale * z.shape[-1]
        if self.more == "turned":
            high, wide = wide, high
        elif self.more == "whole":
            high = wide = self.scale * self.tile
        else:
            high, wide = high + self.more[0], wide + self.more[1]
        return z.new_zeros(len(z), 3, high, wide)


def sliced(student, z, scale, dtype=None):
    """sliced_decode of this latent: images, and the shape of each call of the decoder."""
    decoder = Uneven(scale, dtype)
    return {"images": student.sliced_decode(decoder, z), "calls": decoder.calls}


def sliced_bytes(student, batch, side, scale):
    """The most bytes alive while a batch is decoded in slices, and while it is decoded whole."""
    z = torch.linspace(-1, 1, batch * 4 * side * side).view(batch, 4, side, side)
    decoder = Widened(scale)
    with meters.live_bytes() as by_slices:
        images = student.sliced_decode(decoder, z)
    with meters.live_bytes() as at_once:
        whole = decoder(z)
    return {
        "sliced": by_slices.peak_bytes,
        "whole": at_once.peak_bytes,
        "z": z,
        "images": images[:, :, ::scale, ::scale].contiguous(),
        "shape": tuple(whole.shape),
    }


def blends(student, rows):
    """blend of each (prev, cur, extent, dim): the result, what the arguments are afterwards, and
    whether something that is written into the result appears in an argument."""
    found = []
    for prev, cur, extent, dim in rows:
        out = student.blend(prev, cur, extent, dim)
        after = [out.clone(), prev.clone(), cur.clone()]
        out.add_(1)
        shared = not (torch.equal(prev, after[1]) and torch.equal(cur, after[2]))
        found.append((*after, shared))
    return found


def gradients(student, function, z, weight, pull, scale, arguments):
    """The gradients of sum(image * pull) for z and the decoder's weight, None for one that nothing
    reached. The decoder makes each latent pixel's square by itself: its number squared, times the
    weight of its channel."""
    z, weight = z.clone().requires_grad_(), weight.clone().requires_grad_()

    def decoder(part):
        return _nearest(part.square() * weight[:, None, None], scale)

    return _pulled(getattr(student, function)(decoder, z, *arguments), pull, (z, weight))


def blend_gradients(student, prev, cur, extent, dim, pull):
    """The gradients of sum(blend * pull) for prev and cur, None for one that nothing reached."""
    prev, cur = prev.clone().requires_grad_(), cur.clone().requires_grad_()
    return _pulled(student.blend(prev, cur, extent, dim), pull, (prev, cur))


def _pulled(out, pull, leaves):
    if not out.requires_grad:
        return [None for _ in leaves]
    found = torch.autograd.grad((out * pull).sum(), leaves, allow_unused=True)
    return [None if part is None else part.clone() for part in found]


def misshapen_tiles(student, z, tile, overlap, scale, more):
    """tiled_decode with a decoder whose tiles have the wrong size."""
    return student.tiled_decode(Misshapen(scale, tile, more), z, tile, overlap, scale)


def plain_tiles(student, z, cases, dtype=None):
    """tiled_decode with nearest upsampling of all channels, in another dtype than z's, for each
    (tile, overlap, scale)."""
    found = []
    for tile, overlap, scale in cases:

        def decoder(part, scale=scale):
            return _nearest(part.to(dtype or part.dtype), scale)

        found.append(student.tiled_decode(decoder, z, tile, overlap, scale))
    return found


def kept_tiles(student, z, tile, overlap, scale):
    """tiled_decode with a decoder that keeps what it returns: the image, how many tiles there were
    and how many of them are not any more what they were."""
    decoder, kept = Uneven(scale), []

    def keeping(part):
        out = decoder(part)
        kept.append((out, out.clone()))
        return out

    image = student.tiled_decode(keeping, z, tile, overlap, scale)
    changed = sum(not torch.equal(*pair) for pair in kept)
    return {"image": image, "tiles": len(kept), "changed": changed}


def tiles(student, z, cases, dtype=None):
    """tiled_decode with `Uneven` for each (tile, overlap, scale): the image and the calls' shapes
    of the decoder."""
    found = []
    for tile, overlap, scale in cases:
        decoder = Uneven(scale, dtype)
        image = student.tiled_decode(decoder, z, tile, overlap, scale)
        found.append((image, decoder.calls))
    return found


def pointwise_tiles(student, z, cases, scale):
    """tiled_decode with a decoder that makes each latent pixel's square by itself, for each (tile,
    overlap), and that decoder's image in one piece."""
    generator = torch.Generator().manual_seed(5)
    weight = torch.randn(3 * scale * scale, z.shape[1], 1, 1, generator=generator, dtype=z.dtype)

    def decoder(part):
        return functional.pixel_shuffle(functional.conv2d(part.sin(), weight), scale)

    images = [student.tiled_decode(decoder, z, tile, overlap, scale) for tile, overlap in cases]
    return {"images": images, "whole": decoder(z)}


def flat_tiles(student, z, tile, overlap, scale):
    """tiled_decode with tiles that are flat, each at its own level."""
    return student.tiled_decode(Level(scale), torch.as_tensor(z), tile, overlap, scale)


def normed_tiles(student, z, cases, scale):
    """tiled_decode with convolutions and GroupNorm for each (tile, overlap), and their image in one
    piece."""
    decoder, z = Normed(scale), torch.as_tensor(z)
    images = [student.tiled_decode(decoder, z, tile, overlap, scale) for tile, overlap in cases]
    return {"images": images, "whole": decoder(z)}


def untouched_tiles(student, z, tile, overlap):
    """tiled_decode with a decoder that gives its argument back: the image, and z afterwards."""
    image = student.tiled_decode(_same, z, tile, overlap, 1)
    copy = image.clone()
    image.zero_()
    return {"image": copy, "z": z}


def tiled_bytes(student, height, width, tile, overlap, scale):
    """The most bytes alive in tiled_decode, in one call of the decoder for one tile, and in one
    call for the whole latent."""
    z = torch.linspace(-1, 1, 4 * height * width).view(1, 4, height, width)
    decoder = Widened(scale)
    with meters.live_bytes() as in_tiles:
        image = student.tiled_decode(decoder, z, tile, overlap, scale)
    with meters.live_bytes() as one_tile:
        decoder(z[..., :tile, :tile])
    with meters.live_bytes() as at_once:
        decoder(z)
    return {
        "tiled": in_tiles.peak_bytes,
        "tile": one_tile.peak_bytes,
        "whole": at_once.peak_bytes,
        "z": z,
        "image": image[:, :, ::scale, ::scale].contiguous(),
    }


def large_tiles(student, z, tile, overlap, scale):
    """tiled_decode of a large image, of which one pixel for each latent pixel comes back."""
    image = student.tiled_decode(Widened(scale), z, tile, overlap, scale)
    return image[:, :, scale - 1 :: scale, scale - 1 :: scale].contiguous()


def _autoencoder(tile, scale, width, groups):
    """A random AutoencoderKL of diffusers, which makes `scale` pixels of a latent one."""
    from diffusers import AutoencoderKL

    stages = scale.bit_length()
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * stages,
        up_block_types=("UpDecoderBlock2D",) * stages,
        block_out_channels=(width,) * stages,
        norm_num_groups=groups,
        sample_size=tile * scale,
    ).eval()


def autoencoder_kl(student, batch, latents, tile, scale):
    """A random AutoencoderKL of diffusers with groups, attention and `scale`: for latents of each
    (height, width), its own tiled_decode at its overlap of 0.25, the learner's, and what slices
    give by its own switch and by the learner's."""
    torch.manual_seed(3)
    vae = _autoencoder(tile, scale, width=8, groups=4)
    found = []
    with torch.no_grad():
        for height, width in latents:
            z = torch.randn(batch, 4, height, width)

            def decoder(part):
                return vae.decoder(vae.post_quant_conv(part))

            tiled = vae.tiled_decode(z).sample
            vae.enable_slicing()
            sliced = vae.decode(z).sample
            vae.disable_slicing()
            found.append(
                {
                    "theirs": tiled,
                    "mine": student.tiled_decode(decoder, z, tile, 0.25, scale),
                    "their_slices": sliced,
                    "my_slices": student.sliced_decode(decoder, z),
                    "whole": decoder(z),
                }
            )
    return {"sizes": (vae.tile_latent_min_size, vae.tile_sample_min_size), "found": found}


def upstream_corner(student, z, tile, scale):
    """Flat tiles, each at its own level, by AutoencoderKL's own tiled_decode at its overlap of 0.25
    and by the learner's."""
    vae = _autoencoder(tile, scale, width=4, groups=2)
    vae.register_to_config(use_post_quant_conv=False)

    class Flat(nn.Module):
        def forward(self, part):
            return Level(scale)(part)

    vae.decoder = Flat()
    with torch.no_grad():
        theirs = vae.tiled_decode(z).sample
    return {"theirs": theirs, "mine": student.tiled_decode(Level(scale), z, tile, 0.25, scale)}


def upstream_sizes(student, latent, tile, scale, overlaps):
    """Height of the image that AutoencoderKL's own tiled_decode makes of a square latent, for each
    overlap factor."""
    vae = _autoencoder(tile, scale, width=4, groups=2)
    sizes = []
    with torch.no_grad():
        for overlap in overlaps:
            vae.tile_overlap_factor = overlap
            sizes.append(vae.tiled_decode(torch.zeros(1, 4, latent, latent)).sample.shape[2])
    return sizes


# -- attention, offload, choose ------------------------------------------------------------------


def attention(student, q, k, v, heads_per_slice, queries_per_slice):
    """sliced_attention under two meters: its result, bytes alive at once and the largest tensor;
    FLOPs and the number of products, and which operations ran."""
    with meters.live_bytes() as live:
        out = student.sliced_attention(q, k, v, heads_per_slice, queries_per_slice)
    with meters.op_log() as log:
        again = student.sliced_attention(q, k, v, heads_per_slice, queries_per_slice)
    products = [name for name, count in log.flops_by_op.items() for _ in range(log.count(name))]
    return {
        "out": out,
        "again": again,
        "peak_bytes": live.peak_bytes,
        "allocated_bytes": live.allocated_peak_bytes,
        "largest_bytes": live.largest_bytes,
        "flops": log.matmul_flops,
        "products": len(products),
        "fused": sorted({name for name, _, _ in log.ops if "attention" in name}),
    }


def largest(student, queries, keys, heads_per_slice):
    """The largest tensor that sliced_attention makes of fp16 queries and keys: 8 heads, batch 2."""
    q, k, v = (torch.zeros(2, 8, n, 4, dtype=torch.float16) for n in (queries, keys, keys))
    with meters.live_bytes() as live:
        student.sliced_attention(q, k, v, heads_per_slice, queries)
    return live.largest_bytes


class Link:
    """Movers between fast memory and bytes of NumPy's, and a record of what they were asked.

    A tensor that is in slow memory has a storage of size zero. `moves` holds (direction, name,
    bytes, bytes of all tensors in fast memory afterwards). Without a dict of its own: code that is
    given a mover can put no other function in the place of one of these."""

    __slots__ = ("held", "moves", "names", "tensors")

    def __init__(self, names):
        self.names = {id(tensor): name for tensor, name in names.items()}
        self.tensors = list(names)
        self.held, self.moves = {}, []  # with the tensor itself, so that its id stays its own

    def to_slow(self, tensor):
        if id(tensor) not in self.held:
            host = numpy.array(tensor.detach().numpy(), copy=True)
            self.held[id(tensor)] = (tensor, host)
            tensor.data = tensor.data.new_empty(0)
        self._note("slow", tensor, self.held[id(tensor)][1].nbytes)

    def to_fast(self, tensor):
        if id(tensor) in self.held:
            fast = torch.from_numpy(self.held.pop(id(tensor))[1]).clone()
            tensor.data = fast
        self._note("fast", tensor, tensor.nbytes)

    def _note(self, direction, tensor, nbytes):
        name = self.names.get(id(tensor), "a tensor that is not the module's")
        self.moves.append((direction, name, nbytes, self.fast_bytes()))

    def fast_bytes(self):
        found = {}
        for tensor in self.tensors:
            storage = tensor.untyped_storage()
            found[storage._cdata] = storage.nbytes()
        return sum(found.values())

    def travelled(self, way):
        return sum(row[2] for row in self.moves if row[0] == way)


class ChangingLink(Link):
    """A link of modules whose forwards put new tensors into the place of old ones."""

    __slots__ = ("modules",)

    def __init__(self, modules):
        super().__init__({})
        self.modules = modules

    def fast_bytes(self):
        self.tensors = list(_named(self.modules))
        return super().fast_bytes()


class Dense(nn.Linear):
    """A linear layer that looks, when it runs, at how much lies in fast memory."""

    look = None

    def forward(self, x):
        if self.look is not None:
            self.look()
        return functional.linear(x, self.weight, self.bias)


class Unit(nn.Module):
    """x + tanh(x W^T + b) * gain / calls: a child, a parameter of its own that is used after the
    child has run, and a buffer that each call changes."""

    def __init__(self, weight, bias, gain):
        super().__init__()
        self.dense = Dense(*weight.shape[::-1])
        self.dense.weight.data, self.dense.bias.data = weight.clone(), bias.clone()
        self.gain = nn.Parameter(gain.clone())
        self.register_buffer("calls", torch.zeros_like(gain))

    def forward(self, x):
        self.calls.add_(1)
        return x + self.dense(x).tanh() * self.gain / self.calls


class Units(nn.Module):
    """Units in a row. `tie`: units i and j have one weight. `keeps`: the whole holds the weight of
    unit 0 as well, and multiplies by it at the end. `within`: a unit holds its dense layer's bias,
    as its gain, and its weight. `skip` leaves out units of a call."""

    def __init__(self, weights, tie=None, keeps=False, within=False):
        super().__init__()
        self.units = nn.ModuleList(Unit(*row) for row in weights)
        if tie:
            self.units[tie[1]].dense.weight = self.units[tie[0]].dense.weight
        self.last = self.units[0].dense.weight if keeps else None
        for unit in self.units if within else ():
            unit.dense.bias = unit.gain
            unit.held = unit.dense.weight

    def forward(self, x, skip=()):
        for place, unit in enumerate(self.units):
            if place not in skip:
                x = unit(x)
        return x if self.last is None else functional.linear(x, self.last)


def _named(modules):
    """Every tensor of these modules, tied ones once, and its name."""
    names = {}
    for label, module in modules.items():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            names.setdefault(tensor, f"{label}{name}")
    return names


def _without_weights(error):
    """In which module of ours a forward stopped. What the learner's own code raises goes on."""
    frames = list(traceback.walk_tb(error.__traceback__))
    files = {frame.f_code.co_filename for frame, _line in frames}
    if isinstance(error, NotImplementedError) or any(
        name.endswith("memory_optimization.py") for name in files
    ):
        raise error
    ours = [
        f for f, _line in frames if f.f_code.co_filename == _without_weights.__code__.co_filename
    ]
    return f"{type(ours[-1].f_locals.get('self')).__name__}.forward: {error}"


def offload(student, kind, settings, parts, calls):
    """One of the three classes around units: `parts` are (label, arguments of Units), `calls` rows
    of (label, x, skip). Says what came out, every move after construction, what was in fast memory
    at construction's end, whenever a unit ran and after every call, the most that ever was, and
    what the allocator had handed out at most."""
    modules = {label: Units(**arguments) for label, arguments in parts}
    names = _named(modules)
    link = Link(names)
    total = link.fast_bytes()
    seen = []
    for module in modules.values():
        for part in module.modules():
            if isinstance(part, Dense):
                part.look = lambda: seen.append(link.fast_bytes())
    if kind == "SequentialOffload":
        [module] = modules.values()
        made = student.SequentialOffload(module, link.to_fast, link.to_slow)
    elif kind == "ModelOffloadChain":
        made = student.ModelOffloadChain(modules, settings["seq"], link.to_fast, link.to_slow)
    else:
        [module] = modules.values()
        made = student.GroupOffload(module.units, settings["k"], link.to_fast, link.to_slow)
    built, begin = list(link.moves), link.fast_bytes()
    link.moves.clear()
    outs, idle, stopped = [], [], ""
    with torch.no_grad(), meters.allocated_bytes() as meter:
        for label, x, skip in calls:
            try:
                outs.append(modules[label](x, skip))
            except RuntimeError as error:
                stopped = _without_weights(error)
                break
            idle.append(link.fast_bytes())
        if kind == "ModelOffloadChain":
            made.finish()
            idle.append(link.fast_bytes())
    if stopped:
        return {"stopped": stopped}
    moves, looked = list(link.moves), list(seen)
    link.moves.clear()
    made.remove()
    back, returned = list(link.moves), link.fast_bytes()
    link.moves.clear()
    with torch.no_grad():
        for label, x, skip in calls[:1]:
            outs.append(modules[label](x, skip))
    return {
        "stopped": "",
        "outs": outs,
        "total": total,
        "built": built,
        "begin": begin,
        "moves": moves,
        "seen": looked,
        "idle": idle,
        "most": max([0, *(row[3] for row in moves)]),
        "allocated": meter.peak_bytes,
        "back": back,
        "returned": returned,
        "after": len(link.moves),
    }


class Layer(nn.Module):
    """times * x W^T * 2 gain + total / calls: a child without a bias, a parameter under two names,
    a buffer that is a new tensor in each call and one, not in the state_dict, that is counted up in
    place. Returns the output and the number of calls."""

    def __init__(self, weight, gain):
        super().__init__()
        self.linear = nn.Linear(*weight.shape[::-1], bias=False)
        self.linear.weight.data = weight.clone()
        self.gain = nn.Parameter(gain.clone())
        self.second_name = self.gain
        self.register_buffer("total", torch.zeros_like(gain))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x, *, times):
        self.calls.add_(1)
        self.total = self.total + x.mean(0)
        out = times * self.linear(x) * (self.gain + self.second_name)
        return out + self.total / self.calls, int(self.calls)


class Layers(nn.Module):
    """Layers in a row, in which one may stand twice."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, *, times):
        counts = []
        for layer in self.layers:
            x, count = layer(x, times=times)
            counts.append(count)
        return x, counts


def lasting(student, kind, rows, order, xs, times, k=2):
    """Layers whose buffers change, in this order, under one of the three classes. For each x: the
    output, the counts, bytes in fast memory after the call and bytes to fast and to slow in it;
    and in the end, after remove(), each layer's total and calls, and bytes in fast memory."""
    layers = [Layer(*row) for row in rows]
    whole = Layers([layers[place] for place in order])
    parts = {f"part{place}": layer for place, layer in enumerate(layers)}
    link = ChangingLink(parts)
    movers = (link.to_fast, link.to_slow)
    if kind == "SequentialOffload":
        made = student.SequentialOffload(whole, *movers)
    elif kind == "ModelOffloadChain":
        made = student.ModelOffloadChain(parts, "->".join(parts), *movers)
    else:
        made = student.GroupOffload((layer for layer in layers), k, *movers)
    first = (link.travelled("slow"), link.fast_bytes())
    found = []
    with torch.no_grad():
        for x in xs:
            link.moves.clear()
            try:
                out, counts = whole(x, times=times)
            except RuntimeError as error:
                return {"stopped": _without_weights(error)}
            found.append((out, counts, link.fast_bytes(), *map(link.travelled, ("fast", "slow"))))
    made.remove()
    states = [(layer.total, int(layer.calls) if layer.calls.numel() else 0) for layer in layers]
    return {
        "stopped": "",
        "first": first,
        "calls": found,
        "states": states,
        "returned": link.fast_bytes(),
    }


CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "ModuleList": nn.ModuleList,
    "iterator": iter,
    "generator": lambda modules: (module for module in modules),
}


def course(student, kind, rows, happens, settings):
    """Modules of one unit each under ModelOffloadChain or GroupOffload, and what happens to them,
    one after the other: a call of the module with this number, finish() or remove(). For each: what
    moved, as (direction, module) in order, and which modules are in fast memory afterwards."""
    modules = [Units([row]) for row in rows]
    names = _named({f"{place} ": module for place, module in enumerate(modules)})
    link = Link(names)
    if kind == "ModelOffloadChain":
        parts = {f"part{place}": module for place, module in enumerate(modules)}
        made = student.ModelOffloadChain(parts, settings["seq"], link.to_fast, link.to_slow)
    else:
        made = student.GroupOffload(
            CONTAINERS[settings["container"]](modules), settings["k"], link.to_fast, link.to_slow
        )
    x = torch.ones(1, rows[0][0].shape[1])
    found = []
    with torch.no_grad():
        for event in happens:
            link.moves.clear()
            if isinstance(event, int):
                try:
                    modules[event](x)
                except RuntimeError as error:
                    return {"stopped": _without_weights(error)}
            else:
                getattr(made, event)()
            moves = list(dict.fromkeys((way, int(name.split()[0])) for way, name, *_ in link.moves))
            there = [
                place
                for place, module in enumerate(modules)
                if all(t.untyped_storage().nbytes() for t in _named({"": module}))
            ]
            found.append((moves, there))
    return {"stopped": "", "found": found}


def refused_chain(student, names, seq):
    """What ModelOffloadChain said when it refused this order of linear layers ("" if it did not),
    and how many copies there had been by then."""
    parts = {name: nn.Linear(2, 2) for name in names}
    link = Link(_named(parts))
    try:
        student.ModelOffloadChain(parts, seq, link.to_fast, link.to_slow)
    except ValueError as error:
        return str(error), len(link.moves)
    return "", len(link.moves)


def offloaded_linear(student, rows, x):
    """Two linear layers with tanh between them under SequentialOffload: the output, and bytes in
    fast memory before and after the call."""
    layers = [nn.Linear(*weight.shape[::-1]) for weight, _bias in rows]
    for layer, (weight, bias) in zip(layers, rows):
        layer.weight.data, layer.bias.data = weight.clone(), bias.clone()
    model = nn.Sequential(layers[0], nn.Tanh(), layers[1])
    link = Link(_named({"": model}))
    student.SequentialOffload(model, link.to_fast, link.to_slow)
    before = link.fast_bytes()
    with torch.no_grad():
        out = model(x)
    return out, [before, link.fast_bytes()]


def refusal(student, components, budget_bytes, link_Bps, copy_s):
    """What choose said when it refused ("" if it did not), and the whole numbers in it."""
    try:
        student.choose(components, budget_bytes, link_Bps, copy_s)
    except ValueError as error:
        digits = re.findall(r"\d[\d,_]*", str(error))
        return str(error), [int(re.sub(r"\D", "", found)) for found in digits]
    return "", []


class Unseen(Link):
    """What comes back lies in memory of NumPy's, so a meter beside it sees activations alone."""

    def to_fast(self, tensor):
        if id(tensor) in self.held:
            tensor.data = torch.from_numpy(self.held.pop(id(tensor))[1])
        self._note("fast", tensor, tensor.nbytes)


def _turn(student, knob, pipe, link):
    """Turn one knob of the toy pipeline, with the learner's own code."""
    movers = (link.to_fast, link.to_slow)
    if knob == "sliced_attention":
        for block in pipe.denoiser.blocks:
            block.attention = lambda q, k, v: student.sliced_attention(q, k, v, 1, 100)
    elif knob == "SequentialOffload":
        return [student.SequentialOffload(part, *movers) for part in pipe.components.values()]
    elif knob == "ModelOffloadChain":
        return student.ModelOffloadChain(pipe.components, "->".join(pipe.components), *movers)
    elif knob == "GroupOffload":
        return student.GroupOffload(pipe.denoiser.blocks, 2, *movers)
    return None


def _cut(student, knob, decoder):
    """How the last latent is decoded."""
    if knob == "sliced_decode":
        return lambda z: student.sliced_decode(decoder, z)
    if knob == "tiled_decode":
        return lambda z: student.tiled_decode(decoder, z, 8, 2, decoder.scale)
    return decoder


def peaks(student, knob, steps=2, side=20):
    """The toy pipeline with one knob ("" for none): its image, and for each part the most bytes of
    weights in fast memory while it ran and the most of everything else."""
    import toy_lab13  # a given file, beside the learner's

    pipe = toy_lab13.toy_pipeline(0, steps)
    link = Unseen(_named(pipe.components))
    kept = _turn(student, knob, pipe, link)
    found = {}

    def watched(name, part, run=None):
        begin = [0]

        def begins(*_):  # after the learner's hooks: what has left by then does not count
            link.moves.clear()
            begin[0] = link.fast_bytes()

        part.register_forward_pre_hook(begins)

        def call(*args):
            with meters.live_bytes(witness=False) as live:
                out = (run or part)(*args)
            weights = max([begin[0], *(row[3] for row in link.moves)])
            old = found.get(name, (0, 0))
            found[name] = (max(old[0], weights), max(old[1], live.peak_bytes))
            return out

        return call

    calls = {name: watched(name, part) for name, part in pipe.components.items()}
    calls["decoder"] = watched("decoder", pipe.decoder, _cut(student, knob, pipe.decoder))
    pipe.text_encoder, pipe.denoiser = calls["text_encoder"], calls["denoiser"]
    pipe.decode = calls["decoder"]
    image = pipe(*toy_lab13.toy_inputs(1, side))
    del kept
    return {"image": image, "peaks": found}
