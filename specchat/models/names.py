"""One name, one pair: of a models.toml, used before, or found on this machine. A declared one comes first."""

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
    pair = _known(name, catalog, used) or pair_among(name, catalog, used, look(places))
    return with_published_sampling(pair, places.hub)


def pair_among(name: str, catalog: Catalog, used: UsedPairs | None, library: Library) -> Pair:
    """The same of models that were looked for already, without the makers' sampling.

    Raises:
        ConfigError: as `pair_named`.
    """
    if (pair := _known(name, catalog, used)) is not None:
        return pair
    if (found := found_model(name, library)) is not None:
        return catalog.with_models_of(found[1]) or found[1]
    if used is not None and (before := used.find(name)) is not None:
        raise ConfigError(gone(before))
    if (problem := library.unread.get(name)) is not None:
        raise ConfigError(problem)
    if name == LOCAL or name.startswith(f"{LOCAL}-"):
        raise ConfigError(f"{name} was named by --target. Name it so again, once.")
    known = [word for pair in catalog.pairs for word in (pair.id, *pair.aliases)]
    raise UnknownPair(name, known + [word for pair in found_pairs(library).values() for word in (pair.id, pair.name)])


def found_model(name: str, library: Library) -> tuple[FoundModel, Pair] | None:
    """The model that was found under this name or id, also as a pair; None for none."""
    pairs = found_pairs(library)
    named = ((found, pairs[found.about.place]) for found in library.models)
    return next(((found, pair) for found, pair in named if name in (pair.id, pair.name)), None)


def _known(name: str, catalog: Catalog, used: UsedPairs | None) -> Pair | None:
    if (declared := catalog.declared(name)) is not None:
        return declared
    before = used.find(name) if used is not None else None
    return None if before is None or gone(before) else catalog.with_models_of(before) or before
