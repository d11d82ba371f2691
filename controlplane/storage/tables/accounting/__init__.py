"""The audit, and what accounts use of their quotas."""
