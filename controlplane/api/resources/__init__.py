"""API calls of accounts, one module per resource."""
