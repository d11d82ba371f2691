"""What a service needs: logging, settings files, systemd, failpoints, clocks."""
