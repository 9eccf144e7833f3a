"""`specchat serve`: the pair behind the endpoints of OpenAI's and Anthropic's clients."""

import asyncio
import os
from contextlib import closing
from typing import Any

import click

from specchat.chat.store import Store
from specchat.cli.download import ready
from specchat.cli.exit_codes import ExitCode
from specchat.cli.options import DECODING_OPTIONS, PAIR_OPTIONS, with_options
from specchat.cli.output import Output, Problem, reports_errors
from specchat.cli.wishes import Wishes
from specchat.installing import install_command

KEY_VARIABLE = "SPECCHAT_SERVE_KEY"
PORT = 8642


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Listen at this address.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Listen at this port; 0 picks one."
)
@with_options(PAIR_OPTIONS, DECODING_OPTIONS)
@reports_errors
def serve(host: str, port: int, **options: Any) -> None:
    """Answer OpenAI's and Anthropic's clients with a pair.

    \b
    POST /v1/chat/completions   POST /v1/messages   GET /v1/models
    POST /v1/responses          POST /tokenize      GET /metrics
    POST /v1/completions                            GET /health

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
    pair = ready(prepared.pair, wishes.models)
    try:
        here = listening.listen(host, port)
    except OSError as error:
        raise Problem(f"Nothing can listen at {host}, port {port}: {error.strerror}.", ExitCode.USAGE) from None
    words = f"{pair.id} is served at {listening.url(here)}/v1"
    with here, closing(engine_for(prepared, "serve")) as engine:
        served = Served(ChatService(engine, Store(), prepared.preferences, ServiceOptions(restarts=True)), pair)
        guard = AccessCheck(host, key)
        stopped = asyncio.run(listening.serve(served, guard, here, lambda: Output().write(f"{words}\n")))
    if stopped:
        raise click.exceptions.Exit(128 + stopped)
