"""One host: its host, its watch, and everything the control plane has it do."""
