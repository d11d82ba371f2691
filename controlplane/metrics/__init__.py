"""The control plane's metrics, for Prometheus."""
