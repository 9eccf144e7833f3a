"""The process of one check."""

import faulthandler
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path

from specchat.engine.errors import ModelError
from specchat.engine.gpu_checks import NO_MEMORY, UNAVAILABLE, WRONG
from specchat.engine.gpu_checks.notes import Check, Notes, Unavailable
from specchat.engine.hardware.out_of_memory import ran_out


def main(named: str, out: str, demo: str, gpu: str = "") -> int:
    """Run the check "module:function" and return this process's exit code.

    The folder `out` gets figures and faults at once; `demo` has the embedded models; `gpu` is the GPU found before,
    which must be found again. If the check cannot run here, the last line of the output is the reason.
    """
    faulthandler.enable()
    if os.environ.get("TRITON_INTERPRET") == "1":
        from specchat.engine.kernels.interpreter import complete

        complete()
    module, _, function = named.partition(":")
    check: Check = getattr(import_module(module), function)
    notes = Notes(Path(out), Path(demo))
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_grad_enabled(False)
        from specchat.engine.gpu_checks import place
        from specchat.engine.hardware.gpu import CHOSEN, Gpu, find_gpu

        found = find_gpu() if place.on_gpu() else "torch sees no GPU"
        if isinstance(found, Gpu):
            torch.cuda.set_device(CHOSEN.device)
        elif gpu:
            print(f"{gpu} is gone: {found}")
            return UNAVAILABLE
    try:
        check(notes)
    except (Unavailable, ModelError) as reason:
        # A package that a model needs is missing, say: the GPU has no part in that.
        print(reason)
        return UNAVAILABLE
    except Exception as error:
        if not ran_out(error):
            raise
        traceback.print_exc()
        return NO_MEMORY
    for words in notes.wrong:
        print(f"wrong: {words}")
    return WRONG if notes.wrong else 0
