"""Other programs, measured with the same weights: a file each, imported when it is asked for."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from specchat.engine.errors import EngineError
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.strategies import STRATEGIES, in_group

if TYPE_CHECKING:
    from specchat.bench.contender import Contender
    from specchat.engine.session import Session

PEERS = {
    "transformers": ("specchat.bench.peers.transformers", "transformers"),
    "llama.cpp": ("specchat.bench.peers.llama_cpp", "llama-cpp-python"),
}
"""The module that runs each other program, and the package it needs."""


def theirs(module: ModuleType, session: "Session", pair: PairSpec, sampling: Sampling) -> "list[Contender]":
    """The ways of another program to write, with the weights of `pair`, which is loaded once more."""
    from specchat.bench.contender import Material
    from specchat.engine.fetch.hub import locate, locate_file

    def found(source: ModelSource) -> Path:
        find = locate_file if source.is_gguf else locate
        return find(source, lambda _: None)

    if pair.target.is_gguf and module.__name__ != PEERS["llama.cpp"][0]:
        raise ValueError("it does not run GGUF files here")
    material = Material(
        target=found(pair.target),
        draft=found(pair.draft) if pair.draft else None,
        target_quant=None if pair.target.quant == "none" else pair.target.quant,
        draft_quant=pair.draft.quant if pair.draft and pair.draft.quant != "none" else None,
        on_gpu=session.runner.place == "cuda",
        eos=session.eos,
        sampling=sampling,
        context=session.info.context,
        lookup_length=STRATEGIES[next(in_group("copied"))].draft_length,
    )
    return list(module.contenders(material))


def reason(error: Exception) -> str:
    """An error of another program in a line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def peer(name: str) -> ModuleType:
    """The module that calls another program, by its key in PEERS.

    Raises:
        EngineError: the program is not installed.
    """
    module, package = PEERS[name]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise EngineError("request", f"--against {name} needs {package} ({error}). Install it first.") from None
