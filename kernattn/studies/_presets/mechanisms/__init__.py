"""Mechanisms of attention at equal flops."""
