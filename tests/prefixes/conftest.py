from tests.engine.conftest import session as session
from tests.engine.conftest import tiny_pair as tiny_pair
from tests.engine.conftest import unmeasured as unmeasured
