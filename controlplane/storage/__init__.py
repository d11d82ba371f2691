"""The database: stores of transactions on one thread that owns it."""
