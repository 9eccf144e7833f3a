"""A trained draft as a checkpoint of its own, which loads like any other."""

import shutil
from pathlib import Path

import torch

from specchat.engine.errors import ModelError
from specchat.engine.model.checkpoint import Checkpoint
from specchat.tune.draft import DraftLearner
from specchat.tune.files import put_tensors

BESIDE = (".json", ".jinja", ".model", ".txt")
"""Endings of the files beside the weights: settings, tokenizer, chat template."""
INDEX = ".index.json"
WEIGHTS = "model.safetensors"


def put_draft(folder: Path, learner: DraftLearner, draft: Checkpoint) -> None:
    """Write a trained draft with the files beside the weights of `draft`, whose dtype it keeps.

    Raises:
        ModelError: weights that the dtype has no numbers for.
        OSError: a file cannot be written.
    """
    dtype = draft.dtype or torch.bfloat16
    tensors = {name: weight.detach().to(dtype) for name, weight in learner.weights().items()}
    for name, weight in tensors.items():
        if not bool(weight.isfinite().all()):
            raise ModelError(f"The training went astray: {name} holds values that are no numbers. Begin anew.")
    for file in draft.folder.iterdir():
        if file.suffix in BESIDE and not file.name.endswith(INDEX) and file.is_file():
            shutil.copyfile(file, folder / file.name)
    put_tensors(folder / WEIGHTS, tensors, {"format": "pt"})
