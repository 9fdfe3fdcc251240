"""Which map for which kernel and which data."""
