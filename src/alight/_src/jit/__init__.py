"""Functions run through alight."""
