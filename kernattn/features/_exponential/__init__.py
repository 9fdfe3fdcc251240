"""Exponential maps: positive features of the softmax and the Gaussian kernel."""
