"""SciPy's functions on the device."""
