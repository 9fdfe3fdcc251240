"""Maps of polynomial kernels, exact and sketched."""
