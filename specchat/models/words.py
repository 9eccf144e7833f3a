"""Sizes, progress and questions in words, the same on the command line and in the app."""

import re
from math import inf

from specchat.clean import one_line
from specchat.config.paths import user_paths
from specchat.engine.backends import DEFAULT_BACKEND, GGUF_BACKEND, HF_BACKEND, REMOTE_BACKEND
from specchat.engine.fetch.download import Progress
from specchat.engine.memory.plan import GIB
from specchat.engine.pictures.kinds import described
from specchat.engine.protocol.pair import Server
from specchat.engine.strategies import STRATEGIES
from specchat.figures import duration, of
from specchat.models import measured, sampling
from specchat.models.fit import PLACES
from specchat.models.offers import Offer
from specchat.models.pull import Order
from specchat.models.search import HubHit

RUNS = {DEFAULT_BACKEND: "", GGUF_BACKEND: "llama.cpp", HF_BACKEND: "transformers", REMOTE_BACKEND: "a server"}
"""Names of programs that run a pair, by its backend; empty for specchat's own decoder."""
GATED = "accept its terms on its page, and set HF_TOKEN"


def size(count: int) -> str:
    """Bytes as `340 kB`, `61 MB`, `4.4 GB` or `16 GB`."""
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if count >= unit * 0.9995:
            return f"{count / unit:.1f} {name}" if count < 9.95 * unit else f"{count / unit:.0f} {name}"
    return f"{count / 1e3:.0f} kB"


def weights(count: int) -> str:
    """`8.2 B`, `135 M` or `260 k`; empty for none."""
    if count < 1e6:
        return f"{count / 1e3:.0f} k" if count else ""
    return f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.0f} M"


def progress(now: Progress) -> str:
    """`1.2 GB of 4.4 GB · 35 MB/s · 1 min 32 s left`; without the last two while nothing comes."""
    words = f"{size(now.done)} of {size(now.total)}"
    if now.left_s is None or now.done >= now.total:
        return words
    return f"{words} · {size(int(now.rate))}/s · {duration(1e3 * now.left_s)} left"


def order(what: Order, lack: str = "") -> list[str]:
    """Size and place of a download, and what has to be known before, a sentence each.

    `lack` says what this installation needs to run it.
    """
    repos = " and ".join(part.listing.repo for part in what.parts)
    begun = f" ({size(what.size)} in all; the rest is here)" if what.missing < what.size else ""
    sentences = [
        f"{repos}: {size(what.missing)} to download{begun}.",
        f"{_files(what)}.",
        f"It goes to {what.hub.cache}, where {size(what.free)} are free.",
        f"Licence: {one_line(what.licences, 80)}.",
    ]
    for repo in what.gated:
        host = what.hub.host
        sentences.append(f"{repo} is gated: its terms must be accepted at {host}/{repo}, and HF_TOKEN be set.")
    if what.missing > what.free:
        sentences.append("There is not enough room for it.")
    if lack:
        sentences.append(f"Before it can be loaded, it {lack}.")
    return sentences


_NAMED = 3
"""Files of a download that are named, the largest ones."""


def _files(what: Order) -> str:
    """`7 files: model.safetensors 4.1 GB, tokenizer.json 11 MB, vocab.json 2.8 MB and 4 smaller`."""
    files = sorted((file for part in what.parts for file in part.files), key=lambda file: -file.size)
    names = ", ".join(f"{one_line(file.name, 60)} {size(file.size)}" for file in files[:_NAMED])
    rest = f" and {len(files) - _NAMED} smaller" if len(files) > _NAMED else ""
    return f"{of(len(files), 'file')}: {names}{rest}"


def amount(offer: Offer) -> str:
    """The size on the disk, or that of the download, left out where only the hub knows it."""
    if offer.missing:
        return f"download {size(offer.size)}" if offer.size else "download"
    return size(offer.size) if offer.size else ""


def fits(offer: Offer) -> str:
    """GPU or CPU with the memory it takes or what runs it, or what it needs in three words."""
    need, lacks, _ = offer.fit.words.replace("llama-cpp-python", "llama.cpp").partition(" for its ")
    if offer.fit.verdict == "no" and need.startswith("needs "):
        return need if lacks else re.split("[:,]", need)[0]
    by = RUNS[offer.fit.backend]
    if offer.fit.verdict not in PLACES:
        return offer.fit.verdict
    takes = f", {offer.fit.takes / GIB:.1f} GiB" if offer.fit.takes else ""
    return f"{offer.fit.verdict} by {by}" if by else f"{offer.fit.verdict}{takes}"


def speed(offer: Offer) -> str:
    """Estimated tokens a second without drafts, as `12/s`; empty where they are not known."""
    expected = offer.fit.speed
    return (
        "" if expected is None else f"{expected.plain:,.0f}/s" if expected.plain >= 9.5 else f"{expected.plain:.1f}/s"
    )


def drafting(offer: Offer) -> str:
    """Number of strategies that a pair will have, or `all`."""
    if offer.pair.spec.target.server is not None:
        return "the server's own"
    many = "all" if len(offer.strategies) == len(STRATEGIES) else str(len(offer.strategies))
    return many if offer.pair.spec.draft else f"{many}, no draft model"


def matches(offer: Offer, typed: str) -> bool:
    """True if name, id, models or licence of `offer` hold all the words that were `typed`, in any case."""
    sources = (source.label for source in offer.pair.spec.sources)
    text = " ".join((offer.pair.name, offer.pair.id, *offer.pair.aliases, *sources, offer.licence)).casefold()
    return all(word in text for word in typed.casefold().split())


def variant(offer: Offer) -> str:
    """`qwen3-8b-gguf, download 5.7 GB, CPU, 8.2 GiB`: one of the downloads of the same models."""
    return ", ".join(part for part in (offer.pair.id, amount(offer), fits(offer)) if part)


def about(offer: Offer) -> list[tuple[str, str]]:
    """Facts about an offer, as names and words."""
    pair, target = offer.pair, offer.target
    verdict = f"{offer.fit.verdict}{': ' if offer.fit.words else ''}{offer.fit.words}"
    if pair.spec.target.server is not None:
        return [(name, one_line(words, 400)) for name, words in _remote(offer, pair.spec.target.server, verdict)]
    by, why = RUNS[offer.fit.backend], target.foreign if target else ""
    runs = f"by {by}{f': {why}' if why else ''}" if by else "natively, by specchat's decoder"
    rows = [("name", pair.name), ("fits", verdict), ("runs", runs)]
    if offer.fit.speed is not None:
        drafted = offer.fit.speed.drafted
        rows.append(("speed", f"about {speed(offer)} plainly{f', {drafted:,.0f}/s with its draft' if drafted else ''}"))
    rows.append(("size", _where(offer)))
    rows += [("or", variant(other)) for other in offer.variants]
    if offer.hit is not None:
        rows += _of_hub(offer.hit)
    rows.append(("licence", offer.licence or "not known"))
    rows.append(("strategies", ", ".join(offer.strategies)))
    rows.append(("sampling", sampling.described(pair)))
    if len(offer.fit.forms) > 1:
        rows.append(("activations", _activations(offer)))
    if pictures := _pictures(offer):
        rows.append(("pictures", f"not read where {by} runs it" if by else pictures))
    if target is not None:
        shape = (target.architecture, weights(target.parameters), target.quant, target.format)
        rows.append(("type", ", ".join(part for part in shape if part)))
        rows.append(("context", _context(pair.spec.wanted_context, target.context)))
    rows += [("id", pair.id), ("target", pair.spec.target.label)]
    draft = pair.spec.draft.label if pair.spec.draft else "no draft model"
    rows.append(("draft", f"{draft}, {offer.cost}" if offer.cost else draft))
    for proposal in offer.drafts.proposals[:3]:
        where = "here" if proposal.about is not None else "to download"
        said = (proposal.name, weights(proposal.parameters), where, proposal.cost)
        rows.append(("could draft", ", ".join(part for part in said if part)))
    rows += [("cannot draft", reason.replace(" cannot draft: ", ": ", 1)) for reason in offer.drafts.refused[:3]]
    return [(name, one_line(words, 400)) for name, words in rows]


def _context(wanted: float, longest: int) -> str:
    """The tokens that a pair's cache holds, and those of the model; `longest` is 0 where the model does not say."""
    if not longest:
        return "not stated"
    if wanted == inf:
        return f"as many as fit of the {longest:,} tokens that the model holds"
    if wanted >= longest:
        return f"{longest:,} tokens"
    return f"{wanted:,.0f} tokens of the {longest:,} that the model holds"


def _activations(offer: Offer) -> str:
    """The form of the rows that matrices multiply, and what rounding them was measured to do to the model."""
    found = measured.known(user_paths().roundings, offer.pair.spec.target.label)
    chosen, prices = offer.fit.activations, list[str]()
    for form in offer.fit.forms[1:] if chosen == "float32" else (chosen,):
        prices.append(f"{form}: {found.get(form) or 'not measured here (specchat check --activations)'}")
    return "; ".join(["float32"] * (chosen == "float32") + prices)


def _of_hub(hit: HubHit) -> list[tuple[str, str]]:
    shape = (weights(hit.parameters), hit.format, hit.file or ("several files" if hit.format == "GGUF" else ""))
    rows = [("type", ", ".join(part for part in shape if part)), ("downloads", f"{hit.downloads:,} a month")]
    return [*rows, *([("gated", GATED)] if hit.gated else [])]


def _pictures(offer: Offer) -> str:
    """How specchat's decoder reads pictures with an offer; empty where it has no part for that."""
    if offer.target is not None:
        return offer.target.pictures
    hit = offer.hit
    if hit is not None and hit.tower:
        return f"{one_line(hit.tower, 60)} comes with it, to read them"
    return described((hit.settings or {}).get("model_type")) if hit is not None else ""


def _remote(offer: Offer, server: Server, verdict: str) -> list[tuple[str, str]]:
    return [
        ("name", offer.pair.name),
        ("fits", verdict),
        ("server", server.url),
        ("kind", "found out when it is loaded" if server.kind == "auto" else server.kind),
        ("model", server.model or "the server's first one"),
        ("key", _key(server)),
        ("pictures", "sent, unless the server says that its model reads none"),
        ("strategies", "the server drafts by itself, as it was started"),
        ("id", offer.pair.id),
    ]


def _key(server: Server) -> str:
    places = [f"the environment variable {server.key_env}"] if server.key_env else []
    return ", else ".join([*places, *([f"{server.keyring} in the keyring"] if server.keyring else [])]) or "none"


def _where(offer: Offer) -> str:
    if not offer.missing:
        return f"{size(offer.size)} on the disk"
    amount = size(offer.size) if offer.size else "the hub knows the size"
    return f"{' and '.join(source.label for source in offer.missing)} to download: {amount}"
