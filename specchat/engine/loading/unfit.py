"""Why a pair is not run by specchat's own kernels, found out before its weights are read."""


class KernelsUnfit(Exception):
    """The kernels cannot run on a GPU that is there: `reason` is a clause. A `fault` is worth a report."""

    def __init__(self, reason: str, fault: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fault = fault
