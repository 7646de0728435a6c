"""Random programs and aliasing chains, run on ndarrays and on Arrays at once and compared."""
