"""The attention study: random features against exact softmax attention, on real tokens."""
