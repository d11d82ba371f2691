"""The control plane put together."""
