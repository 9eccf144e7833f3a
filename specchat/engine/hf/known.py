"""The models that the installed transformers runs, read from its lists: importing it takes seconds, and torch."""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specchat.clean import one_line
from specchat.engine.weights.written import quantisation_of

_TEXT_LISTS = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES")
"""Lists of the classes that a checkpoint is loaded with, see `files.HfFiles`."""
_QUANTISERS, _METHODS = "quantizers/auto.py", "AUTO_QUANTIZATION_CONFIG_MAPPING"
_CLASSES, _TYPES = "modeling_auto.py", ("configuration_auto.py", "auto_mappings.py")


@dataclass(frozen=True)
class KnownModels:
    """Names in transformers' lists: model types and classes, all and those that write text; methods of quantisation."""

    types: Collection[str]
    text_types: Collection[str]
    classes: Collection[str]
    text_classes: Collection[str]
    quantisations: Collection[str]


def unsupported(settings: Mapping[str, Any]) -> str:
    """The reason why transformers cannot run a checkpoint with these settings; empty where it may.

    Programs of the checkpoint's own may run whatever it is.
    """
    known = known_models()
    if known is None or "auto_map" in settings:
        return ""
    if method := unknown_quantisation(settings, known.quantisations):
        return method
    kind, classes = settings.get("model_type"), settings.get("architectures")
    if not isinstance(kind, str) or kind not in known.types:
        return unknown_type(kind)
    if kind not in known.text_types:
        return f"model_type {_shown(kind)} is none that writes text"
    named = [name for name in classes if isinstance(name, str)] if isinstance(classes, list) else []
    if named and all(name in known.classes and name not in known.text_classes for name in named):
        return f"{one_line(named[0], 60)} is no model that writes text"
    return ""


def unknown_quantisation(settings: Mapping[str, Any], known: Collection[str]) -> str:
    """The words for a quantisation by none of the `known` methods, which transformers would pass over; else empty."""
    message = quantisation_of(settings)
    message = message if isinstance(message, dict) else {"quant_method": message}
    method = message.get("quant_method")
    if method in (None, "bitsandbytes") or method in known:
        return ""
    named = one_line(" ".join(str(name) for name in (method, message.get("quant_algo")) if name), 40)
    return (
        f"it is quantised with {named}, which neither specchat's decoder nor transformers {version('transformers')} "
        "reads. Take the unquantised checkpoint, or a GGUF file of the model, which llama.cpp runs"
    )


def unknown_type(kind: object) -> str:
    """The words for a model type that transformers does not have."""
    if kind is None:
        return "it has no model_type, which tells what runs the model. Download the checkpoint again"
    return (
        f"transformers {version('transformers')} does not know model_type {_shown(kind)}. A newer one may; or take a "
        "GGUF file of the model, which llama.cpp runs"
    )


@lru_cache(maxsize=1)
def known_models() -> KnownModels | None:
    """The lists of the installed transformers; None where they are not as expected."""
    try:
        version("transformers")
        spec = find_spec("transformers")
        places = (spec.submodule_search_locations if spec else None) or []
        folder = Path(places[0]) / "models" / "auto"
        lists, methods = _lists(folder / _CLASSES), _lists(Path(places[0]) / _QUANTISERS).get(_METHODS, {})
        named = [lists, *(_lists(folder / file) for file in _TYPES)]
        types = {kind for each in named for pairs in each.values() for kind in pairs}
    except (OSError, IndexError, SyntaxError, ValueError, PackageNotFoundError):
        return None
    text = [lists.get(name, {}) for name in _TEXT_LISTS]
    if not types or not all(text) or not methods:
        return None
    classes = [name for pairs in lists.values() for names in pairs.values() for name in names]
    text_classes = [name for pairs in text for names in pairs.values() for name in names]
    text_types = [kind for pairs in text for kind in pairs]
    names = map(frozenset[str], (types, text_types, classes, text_classes, methods))
    return KnownModels(*names)


def _lists(file: Path) -> dict[str, dict[str, list[str]]]:
    """The lists in a file by their names: of each model type the classes.

    Raises:
        OSError: it cannot be read.
        ValueError, SyntaxError: it is no Python.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            entries = found.setdefault(statement.targets[0].id, {})
            for node in ast.walk(statement.value):
                match node:
                    case ast.Tuple(elts=[ast.Constant(value=str(kind)), classes]):
                        entries[kind] = list(_texts(ast.walk(classes)))
                    case ast.Dict(keys=keys):
                        entries |= {key: [] for key in _texts(keys)}
    return found


def _texts(nodes: Iterable[ast.AST | None]) -> Iterator[str]:
    """The texts among constants."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _shown(kind: object) -> str:
    return one_line(repr(kind), 60)
