"""One check, which has this process to itself."""

import faulthandler
import os
import sys
from importlib import import_module
from pathlib import Path

from specchat.engine.gpu_checks.codes import UNAVAILABLE, WRONG
from specchat.engine.gpu_checks.notes import Check, Notes, Unavailable
from specchat.engine.gpu_failure import first_line, is_one
from specchat.engine.gpu_record import GpuRecord


def main(named: str, out: str, demo: str, gpu: str = "") -> int:
    """Run the check "module:function" and return this process's exit code. Loads will know what is wrong with a GPU.

    The folder `out` gets figures and what is wrong as they come; `demo` has the embedded models; `gpu` is the card that
    was found before, which the check must find again. Where it cannot run here, the last line of the output says why.
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
        from specchat.engine.gpu_checks import card, place
        from specchat.engine.model.gpu import CHOSEN, Gpu, find_gpu

        found = find_gpu() if place.on_gpu() else "torch sees no GPU"
        if isinstance(found, Gpu):
            torch.cuda.set_device(CHOSEN.device)
            GpuRecord.use(card.record())
        elif gpu:
            print(f"{gpu} is gone: {found}")
            return UNAVAILABLE
    try:
        check(notes)
    except Unavailable as reason:
        print(reason)
        return UNAVAILABLE
    except Exception as error:
        if is_one(error):
            GpuRecord.failed(first_line(error))
        raise
    for words in notes.wrong:
        print(f"wrong: {words}")
    if notes.wrong:
        GpuRecord.failed(notes.wrong[0])
        return WRONG
    return 0
