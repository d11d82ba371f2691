"""The faults that Tiltyard must survive: their list, what holds after each, and the evidence."""
