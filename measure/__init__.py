"""Scripts behind docs/measurements.md; each prints what it measured with the machine and the versions."""
