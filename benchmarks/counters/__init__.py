"""Counts of work that do not depend on the machine, and their bounds: see `__main__`."""
