"""The fast Walsh-Hadamard transform, against its matrix."""

import numpy as np

from kernattn._maps.walsh import padded, walsh_hadamard


def test_walsh_hadamard():
    h = np.array([[(-1) ** (i & j).bit_count() for j in range(16)] for i in range(16)]) / 4
    x = np.random.default_rng(0).standard_normal((3, 16, 5))
    np.testing.assert_allclose(walsh_hadamard(x), h @ x, atol=1e-14)
    assert [padded(d) for d in (1, 2, 3, 4, 5, 16, 17)] == [1, 2, 4, 4, 8, 16, 32]
