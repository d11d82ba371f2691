"""Hides `rich`, which only development installs and structlog imports if it can, at 3 MB."""

raise ImportError("rich is not installed with the programs")
