"""A decoding step of all layers as one compiled loop, and the memory that it runs on; all of it needs Numba."""

__all__: list[str] = []
