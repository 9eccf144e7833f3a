"""Check from their settings alone that a target and a draft run and fit together, and add the pair."""

import os
from dataclasses import replace
from pathlib import Path

from specchat.config.catalog import Catalog, Pair, table_of
from specchat.config.errors import ConfigError
from specchat.engine.backends import DEFAULT_BACKEND, GGUF_BACKEND, HF_BACKEND
from specchat.engine.errors import ForeignModel, ModelError
from specchat.engine.fetch.cached import cached
from specchat.engine.fetch.download import Download
from specchat.engine.fetch.hub import model_folder
from specchat.engine.fetch.listing import PART, Listing, look_up, needed
from specchat.engine.fetch.source import Hub
from specchat.engine.files import read_json
from specchat.engine.foreign import checked
from specchat.engine.hf.known import unsupported
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.text.tokenizer import Tokenizer, same_tokens
from specchat.engine.weights.config import parse_config
from specchat.engine.weights.written import StoredWeights
from specchat.models.about import About, about_folder, about_gguf
from specchat.models.declare import DeclaredPair, Named, add_pair, free_id
from specchat.models.drafts import OTHER_TOKENS, cost, too_large
from specchat.models.fit import fit
from specchat.models.machine import FreeMemory


def checked_pair(
    hub: Hub, target: ModelSource, draft: ModelSource | None, name: str, machine: FreeMemory
) -> tuple[Pair, str]:
    """The pair of these models, quantised where it fits well no other way, and what its draft costs, in words.

    See `which.chosen` for GGUF files. Of a repository of safetensors that is not here the settings and the tokenizer
    are fetched, some MB.

    Raises:
        ModelError: a damaged file.
        EngineError: "download": a repository cannot be reached.
    """
    if target.is_gguf or (draft is not None and draft.is_gguf):
        return _gguf_pair(hub, target, draft, name)
    folders = [_settings(hub, source) for source in (target, draft) if source is not None]
    here = [source.repo is None for source in (target, draft) if source is not None]
    abouts = [_about(folder, known) for (folder, _), known in zip(folders, here, strict=True)]
    tokenizers = [
        Tokenizer.read(folder, about.config.vocab) if about.config else Tokenizer.read(folder)
        for (folder, _), about in zip(folders, abouts, strict=True)
    ]
    words = OTHER_TOKENS if draft is not None and not same_tokens(*tokenizers) else ""
    if draft is not None and (large := too_large(*abouts)):
        words = f"{large}; {words}" if words else large
    backend = HF_BACKEND if any(about.foreign for about in abouts) else DEFAULT_BACKEND
    pair = Pair(PairSpec("pair", name, target, draft, backend=backend), licence=folders[0][1])
    return pair if backend == HF_BACKEND else _fitting(pair, abouts, machine), words


def _fitting(pair: Pair, abouts: list[About], machine: FreeMemory) -> Pair:
    """`pair` with 4 bits a weight of the target where it fits no other way, or the GPU lacks room for its experts."""
    draft = abouts[1] if len(abouts) > 1 else None
    found = fit(pair, abouts[0], draft, machine)
    if abouts[0].quant in ("float16", "bfloat16", "float32") and (found.verdict == "no" or found.spills):
        smaller = replace(pair, spec=replace(pair.spec, target=replace(pair.spec.target, quant="nf4")))
        if fit(smaller, abouts[0], draft, machine).verdict != "no":
            return smaller
    return pair


def _about(folder: Path, here: bool) -> About:
    """Facts about a model, whose weights may be missing unless they have to be `here`.

    Raises:
        ModelError: its settings are missing or damaged, or the weights of one that has to be here, or nothing runs it.
    """
    path = folder / "config.json"
    raw = read_json(path)
    try:
        config = parse_config(folder, raw)
    except ForeignModel:
        if why_not := unsupported(raw):
            raise ModelError(f"{path}: {why_not}.") from None
        return (
            about_folder(folder, folder.name)
            if here
            else About(folder.name, folder, "safetensors", 0, foreign="its family is another")
        )
    try:
        return about_folder(folder, folder.name)
    except ModelError:
        if here:
            raise
        written = checked(StoredWeights, raw, str(path))
        dtype = written.dtype or written.torch_dtype or ""
        return About(folder.name, folder, "safetensors", 0, config=config, quant=dtype, layers=config.layers)


def _settings(hub: Hub, source: ModelSource) -> tuple[Path, str]:
    """A folder with the settings and the tokenizer, and the licence where it came from the hub."""
    if source.repo is None:
        return model_folder(source.path or ""), ""
    there = cached(hub, source.repo, source.revision)
    if there is not None:
        return there, ""
    listing: Listing = look_up(hub, source.repo, source.revision)
    files = [file for file in needed(listing) if not file.name.endswith((".safetensors", ".gguf"))]
    if not any(file.name == "config.json" for file in files):
        raise ModelError(f"{source.repo} has no config.json, without which a checkpoint is not read.")
    return Download(hub, listing, files).run(), listing.licence


def _gguf_pair(hub: Hub, target: ModelSource, draft: ModelSource | None, name: str) -> tuple[Pair, str]:
    """A pair with a GGUF file. Tokens are compared where both models are here, and anyway when the two are loaded."""
    about, licence = _either(hub, target)
    small = None if draft is None else _either(hub, draft)[0]
    pair = Pair(PairSpec("pair", name, target, draft), licence=licence)
    backend = DEFAULT_BACKEND
    if target.is_gguf and any(one is not None and one.format == "GGUF" and one.foreign for one in (about, small)):
        backend = GGUF_BACKEND
    foreign = [one.foreign for one in (about, small) if one is not None and one.format == "safetensors" and one.foreign]
    if draft is not None and (foreign or (not target.is_gguf and small is not None and small.foreign)):
        which = "It" if small is not None and small.foreign else target.label
        reason = f"{which} is not run by specchat's own decoder"
        raise ModelError(f"{draft.label} cannot draft for {target.label}: {reason}. Take another draft.")
    words = cost(about, small) if about is not None and small is not None and small.size and about.size else ""
    return replace(pair, spec=replace(pair.spec, backend=backend)), words


def _either(hub: Hub, source: ModelSource) -> tuple[About | None, str]:
    """Facts about a GGUF file or a checkpoint, and its licence; as `_gguf_about`, or those that its settings tell."""
    if source.is_gguf:
        return _gguf_about(hub, source)
    folder, licence = _settings(hub, source)
    return _about(folder, here=source.repo is None), licence


def _gguf_about(hub: Hub, source: ModelSource) -> tuple[About | None, str]:
    """Facts about a GGUF file, None where it is not here, and its licence.

    Raises:
        ModelError: it is damaged, or a part of it or what it must hold is missing.
        EngineError: "download": its repository cannot be reached.
    """
    if source.repo is None or source.file is None:
        about = about_gguf(Path(source.path or "").expanduser())
    else:
        folder = cached(hub, source.repo, source.revision, source.file)
        if folder is None:
            return None, look_up(hub, source.repo, source.revision).licence
        about = about_gguf(folder / source.file)
    if about.why_not:
        raise ModelError(f"{source.label}: {about.why_not}.")
    return about, about.licence


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
    same = taken.with_models_of(pair)
    if same is not None and not id_:
        raise ConfigError(
            f"Pair {same.id} has these models already. For a second one with them choose its name: --id ID."
        )
    table = table_of(pair, id_ or free_id(title, taken))
    return DeclaredPair(table, file, add_pair(file, table), cost)


def _title(source: ModelSource, named: str) -> str:
    """A model's name for people: of its folder or file, or as it was `named` where that is neither."""
    label = source.label if source.repo or os.path.exists(Path(named).expanduser()) else named
    name = Path(label).name
    return Path(PART.sub(r"\1.gguf", name)).stem if name.endswith(".gguf") else name
