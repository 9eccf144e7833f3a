"""One check, which has this process to itself."""

import faulthandler
import os
import sys
from importlib import import_module
from pathlib import Path

from specchat.engine.gpu_checks.codes import UNAVAILABLE, WRONG
from specchat.engine.gpu_checks.notes import Check, Notes, Unavailable


def main(named: str, out: str, demo: str) -> int:
    """Run the check "module:function" and return this process's exit code.

    The folder `out` gets figures and what is wrong as they come; `demo` has the embedded models. Where the check cannot
    run here, the last line of the output says why.
    """
    faulthandler.enable()
    if os.environ.get("TRITON_INTERPRET") == "1":
        from specchat.engine.kernels.interpreter import complete

        complete()
    module, _, function = named.partition(":")
    check: Check = getattr(import_module(module), function)
    notes = Notes(Path(out), Path(demo))
    if "torch" in sys.modules:
        sys.modules["torch"].set_grad_enabled(False)
    try:
        check(notes)
    except Unavailable as reason:
        print(reason)
        return UNAVAILABLE
    for words in notes.wrong:
        print(f"wrong: {words}")
    return WRONG if notes.wrong else 0
