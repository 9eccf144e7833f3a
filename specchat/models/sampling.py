"""Sampling that a model's makers recommend: generation_config.json, GGUF metadata, Ollama's parameters."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from specchat.config.catalog import Pair, SamplingSource
from specchat.engine.errors import ModelError
from specchat.engine.fetch.cached import cached
from specchat.engine.fetch.source import Hub
from specchat.engine.files import found, read_json
from specchat.engine.gguf.header import read_header
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import ModelSource
from specchat.engine.protocol.ranges import SAMPLING
from specchat.models.ollama import parameters

FILE = "generation_config.json"
_GGUF_NAMES = {"temperature": "temp", "repetition_penalty": "penalty_repeat"}
"""Names of options in `general.sampling.*` that differ from ours; the value is llama.cpp's."""
_HYPHENED = ("top_k", "top_p", "min_p")
_OLLAMA_NAMES = {"repetition_penalty": "repeat_penalty"}


def with_published_sampling(pair: Pair, hub: Hub) -> Pair:
    """`pair` sampling as the makers of its target say, unless that is known or the pair says it itself."""
    place = None if pair.sampling_source.name or pair.sampling_source.file else _place(pair.spec.target, hub)
    return pair if place is None else with_sampling_of(pair, place)


def with_sampling_of(pair: Pair, path: Path) -> Pair:
    """The same where the target is the folder or GGUF file `path`."""
    if pair.sampling_source.name:
        return pair
    file = path / FILE if path.is_dir() else path
    try:
        known = _published(file)
    except (ModelError, OSError):  # loading reports a damaged file
        return pair
    sampling, source = known or (pair.sampling, "")
    return replace(pair, sampling=sampling, sampling_source=SamplingSource(source, str(file)))


def described(pair: Pair) -> str:
    """`temperature 0.6, top-p 0.95 (generation_config.json)`."""
    return f"{_words(pair.sampling)} ({pair.sampling_source.name or 'nothing says how to sample'})"


def _words(sampling: Sampling) -> str:
    if sampling.greedy:
        return "the likeliest token each time"
    usual = Sampling()
    options = {name: getattr(sampling, name) for name in SAMPLING if getattr(sampling, name) != getattr(usual, name)}
    return ", ".join(
        f"{name.replace('_', '-' if name in _HYPHENED else ' ')} {value:g}" for name, value in options.items()
    )


def _place(source: ModelSource, hub: Hub) -> Path | None:
    """The folder or GGUF file of a model; None for one that is not here."""
    if source.repo is None:
        return Path(source.path).expanduser() if source.path else None
    folder = cached(hub, source.repo, source.revision, source.file)
    return folder / source.file if folder is not None and source.file is not None else folder


def _published(file: Path) -> tuple[Sampling, str] | None:
    """The makers' sampling and the name of its source; None where they say nothing.

    Raises:
        ModelError: the file is damaged.
        OSError: it cannot be read.
    """
    if not found(file):
        return None
    if file.name == FILE:
        return (made, FILE) if (made := _of_config(read_json(file))) else None
    if made := _sampling(parameters(file), _OLLAMA_NAMES):
        return made, "Ollama's parameters"
    prefix = "general.sampling."
    values = read_header(file).values
    given = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    return (made, "the file's metadata") if (made := _sampling(given, _GGUF_NAMES)) else None


def _of_config(raw: Mapping[str, Any]) -> Sampling | None:
    """A generation_config.json's sampling: without `do_sample` its options count, as other engines take it."""
    if raw.get("do_sample") is False:
        return Sampling()
    return _sampling(raw, {}) or (Sampling(temperature=1.0) if raw.get("do_sample") is True else None)


def _sampling(raw: Mapping[str, Any], names: Mapping[str, str]) -> Sampling | None:
    """The options in `raw` that are in range, at temperature 1 where none is given; None without any."""
    known: dict[str, Any] = {}
    for option, span in SAMPLING.items():
        value = raw.get(names.get(option, option))
        if isinstance(value, int | float) and not isinstance(value, bool) and value in span:
            number = round(float(value), 6)  # GGUF has float32
            known[option] = int(number) if span.whole else number
    return Sampling(**{"temperature": 1.0, **known}) if known else None
