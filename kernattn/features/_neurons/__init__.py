"""A function of random projections, coordinate by coordinate: layers of random neurons."""
