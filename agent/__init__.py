"""The host agent: owns containers, ports, deadlines, logs and artifacts of one machine."""
