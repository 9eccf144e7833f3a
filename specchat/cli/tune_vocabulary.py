"""`specchat tune vocabulary`: counts the tokens that a pair's draft may propose."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specchat.bench.prompts import read_prompts, shipped_prompts
from specchat.cli.chat_store import opened_store
from specchat.cli.completion import complete_pairs
from specchat.cli.download import ready
from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.options import PAIR_OPTIONS, WRITABLE, with_options
from specchat.cli.output import Output, Problem, ProgressLine, reports_errors
from specchat.engine.errors import ContextError
from specchat.engine.events import Finished
from specchat.engine.options import Limits, Speculation
from specchat.engine.requests import Generate

if TYPE_CHECKING:
    from specchat.config.catalog import Pair
    from specchat.engine.model.tokenizer import Tokenizer

CHARACTERS = 4_000_000
"""Characters of saved replies that are counted at most, the newest: a million tokens."""
ENOUGH = 50_000
"""Tokens of saved replies from which the target need not write any."""
LONGEST = 256
"""Tokens of a reply that is written to be counted."""


@click.command()
@click.argument("pair", shell_complete=complete_pairs)
@click.option("--size", type=click.IntRange(1), help="How many tokens.  [default: half of the vocabulary]")
@click.option(
    "--out", type=WRITABLE, metavar="FILE", help="The file to write.  [default: beside models.toml, named as the pair]"
)
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def vocabulary(pair: str, size: int | None, out: Path | None, models: Path | None) -> None:
    """Count the tokens that the draft model of PAIR may propose: fewer make it faster.

    They are counted in the replies of your saved chats and, where those are few, in replies that the target writes for
    it. Ends of replies, bytes and digits are always among them.
    """
    from specchat.config.catalog import read_catalog
    from specchat.config.paths import private_folder, user_paths

    paths = user_paths()
    toml, found = models or paths.models_file, ready(read_catalog(paths, models).find(pair), models)
    if found.spec.draft is None:
        raise Problem(f'Pair "{found.id}" has no draft model. Choose another.', ExitCode.USAGE)
    if out is None:
        folder = toml.absolute().parent
        out = (folder if models else private_folder(folder)) / f"{found.id}.vocabulary.json"
    with Interrupt() as interrupt:
        lines = _count(found, size, out, interrupt)
    named = out.name if out.absolute().parent == toml.absolute().parent else str(out.absolute())
    lines.append(
        f'Written to {out}. To use it, give the pair "{found.id}" in {toml} the line below; a shipped pair is changed '
        "by one of the same id there, so copy its table first."
    )
    Output().write("\n".join([*lines, "", f"draft_vocabulary = {json.dumps(named, ensure_ascii=False)}", ""]))


def _count(pair: "Pair", size: int | None, out: Path, interrupt: Interrupt) -> list[str]:
    """Count, write the file, and say what was counted.

    Raises:
        Problem: the size does not fit the tokenizer, or the file cannot be written.
        click.Abort: interrupted.
    """
    progress = ProgressLine()
    progress.show("starting ...")
    from specchat.engine.frequent_tokens import always, covered, frequent
    from specchat.engine.hub import locate
    from specchat.engine.model.checkpoint import Checkpoint
    from specchat.engine.model.draft_vocabulary import write

    target = Checkpoint.open(locate(pair.spec.target, progress.loading))
    tokenizer = target.tokenizer()
    kept = always(tokenizer, target.config.eos | tokenizer.eos)
    size = size or tokenizer.size // 2
    if not len(kept) <= size < tokenizer.size:
        raise Problem(
            f"--size must be at least the {len(kept)} tokens that are always in, and less than the {tokenizer.size} of "
            f"{pair.name}; {size} is not.",
            ExitCode.USAGE,
        )
    replies = _saved(tokenizer, progress, interrupt)
    saved = len(replies)
    if sum(map(len, replies)) < ENOUGH:
        replies += _written(pair, progress, interrupt)
    progress.show("counting")
    tokens = frequent(replies, kept, size, tokenizer.size)
    share = covered(replies, kept, size, tokenizer.size)
    progress.clear()
    try:
        write(out, tokenizer, tokens)
    except OSError as error:
        raise Problem(f"{out} cannot be written ({error.strerror}). Give another --out.", ExitCode.USAGE) from None
    total, different = sum(map(len, replies)), len({token for reply in replies for token in reply})
    lines = [
        f"Counted {total:,} tokens, {different:,} different ones, in {saved:,} saved replies and "
        f"{len(replies) - saved:,} that were written for it."
    ]
    if share is not None:
        lines.append(f"{size:,} of {tokenizer.size:,} tokens make up {share:.1%} of replies that were not counted.")
    return lines


def _saved(tokenizer: "Tokenizer", progress: ProgressLine, interrupt: Interrupt) -> list[list[int]]:
    progress.show("reading saved chats")
    with opened_store() as store:
        texts = [text for _, of_chat in store.replies(CHARACTERS) for text in of_chat]
    replies = []
    for text in texts:
        if interrupt.pressed:
            raise click.Abort
        replies.append(tokenizer.encode(text))
    return replies


def _written(pair: "Pair", progress: ProgressLine, interrupt: Interrupt) -> Iterator[list[int]]:
    """What the target answers to the prompts of the benchmark."""
    from specchat.engine.loading import load

    session = load(pair.spec, progress.loading)
    prompts = read_prompts(shipped_prompts(pair.id))
    for index, prompt in enumerate(prompts):
        request = Generate(
            index, prompt.messages, replace(pair.sampling, seed=index), Limits(LONGEST), Speculation.of("auto")
        )
        progress.show(f"the target answers prompt {index + 1} of {len(prompts)}", index / len(prompts))
        try:
            for event in session.generate(request):
                if interrupt.pressed:
                    raise click.Abort
                if isinstance(event, Finished):
                    yield list(event.token_ids)
        except ContextError:
            continue
