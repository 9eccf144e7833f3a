"""`python -m tests.cli.scripted_specchat`: specchat with the scripted session of tests/process.

With SCRIPTED_LOCK_S it waits so many seconds for a database that another program has locked.
"""

import os
from functools import partial

from specchat.chat import schema, writer
from specchat.cli import main
from specchat.resident import shared
from tests.process.conftest import SCRIPTED

shared.open_engine = partial(shared.open_engine, loader=SCRIPTED)
if seconds := os.environ.get("SCRIPTED_LOCK_S"):
    schema.BUSY_S = writer.RETRY_S = float(seconds)
main()
