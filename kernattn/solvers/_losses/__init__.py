"""Fits of losses other than least squares, by steps that walk over the rows."""
