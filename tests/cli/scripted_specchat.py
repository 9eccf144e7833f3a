"""`python -m tests.cli.scripted_specchat`: specchat with the scripted session of tests/process."""

from functools import partial

from specchat.cli import main
from specchat.engine import client
from tests.process.conftest import SCRIPTED

client.EngineClient = partial(client.EngineClient, loader=SCRIPTED)  # type: ignore[assignment,misc]
main()
