"""Groups as LLVM IR, and the machine code made of it, for the host."""
