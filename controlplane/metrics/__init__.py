"""What the control plane tells of itself, for Prometheus."""
