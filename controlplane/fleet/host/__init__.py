"""One host: its link, its watch, and everything the control plane has it do."""
