"""Transactions, one module per group of tables."""
