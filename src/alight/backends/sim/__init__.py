"""Simulated devices, real values in virtual time: change here what they forbid and how long things
take; they exist for tests alone."""
