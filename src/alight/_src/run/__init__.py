"""A plan run: kernels, residency, copies, steps, results; change here how a step is carried out;
which steps there are is up to `plan`."""
