"""From fusion groups to code: loop nests, schedules, LLVM IR."""
