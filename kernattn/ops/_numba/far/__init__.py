"""Rows far from ordinary floats: what is negligible, clamped, or has a unit of its own."""
