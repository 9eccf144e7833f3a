"""A file is looked at by llama.cpp in a process of its own first: a damaged one may end the process that opens it.

At first no weights are read: llama.cpp makes the graph of the model with sizes alone. Then a few tokens go through all
of it, as some of what a file says is wrong only then. What that reads is in memory when the model is loaded.
"""

import os
import subprocess
import sys
from math import isfinite
from pathlib import Path
from typing import Any, Literal, cast

from specchat.clean import one_line
from specchat.engine.errors import EngineError, ModelError
from specchat.engine.gguf.file import parts
from specchat.engine.model.memory import free_memory

MOST_S = 60.0
BYTES_A_SECOND = 50e6
"""Seconds until a file counts as damaged, besides those that a slow disk takes for its bytes."""
SHARE = 0.5
"""Files up to this share of the free memory are tried with tokens: larger ones would be read from the disk twice."""
MANY = 16
"""Tokens that go through the model at once, before one goes alone."""
ROWS = 32
"""Tokens of the cache that is tried."""
REFUSED = 3
"""The exit code of a trial that llama.cpp told the outcome of."""


Way = Literal["unread", "arranged", "stored"]
"""Weights are left unread, arranged anew for this processor's fastest products, or taken as they are stored."""


def attempt(file: Path) -> bool:
    """Let child processes look at a file; gives whether its weights may be arranged anew for this processor.

    On some machines those products end the process, and the file is sound.

    Raises:
        ModelError: llama.cpp cannot load it, or does not survive it.
    """
    size = sum(part.stat().st_size for part in parts(file))
    free = free_memory()
    ways: tuple[Way, ...] = ("arranged", "stored") if free is None or size <= SHARE * free else ("unread",)
    for way in ways:
        if _survived(file, way, MOST_S + size / BYTES_A_SECOND):
            return way != "stored"
    raise ModelError(f"{file} cannot be loaded: llama.cpp did not survive it. It is damaged: download it again.")


def _survived(file: Path, way: Way, within_s: float) -> bool:
    command = [sys.executable, "-m", __name__, str(file), way]
    environment = os.environ | {"GGML_NO_BACKTRACE": "1"}
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=within_s, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return False
    if ended.returncode == REFUSED:
        raise ModelError(f"{file} cannot be loaded: {one_line(ended.stdout.decode('utf-8', 'replace'), 300)}.")
    return ended.returncode == 0


def look(file: str, way: Way) -> str:
    """Why llama.cpp cannot load a file, or run it where its weights are read, "" where it can."""
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
    options.n_threads = options.n_threads_batch = 1
    if not api.llama_init_from_model(model, options):
        return TOLD.reason() or "llama.cpp makes no cache for it"
    return "" if way == "unread" else _run(api, file, options, way == "arranged")


def _run(api: Any, file: str, options: Any, arranged: bool) -> str:
    """Why no token goes through the model, "" where one does."""
    from specchat.engine.gguf.library import TOLD

    params = api.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts = 0, arranged
    model = api.llama_model_load_from_file(file.encode(), params)
    context = api.llama_init_from_model(model, options) if model else None
    if not context:
        return TOLD.reason() or "llama.cpp does not say why"
    if api.llama_model_has_encoder(model):
        return ""  # which is refused with its reason when it is loaded
    for count in (MANY, 1):  # one row and many go through different code
        tokens = (api.llama_token * count)()
        if api.llama_decode(context, api.llama_batch_get_one(tokens, count)):
            return TOLD.reason() or "no token goes through it"
    logits = api.llama_get_logits_ith(context, -1)
    scores = logits[: api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))]
    return "" if all(map(isfinite, scores)) else "what it computes are no numbers"


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
        refused = look(sys.argv[1], cast(Way, sys.argv[2]))
    except EngineError as error:
        refused = error.message.rstrip(".")
    print(refused, flush=True)
    # At once: what llama.cpp made of a damaged file may not survive being freed.
    os._exit(REFUSED if refused else 0)
