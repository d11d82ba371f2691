"""`python -m controlplane` is `tiltyard-controlplane`."""

from controlplane.cli.main import main

if __name__ == "__main__":
    main()
