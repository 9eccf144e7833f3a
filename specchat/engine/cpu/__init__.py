"""Models on a processor: a whole pass in one compiled function whose rows do not depend on each other."""
