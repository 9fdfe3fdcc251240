"""What acts on the rows of a step beside products: norms and nonlinearities, vector by vector."""

import numpy as np

from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.elementary import exponential
from kernattn.ops._numba.codegen.memory import pad, window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import every, load, store, where

ACTIVATIONS = "relu", "gelu", "gelu_tanh", "swiglu"
RELU, GELU, GELU_TANH, SWIGLU = range(4)
"""By what numbers the loop knows them."""

NUMERATOR = 1.12837914, 0.193537055, 0.0531006954, 0.00388300667, 0.000284558927, 1.98684705e-06
DENOMINATOR = 1.0, 0.504850306, 0.115346697, 0.0152065712, 0.00118549085, 3.74204939e-05
"""erf(x) / x as a quotient of polynomials in x^2 where |x| < 4, of least relative error: 2.5e-8 before rounding."""
ROOT, CUBIC, TWICE = 0.5**0.5, 0.044715, 2 * 0.7978845608028654


@inner
def _erf(x, four):
    """Return the error function of a vector; `four` is 4 in every element, beyond which it is 1."""
    x = where(x < four, where(x > 0 - four, x, 0 - four), four)
    u = x * x
    over = ((((u * NUMERATOR[5] + NUMERATOR[4]) * u + NUMERATOR[3]) * u + NUMERATOR[2]) * u + NUMERATOR[1]) * u
    under = (((u * DENOMINATOR[5] + DENOMINATOR[4]) * u + DENOMINATOR[3]) * u + DENOMINATOR[2]) * u + DENOMINATOR[1]
    return x * (over + NUMERATOR[0]) / (under * u + DENOMINATOR[0])


@inner
def activate(kind, x, gate, size):
    """Apply the nonlinearity to `size` numbers of x, whole vectors; "swiglu" multiplies them by that of the gate."""
    width = lanes(x)
    four = every(load(x, 0), 4.0)
    for i in range(0, size, width):
        y = load(x, i)
        if kind == RELU:
            y = where(y > 0.0, y, every(y, 0.0))
        elif kind == GELU:
            y = y * 0.5 * (_erf(y * ROOT, four) + 1.0)
        elif kind == GELU_TANH:
            y = y / (exponential((y + y * y * y * CUBIC) * -TWICE) + 1.0)
        else:
            g = load(gate, i)
            y = y * g / (exponential(g * -1.0) + 1.0)
        store(y, x, i)


@inner
def exponentials(x, size, parts):
    """Turn numbers into e^(x - their largest); return their sum. The rest of x's last pair of vectors gets 0."""
    width, zero = lanes(x), x.dtype.type(0)
    end = pad(size, 2 * width)
    for i in range(size, end):
        x[i] = -np.inf
    a, b = load(x, 0), load(x, width)
    for i in range(2 * width, end, 2 * width):
        c, d = load(x, i), load(x, i + width)
        a, b = where(c > a, c, a), where(d > b, d, b)
    store(where(b > a, b, a), parts, 0)
    highest = parts[0]
    for i in range(1, width):
        highest = parts[i] if parts[i] > highest else highest
    a = b = every(load(x, 0), zero)
    for i in range(0, end, 2 * width):
        c, d = exponential(load(x, i) - highest), exponential(load(x, i + width) - highest)
        store(c, x, i)
        store(d, x, i + width)
        a, b = a + c, b + d
    store(a + b, parts, 0)
    total = zero
    for i in range(width):
        total += parts[i]
    return total


@inner
def add_rows(x, more, size):
    """Add `more` to `size` numbers of x, whole vectors."""
    for i in range(0, size, lanes(x)):
        store(load(x, i) + load(more, i), x, i)


@inner
def _sum(x, at, size, shift, squared, parts):
    """Return the sum of x - shift, or of its square."""
    width = lanes(x)
    whole = size // width * width
    total = every(load(x, 0), 0.0)
    for i in range(at, at + whole, width):
        y = load(x, i) - shift
        total = total + (y * y if squared else y)
    store(total, parts, 0)
    sum_ = x.dtype.type(0)
    for i in range(width):
        sum_ += parts[i]
    tail = window(x, at + whole, size - whole)
    for i in range(size - whole):
        y = tail[i] - shift
        sum_ += y * y if squared else y
    return sum_


@inner
def normalise(w, at, x, rows, dim, row, centred, eps, y, parts):
    """Write rows of mean 0 (where `centred`) and mean square 1, times a scale, plus a bias; return what is next in w.

    Rows are whole vectors: scale and bias are 0 beyond dim.
    """
    part, one = x.dtype.type(1 / dim), x.dtype.type(1)
    for i in range(rows):
        mean = x.dtype.type(0)
        if centred:
            mean = _sum(x, i * row, dim, mean, False, parts) * part
        by = one / np.sqrt(_sum(x, i * row, dim, mean, True, parts) * part + eps)
        for j in range(0, row, lanes(x)):
            store((load(x, i * row + j) - mean) * by * load(w, at + j) + load(w, at + row + j), y, i * row + j)
    return at + 2 * row


@inner
def normalise_heads(w, at, x, count, d, row, centred, eps):
    """Normalise heads (count, d) where they are, times a scale, plus a bias; return what is next in w."""
    part, scale, bias = x.dtype.type(1 / d), window(w, at, d), window(w, at + row, d)
    for h in range(count):
        y, mean, square = window(x, h * d, d), x.dtype.type(0), x.dtype.type(0)
        for j in range(d if centred else 0):
            mean += y[j] * part
        for j in range(d):
            square += (y[j] - mean) * (y[j] - mean)
        by = x.dtype.type(1) / np.sqrt(square * part + eps)
        for j in range(d):
            y[j] = (y[j] - mean) * by * scale[j] + bias[j]
    return at + 2 * row
