from grader.suite import lines, misconception


def _cells(text, column, **rows):
    """The table with other texts in cells of one column: knob with _ for blanks to text."""
    out, names = [], []
    for line in text.split("\n"):
        cells = line.split("|")
        if len(cells) > 9:
            names = names or [cell.strip() for cell in cells]
            key = cells[1].strip().replace(" ", "_")
            if key in rows:
                cells[names.index(column)] = f" {rows[key]} "
        out.append("|".join(cells))
    return "\n".join(out)


@misconception(file="memory_optimization.md")
def offload_costs_nothing(text):
    """Offload was said to cost nothing, or to speed things up. It makes large models possible and
    is paid in copies: weights cross a link that is tens to a hundred times slower than fast
    memory."""
    every = dict.fromkeys(("model_offload", "group_offload", "sequential_offload"), "nothing")
    return _cells(text, "costs", **every)


@misconception(file="memory_optimization.md")
def slicing_helps_one_image(text):
    """VAE slicing was said to help one image. It cuts along the batch, and one image is one slice:
    published tables show the same peak with it and without."""
    return _cells(text, "gains at batch 1", VAE_slicing="yes")


@misconception(file="memory_optimization.md")
def tiling_is_exact(text):
    """Tiling was said to leave the image as it is. GroupNorm takes its statistics over a tile and
    not over the image, and borders are blended: it is another image."""
    return _cells(text, "image", VAE_tiling="same")


@misconception(file="memory_optimization.md")
def tiling_costs_quality_only(text):
    """Tiles overlap, and what they share is decoded twice or four times. Tiling costs compute as
    well as quality."""
    return _cells(text, "costs", VAE_tiling="quality")


@misconception(file="memory_optimization.md")
def model_offload_copies_in_every_step(text):
    """Model offload was said to copy the denoiser in every step. It stays while no other component
    is called, so one run is one copy, whatever the number of steps."""
    return _cells(text, "copies", model_offload="4")


@misconception(file="memory_optimization.md")
def group_offload_copies_once(text):
    """Group and sequential offload were said to copy the weights once a run. What leaves after its
    forward comes again in the next step: four steps are four copies."""
    return _cells(text, "copies", group_offload="1", sequential_offload="1")


@misconception(file="memory_optimization.md")
def fp8_storage_is_fp8_compute(text):
    """fp8 storage was said to shrink activations as well. Weights alone are stored in fp8; they are
    cast up before they multiply, so what is computed is as wide as before."""
    return _cells(text, "tensor", fp8_storage="weights, activations")


@misconception(file="memory_optimization.md")
def fewer_bits_change_nothing(text):
    """Weights of 8 bits were said to give the same image. Rounding weights is no rounding error of
    one sum: it changes every product, and the image."""
    return _cells(text, "image", fp8_storage="same", int8_weights="same")


@misconception(file="memory_optimization.md")
def attention_slicing_moves(text):
    """Attention slicing moves nothing: it makes the scores of some heads and queries at a time, on
    the same device. That is a cut."""
    return _cells(text, "does", attention_slicing="moves")


@misconception(file="memory_optimization.md")
def attention_slicing_changes_the_image(text):
    """Attention slicing and fused kernels were said to change the image. Another order of the same
    sums differs by rounding; the function is the same."""
    return _cells(text, "image", attention_slicing="changed", fused_attention="changed")


@misconception(file="memory_optimization.md")
def tiling_relieves_the_denoiser(text):
    """VAE tiling and slicing were said to relieve the denoiser. They cut what the decoder computes;
    the denoiser has finished by then."""
    return _cells(text, "of", VAE_tiling="denoiser", VAE_slicing="denoiser")


@misconception(file="memory_optimization.md")
def checkpointing_is_free(text):
    """Gradient checkpointing was said to cost nothing. What was not kept is computed a second time
    in the backward, about a third more FLOPs."""
    return _cells(text, "costs", gradient_checkpointing="nothing")


a_knob_is_missing = lines(
    """A knob has no row. That one gains nothing here is a result, too, and belongs into the
    table.""",
    (
        "| split guidance         | tiles      | scores, activations          | denoiser | "
        "yes              |      0 | same    | launches         |\n",
        "",
    ),
)

no_line_of_dashes = lines(
    """Without the line of dashes under its header a table is a paragraph of pipes to Markdown.""",
    (
        "|------------------------|------------|------------------------------|----------"
        "|------------------|-------:|---------|------------------|\n",
        "",
    ),
)


@misconception(file="memory_optimization.md")
def fewer_bits_shrink_weights_only(text):
    """With a whole pipeline in bf16 more than its weights is half as large: scores and activations
    are computed in bf16 as well."""
    return _cells(text, "tensor", bf16="weights")


@misconception(file="memory_optimization.md")
def scores_are_not_named(text):
    """Half of the images a call is half of everything that the denoiser computes, and what is
    recomputed need not be kept: the scores of attention are among it."""
    both = dict.fromkeys(("split_guidance", "gradient_checkpointing"), "activations")
    return _cells(text, "tensor", **both)


@misconception(file="memory_optimization.md")
def model_offload_moves_the_denoiser(text):
    """Model offload moves whole components, whichever runs: text encoder and decoder leave as the
    denoiser does."""
    return _cells(text, "of", model_offload="denoiser", sequential_offload="denoiser")

@misconception(file="memory_optimization.md")
def fp8_storage_shrinks_scores(text):
    """fp8 storage was said to shrink activations as well. Weights alone are stored in fp8; they are
    cast up before they multiply, so what is computed is as wide as before."""
    return _cells(text, "tensor", fp8_storage="weights, scores, activations")
