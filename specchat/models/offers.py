"""All pairs there are and could be, with what a user wants to know before choosing: size, fit, strategies, licence."""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from specchat.config.catalog import Catalog, Pair
from specchat.engine.backends import DEFAULT_BACKEND, GGUF_BACKEND, HF_BACKEND, declared
from specchat.engine.errors import ModelError
from specchat.engine.protocol.pair import ModelSource, PairSpec, is_gguf
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import Feature, Head
from specchat.models.about import About, about_folder, about_gguf
from specchat.models.drafts import DraftProposals, Proposal, cost, drafts_for, source_of
from specchat.models.fit import Fit, fit
from specchat.models.heads import look
from specchat.models.library import FoundModel, Library
from specchat.models.machine import FreeMemory
from specchat.models.sampling import with_sampling_of
from specchat.models.search import HubHit
from specchat.models.speed import FLUENT

_ORDER = {"GPU": 0, "CPU": 0, "server": 0, "?": 1, "no": 2}
_BEST = {"GPU": 0, "CPU": 1, "server": 1, "?": 2, "no": 3}
"""Order of the variants of one model."""


@dataclass(frozen=True)
class Offer:
    """A pair to choose. `missing` are its models that have to be fetched, `size` bytes on the disk or to be fetched.

    `declared` marks pairs of models.toml; others were only found. A size that is not known is 0. `cost` says
    what the draft is worse at than one with the target's tokens.
    """

    pair: Pair
    declared: bool
    missing: tuple[ModelSource, ...]
    size: int
    fit: Fit
    strategies: tuple[str, ...]
    licence: str
    target: About | None
    draft: About | None
    drafts: DraftProposals
    problem: str = ""
    cost: str = ""
    variants: "tuple[Offer, ...]" = ()
    """Other downloads of the same models, in other formats."""
    hit: HubHit | None = None
    """The repository that the hub found."""


def offers(catalog: Catalog, library: Library, machine: FreeMemory, in_use: Pair | None = None) -> tuple[Offer, ...]:
    """Offers on this disk first, of these the fitting ones: the catalog's in its order, then models that were found.

    Of the found ones those that suit this machine best come first. Between them and the catalog's comes `in_use` where
    it is none of these: a found model with a draft, or a folder that was named.
    """
    declared = [_offer(pair, True, library, machine) for pair in catalog.pairs]
    whole = [offer for offer in declared if not offer.missing]
    used = {about.place.resolve() for offer in whole for about in (offer.target, offer.draft) if about}
    found = [f for f in library.models if f.about.place.resolve() not in used]
    named = found_pairs(library)
    others = sorted((_offer(named[f.about.place], False, library, machine) for f in found), key=_suits)
    if in_use is not None and in_use.id not in {offer.pair.id for offer in (*declared, *others)}:
        others.insert(0, offer_of(in_use, library, machine))
    return tuple(sorted([*declared, *others], key=lambda o: (bool(o.missing), _ORDER[o.fit.verdict])))


def _suits(offer: Offer) -> tuple[bool, bool, bool, float]:
    """A key to sort models on this machine by: on the GPU, by specchat's decoder, at reading speed, large first.

    Slower ones follow by their speed.
    """
    speed = offer.fit.speed
    slow = speed is not None and speed.plain < FLUENT
    size = -speed.plain if slow and speed is not None else -float(offer.size)
    return offer.fit.verdict != "GPU", offer.fit.backend != DEFAULT_BACKEND, slow, size


def grouped(listed: Sequence[Offer]) -> tuple[Offer, ...]:
    """`listed` with one row for all downloads of the same models: the smallest that fits, with the others."""
    groups: dict[str, list[Offer]] = {}
    for offer in listed:
        if offer.missing:
            groups.setdefault(offer.pair.variant_of or offer.pair.id, []).append(offer)
    first = {id_: min(group, key=lambda o: (_BEST[o.fit.verdict], o.size)) for id_, group in groups.items()}
    rows = []
    for offer in listed:
        group = groups.get(offer.pair.variant_of or offer.pair.id, []) if offer.missing else []
        if not group:
            rows.append(offer)
        elif offer is group[0]:
            rows.append(with_variants(first[offer.pair.variant_of or offer.pair.id], group))
    return tuple(rows)


def with_variants(chosen: Offer, group: Sequence[Offer]) -> Offer:
    """The `chosen` one of a `group`, with the others as its variants."""
    return replace(chosen, variants=tuple(other for other in group if other.pair.id != chosen.pair.id))


def offer_of(pair: Pair, library: Library, machine: FreeMemory) -> Offer:
    """One pair as an offer."""
    return _offer(pair, pair.declared, library, machine)


def variants_of(pair: Pair, catalog: Catalog, library: Library, machine: FreeMemory) -> tuple[Offer, ...]:
    """The other pairs of `catalog` with the same models in other formats."""
    group = pair.variant_of or pair.id
    others = (p for p in catalog.pairs if group in (p.id, p.variant_of) and p.id != pair.id)
    return tuple(offer_of(other, library, machine) for other in others)


def offer_at(path: Path, library: Library, machine: FreeMemory) -> Offer:
    """The model in the folder or GGUF file `path`, wherever it lies.

    Raises:
        ModelError: there is none, or it is damaged.
        OSError: it cannot be read.
    """
    path = path.expanduser().absolute()
    about = about_gguf(path, path.name) if is_gguf(path.name) else about_folder(path, path.name)
    return _offer(found_pair(FoundModel(about, "")), False, library, machine)


def found_pair(found: FoundModel) -> Pair:
    """A model that was found, as a pair without a draft."""
    about = found.about
    other = GGUF_BACKEND if about.format == "GGUF" else HF_BACKEND
    backend = other if about.foreign else DEFAULT_BACKEND
    spec = PairSpec(pair_id(about.name), about.name, source_of(found), backend=backend)
    return Pair(spec, licence=about.licence, unsupported=about.why_not)


def pair_id(name: str) -> str:
    """An id made of the name of a model."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-_") or "model"


def found_pairs(library: Library) -> dict[Path, Pair]:
    """All models that were found, as pairs by their places; where several have one id, each has one by its place."""
    pairs = {found.about.place: found_pair(found) for found in library.models}
    taken = Counter(pair.id for pair in pairs.values())
    return {
        place: pair if taken[pair.id] == 1 else replace(pair, spec=replace(pair.spec, id=f"{pair.id}-{_digest(place)}"))
        for place, pair in pairs.items()
    }


def _digest(path: Path) -> str:
    return sha256(os.fsencode(path)).hexdigest()[:8]


def _offer(pair: Pair, declared: bool, library: Library, machine: FreeMemory) -> Offer:
    sources = [pair.spec.target, *([pair.spec.draft] if pair.spec.draft else [])]
    problem, abouts = "", []
    for source in sources:
        try:
            abouts.append(_about(source, library))
        except ModelError as error:
            abouts.append(None)
            problem = error.message
        except OSError as error:
            abouts.append(None)
            problem = f"{source.label} cannot be read ({error.strerror})."
    target, draft = abouts[0], abouts[1] if len(abouts) > 1 else None
    heads = look(pair.spec, target, lambda source: _about(source, library))
    missing = tuple(s for s, about in zip(sources, abouts, strict=True) if about is None and s.repo is not None)
    missing += heads.missing
    here = sum(about.size for about in abouts if about) + heads.size
    stated = int((pair.requires.disk_gib or 0) * (1 << 30))
    verdict = Fit("no", problem) if problem and not pair.unsupported else fit(pair, target, draft, machine, heads)
    pair = with_sampling_of(pair, target.place) if target is not None else pair
    worse = _cost(target, draft)
    drafting = {*pair.spec.heads, *heads.here} - verdict.without
    drafts = drafts_for(target, library) if target and draft is None and not pair.spec.draft else DraftProposals((), ())
    return Offer(
        pair=pair,
        declared=declared,
        missing=missing,
        size=max(stated - here, 0) if missing else here,
        fit=verdict,
        strategies=strategies(pair, target, verdict.backend, translated=bool(worse), heads=drafting),
        licence=pair.licence or (target.licence if target else ""),
        target=target,
        draft=draft,
        drafts=drafts,
        problem=problem,
        cost=worse,
    )


def _cost(target: About | None, draft: About | None) -> str:
    if target is None or draft is None:
        return ""
    with suppress(ModelError):  # loading reports it
        return cost(target, draft)
    return ""


def strategies(
    pair: Pair, target: About | None, backend: str, translated: bool = False, heads: Collection[Head] = ()
) -> tuple[str, ...]:
    """The strategies that a pair will have, run by `backend`; `translated` where its draft's tokens are others.

    `heads` are those that will draft for it.
    """
    facts = declared(pair.spec.draft is not None, heads, backend)
    reasons: dict[Feature, str] = {"draft trees": "the draft's tokens differ"} if translated else {}
    layers = target.layers if target is not None and target.layers else None
    reasons |= facts.unsupported
    facts = replace(facts, unsupported=reasons, heads=dict.fromkeys(heads, ""), layers=layers)
    return tuple(name for name, one in STRATEGIES.items() if not one.unsupported(facts))


def with_draft(pair: Pair, draft: Proposal) -> Pair:
    """`pair` with a draft model, under a name of its own."""
    title = draft.name.rpartition("/")[2]
    spec = replace(pair.spec, id=f"{pair.id}+{pair_id(title)}", name=f"{pair.name} + {title}", draft=draft.source)
    return replace(pair, spec=spec, declared=False)


def _about(source: ModelSource, library: Library) -> About | None:
    """Facts about a model; None where it is not here yet, or runs on a server.

    Raises:
        ModelError: a folder that is named is not there, or is damaged.
    """
    if source.server is not None:
        return None
    if source.repo is not None:
        return next(_of_repo(source, library), None)
    path = Path(source.path or "").expanduser()
    return about_gguf(path) if source.is_gguf else about_folder(path, path.name)


def _of_repo(source: ModelSource, library: Library) -> Iterator[About]:
    for found in library.models:
        about = found.about
        if found.repo == source.repo and (
            about.place.name == source.file if source.file else about.format == "safetensors"
        ):
            yield about
