"""A pair for the user's models.toml, from a target and a draft: looked at, named and written."""

import os
from pathlib import Path

from specchat.config.catalog import Catalog, table_of
from specchat.config.errors import ConfigError
from specchat.engine.fetch.listing import PART
from specchat.engine.fetch.source import Hub
from specchat.engine.protocol.pair import ModelSource
from specchat.models.check import checked_pair
from specchat.models.declare import DeclaredPair, Named, add_pair, free_id
from specchat.models.machine import FreeMemory


def add(
    hub: Hub, file: Path, taken: Catalog, target: Named, draft: Named | None, machine: FreeMemory, id_: str = ""
) -> DeclaredPair:
    """Write the pair to `file`. Without `id_` one is made up that none of `taken` has.

    Raises:
        EngineError: as `check.checked_pair`.
        ConfigError: as `declare.add_pair`, or one of `taken` has the same models and no `id_` is given.
    """
    title = _title(*target)
    name = title + (f" + {_title(*draft)}" if draft else "")
    pair, cost = checked_pair(hub, target[0], draft[0] if draft else None, name, machine)
    same = next((p.id for p in taken.pairs if p.spec.sources == pair.spec.sources), "")
    if same and not id_:
        raise ConfigError(f"Pair {same} has these models already. For a second one with them choose its name: --id ID.")
    table = table_of(pair, id_ or free_id(title, taken))
    return DeclaredPair(table, file, add_pair(file, table), cost)


def _title(source: ModelSource, named: str) -> str:
    """A model's name for people: of its folder or file, or as it was `named` where that is neither."""
    label = source.label if source.repo or os.path.exists(Path(named).expanduser()) else named
    name = Path(label).name
    return Path(PART.sub(r"\1.gguf", name)).stem if name.endswith(".gguf") else name
