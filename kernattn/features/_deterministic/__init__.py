"""Maps without random numbers."""
