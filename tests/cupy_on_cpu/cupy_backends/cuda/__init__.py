"""CuPy's lower half."""
