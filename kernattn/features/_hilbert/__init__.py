"""Deterministic features: eigenfunctions of the Laplacian on a box."""
