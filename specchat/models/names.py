"""One name, one pair: of a models.toml, used before, or found on this machine."""

from specchat.config.catalog import LOCAL, Catalog, Pair
from specchat.config.errors import ConfigError, UnknownPair
from specchat.config.used_pairs import UsedPairs, gone
from specchat.models.library import FoundModel, Library, ModelPlaces, look
from specchat.models.offers import found_pairs
from specchat.models.sampling import with_published_sampling


def pair_named(name: str, catalog: Catalog, used: UsedPairs | None, places: ModelPlaces) -> Pair:
    """The pair that a user, a file or a chat calls `name`, sampling as it or its makers say. May read the disk.

    Raises:
        ConfigError: there is none, or its files are gone.
    """
    pair = catalog.declared(name)
    if pair is None:
        before = used.find(name) if used is not None else None
        missing = gone(before) if before is not None else ""
        pair = before if before is not None and not missing else _found(name, catalog, look(places), missing)
    return with_published_sampling(pair, places.hub)


def found_model(name: str, library: Library) -> tuple[FoundModel, Pair] | None:
    """The model that was found under this name or id, also as a pair; None for none."""
    pairs = found_pairs(library)
    named = ((found, pairs[found.about.place]) for found in library.models)
    return next(((found, pair) for found, pair in named if name in (pair.id, pair.name)), None)


def _found(name: str, catalog: Catalog, library: Library, missing: str) -> Pair:
    """The model that was found under this name; `missing` says why the one that was used before is not there."""
    if (found := found_model(name, library)) is not None:
        return found[1]
    if missing:
        raise ConfigError(missing)
    if name == LOCAL or name.startswith(f"{LOCAL}-"):
        raise ConfigError(f"{name} was named by --target. Name it so again, once.")
    known = [word for pair in (*catalog.pairs, *found_pairs(library).values()) for word in (pair.id, *pair.aliases)]
    raise UnknownPair(name, known)
