"""Kernels run on the GPU where there is one, and under Triton's interpreter where there is none."""

import os
from pathlib import Path

# Triton's decorator decides at import; /proc tells of a driver without the seconds that importing torch takes.
if not Path("/proc/driver/nvidia/version").exists():
    os.environ["TRITON_INTERPRET"] = "1"
