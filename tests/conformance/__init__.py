"""Everything alight does against NumPy, drawn from the op table and from lists of programs."""
