"""Values and rules of the control plane. Pure: no I/O, and time is an argument."""
