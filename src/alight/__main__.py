"""`python -m alight`."""

from alight.cli import main

if __name__ == "__main__":
    main()
