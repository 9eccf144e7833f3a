"""`specchat serve`: the pair behind the endpoints of OpenAI's and Anthropic's clients."""

import asyncio
import os
from contextlib import closing
from dataclasses import replace
from typing import Any

import click

from specchat.chat.store import Store
from specchat.cli.download import ready
from specchat.cli.exit_codes import ExitCode
from specchat.cli.options import DECODING_OPTIONS, PAIR_OPTIONS, Named, with_options
from specchat.cli.output import Output, Problem, reports_errors
from specchat.cli.wishes import Wishes
from specchat.config.catalog import Pair
from specchat.engine.backends import DEFAULT_BACKEND
from specchat.engine.protocol.pair_info import PairInfo
from specchat.installing import install_command
from specchat.serve.recipes import RECIPES, ClientRecipe

KEY_VARIABLE = "SPECCHAT_SERVE_KEY"
PORT = 8642
LEAST_CONTEXT = 256


class ContextLength(click.ParamType[int]):
    """A number of tokens; "auto" is 0."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return 0 if value == "auto" else click.IntRange(LEAST_CONTEXT).convert(value, param, ctx)


def with_context(pair: Pair, tokens: int | None) -> Pair:
    """The pair with a context of so many tokens; 0: as many as fit the memory.

    Raises:
        click.UsageError: a server elsewhere runs it, or another program than specchat's own decoder for 0.
    """
    if tokens is None:
        return pair
    if pair.spec.target.server is not None or (not tokens and pair.spec.backend != DEFAULT_BACKEND):
        kind = "" if tokens else " auto"
        words = f"--context-length{kind} is of models that {'this machine' if tokens else 'specchat itself'} runs"
        raise click.UsageError(f'{words}, not of pair "{pair.id}".')
    return replace(pair, spec=replace(pair.spec, context=tokens or None, long_context=not tokens))


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Listen at this address.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Listen at this port; 0 picks one."
)
@click.option(
    "--context-length",
    type=ContextLength(),
    metavar="TOKENS|auto",
    help="Tokens of a chat with its reply; auto: as many as fit the memory.  [default: as models.toml says, or 8192]",
)
@click.option(
    "--for",
    "client",
    type=Named(list(RECIPES)),
    metavar="CLIENT",
    help=f"Show the lines by which a client uses the pair: {', '.join(RECIPES)}.",
)
@with_options(PAIR_OPTIONS, DECODING_OPTIONS)
@reports_errors
def serve(host: str, port: int, context_length: int | None, client: str | None, **options: Any) -> None:
    """Answer clients of OpenAI, Anthropic, Ollama and llama.cpp with a pair.

    \b
    POST /v1/chat/completions   POST /v1/messages   GET /v1/models
    POST /v1/responses          POST /api/chat      GET /metrics
    POST /v1/completions        POST /infill        GET /health

    The engine is the one that the app uses. Other machines reach it only with --host, and then need the key in
    SPECCHAT_SERVE_KEY. Options are the defaults of requests, which may have strategy, draft_length and acceptance.
    """
    from specchat.cli.prepare import engine_for, prepare

    try:
        from specchat.serve import listening
        from specchat.serve.generation import Served
        from specchat.serve.guard import AccessCheck, is_local
    except ImportError as error:
        raise Problem(
            f"specchat serve needs packages that are not here ({error.name}): {install_command('specchat[serve]')}",
            ExitCode.USAGE,
        ) from None
    from specchat.service.chat_service import ChatService
    from specchat.service.state import ServiceOptions

    key = os.environ.get(KEY_VARIABLE, "")
    if not key and not is_local(host):
        raise click.UsageError(f"Other machines can reach {host}: set {KEY_VARIABLE} to a key that they have to send.")
    wishes = Wishes.of(options)
    prepared = prepare(wishes)
    pair = with_context(ready(prepared.pair, wishes.models), context_length)
    try:
        here = listening.listen(host, port)
    except OSError as error:
        raise Problem(f"Nothing can listen at {host}, port {port}: {error.strerror}.", ExitCode.USAGE) from None
    root = listening.url(here)
    with here, closing(engine_for(prepared, "serve")) as engine:
        served = Served(ChatService(engine, Store(), prepared.preferences, ServiceOptions(restarts=True)), pair)
        guard = AccessCheck(host, key)
        said = Output()

        def ready_to_answer() -> None:
            said.write(f"{pair.id} is served at {root}/v1\n")

        def show(loaded: PairInfo | str) -> None:
            said.write(described(loaded, pair.id, root, RECIPES[client] if client else None))

        stopped = asyncio.run(listening.serve(served, guard, here, ready_to_answer, show))
    if stopped:
        raise click.exceptions.Exit(128 + stopped)


def described(loaded: PairInfo | str, model: str, root: str, recipe: ClientRecipe | None) -> str:
    """Lines about the pair `model` at `root` once it is loaded, or about why it is not."""
    if isinstance(loaded, str):
        return f"{model} cannot be loaded: {loaded}\n"
    lines = [f"It is loaded, with a context of {loaded.context:,} tokens.", loaded.notes.warning]
    if recipe is not None:
        lines += [f"\n# {recipe.title}: {recipe.where}", recipe.filled(root, model, loaded.context)]
    return "".join(f"{line}\n" for line in lines if line)
