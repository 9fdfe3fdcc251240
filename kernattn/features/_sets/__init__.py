"""Random features of the min-max kernel, for sets, counts and weights."""
