"""The developer's hour on a GPU: tests, sanitizers, sizes to tune and faults. `python -m measure.gpu`."""
