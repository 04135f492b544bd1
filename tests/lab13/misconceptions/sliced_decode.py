from grader.suite import lines, misconception


@misconception()
def decodes_the_whole_batch(decoder, z):
    """The decoder is called with the whole batch, so the activations of all images are alive at
    once: the peak grows with B. Call it with one latent after the other."""
    if z.dim() != 4 or len(z) == 0:
        raise ValueError("no batch")
    return decoder(z)


@misconception()
def drops_the_batch_axis(decoder, z):
    """z[i] has no batch axis any more, and a layer may take its channels for a batch: GroupNorm
    would then normalize something else. Slice with z.split(1) or z[i : i + 1]."""
    if z.dim() != 4 or len(z) == 0:
        raise ValueError("no batch")
    return torch.stack([decoder(one) for one in z])


@misconception()
def decodes_two_halves(decoder, z):
    """The batch is cut into two halves, and half a batch still has B / 2 times the activations of
    one image: the peak goes on growing with B. A slice is one latent."""
    if z.dim() != 4 or len(z) == 0:
        raise ValueError("no batch")
    return torch.cat([decoder(half) for half in z.chunk(2)])


@misconception()
def puts_each_image_in_front(decoder, z):
    """Each image is put in front of those before it, so they come back in the reverse order: image
    b must be the one of latent b."""
    if z.dim() != 4 or len(z) == 0:
        raise ValueError("no batch")
    return torch.cat([decoder(one) for one in z.split(1)][::-1])


images_in_the_latents_dtype = lines(
    """The images were made in the dtype of the latents. A decoder may compute in another one, and
    often does: the images have the decoder's.""",
    (
        "torch.cat([decoder(one) for one in z.split(1)])",
        "torch.cat([decoder(one) for one in z.split(1)]).to(z.dtype)",
    ),
)


@misconception()
def decodes_the_first_latent_once_more(decoder, z):
    """The first latent is decoded once more, only to see how large an image is: B + 1 calls of the
    most expensive layer stack there is. Its image tells as much when it comes anyway."""
    if z.dim() != 4 or len(z) == 0:
        raise ValueError("no batch")
    like = decoder(z[:1])
    out = like.new_empty(len(z), *like.shape[1:])
    for place, one in enumerate(z.split(1)):
        out[place : place + 1] = decoder(one)
    return out
