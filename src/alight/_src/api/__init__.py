"""NumPy's functions on Arrays."""
