"""Functions run through alight, by tracing, proofs, guards and kept programs: change here how a
call is answered, never what it returns or writes."""
