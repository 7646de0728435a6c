"""Measuring devices: clocks, calibration and the profiles it makes; change here what is timed and
what rates come of it; what is predicted from them is up to `plan`."""
