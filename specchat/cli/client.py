"""A command as a client of the chat service: it loads a pair and takes a reply, with ctrl+c as a wish to stop."""

import time
from collections.abc import Callable

import click

from specchat.clean import clean
from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.outlet import Outlet
from specchat.cli.output import Problem
from specchat.config.catalog import Pair
from specchat.engine.errors import EngineError
from specchat.engine.protocol.events import Failed, Finished, Started, Step
from specchat.engine.protocol.pair_info import PairInfo
from specchat.service import loading
from specchat.service.chat_service import ChatService
from specchat.service.dispatch import Update

PATIENCE_S = 5.0
"""Seconds that a stopped reply may take to end."""


def load(
    service: ChatService,
    pair: Pair,
    show: Callable[[str, float | None], None],
    interrupt: Interrupt,
    *,
    chosen: bool = False,
) -> PairInfo:
    """Load `pair` and use it as the service's preferences say; see `loading.load`.

    Raises:
        EngineError: it cannot be loaded.
        Problem: it could not be downloaded, or the strategy of the preferences cannot be used with it.
        click.Abort: interrupted.
    """
    try:
        info = loading.load(service, pair, show, lambda: interrupt.pressed, chosen=chosen)
    except loading.Stopped:
        raise click.Abort from None
    except EngineError as error:
        if error.kind == "download":
            raise Problem.of(error.kind, f'Pair "{pair.id}" could not be downloaded: {error.message}') from None
        raise
    strategy = service.preferences.strategy
    if strategy and (reason := service.loaded.unsupported(strategy)):
        raise Problem(f"{reason}.", ExitCode.USAGE)
    return info


def answer(service: ChatService, interrupt: Interrupt, out: Outlet) -> Finished:
    """Put out the running reply as it comes; an interrupt stops it.

    Raises:
        Problem: the engine could not answer.
        click.Abort: the reply does not stop.
    """
    stop_by = None
    try:
        while True:
            for update in service.wait(loading.TICK_S):
                _say(update)
                match update.event:
                    case Started() if service.last_reply is not None and (words := service.last_reply.left_out):
                        click.echo(f"{words}.", err=True)
                    case Step():
                        out.put(update.event)
                    case Failed():
                        raise Problem.of(update.event.kind, update.event.message)
                    case Finished():
                        return update.event
            if interrupt.pressed and stop_by is None:
                service.stop()
                stop_by = time.monotonic() + PATIENCE_S
            if stop_by is not None and time.monotonic() > stop_by:
                raise click.Abort
    finally:
        out.end()


def _say(update: Update) -> None:
    """Say on standard error where a reply differs from its request."""
    if update.message and update.kind in ("notice", "ended") and not isinstance(update.event, Failed):
        words = clean(update.message)
        click.echo(f"{words[0].upper()}{words[1:].rstrip('.')}.", err=True)
