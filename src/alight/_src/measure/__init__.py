"""Measuring devices: clocks, calibration and the profiles it makes."""
