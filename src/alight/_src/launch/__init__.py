"""`alight run`."""
