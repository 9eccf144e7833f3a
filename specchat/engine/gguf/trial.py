"""A file is looked at by llama.cpp in a process of its own first: a damaged one may end the process that opens it.

No weights are read: llama.cpp makes the graph of the model with sizes alone.
"""

import os
import subprocess
import sys
from pathlib import Path

from specchat.clean import one_line
from specchat.engine.errors import EngineError, ModelError

MOST_S = 120.0
"""Seconds until a file counts as damaged."""
ROWS = 32
"""Tokens of the cache that is tried."""
REFUSED = 3
"""The exit code of a trial that llama.cpp told the outcome of."""


def attempt(file: Path) -> None:
    """Let a child process look at a file.

    Raises:
        ModelError: llama.cpp cannot load it, or does not survive it.
    """
    command = [sys.executable, "-m", __name__, str(file)]
    damaged = f"{file} cannot be loaded: llama.cpp did not survive it. It is damaged: download it again."
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=MOST_S,
            check=False,
            env=os.environ | {"GGML_NO_BACKTRACE": "1"},
        )
    except subprocess.TimeoutExpired:
        raise ModelError(damaged) from None
    if ended.returncode == REFUSED:
        raise ModelError(f"{file} cannot be loaded: {one_line(ended.stdout.decode('utf-8', 'replace'), 300)}.")
    if ended.returncode:
        raise ModelError(damaged)


def look(file: str) -> str:
    """Why llama.cpp cannot load a file, "" where it can."""
    from specchat.engine.gguf.library import TOLD, llama

    api = llama()
    params = api.llama_model_default_params()
    params.n_gpu_layers, params.no_alloc, params.use_extra_bufts = 0, True, False
    params.load_mode = api.LLAMA_LOAD_MODE_NONE
    model = api.llama_model_load_from_file(file.encode(), params)
    if not model:
        return _adapter(file) or TOLD.reason() or "llama.cpp does not say why"
    options = api.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = ROWS
    return "" if api.llama_init_from_model(model, options) else TOLD.reason() or "llama.cpp makes no cache for it"


def _adapter(file: str) -> str:
    """What a file is that is no model, by its own word; "" where it gives none."""
    from gguf import GGUFReader

    try:
        field = GGUFReader(file).get_field("general.type")
    except Exception:  # of damaged files it raises anything
        return ""
    kind = field.contents() if field is not None else "model"
    return "" if kind == "model" else f"it is no model by itself, but of the kind {one_line(str(kind), 40)}"


if __name__ == "__main__":
    try:
        refused = look(sys.argv[1])
    except EngineError as error:
        refused = error.message.rstrip(".")
    print(refused, flush=True)
    # At once: what llama.cpp made of a damaged file may not survive being freed.
    os._exit(REFUSED if refused else 0)
