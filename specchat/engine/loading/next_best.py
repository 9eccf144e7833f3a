"""Fallback of a pair whose GPU the kernels do not support: transformers on that GPU, else the CPU."""

import logging
from collections.abc import Callable
from dataclasses import replace

import torch

from specchat.engine.backends import HF_BACKEND
from specchat.engine.errors import EngineError
from specchat.engine.gpu_checks import card
from specchat.engine.hardware.accelerator import find_accelerator
from specchat.engine.hardware.gpu_failure import UNTIL, GpuLost, first_line, is_gpu_failure, without_gpu
from specchat.engine.hardware.gpu_record import GpuRecord
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.session import Session


class KernelsUnsupported(Exception):
    """The kernels do not support the GPU; `reason` is a clause, `advice` a sentence on a fault, else empty."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


def instead(pair: PairSpec, unsupported: KernelsUnsupported, loaded: Callable[[PairSpec], Session]) -> Session:
    """Load `pair` with a fallback; `loaded` loads a pair by its backend.

    Raises:
        EngineError: the pair asks for the GPU, and transformers fails there too; or it fits nowhere.
        GpuLost: the GPU failed, and this process cannot use it any more.
    """
    of_gguf = pair.target.is_gguf or (pair.draft is not None and pair.draft.is_gguf)
    reason, failed = unsupported.reason, "it reads no GGUF files" if of_gguf else _failed_before(pair)
    advice = UNTIL if failed and not of_gguf else unsupported.advice
    if not failed:
        found = find_accelerator()
        if isinstance(found, str):
            failed = found
        else:
            used = [card.record()] if found.kind == "cuda" else []
            GpuRecord.use(*used, way="transformers", pair=pair.id)
            try:
                session = loaded(replace(pair, backend=HF_BACKEND, target=replace(pair.target, device="cuda")))
            except Exception as error:
                if is_gpu_failure(error):
                    raise GpuLost(pair, first_line(error)) from None
                logging.getLogger(__name__).info("transformers cannot run the pair on the GPU", exc_info=True)
                failed = error.message if isinstance(error, EngineError) else first_line(error)
            else:
                return _warned(session, f"{reason}, so transformers runs {pair.id} on {found.name}.", advice)
    failed = failed.rstrip(".")
    if (asked := pair.target.device) in ("cuda", "both-gpus"):
        raise EngineError(
            "config",
            f'{pair.target.label} asks for device = "{asked}": {reason}, and transformers cannot run it there '
            f'({failed}). Say device = "auto" or "cpu".',
        )
    GpuRecord.use()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    session = loaded(without_gpu(pair))
    words = f"{reason}, and transformers cannot run {pair.id} there ({failed}), so it runs on the CPU."
    return _warned(session, words, advice)


def _failed_before(pair: PairSpec) -> str:
    """Earlier failure of transformers on this GPU, in words; "" where there was none."""
    if not torch.cuda.is_available():
        return ""
    return card.record().wrong("transformers", pair.id) or ""


def _warned(session: Session, words: str, advice: str) -> Session:
    session.warn(words[0].upper() + words[1:], advice)
    return session
