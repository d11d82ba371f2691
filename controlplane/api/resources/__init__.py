"""The calls of an account: one module per resource, with its bodies."""
