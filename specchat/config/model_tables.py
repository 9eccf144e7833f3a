"""Models and servers as models.toml names them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specchat.config.paths import demo_model
from specchat.engine.protocol.pair import GgufOptions, ModelSource, Server


def server_of(table: Mapping[str, Any], folder: Path) -> Server:
    """The server of a `[[pair]]` in a file of `folder`."""
    given = {key: table[key] for key in ("url", "kind", "model", "key_env", "keyring") if table.get(key)}
    return Server(**given, tokenizer=placed(table["tokenizer"], folder) if "tokenizer" in table else "")


def model_source(table: Mapping[str, Any], folder: Path) -> ModelSource:
    """The place of a model, by its table in a file of `folder`."""
    places = dict(table)
    builtin, path = places.pop("builtin", None), places.pop("path", None)
    if builtin is not None:
        path = str(demo_model(builtin))
    elif path is not None:
        path = placed(path, folder)
    options = {key: places.pop(key) for key in ("gpu_layers", "threads", "cache", "flash_attention") if key in places}
    return ModelSource(path, gguf=GgufOptions(**options), **places)


def placed(path: str, folder: Path) -> str:
    """A path of models.toml, which may be relative to the file's `folder`."""
    return str(folder.absolute() / os.path.expanduser(path))
