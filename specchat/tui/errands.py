"""Threads for what takes its time beside the app, which does not wait for them when it is left."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import Any, TypeVar

Result = TypeVar("Result")


class Errands(ThreadPoolExecutor):
    """A thread for each call. Python's own pools are waited for at the end, whatever disk or program they wait for."""

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        future: Future[Result] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        Thread(target=run, name="errand", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing: threads end by themselves, or with the program."""
        del wait, cancel_futures
