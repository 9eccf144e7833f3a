"""Random and shipped models as GGUF files. Without llama-cpp-python these tests skip, with the reason."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from specchat.config.paths import demo_model
from specchat.engine.llama_cpp.export import export
from specchat.engine.loading import load
from specchat.engine.protocol.pair import GgufOptions, ModelSource, PairSpec
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.conftest import SHARED
from tests.engine.tiny import SPECIAL, checkpoint, perturbed

MISSING = [name for name in ("llama_cpp", "gguf") if find_spec(name) is None]
EXACT = GgufOptions(threads=1, cache="f32")


def source(path: Path, options: GgufOptions = EXACT) -> ModelSource:
    return ModelSource(path=str(path), gguf=options)


def pair(target: Path, draft: Path | None = None, options: GgufOptions = EXACT) -> PairSpec:
    small = None if draft is None else source(draft, options) if draft.is_file() else ModelSource(str(draft))
    return PairSpec("tiny", "Tiny", source(target, options), small, "gguf")


def loaded(target: Path, draft: Path | None = None, options: GgufOptions = EXACT) -> Session:
    return load(pair(target, draft, options), lambda _: None)


def byte_tokenizer() -> Tokenizer:
    """One token a byte, one merge, and the special tokens: split as GPT-2 splits."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate([*alphabet, "th"])}, merges=[("t", "h")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(SPECIAL)
    return backend


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A random target and a draft that often agrees, as our own decoder reads them."""
    root = tmp_path_factory.mktemp("checkpoints")
    target = checkpoint(
        root / "target", backend=byte_tokenizer(), num_key_value_heads=2, tie_word_embeddings=False, eos_token_id=257
    )
    return target, perturbed(root / "draft", target, 0.05)


@pytest.fixture(scope="session")
def files(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same as GGUF files of float32."""
    if MISSING:
        pytest.skip(f"needs {' and '.join(MISSING)}")
    root = tmp_path_factory.mktemp("gguf")
    for folder in folders:
        export(Checkpoint.open(folder), root / f"{folder.name}.gguf", "f32")
    return root / "target.gguf", root / "draft.gguf"


@pytest.fixture(scope="session")
def session(files: tuple[Path, Path]) -> Session:
    return loaded(*files)


@pytest.fixture(scope="session")
def demo_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The embedded pair as GGUF files of float32."""
    if MISSING:
        pytest.skip(f"needs {' and '.join(MISSING)}")
    root = tmp_path_factory.mktemp("demo")
    for role in ("target", "draft"):
        export(Checkpoint.open(demo_model(role)), root / f"{role}.gguf", "f32")
    return root / "target.gguf", root / "draft.gguf"


@pytest.fixture(scope="session")
def demo(demo_files: tuple[Path, Path]) -> Session:
    return loaded(*demo_files)


@pytest.fixture
def shared_data() -> Path:
    """Real checkpoints that stand beside the project on some machines."""
    if not SHARED.is_dir():
        pytest.skip("the folder with real checkpoints is not beside this checkout")
    return SHARED
