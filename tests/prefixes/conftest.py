from tests.engine.conftest import unmeasured as unmeasured
