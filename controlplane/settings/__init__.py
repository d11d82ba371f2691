"""The control plane's settings file."""
