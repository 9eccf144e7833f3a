"""presets.toml: sampling under a name."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specchat.config.errors import ConfigError
from specchat.config.files import read_tables
from specchat.dataclass import dataclass
from specchat.engine.protocol.options import Sampling

OWN = "own"
"""The name of a sampling that is no preset's."""

_WORDS = {
    "temperature": "temperature",
    "top_k": "top-k",
    "top_p": "top-p",
    "min_p": "min-p",
    "repetition_penalty": "repetition",
    "presence_penalty": "presence",
    "frequency_penalty": "frequency",
}


@dataclass(frozen=True)
class Preset:
    """Sampling settings; one that the file leaves out is off."""

    name: str
    sampling: Sampling


def load_presets(files: Sequence[Path]) -> tuple[list[Preset], list[str]]:
    """The presets in `files`, a later one of the same name in place of the earlier, and what is wrong with the rest.

    A file that does not exist holds none.
    """
    presets: dict[str, Preset] = {}
    problems: list[str] = []
    for path in files:
        try:
            tables = read_tables(path, "presets", optional=True).get("preset", ())
        except ConfigError as error:
            problems.append(error.message)
        else:
            for table in tables:
                name = table.pop("name")
                presets[name] = Preset(name, Sampling(**table))
    return list(presets.values()), problems


def preset_name(sampling: Sampling, presets: Sequence[Preset]) -> str:
    """The preset that samples like this."""
    return next((preset.name for preset in presets if apply(preset, sampling) == sampling), OWN)


def preset_words(preset: Preset) -> str:
    """`temperature 0.4, top-p 0.9`: what differs from sampling as it is without any option."""
    plain = Sampling()
    values = {
        words: getattr(preset.sampling, key)
        for key, words in _WORDS.items()
        if key == "temperature" or getattr(preset.sampling, key) != getattr(plain, key)
    }
    return ", ".join(f"{words} {value:g}" for words, value in values.items())


def apply(preset: Preset, sampling: Sampling) -> Sampling:
    """The preset's sampling; seed and biases stay."""
    return replace(preset.sampling, seed=sampling.seed, logit_bias=sampling.logit_bias)
