"""Scripts behind docs/measurements.md; each prints its figures with the machine and the versions."""
