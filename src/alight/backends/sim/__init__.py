"""Simulated devices: real values, virtual time."""
