"""One check in this process: `python -m specchat.engine.gpu_checks MODULE:FUNCTION OUT DEMO`.

OUT gets figures and what is wrong as they come. The exit code is 0 where all is right, WRONG where something is wrong,
and UNAVAILABLE where the check cannot run here: then the last line of the output says why.
"""

import faulthandler
import os
import sys
from importlib import import_module
from pathlib import Path

from specchat.engine.gpu_checks.notes import Check, Notes, Unavailable

WRONG, UNAVAILABLE = 4, 3


def main(named: str, out: str, demo: str) -> int:
    """Run the check that is named."""
    import torch

    from specchat.engine.kernels.interpreter import complete

    if os.environ.get("TRITON_INTERPRET") == "1":
        complete()
    module, _, function = named.partition(":")
    check: Check = getattr(import_module(module), function)
    notes = Notes(Path(out), Path(demo))
    try:
        with torch.no_grad():
            check(notes)
    except Unavailable as reason:
        print(reason)
        return UNAVAILABLE
    for words in notes.wrong:
        print(f"wrong: {words}")
    return WRONG if notes.wrong else 0


if __name__ == "__main__":
    faulthandler.enable()
    sys.exit(main(*sys.argv[1:]))
