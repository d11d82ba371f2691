"""Code that the agent and the control plane share."""
