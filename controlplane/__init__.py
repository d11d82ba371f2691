"""The control plane: the HTTP API, tokens, applications and placement."""
