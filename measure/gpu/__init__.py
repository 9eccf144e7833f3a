"""The first hour on a GPU: what must be right before anything is timed, then the times. `python -m measure.gpu`."""
