"""Sessions of a host: their states, their records, and the life of each."""
