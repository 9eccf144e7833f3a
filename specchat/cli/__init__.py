"""The command line. Commands import torch or textual only when they run."""

from specchat.cli.root import main

__all__ = ["main"]
