"""Ratio of measured to expected times of plain steps, with the error of the estimate."""

from math import exp, hypot, inf, log, sqrt

PLAIN_STEPS = 32.0
"""Plain steps after which older ones weigh less; half as many are enough."""
OFF = 0.08
"""Least prior standard deviation of the ratio, from the error of the time measured at loading."""
EVEN, UNEVEN = 0.06, 0.3
"""Standard deviation of the ratio between seconds without load, and its increase per unit of the log of the load."""
LASTING = 0.0001
"""Least variance of the lasting ratio, so that older measurements weigh less."""
STEADY = 0.1
"""Change of the log of the load within its time constant up to which a plain step counts fully."""
FORGETS = 3.0
"""Decay of older plain steps per unit of change of the log of the load."""
NOISE, NOISES = 0.1, 4.0
"""Prior standard deviation of a measurement, and its weight in measurements."""
LEAST_ERROR, BEYOND = 0.04, 0.1
"""Least error of a mean of measurements, as many share one load, and its increase per unit of the log of the load."""


class PlainRatio:
    """Ratio of plain steps to their time expected from the load, 1 at first, with its error."""

    def __init__(self, error: float = OFF) -> None:
        """Create a ratio of 1 with this standard error."""
        self._count = self._sum = self._squares = self._loads = 0.0
        self._lasting, self._sure = 1.0, 1 / (error * error)
        """The lasting ratio, and its inverse variance."""

    @property
    def count(self) -> float:
        """Decayed number of plain steps."""
        return self._count

    def fade(self, factor: float) -> None:
        self._count *= factor
        self._sum *= factor
        self._squares *= factor
        self._loads *= factor

    def add(self, times: float, load: float, newest: float, steps: float = 1.0) -> None:
        """Count `steps` plain steps under this `load`, `newest` soon, that took `times` their expected time."""
        other_load = log(load) - self._loads / self._count if self._count else 0.0
        self.fade((1 - 1 / PLAIN_STEPS) * exp(-FORGETS * abs(other_load)))
        # A change of load shifts the expected time by the same factor.
        changes = max(0.0, abs(log(load / newest)) - STEADY)
        weight = steps * NOISE * NOISE / (NOISE * NOISE + changes * changes)
        self._count += weight
        self._sum += weight * times
        self._squares += weight * times * times
        self._loads += weight * log(load)
        tells = weight / (NOISE * NOISE + (UNEVEN * log(load)) ** 2)
        self._sure = min(self._sure + tells, 1 / LASTING)
        self._lasting += tells / self._sure * (times - self._lasting)

    def known(self, load: float, newest: float) -> tuple[float, float]:
        """Return the ratio under this `load`, which is `newest` soon, and its standard error.

        The mean of recent measurements and the lasting ratio are combined by inverse variance.
        """
        lasting = 1 / self._sure + EVEN * EVEN + (UNEVEN * max(abs(log(load)), abs(log(newest)))) ** 2
        if not self._count:
            return self._lasting, sqrt(lasting)
        mean = self._sum / self._count
        squares = max(0.0, self._squares - self._count * mean * mean)
        spread = (squares + NOISES * NOISE * NOISE) / (self._count + NOISES)
        other_load = UNEVEN * (log(load) - self._loads / self._count)
        least = LEAST_ERROR * LEAST_ERROR + (BEYOND * log(load)) ** 2
        measured = max(spread / self._count, least) + other_load * other_load
        whole = lasting + measured
        return (measured * self._lasting + mean * lasting) / whole, sqrt(lasting * measured / whole)


class Repeated:
    """Plain steps repeated after a reply: by how much longer than usual they took, with the error of their mean."""

    def __init__(self) -> None:
        self.spent_ms = 0.0
        self._times: list[float] = []

    def add(self, ms: float, times: float | None) -> None:
        """Count one that took `ms`, `times` as long as usual; None for one that does not count."""
        self.spent_ms += ms
        if times is not None:
            self._times.append(times)

    @property
    def count(self) -> int:
        """Steps that count."""
        return len(self._times)

    @property
    def mean(self) -> float:
        return sum(self._times) / len(self._times)

    @property
    def error(self) -> float:
        """Relative standard error; infinite without any."""
        count = len(self._times)
        if not count:
            return inf
        mean = self.mean
        spread = sum((times / mean - 1) ** 2 for times in self._times) + NOISES * NOISE * NOISE
        return sqrt(LEAST_ERROR * LEAST_ERROR + spread / (count + NOISES) / count)


def combined(one: float, its_error: float, other: float, error: float) -> tuple[float, float]:
    """Return the mean of two estimates by their relative errors, and its error: more where they contradict each other.

    The factor is Birge's ratio.
    """
    weight, more = its_error**-2, error**-2
    mean = exp((weight * log(one) + more * log(other)) / (weight + more))
    return mean, (weight + more) ** -0.5 * max(1.0, abs(log(one / other)) / hypot(its_error, error))
