"""The kernels of a growing tree as a draft pass launches them: 4 nodes a level, a vocabulary of 151,936 tokens."""

from specchat.engine.kernels import candidates, growth
from specchat.engine.kernels.growth_state import GrowthState
from tests.kernels.cases_verify import SCORED, STATE
from tests.kernels.compiled import launched

WIDTH, LEVELS = 4, 15
TREE = GrowthState.create(STATE, WIDTH, LEVELS)

CASES = [
    launched("gather", candidates._gather, lambda: candidates.gather(SCORED, TREE, WIDTH)),
    launched("append", candidates._append, lambda: candidates.gather(SCORED, TREE, WIDTH)),
    launched("expand", growth._expand, lambda: growth.expand(TREE, WIDTH)),
    launched("settle", growth._settle, lambda: growth.settle(TREE, STATE)),
]
