"""Sums of terms that span more than a float's range, and the units that they are kept in."""
