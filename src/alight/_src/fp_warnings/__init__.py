"""Floating-point warnings: what a kernel may warn of, when, and NumPy's messages at the line that
recorded the op; change here which are given, with NumPy as the measure."""
