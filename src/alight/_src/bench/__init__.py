"""`alight bench`, the same NumPy programs through alight and its peers, side by side: change here
what is run, how it is timed and how it is told."""
