"""Maps of kernels that have a spectral measure."""
