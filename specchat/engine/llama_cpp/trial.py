"""Tries a GGUF file in a child process first, because a damaged file may crash the process that opens it.

The trial first builds llama.cpp's graph from sizes alone, without weights. Then it decodes a few tokens, since some
damage shows only there. That also brings the file into the page cache.
"""

import os
import subprocess
import sys
from math import isfinite
from pathlib import Path
from typing import Any, Literal, cast

from specchat.clean import one_line
from specchat.engine.errors import EngineError, ModelError
from specchat.engine.gguf.files import file_parts
from specchat.engine.hardware.free_memory import free_memory

TIMEOUT_S = 60.0
SLOW_DISK_BYTES_A_SECOND = 50e6
"""A file counts as damaged after the timeout plus the seconds that a slow disk needs for its bytes."""
MAX_MEMORY_SHARE = 0.5
"""Share of free memory up to which files are tried with tokens; larger files would be read from the disk twice."""
BATCH_TOKENS = 16
"""Tokens of the first pass; a single one follows."""
CONTEXT_TOKENS = 32
REFUSED_EXIT_CODE = 3
"""Exit code of a trial for which llama.cpp reported a reason."""


Mode = Literal["unread", "arranged", "stored"]
"""Weights are not read, repacked for this processor's fastest kernels, or used as stored."""


def try_file(file: Path) -> bool:
    """Try a file in child processes; True if its weights may be repacked for this processor.

    On some machines the kernels for repacked weights crash although the file is sound.

    Raises:
        ModelError: llama.cpp cannot load the file, or crashes.
    """
    size = sum(part.stat().st_size for part in file_parts(file))
    free = free_memory()
    modes: tuple[Mode, ...] = ("arranged", "stored") if free is None or size <= MAX_MEMORY_SHARE * free else ("unread",)
    for mode in modes:
        if _survived(file, mode, TIMEOUT_S + size / SLOW_DISK_BYTES_A_SECOND):
            return mode != "stored"
    raise ModelError(f"{file} cannot be loaded: llama.cpp did not survive it. It is damaged: download it again.")


def _survived(file: Path, mode: Mode, within_s: float) -> bool:
    command = [sys.executable, "-m", __name__, str(file), mode]
    environment = os.environ | {"GGML_NO_BACKTRACE": "1"}
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=within_s, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return False
    if ended.returncode == REFUSED_EXIT_CODE:
        raise ModelError(f"{file} cannot be loaded: {one_line(ended.stdout.decode('utf-8', 'replace'), 300)}.")
    return ended.returncode == 0


def find_fault(file: str, mode: Mode) -> str:
    """Reason why llama.cpp cannot load a file, or run it if `mode` reads weights; else ""."""
    from specchat.engine.llama_cpp.library import ERRORS, llama

    api = llama()
    params = api.llama_model_default_params()
    params.n_gpu_layers, params.no_alloc, params.use_extra_bufts = 0, True, False
    params.load_mode = api.LLAMA_LOAD_MODE_NONE
    model = api.llama_model_load_from_file(file.encode(), params)
    if not model:
        return _adapter(file) or ERRORS.reason() or "llama.cpp does not say why"
    options = api.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = CONTEXT_TOKENS
    options.n_threads = options.n_threads_batch = 1
    if not api.llama_init_from_model(model, options):
        return ERRORS.reason() or "llama.cpp makes no cache for it"
    return "" if mode == "unread" else _run(api, file, options, mode == "arranged")


def _run(api: Any, file: str, options: Any, repack: bool) -> str:
    """Reason why the model decodes no token, or ""."""
    from specchat.engine.llama_cpp.library import ERRORS

    params = api.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts = 0, repack
    model = api.llama_model_load_from_file(file.encode(), params)
    context = api.llama_init_from_model(model, options) if model else None
    if not context:
        return ERRORS.reason() or "llama.cpp does not say why"
    if api.llama_model_has_encoder(model):
        return ""  # loading refuses it with a reason
    for count in (BATCH_TOKENS, 1):  # one row and several use different kernels
        tokens = (api.llama_token * count)()
        if api.llama_decode(context, api.llama_batch_get_one(tokens, count)):
            return ERRORS.reason() or "no token goes through it"
    logits = api.llama_get_logits_ith(context, -1)
    scores = logits[: api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))]
    return "" if all(map(isfinite, scores)) else "what it computes are no numbers"


def _adapter(file: str) -> str:
    """Reason that names the kind of a file that is no model, such as a LoRA adapter; else ""."""
    from gguf import GGUFReader

    try:
        field = GGUFReader(file).get_field("general.type")
    except Exception:  # damaged files raise anything
        return ""
    kind = field.contents() if field is not None else "model"
    return "" if kind == "model" else f"it is no model by itself, but of the kind {one_line(str(kind), 40)}"


if __name__ == "__main__":
    try:
        refused = find_fault(sys.argv[1], cast(Mode, sys.argv[2]))
    except EngineError as error:
        refused = error.message.rstrip(".")
    print(refused, flush=True)
    # Exit at once: freeing a damaged model may crash.
    os._exit(REFUSED_EXIT_CODE if refused else 0)
