"""Random programs and aliasing chains, run on ndarrays and on Arrays at once and compared."""

import os

# Before alight reads its settings: every plan is proven, and every run followed.
os.environ.setdefault("ALIGHT_CHECK", "1")
