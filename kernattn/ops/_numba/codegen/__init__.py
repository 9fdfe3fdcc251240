"""How loops are compiled and kept on disk, and the functions and vectors that they are written in."""
