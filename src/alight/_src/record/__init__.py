"""A call on arrays becomes a pending value."""
