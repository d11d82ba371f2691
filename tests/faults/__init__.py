"""The faults that Tiltyard must survive: the list, the invariants after each, and the results."""
