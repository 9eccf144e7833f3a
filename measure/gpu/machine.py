"""The GPU at hand and the versions that make a difference, as one JSON object; exit code 3 where there is none."""

import json
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from specchat.engine.model import toolchain

PACKAGES = ("specchat", "torch", "triton", "bitsandbytes", "transformers")
NO_GPU = 3


def versions() -> dict[str, str]:
    """Programs and the machine, by name."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    found["C compiler"] = toolchain.compiler() or "none"
    found["Python.h"] = str(toolchain.header()) if toolchain.header().is_file() else "none"
    if program := shutil.which("nvidia-smi"):
        query = ("--query-gpu=name,memory.total,driver_version,compute_cap,clocks.max.sm", "--format=csv,noheader")
        asked = subprocess.run([program, *query], capture_output=True, text=True, check=False)
        found["GPU"] = " / ".join(asked.stdout.strip().splitlines())
    return found


def main() -> None:
    found = versions()
    reason = "torch is not installed"
    if find_spec("torch") is not None:
        from specchat.engine.model.gpu import Gpu, find_gpu

        gpu = find_gpu()
        if isinstance(gpu, Gpu):
            found["used"] = f"{gpu.name}, {gpu.processors} multiprocessors, {gpu.free / (1 << 30):.1f} GiB free"
            print(json.dumps(found))
            return
        reason = gpu
    print(json.dumps(found | {"none": reason}))
    sys.exit(NO_GPU)


if __name__ == "__main__":
    main()
