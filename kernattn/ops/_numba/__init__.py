"""What the compiled siblings share: how a loop is compiled, elementary functions and products that LLVM vectorises, tiles of features."""
