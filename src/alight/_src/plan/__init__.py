"""Planning: pure functions from a graph and what is known to a plan; no backend, clock, file or
environment may be seen here."""
