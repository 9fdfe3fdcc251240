"""Maps of sums, products and multiples of kernels."""
