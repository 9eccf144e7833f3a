"""The developer's hour on a GPU: tests, sanitizers, sizes to tune, faults. `python -m measure.gpu`."""
