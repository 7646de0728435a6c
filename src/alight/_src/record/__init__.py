"""A call on arrays becomes a pending value, with NumPy's dtypes, strides, views and errors: change
here how calls are recorded; what becomes of the values is up to `run`."""
