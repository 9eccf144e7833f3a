"""Other settings of a pair, to be measured beside the present ones, and their loading."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specchat.engine.backends import DEFAULT_BACKEND
from specchat.engine.protocol.pair import Device, ModelSource, PairSpec, Wanted
from specchat.engine.strategies import STRATEGIES
from specchat.models.declare import vocabulary_file

if TYPE_CHECKING:
    from specchat.config.catalog import Pair
    from specchat.tune.shelf import Tuned

TRIED: tuple[Wanted, ...] = ("int8", "nf4")


@dataclass(frozen=True)
class Variant:
    """A pair with one setting changed.

    Attributes:
        name: in words.
        spec: the pair.
        affects: True for a strategy, by its name, that the setting makes a difference to.
        key, value: the table in models.toml and its keys that are set, or a key and its text.
        tuned: the result on the shelf instead.
        same_text: False if the target computes otherwise, so that its text changes.
    """

    name: str
    spec: PairSpec
    affects: Callable[[str], bool]
    key: str = ""
    value: Mapping[str, str] | str | None = None
    tuned: "Tuned | None" = None
    same_text: bool = True

    def described(self) -> dict[str, Any]:
        """Name, and the id on the shelf or the table and keys that are set, for programs."""
        if self.tuned is not None:
            return {"name": self.name, "tuned": self.tuned.id}
        if isinstance(self.value, str):
            return {"name": self.name, "key": self.key, "value": self.value}
        return {"name": self.name, "key": self.key, "keys": dict(self.value or {})}

    def write(self, toml: Path) -> None:
        """Set it in the models.toml at `toml`.

        Raises:
            ConfigError: the file is wrong or cannot be written.
        """
        from specchat.models.declare import set_setting, setting_of
        from specchat.tune.registry import use

        if self.tuned is not None:
            use(self.tuned, toml)
        elif isinstance(self.value, str):
            set_setting(toml, self.spec.id, self.key, self.value)
        elif self.value is not None:
            table = setting_of(toml, self.spec.id, self.key) or {}
            set_setting(toml, self.spec.id, self.key, {**table, **self.value})


def variants(pair: "Pair", gpus: int, shelf: Path, toml: Path) -> Iterator[Variant]:
    """Settings under which the text stays, what was tuned first; then those of the target, under which it changes.

    `gpus` are those of the machine where the pair runs on one, else 0.
    """
    from specchat.tune.registry import used_by
    from specchat.tune.shelf import shelved

    spec = pair.spec
    if spec.backend != DEFAULT_BACKEND:
        return
    for tuned in shelved(shelf):
        if tuned.pair == pair.id and pair.id not in used_by(tuned, toml):
            changed, affects = _with(spec, tuned)
            if changed is not None:
                yield Variant(tuned.id, changed, affects, tuned=tuned)
    frequent = vocabulary_file(toml, pair.id)
    if spec.draft_vocabulary is None and frequent.is_file():
        fewer = replace(spec, draft_vocabulary=str(frequent))
        yield Variant("draft vocabulary", fewer, _by_vocabulary, "draft_vocabulary", frequent.name)
    if spec.draft is not None:
        for quant in _quants(spec.draft):
            draft = replace(spec, draft=replace(spec.draft, quant=quant), heads={})
            yield Variant(f"draft {_named(quant)}", draft, _by_draft, "draft", {"quant": quant})
        elsewhere: tuple[tuple[Device, str], ...] = ("cpu", "the CPU"), ("second-gpu", "a second GPU")
        for device, words in elsewhere[:gpus]:
            if spec.draft.device != device:
                draft = replace(spec, draft=replace(spec.draft, device=device), heads={})
                yield Variant(f"draft on {words}", draft, _by_draft, "draft", {"device": device})
    if gpus > 1 and spec.target.device == "cuda":  # "auto" takes both where one has no room
        both = replace(spec, target=replace(spec.target, device="both-gpus"), heads={})
        # GPUs of two kinds cut products each by its own size.
        yield Variant("target on both GPUs", both, _anywhere, "target", {"device": "both-gpus"}, same_text=False)
    for quant in _quants(spec.target):
        target = replace(spec, target=replace(spec.target, quant=quant))
        yield Variant(f"target {_named(quant)}", target, _anywhere, "target", {"quant": quant}, same_text=False)


def _quants(source: ModelSource) -> Iterator[Wanted]:
    if source.quant is not None and source.quant != "none":
        yield "none"
    yield from (quant for quant in TRIED if quant != source.quant)


def _named(quant: Wanted) -> str:
    return "as stored" if quant == "none" else f"in {quant}"


def _anywhere(_: str) -> bool:
    return True


def _by_draft(name: str) -> bool:
    return STRATEGIES[name].needs_draft


def _by_vocabulary(name: str) -> bool:
    head = STRATEGIES[name].head
    return _by_draft(name) or (head is not None and bool(head.in_target))


def _with(spec: PairSpec, tuned: "Tuned") -> tuple[PairSpec | None, Callable[[str], bool]]:
    """The pair with a result of a tune and without other drafts, and the strategies that it makes a difference to."""
    from specchat.engine.strategy import SkippedLayers

    kind, _, head = tuned.key.partition(".")
    if kind == "draft" and spec.draft is not None:
        moved = replace(spec.draft, path=str(tuned.folder), repo=None, revision=None)
        return replace(spec, draft=moved, heads={}), _by_draft
    if kind == "heads":
        source = ModelSource(path=str(tuned.folder))
        alone = replace(spec, draft=None, draft_vocabulary=None, heads={head: source})
        return alone, lambda name: STRATEGIES[name].needs_head == head
    spec = replace(spec, draft=None, draft_vocabulary=None, heads={})
    if kind == "exit":
        return replace(spec, exit=str(tuned.folder)), lambda name: "exits" in STRATEGIES[name].needs
    if kind == "skip" and tuned.value is not None:
        skip = SkippedLayers(**{key: tuple(layers) for key, layers in tuned.value.items()})
        return replace(spec, skip=skip), lambda name: "skips" in STRATEGIES[name].needs
    return None, _by_draft
