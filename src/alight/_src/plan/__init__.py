"""Planning: pure functions from a graph and what is known to a plan."""
