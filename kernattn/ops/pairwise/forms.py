"""What a kernel is made of, as numbers: a measure of two rows, and a function of it."""

from typing import NamedTuple

DOT, SQUARED, MANHATTAN, MINIMA = 0, 1, 2, 3
"""Measures of x and y: x.y, |x - y|^2, sum_i |x_i - y_i|, sum_i min(x_i, y_i)."""

EXPONENTIAL, POWER, MATERN = 0, 1, 2
"""Functions of a measure u: e^(number u); (u + number)^degree; p(s) e^-s with s^2 = number u and p of degree 0 to 2."""

LINEAR, QUADRATIC = (0.0, 1.0, 1.0), (0.0, 0.0, 1 / 3)
"""Coefficients of p(s) = 1 + a s + b s^2, by its degree."""


class Form(NamedTuple):
    """A measure, and a function of it."""

    measure: int
    function: int = POWER
    number: float = 0.0
    degree: int = 1
