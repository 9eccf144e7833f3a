from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from specchat.config.catalog import load_catalog
from specchat.config.paths import demo_model
from specchat.engine.loading import load
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.session import Session
from specchat.engine.strategy import Head
from specchat.engine.text.draft_vocabulary import write
from specchat.engine.text.tokenizer import Tokenizer
from tests.engine import published_blocks, published_heads
from tests.engine.published_blocks import dflash, dflash2, dspark, xpress
from tests.engine.published_heads import eagle, eagle3, kv_mtp, medusa, mtp, peagle
from tests.engine.tiny import VOCAB, checkpoint, on_cpu, perturbed

SHARED = Path(__file__).parents[3] / "shared" / "data"


HEADS: dict[Head, Callable[[Path], Path]] = {
    "kv-mtp": kv_mtp,
    "medusa": medusa,
    "eagle": eagle,
    "eagle3": eagle3,
    "peagle": peagle,
    "mtp": mtp,
    "dflash": dflash,
    "dflash2": partial(dflash2, best=240),
    "dspark": dspark,
    "xpress": xpress,
}


def heads(folder: Path, writers: Mapping[Head, Callable[[Path], Path]]) -> dict[Head, ModelSource]:
    return {head: ModelSource(path=str(write(folder / head))) for head, write in writers.items()}


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> PairSpec:
    """A random target with a draft that often agrees, for the CPU: these tests look at its numbers."""
    root = tmp_path_factory.mktemp("pair")
    target = checkpoint(root / "target", num_key_value_heads=2, tie_word_embeddings=False)
    draft = perturbed(root / "draft", target, 0.05)
    return PairSpec("tiny", "Tiny", on_cpu(target), on_cpu(draft), heads=heads(root, HEADS))


@pytest.fixture(scope="session")
def session(tiny_pair: PairSpec) -> Session:
    return load(tiny_pair, lambda _: None)


EVEN = range(0, VOCAB, 2)
"""The tokens that the draft of `restricted` may propose; the end of a reply is one of them."""


@pytest.fixture(scope="session")
def restricted(tiny_pair: PairSpec, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """The same pair with a draft vocabulary."""
    path = tmp_path_factory.mktemp("vocabulary") / "even.json"
    write(path, Tokenizer.read(Path(tiny_pair.target.path or "")), EVEN)
    return load(replace(tiny_pair, draft_vocabulary=str(path)), lambda _: None)


@pytest.fixture(scope="session")
def demo() -> Session:
    """The embedded pair on the CPU, with its heads."""
    target, draft = (on_cpu(demo_model(name)) for name in ("target", "draft"))
    heads = load_catalog(None).find("demo").spec.heads
    return load(PairSpec("demo", "Demo", target, draft, heads=heads), lambda _: None)


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs load without the replies that measure them: most of the time that loading a tiny one takes."""
    monkeypatch.setattr(Session, "_measure", lambda _: None)


@pytest.fixture
def shared_data() -> Path:
    """Real checkpoints, tokenizers and prompts that stand beside the project on some machines."""
    if not SHARED.is_dir():
        pytest.skip("the folder with real checkpoints is not beside this checkout")
    return SHARED


@pytest.fixture
def real_session(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Two real sets of weights with one tokenizer, on the CPU, and random heads of their size."""
    target, draft = (on_cpu(shared_data / "checkpoints" / name) for name in ("stories260K", "stories260K-q8"))
    for module in (published_heads, published_blocks):
        monkeypatch.setattr(module, "VOCAB", 512)
    fitting = HEADS | {"mtp": partial(mtp, vocab_size=512), "medusa": partial(medusa, vocab=512)}
    fitting["kv-mtp"] = partial(kv_mtp, num_key_value_heads=4, num_attention_heads=8, head_dim=8)
    for block in ("dflash", "dflash2", "dspark", "xpress"):
        fitting[block] = partial(HEADS[block], num_target_layers=5)
    return load(PairSpec("stories", "Stories", target, draft, heads=heads(tmp_path, fitting)), lambda _: None)
