"""Sessions: their rows, ends, players and stop orders, and the reports of hosts."""
