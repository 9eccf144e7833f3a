"""A session for each way to read pictures."""

import pytest

from specchat.engine.loading import load
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.session import Session
from tests.engine.conftest import HEADS, heads
from tests.engine.tiny import on_cpu, perturbed
from tests.pictures.whole import KINDS, saved


@pytest.fixture(scope="session", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PairSpec:
    """A pair with a third of the heads in turn."""
    root, turn = tmp_path_factory.mktemp(request.param), list(KINDS).index(request.param)
    target = saved(request.param, root / "target")
    some = {head: write for at, (head, write) in enumerate(HEADS.items()) if at % 3 == turn % 3}
    draft = perturbed(root / "draft", target, 0.05)
    return PairSpec("tiny", "Tiny", on_cpu(target), on_cpu(draft), heads=heads(root, some))


def unmeasured(pair: PairSpec) -> Session:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Session, "_measure", lambda _: None)
        return load(pair, lambda _: None)


@pytest.fixture(scope="session")
def session(pair: PairSpec) -> Session:
    return unmeasured(pair)
