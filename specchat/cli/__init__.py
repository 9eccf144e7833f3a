"""The command line. Commands import torch or textual only when they run."""

import sys


def main() -> None:
    """Run the command line and exit with one of `ExitCode`; ctrl+c while it is imported ends it too."""
    try:
        from specchat.cli.root import main as run
    except KeyboardInterrupt:
        from specchat.cli.exit_codes import ExitCode

        sys.exit(ExitCode.INTERRUPTED)
    run()
