"""A plan run: kernels, residency, copies, steps, results."""
