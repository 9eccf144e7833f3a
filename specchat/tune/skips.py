"""The search for a skip set (SWIFT, Xia et al. 2024) on replies that are there: rounds of sets around the best so far.

The estimate is the paper's objective turned into time: tokens a step, over the cost of drafting and verifying them. A
search while text is written knows 32 tokens of one text; this one has many texts, and the number of skipped sub-layers
is free.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from specchat.engine.decoding.cached import CachedModel, Decoder
from specchat.engine.drafters.early_exit import LONGEST_DRAFT
from specchat.engine.drafters.skip_search import WINDOW as SCORED
from specchat.engine.drafters.skip_search import SkipSearch, Sublayer, share_right
from specchat.engine.model.passes import Skip
from specchat.engine.recipe import Recipe
from specchat.engine.strategy import SkippedLayers
from specchat.tune.draft import stepped, total
from specchat.tune.exits import VERIFY
from specchat.tune.files import put_json
from specchat.tune.rows import TrainingText

WINDOW = 16
"""Reply tokens that are guessed in one pass: few, since in drafting only a step's own tokens lack their sub-layers."""
TOKENS = 1024
"""Reply tokens that a set is judged by, about."""
AROUND = 8
"""Sets of a round."""
STATE, ONLINE = "search.json", "online.json"


class SkipEstimate(NamedTuple):
    """Estimated speed over plain decoding, and the share of drafts accepted, at the best draft length."""

    times: float
    accepted: float
    length: int


@dataclass(frozen=True)
class SkipProgress:
    """`tried` sets of `sets`, and the best one's estimated speed over plain decoding."""

    tried: int
    sets: int
    times: float


class SkipTuning:
    """A search over replies, kept in a folder from which it goes on."""

    def __init__(self, target: CachedModel[Decoder], recipe: Recipe, folder: Path, rows: Sequence[Path]) -> None:
        """Search for a `target` of `recipe` on the replies in `rows`, as many as TOKENS needs.

        Raises:
            OSError: a file cannot be read.
        """
        self._target, self._file, self._online = target, folder / STATE, folder / ONLINE
        self._texts: list[TrainingText] = []
        self.tokens = 0
        """Reply tokens that sets are judged by."""
        for path in rows:
            if self.tokens >= TOKENS:
                break
            text = TrainingText.read(path)
            self._texts.append(replace(text, states={}))
            self.tokens += len(text.tokens) - text.start
        self._layers = len(recipe.layers)
        self._parts: dict[Sublayer, int] = {}
        for index, layer in enumerate(recipe.layers):
            mixer = sum(matrix.parameters for matrix in layer.mixer.products)
            self._parts["attention", index] = mixer
            self._parts["mlp", index] = layer.active - mixer
        self._whole = recipe.head.parameters + sum(self._parts.values())
        inner = range(1, len(recipe.layers) - 1)
        self._choices = [one for one, weights in self._parts.items() if one[1] in inner and weights]
        self.best: frozenset[Sublayer] = frozenset()
        self.found = SkipEstimate(0.0, 0.0, 1)
        self.tried = 0
        """Sets that were tried."""

    def online(self, trials: int) -> SkippedLayers:
        """The set that `trials` trials while writing these replies find; it is kept.

        Raises:
            OSError: the file cannot be written.
        """
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            stored = json.loads(self._online.read_bytes())
            return SkippedLayers(tuple(stored["attention"]), tuple(stored["mlp"]))
        search, number = SkipSearch(self._layers), 0
        while number < trials and not search.done:
            before = number
            for text in self._texts:
                tokens: list[int] = text.tokens.tolist()
                for end in range(text.start + SCORED + 1, len(tokens) + 1, SCORED):
                    if number < trials and not search.done:
                        some = tokens[:end]
                        self._target.begin(some)
                        search.try_set(partial(share_right, self._target.model, some))
                        number += 1
            if number == before:
                break
        found = layers_of(search.best)
        put_json(self._online, asdict(found))
        return found

    def run(self, sets: int, first: SkippedLayers, stopped: Callable[[], bool]) -> Iterator[SkipProgress]:
        """Try about so many `sets`, beginning with `first`, or until `stopped`; each round is kept.

        Raises:
            OSError: the file cannot be written.
        """
        tried, number, singles = self._kept(first)
        if not number:
            self.best = sublayers(first)
            (self.found,) = self.estimates([self.best])
            singles = dict(zip(self._choices, self.estimates([frozenset({one}) for one in self._choices]), strict=True))
            tried, number = 1 + len(singles), 1
            self._keep(tried, number, first, singles)
            yield SkipProgress(min(tried, sets), sets, self.found.times)
        self.tried = tried
        while tried < sets and not stopped():
            some = self._dropped(singles) if number == 1 else self._around(Random(number))
            for one, estimate in zip(some, self.estimates(some), strict=True):
                if estimate.times > self.found.times:
                    self.best, self.found = one, estimate
            self.tried = tried = tried + len(some)
            number += 1
            self._keep(tried, number, first, singles)
            yield SkipProgress(min(tried, sets), sets, self.found.times)

    def estimates(self, some: Sequence[frozenset[Sublayer]]) -> list[SkipEstimate]:
        """Estimates of skip sets, all on one text before the next."""
        skips = [skip_of(one) for one in some]
        right: list[list[list[bool]]] = [[] for _ in some]
        for text in self._texts:
            tokens = text.tokens.tolist()
            of_text: list[list[bool]] = [[] for _ in some]
            for at in range(text.start, len(tokens), WINDOW):
                self._target.begin(tokens[:at])
                truth = tokens[at : at + WINDOW]
                for found, skip in zip(of_text, skips, strict=True):
                    guesses = self._target.model.likeliest([tokens[at - 1], *truth[:-1]], at - 1, skip)
                    found += [a == b for a, b in zip(guesses, truth, strict=True)]
            for every, found in zip(right, of_text, strict=True):
                every.append(found)
        return [self._estimate(found, one) for found, one in zip(right, some, strict=True)]

    def _estimate(self, right: Sequence[Sequence[bool]], one: frozenset[Sublayer]) -> SkipEstimate:
        cost = 1 - sum(self._parts[part] for part in one) / self._whole
        best = SkipEstimate(0.0, 0.0, 1)
        for length in range(1, LONGEST_DRAFT + 1):
            seen = total(stepped(each, length) for each in right)
            times = seen.tokens / max(1e-9, seen.steps + seen.drafted * (cost + VERIFY))
            if times > best.times:
                best = SkipEstimate(times, seen.rate, length)
        return best

    def _dropped(self, singles: dict[Sublayer, SkipEstimate]) -> list[frozenset[Sublayer]]:
        """The sets of the sub-layers that matter least, by their number."""
        order = sorted(self._choices, key=lambda one: -singles[one].accepted)
        return [frozenset(order[:count]) for count in range(1, len(order))][:: max(1, len(order) // (2 * AROUND))]

    def _around(self, random: Random) -> list[frozenset[Sublayer]]:
        """The best set with one or two sub-layers exchanged, added or put back."""
        neighbours = []
        for _ in range(AROUND):
            inside, outside = sorted(self.best), sorted(set(self._choices) - self.best)
            out = random.sample(inside, min(len(inside), random.choice((0, 1, 1, 2))))
            into = random.sample(outside, min(len(outside), random.choice((0, 1, 1, 2))))
            neighbours.append(frozenset((self.best - set(out)) | set(into)))
        return [one for one in neighbours if one]  # with nothing skipped a draft costs as much as the text

    def _keep(self, tried: int, number: int, first: SkippedLayers, singles: dict[Sublayer, SkipEstimate]) -> None:
        stored = {"first": asdict(first), "tried": tried, "round": number, "best": sorted(self.best)}
        scores = [[*one, *singles[one]] for one in singles]
        put_json(self._file, {**stored, "found": list(self.found), "singles": scores})

    def _kept(self, first: SkippedLayers) -> tuple[int, int, dict[Sublayer, SkipEstimate]]:
        """Sets tried, rounds done and estimates of single sub-layers, of an earlier run from the same beginning."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            stored = json.loads(self._file.read_bytes())
            if stored["first"] == json.loads(json.dumps(asdict(first))):
                singles = {(kind, layer): SkipEstimate(*of) for kind, layer, *of in stored["singles"]}
                best, found = frozenset((kind, layer) for kind, layer in stored["best"]), SkipEstimate(*stored["found"])
                if singles.keys() == set(self._choices):
                    self.best, self.found = best, found
                    return int(stored["tried"]), int(stored["round"]), singles
        return 0, 0, {}


def sublayers(layers: SkippedLayers) -> frozenset[Sublayer]:
    """The sub-layers of a pair's setting."""
    return frozenset({*(("attention", i) for i in layers.attention), *(("mlp", i) for i in layers.mlp)})


def layers_of(skip: Skip) -> SkippedLayers:
    """A skip set as a pair's setting."""
    return SkippedLayers(tuple(sorted(skip.attention)), tuple(sorted(skip.mlp)))


def skip_of(some: frozenset[Sublayer]) -> Skip:
    """The skip set of sub-layers."""
    halves = (frozenset(layer for kind, layer in some if kind == wanted) for wanted in ("attention", "mlp"))
    return Skip(*halves)


def setting(layers: SkippedLayers) -> dict[str, list[int]]:
    """The table in models.toml."""
    return {"attention": list(layers.attention), "mlp": list(layers.mlp)}
