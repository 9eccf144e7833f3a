"""Models on a CPU: a whole pass is one compiled function, in which rows do not depend on each other."""
