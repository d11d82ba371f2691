"""The database: its engine, and the transactions on its tables."""
