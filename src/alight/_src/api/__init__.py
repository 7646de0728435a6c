"""NumPy's functions on Arrays, a file for each kind: change here how a function takes its arguments
and which calls it records; what an op means stands in `ir`."""
