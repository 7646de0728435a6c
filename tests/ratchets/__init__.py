"""Ratchets: yardsticks written by others, run against alight, that may only ever get better."""
