"""Heads for a target that is not in main memory: all that they make and multiply is where its states are."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from specchat.engine.decoding.cached import CachedModel, HostModel
from specchat.engine.heads import dspark as dspark_module
from specchat.engine.heads import eagle3
from specchat.engine.heads import target as target_module
from specchat.engine.heads.files import FoundHeads, HeadFiles
from specchat.engine.heads.peagle import PEagleHead
from specchat.engine.heads.recipe import need
from specchat.engine.heads.target import read_heads
from specchat.engine.model.rows import Linear
from specchat.engine.model.tree_layout import Levels
from specchat.engine.strategy import Head
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.weights import Weights
from tests.engine import published_blocks, published_heads
from tests.engine.tiny import VOCAB, checkpoint

THERE = torch.device("meta")
"""Tensors of shapes and no values."""
KNOWN = 9
WRITE: dict[str, tuple[Head, Callable[[Path], Path]]] = {
    "medusa": ("medusa", published_heads.medusa),
    "eagle": ("eagle", published_heads.eagle),
    "eagle with embeddings": ("eagle", partial(published_heads.eagle, embeddings=True)),
    "eagle3": ("eagle3", partial(published_heads.eagle3, states=[0, 2, 4])),
    "eagle3 normed": ("eagle3", partial(published_heads.eagle3, states=[1, 2, 3], fc_norm=True, norm_before_fc=True)),
    "peagle": ("peagle", partial(published_heads.peagle, eagle_aux_hidden_state_layer_ids=[1, 2, 3])),
    "mtp": ("mtp", published_heads.mtp),
    "kv-mtp": ("kv-mtp", partial(published_heads.kv_mtp, num_key_value_heads=4)),
    "dflash": ("dflash", partial(published_blocks.dflash, layout="speculators", few=120)),
    "dflash with windows": (
        "dflash",
        partial(published_blocks.dflash, layer_types=["sliding_attention", "full_attention"], sliding_window=7),
    ),
    "dflash2": ("dflash2", published_blocks.dflash2),
    "dspark": ("dspark", published_blocks.dspark),
    "dspark rnn": ("dspark", partial(published_blocks.dspark, layout="speculators", kind="rnn", few=120)),
    "dspark gated": ("dspark", partial(published_blocks.dspark, kind="gated")),
    "xpress": ("xpress", published_blocks.xpress),
}
TREES = [name for name, (head, _) in WRITE.items() if head in ("medusa", "eagle", "eagle3")]


class Elsewhere:
    """A target that is there."""

    device, compiled, context, block, vocab = THERE, False, 64, 64, VOCAB
    embedding_product = None

    def __init__(self, folder: Path) -> None:
        self.config = Checkpoint.open(folder).config

    def record_states(self, layers: Sequence[int]) -> None:
        assert all(0 <= layer <= self.config.layers for layer in layers)

    def states(self, _: int, first: int, last: int) -> Tensor:
        assert first == last or 0 <= first < last <= KNOWN
        return torch.zeros(last - first, self.config.hidden, device=THERE)

    def kv_entries(self, layer: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        of = self.config.recipe.layers[layer].attention
        shape = of.kv_heads, last - first, of.head_dim
        return torch.zeros(shape, device=THERE), torch.zeros(shape, device=THERE)

    def embed(self, tokens: Sequence[int] | Tensor, normed: bool = True) -> Tensor:
        return torch.zeros(len(tokens), self.config.hidden, device=THERE)

    def final_norm(self, hidden: Tensor) -> Tensor:
        return torch.zeros_like(hidden)

    def project(self, hidden: Tensor) -> Tensor:
        assert hidden.dtype == torch.float32
        return hidden.new_zeros(len(hidden), VOCAB)


class OneDevice(TorchDispatchMode):
    """Lets no operation but a copy take tensors of two devices; a library for a GPU takes numbers from elsewhere."""

    def __torch_dispatch__(
        self, func: Any, _: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t.dim()]
        copies = any(word in func.name() for word in ("copy_", "_to_copy")) and "index_copy" not in func.name()
        assert copies or len({t.device for t in tensors}) <= 1, func.name()
        return func(*args, **kwargs or {})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("m") / "target", num_hidden_layers=4)


@pytest.fixture(params=WRITE)
def heads(
    request: pytest.FixtureRequest, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CachedModel[HostModel]]:
    """Heads for a text of KNOWN tokens and the pending one; what looks at values is told some."""

    def some(weights: Weights, rows: int, _: int) -> Tensor:
        return torch.arange(rows, device=weights.device)

    monkeypatch.setattr(eagle3, "draft_vocabulary", some)
    monkeypatch.setattr(target_module, "draft_vocabulary", some)
    monkeypatch.setattr(dspark_module, "float", lambda _: 0.5, raising=False)
    target = CachedModel(Elsewhere(folder))
    target.tokens = list(range(KNOWN))
    head, write = WRITE[request.param]
    with OneDevice():
        models, found = read_heads(FoundHeads({head: HeadFiles.open(write(tmp_path / "h"))}), target)  # type: ignore[arg-type]
        assert not found.unsupported
        yield models[head]


def test_a_chain_is_drafted_where_the_states_are(heads: CachedModel[HostModel]) -> None:
    heads.begin(range(KNOWN))
    if isinstance(heads.model, PEagleHead):
        heads.model.wanted = 3
    fed = [KNOWN - 1, 5]
    for at in range(3):
        hidden = heads.model.forward(fed, KNOWN + 1 + at - len(fed))
        logits = heads.model.logits(hidden[-1:])
        assert (logits.device, logits.dtype, logits.shape) == (THERE, torch.float32, (1, VOCAB))
        fed = [7]


@pytest.mark.parametrize("heads", TREES, indirect=True)
def test_a_tree_is_drafted_where_the_states_are(heads: CachedModel[HostModel]) -> None:
    heads.begin(range(KNOWN))
    heads.model.forward([KNOWN - 1, 5], KNOWN - 1)
    levels = Levels()
    for paths in ([[], []], [[0], [1], [1]]):
        hidden = heads.model.forward([3, 4, 5][: len(paths)], KNOWN + 1, layout=levels.layout(paths))
        logits = heads.model.logits(hidden)
        assert (logits.device, logits.shape) == (THERE, (len(paths), VOCAB))


def test_heads_take_no_more_there_than_was_counted(
    heads: CachedModel[HostModel], folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """But for maps of tokens and what is rounded up to whole vectors, which only count in heads this small."""
    head, _ = WRITE[request.node.callspec.params["heads"]]
    files, config = HeadFiles.open(tmp_path / "h"), Checkpoint.open(folder).config
    counted, on_host = (need(head, files, config, Elsewhere.context, place) for place in ("cuda", "cpu"))
    assert heads.model.memory() < 1.05 * counted < on_host


def test_products_elsewhere_take_two_bytes_a_weight() -> None:
    weight, bias = torch.zeros(5, 20, device=THERE), torch.zeros(5, device=THERE)
    assert Linear(weight, bias).memory() == 2 * 100 + 4 * 5
