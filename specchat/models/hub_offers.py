"""Repositories that the hub found, as offers beside those of models.toml and of this machine."""

from specchat.config.catalog import Pair, Requires
from specchat.engine.backends import DEFAULT_BACKEND, GGUF_BACKEND, HF_BACKEND
from specchat.engine.families import also_seeing, known
from specchat.engine.gguf.config import ARCHITECTURES
from specchat.engine.hf.known import unsupported
from specchat.engine.memory.plan import GIB
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.models.drafts import DraftProposals
from specchat.models.fit import Fit, fit
from specchat.models.library import Library
from specchat.models.machine import FreeMemory
from specchat.models.offers import Offer, pair_id, strategies
from specchat.models.search import HubHit


def hub_offer(hit: HubHit, machine: FreeMemory) -> Offer:
    """`hit` as the pair that it will be once it is downloaded, under the name that it will have then.

    The fit is by the size of its files, where that is known; settings that tell what runs it are the hub's extract.
    """
    name = f"{hit.repo} {hit.file}" if hit.file else hit.repo
    source = ModelSource(repo=hit.repo, file=hit.file or None)
    backend, why_not = _runner(hit)
    spec = PairSpec(pair_id(name), name, source, backend=backend)
    needs = Requires(disk_gib=hit.size / GIB) if hit.size else Requires()
    pair = Pair(spec, requires=needs, licence=hit.licence, unsupported=hit.problem or why_not)
    found = Fit("no", pair.unsupported, backend=backend) if pair.unsupported else fit(pair, None, None, machine)
    return Offer(
        pair=pair,
        declared=False,
        missing=(source,),
        size=hit.size,
        fit=found,
        strategies=strategies(pair, None, backend),
        licence=hit.licence,
        target=None,
        draft=None,
        drafts=DraftProposals((), ()),
        problem=hit.problem,
        hit=hit,
    )


def unheld(hits: tuple[Offer, ...], library: Library) -> tuple[Offer, ...]:
    """The `hits` that are not on this machine."""
    here = {(found.repo, found.about.place.name if found.about.format == "GGUF" else "") for found in library.models}
    return tuple(offer for offer in hits if offer.hit and (offer.hit.repo, offer.hit.file) not in here)


def _runner(hit: HubHit) -> tuple[str, str]:
    """The backend that runs a repository, and why none does; specchat's decoder where nothing tells."""
    settings = hit.settings or {}
    kind = settings.get("model_type")
    if not isinstance(kind, str):
        return DEFAULT_BACKEND, ""
    if hit.format == "GGUF":
        return (DEFAULT_BACKEND if kind in ARCHITECTURES else GGUF_BACKEND), ""
    if kind in known() or kind in also_seeing():
        return DEFAULT_BACKEND, ""
    return HF_BACKEND, unsupported(settings)
