"""Checks that end in every way there is, for the processes that `doctor.gpu_report` starts."""

import os
import sys
from time import sleep

from specchat.engine.gpu_checks.notes import Notes, Unavailable


def fine(notes: Notes) -> None:
    notes.row(demo=str(notes.demo), interpreted=os.environ.get("TRITON_INTERPRET"))
    assert notes.out is not None
    (notes.out / "trace.json").write_text("{}")


def without_a_gpu(notes: Notes) -> None:
    notes.row(none="no NVIDIA GPU is found")


def with_a_gpu(notes: Notes) -> None:
    notes.row(**{"gpu": "RTX 3060", "index": 1, "known by": "RTX 3060 with a driver"})


def two_gpus(notes: Notes) -> None:
    with_a_gpu(notes)
    for index, name in enumerate(("RTX 3090", "RTX 3060")):
        notes.row(index=index, name=name, uuid=f"uuid-{index}")
    notes.row(index=2, error="out of memory")


def sees(notes: Notes) -> None:
    notes.row(visible=os.environ.get("CUDA_VISIBLE_DEVICES"))


def wrong(notes: Notes) -> None:
    notes.within("sum", 0.5, 0.1, rows=2)
    notes.within("product", float("nan"), 0.1)


def raises(notes: Notes) -> None:
    notes.row(before=1)
    raise RuntimeError("CUDA error: an illegal memory access was encountered \x1b[31m")


def lacks_memory(_: Notes) -> None:
    raise MemoryError("no room")


def dies(notes: Notes) -> None:
    notes.row(before=1)
    sys.stdout.flush()
    os._exit(9)


def hangs(notes: Notes) -> None:
    notes.row(before=1)
    print("begun", flush=True)
    sleep(600)


def unavailable(_: Notes) -> None:
    raise Unavailable("no GPU")
