"""`python -m tests.cli.scripted_specchat`: specchat with the scripted session of tests/process.

With SCRIPTED_LOCK_S it waits so many seconds for a database that another program has locked. Once ctrl+c was noted
there is a file `pressed` in SPECCHAT_HOME. A reply that does not stop is waited for until the second ctrl+c.
"""

import os
from functools import partial
from pathlib import Path
from types import FrameType

from specchat.chat import connection, writer
from specchat.cli import client, main
from specchat.cli.interrupt import Interrupt
from specchat.resident import shared
from tests.process.conftest import SCRIPTED

note = Interrupt._note


def noted(self: Interrupt, number: int, frame: FrameType | None) -> None:
    note(self, number, frame)
    Path(os.environ["SPECCHAT_HOME"], "pressed").touch()


Interrupt._note = noted  # type: ignore[method-assign]
client.PATIENCE_S = 3600.0
shared.open_engine = partial(shared.open_engine, loader=SCRIPTED)
if seconds := os.environ.get("SCRIPTED_LOCK_S"):
    connection.BUSY_S = writer.RETRY_S = float(seconds)
main()
