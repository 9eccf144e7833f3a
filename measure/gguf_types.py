"""The tables of docs/gguf.md: types of tensors and architectures that specchat's own decoder reads."""

from specchat.engine import families
from specchat.engine.formats.gguf import MXFP4, SIZES, TYPES
from specchat.engine.formats.mxfp4 import Mxfp4
from specchat.engine.gguf.config import ARCHITECTURES


def tables() -> str:
    """Both tables, as Markdown."""
    rows = ["| type | bits a weight in the file | in memory | on a GPU |", "|---|---|---|---|"]
    rows.append("| F32, F16, BF16 | 32, 16 | the same | 16 |")
    sizes = {name: (one.size, one.octets, one.layout) for name, one in TYPES.items()}
    mxfp4 = Mxfp4().layout(32)
    assert mxfp4 is not None
    sizes[MXFP4] = *SIZES[MXFP4], mxfp4
    for name, (size, octets, layout) in sizes.items():
        held = [8 * layout.bytes(1, 1 << 20, name == MXFP4, on_gpu) / (1 << 20) for on_gpu in (False, True)]
        rows.append(f"| {name} | {8 * octets / size:.4g} | {held[0]:.4g} | {held[1]:.4g} |")
    known = families.known()
    rows += ["", "| architecture in the file | family |", "|---|---|"]
    for architecture, one in sorted(ARCHITECTURES.items()):
        rows.append(f"| `{architecture}` | {known[one.model_type].name} |")
    return "\n".join([*rows, ""])
