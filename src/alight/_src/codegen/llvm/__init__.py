"""Groups as LLVM IR, and the machine code made of it, for the host: change here how its kernels are
written; what runs them is `backends.host`."""
