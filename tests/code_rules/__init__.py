"""Rules of CONTRIBUTING.md, "One statement, one fact", that ruff does not have."""
