"""`alight bench`: the same NumPy programs through alight and its peers, side by side."""
