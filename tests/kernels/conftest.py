import pytest
import torch

from tests.kernels.interpreter import complete

complete()


OTHER = torch.float16 if torch.cuda.is_available() else torch.float32


@pytest.fixture(params=[pytest.param(OTHER, marks=pytest.mark.slow), torch.bfloat16], ids=str)
def stored(request: pytest.FixtureRequest) -> torch.dtype:
    """What rows are stored in where their bits are compared: in another type that is the same comparison."""
    found: torch.dtype = request.param
    return found
