"""Gradients in arrays: pullbacks of the functions of attention and of feature maps."""

from kernattn._gradients.front import vjp

__all__ = ["vjp"]
