"""The count of a draft vocabulary: the tokens of replies, those of saved chats and those written for it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from specchat.bench.prompts import read_prompts, shipped_prompts
from specchat.config.catalog import Pair
from specchat.engine.errors import ContextError, EngineError
from specchat.engine.fetch.hub import locate
from specchat.engine.loading import load
from specchat.engine.loading.heads import has_own_layer
from specchat.engine.protocol.events import Finished, Loading
from specchat.engine.protocol.options import Limits, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.engine.text.draft_vocabulary import write
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.tune.frequent_tokens import always, covered, frequent
from specchat.tune.order import TuneReport, TuneStopped

CHARACTERS = 4_000_000
"""Characters of saved replies that are counted at most, the newest: a million tokens."""
ENOUGH = 50_000
"""Tokens of saved replies from which the target need not write any."""
OWN_LAYER = 32_768
"""Tokens for a target's own layer, of which the head is most."""
LONGEST = 256
"""Tokens of a reply that is written to be counted."""


def counted(
    pair: Pair, size: int | None, out: Path, texts: Sequence[str], report: TuneReport, stopped: Callable[[], bool]
) -> list[str]:
    """Count `size` tokens in `texts` and replies, write them to `out`, and say so.

    By default they are half of the vocabulary, and at most `OWN_LAYER` where the target's own layer alone drafts.

    Raises:
        TuneStopped: it is to be stopped.
        EngineError: neither a draft model nor such a layer is there, the size does not fit the tokenizer, the file
            cannot be written, or the pair cannot be loaded.
    """

    def show(loading: Loading) -> None:
        report.show(loading.what, loading.fraction)

    target = Checkpoint.open(locate(pair.spec.target, show))
    tokenizer = target.tokenizer()
    required = always(tokenizer, target.config.eos | tokenizer.eos)
    if pair.spec.draft is None and not has_own_layer(pair.spec, target):
        raise EngineError(
            "request",
            f'Pair "{pair.id}" has neither a draft model nor a layer of its target that drafts. Choose another.',
        )
    size = size or min(tokenizer.size // 2, OWN_LAYER if pair.spec.draft is None else tokenizer.size)
    if not len(required) <= size < tokenizer.size:
        raise EngineError(
            "request",
            f"--size must be at least the {len(required)} tokens that are always in, and less than the "
            f"{tokenizer.size} of {pair.name}; {size} is not.",
        )
    replies = []
    for text in texts:
        _check(stopped)
        replies.append(tokenizer.encode(text))
    if sum(map(len, replies)) < ENOUGH:
        replies += _written(pair, report, show, stopped)
    report.show("counting")
    tokens = frequent(replies, required, size, tokenizer.size)
    share = covered(replies, required, size, tokenizer.size)
    try:
        write(out, tokenizer, tokens)
    except OSError as error:
        raise EngineError("request", f"{out} cannot be written ({error.strerror}). Give another --out.") from None
    total, different = sum(map(len, replies)), len({token for reply in replies for token in reply})
    lines = [
        f"Counted {total:,} tokens, {different:,} different ones, in {len(texts):,} saved replies and "
        f"{len(replies) - len(texts):,} that were written for it."
    ]
    if share is not None:
        lines.append(f"{size:,} of {tokenizer.size:,} tokens make up {share:.1%} of replies that were not counted.")
    return lines


def _written(
    pair: Pair, report: TuneReport, show: Callable[[Loading], None], stopped: Callable[[], bool]
) -> Iterator[list[int]]:
    session = load(pair.spec, show)
    prompts = read_prompts(shipped_prompts(pair.id))
    for index, prompt in enumerate(prompts):
        request = Generate(
            index, prompt.messages, replace(pair.sampling, seed=index), Limits(LONGEST), Speculation.of("auto")
        )
        report.show(f"the target answers prompt {index + 1} of {len(prompts)}", index / len(prompts))
        try:
            for event in session.generate(request):
                _check(stopped)
                if isinstance(event, Finished):
                    yield list(event.token_ids)
        except ContextError:
            continue


def _check(stopped: Callable[[], bool]) -> None:
    if stopped():
        raise TuneStopped("Stopped. Nothing was written.")
