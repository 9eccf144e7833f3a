"""Weights of GGUF files: products, embeddings, experts and parts of unlike storage, and their rows alone."""

import torch

from specchat.engine.device.compile import compile_all, rehearsed
from specchat.engine.formats.layout import Joined
from specchat.engine.formats.quantise import dequantised
from specchat.engine.formats.words import in_words
from specchat.engine.gpu_checks import experts, kernels, place, rows
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.gpu_checks.references import reference_embed
from specchat.engine.kernels.embed import embed

FORMS = (
    *("Q4_K", "IQ2_S", "Q5_1", "Q6_K", "Q2_K", "Q4_0", "Q8_0"),
    *("Q3_K", "IQ4_NL", "Q5_K", "Q4_1", "IQ4_XS", "Q5_0", "IQ2_XXS", "IQ3_S", "IQ2_XS", "IQ3_XXS"),
)
"""A type for each way to unpack blocks."""
OF_EXPERTS = ("Q4_K", "Q6_K", "IQ2_S", "Q4_K and Q6_K")
COMPANY = (2, 17, 64)
"""Numbers of rows whose products a row alone is compared with."""


def blocks(notes: Notes) -> None:
    """Every way to unpack blocks; under the interpreter, which takes seconds for each, some."""
    if place.on_gpu():
        compile_all(rehearsed(lambda: every(Notes())), print)
    every(notes)


def every(notes: Notes) -> None:
    """All checks, the kernels of which are compiled when they are launched."""
    there = place.on_gpu()
    for kind in FORMS if there else FORMS[:3]:
        kernels.product(notes, kind)
        rows.products(notes, kind, COMPANY)
        embedded(notes, kind)
    unlike(notes)
    for kind in OF_EXPERTS if there else OF_EXPERTS[-1:]:
        experts.values(notes, kind)
        experts.alone(notes, kind, COMPANY[:2])
        experts.in_main(notes, kind)


def embedded(notes: Notes, kind: str, hidden: int = 1280) -> None:
    """Rows of a table of one type, one of a token that there is not."""
    table, dtype = place.blocks_of(kind, 50, hidden), place.dtype()
    tokens = torch.tensor([0, 49, 7, 50], dtype=torch.int32, device=place.device())
    residual = place.filled(len(tokens), hidden)
    embed(tokens, in_words(table), residual, len(tokens), 0.5, dtype=dtype)
    truth = reference_embed(tokens, dequantised(table, dtype), 0.5)
    notes.within(f"embed {kind}", place.largest(residual - truth), 0.0)


def unlike(notes: Notes, inputs: int = 512) -> None:
    """A product of parts of unlike storage, as of queries, keys and values."""
    parts = [in_words(place.blocks_of(kind, outputs, inputs)) for kind, outputs in (("Q4_K", 128), ("Q6_K", 48))]
    weight = Joined((*parts, place.random(64, inputs, seed=51).div(inputs**0.5).to(place.dtype())))
    kernels.multiplied(notes, "product of parts", weight)
    rows.multiplied(notes, "product of parts", weight, COMPANY)
