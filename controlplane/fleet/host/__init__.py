"""One host: its state, its Watch stream, and the orders sent to it."""
