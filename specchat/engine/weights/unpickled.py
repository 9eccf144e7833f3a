"""Conversion of pickled weights (`.bin`, `.pt`) to safetensors. No code in them runs: torch reads tensors only."""

import os
from pathlib import Path
from shutil import copyfile
from tempfile import NamedTemporaryFile
from warnings import catch_warnings

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.files import PICKLES, found, read_json

MEDUSA = "medusa_lm_head"
USUAL = ("pytorch_model.bin", f"{MEDUSA}.pt")
"""Usual names of weights, among other pickled files of a folder."""
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
REPEATED = 2
"""Limit of the written size, as a multiple of the file's: tensors that share storage are written apart."""


def pickled_file(place: Path) -> Path:
    """The file of pickled weights at `place`, a file or a folder.

    Raises:
        ModelError: there are none, or several.
    """
    if not os.path.isdir(place):
        if not found(place):
            raise ModelError(f"{place} is not there. Give a file of pickled weights, or the folder that holds it.")
        return place
    files = sorted(file for pattern in PICKLES for file in place.glob(pattern))
    usual = [file for file in files if file.name in USUAL]
    if len(usual) == 1 or len(files) == 1:
        return (usual or files)[0]
    if files:
        raise ModelError(f"{place} holds {len(files)} pickled files, for instance {files[0].name}. Give the file.")
    raise ModelError(f"{place} holds no pickled weights ({', '.join(PICKLES)}).")


def tensors_of(file: Path) -> dict[str, Tensor]:
    """The tensors in `file` by name, on the CPU.

    Raises:
        ModelError: it is damaged, holds something else, or could only be read by running what is in it.
    """
    try:
        with catch_warnings(action="ignore"):
            held = torch.load(file, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # untrusted bytes may raise any error in an unpickler
        reason = str(error).strip().split("\n")[0].split(". ")[0][:200] or type(error).__name__
        raise ModelError(
            f"{file} holds more than tensors, which could run code, or is damaged, and is not read ({reason}). "
            "Use a checkpoint with safetensors."
        ) from None
    if not isinstance(held, dict) or not held or not all(_plain(name, one) for name, one in held.items()):
        raise ModelError(f"{file} is not tensors by name, and nothing else is converted.")
    if sum(one.numel() * one.element_size() for one in held.values()) > REPEATED * file.stat().st_size:
        raise ModelError(f"{file} asks for more than it holds: its tensors are larger than the file.")
    return {name: one.detach().clone(memory_format=torch.contiguous_format) for name, one in held.items()}


def _plain(name: object, value: object) -> bool:
    return (
        isinstance(name, str)
        and name.isprintable()  # half a surrogate pair is not
        and isinstance(value, Tensor)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and value.dtype in (*_FLOATS, *_WHOLE)
    )


def rewrite(file: Path, folder: Path) -> Path:
    """Write the tensors of `file` as safetensors into `folder`, with the config.json beside it; return the new file.

    Medusa's file keeps its name; any other becomes model.safetensors. A failure leaves no file behind.

    Raises:
        ModelError: see `tensors_of`; or config.json is missing or damaged, or the new file exists.
        OSError: it cannot be written.
    """
    written = folder / (f"{file.stem}.safetensors" if file.stem == MEDUSA else "model.safetensors")
    settings = file.parent / "config.json"
    read_json(settings)
    if found(written):
        raise ModelError(f"{written} is there already, and is not written over.")
    tensors = tensors_of(file)
    with NamedTemporaryFile(dir=folder, prefix=f".{written.name}-", delete=False) as part:
        unfinished = Path(part.name)
    try:
        save_file(tensors, unfinished)
        os.chmod(unfinished, file.stat().st_mode & 0o666)
        if folder.resolve() != file.parent.resolve():
            copyfile(settings, folder / settings.name)
        os.replace(unfinished, written)
    except SafetensorError as error:
        raise OSError(0, str(error)) from None
    finally:
        unfinished.unlink(missing_ok=True)
    return written
