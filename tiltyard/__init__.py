"""What the agent and the control plane share."""
