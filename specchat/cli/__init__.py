"""The command line. Commands import torch or textual only when they run."""

import gc
import os
import signal

_INTERRUPTED = 130
"""`ExitCode.INTERRUPTED`, which is not imported yet."""


def main() -> None:
    """Run the command line and exit with one of `ExitCode`.

    ctrl+c while it is imported ends the process there and then: an exception could come anywhere in a library.
    """
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    gc.disable()  # a twelfth of the import would go to looking for garbage
    from specchat.cli.root import main as run

    gc.freeze()
    gc.enable()
    if usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()
