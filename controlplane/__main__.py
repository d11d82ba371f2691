"""`python -m controlplane` is `tiltyard-controlplane`."""

from controlplane.cli import main

if __name__ == "__main__":
    main()
