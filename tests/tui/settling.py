"""When the app has done all that there is to do, told by its event loop: however busy the machine is.

Textual's own `wait_for_idle` looks at the time that the process works, and so returns amid things where others have the
processors: a key may be half done then, or its outcome not drawn.

While it is waited for, what changes is drawn once, at its end, and not at each step on the way, unless `EVERY_FRAME`.
"""

import asyncio
from asyncio import BaseEventLoop, Future
from collections.abc import Callable
from time import monotonic
from typing import Any

import textual.app
from textual._compositor import Compositor
from textual._context import active_app
from textual.pilot import Pilot
from textual.screen import Screen

LONGEST_S = 60.0
"""Seconds after which what still goes on is taken to go on for good."""
FRAME_S = 0.005
"""Seconds between looks at an animation, and at a window whose new size is put off."""
THREADS: set[Future[Any]] = set()
"""What event loops have given to threads and was not done."""

EVERY_FRAME = False
"""Whether to draw each frame on the way too."""
WAITING = [0]
"""How many wait until all has settled."""

run_in_executor = BaseEventLoop.run_in_executor
render_update = Compositor.render_update


def counted(loop: BaseEventLoop, executor: Any, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """`run_in_executor`, known here until its end."""
    running = run_in_executor(loop, executor, work, *arguments)
    THREADS.add(running)
    running.add_done_callback(THREADS.discard)
    return running


async def settle(*_: float) -> None:
    """Return once no task can go on, no thread works for one, nothing is animated or put off, and all is drawn.

    What a timer, another process or a thread of the app's own will bring is not waited for: `wait_until` does that.
    """
    WAITING[0] += 1
    try:
        await quiet()
    finally:
        WAITING[0] -= 1


async def quiet() -> None:
    loop = asyncio.get_running_loop()
    end = monotonic() + LONGEST_S
    while monotonic() < end:
        await asyncio.sleep(0)
        if loop._ready:  # type: ignore[attr-defined]
            continue
        if running := {future for future in THREADS if future.get_loop() is loop}:
            await asyncio.wait(running, timeout=end - monotonic())
        elif (app := active_app.get(None)) is None or not app._running:
            return
        elif app.animator._animations or app._resize_timer is not None:
            await asyncio.sleep(FRAME_S)
        elif undrawn := [screen for screen in (*app._background_screens, app.screen) if to_draw(screen)]:
            for screen in undrawn:
                screen._on_timer_update()
        elif app.screen._compositor._dirty_regions and not app._batch_count:
            render_update(app.screen._compositor, screen_stack=app._background_screens)
        else:
            return


def put_off(compositor: Compositor, full: bool = False, screen_stack: Any = None, simplify: bool = False) -> Any:
    """`Compositor.render_update`, left to `quiet` where that goes on."""
    if WAITING[0] and not (full or simplify or EVERY_FRAME):
        return None
    return render_update(compositor, full, screen_stack, simplify)


def to_draw(screen: Screen[Any]) -> bool:
    """Whether the next frame of `screen` would bring something.

    One behind another asks to be drawn again by being drawn.
    """
    asked = screen._layout_required or screen._scroll_required or screen._recompose_required
    again = screen._repaint_required and screen is screen.app.screen
    return not screen.app._batch_count and bool(asked or again or screen._dirty_widgets or screen._callbacks)


async def settled(pilot: Pilot[Any], timeout: float = LONGEST_S) -> bool:
    """Stands for `Pilot._wait_for_screen`, which sends every widget a message."""
    del pilot, timeout
    await settle()
    return True


async def pause(pilot: Pilot[Any], delay: float | None = None) -> None:
    """Stands for `Pilot.pause`, which with a delay waits for nothing else."""
    del pilot
    if delay:
        await asyncio.sleep(delay)
    await settle()


def install() -> None:
    """Let every pilot wait so."""
    BaseEventLoop.run_in_executor = counted  # type: ignore[method-assign, assignment]
    textual.app.wait_for_idle = settle
    Pilot._wait_for_screen = settled  # type: ignore[method-assign]
    Pilot.pause = pause  # type: ignore[method-assign]
    Compositor.render_update = put_off  # type: ignore[method-assign]
