"""What a plan visits, pair by pair."""

import numpy as np

SIDE = 64  # of a tile: a row of its bits is a word


def counted(plan, head):
    """How often each pair is visited and admitted."""
    counts = np.zeros((plan.n, plan.length), int)
    for part in plan.heads[head]:
        for first, rows, begin, end in part.tiles:
            assert 0 < rows <= SIDE
            for low, high, number in part.visits[begin:end]:
                assert 0 <= low < high
                assert number < 0 or high - low <= SIDE
                i, j = np.arange(first, first + rows), np.arange(low, high)
                seen = np.ones((rows, high - low), bool)
                if number >= 0:
                    for at, word in enumerate(part.words[number, : high - low]):
                        seen[:, at] = [int(word) >> bit & 1 for bit in range(rows)]
                    assert seen.any()
                i = i if part.queries is None else part.queries[i]
                j = j if part.keys is None else part.keys[j]
                np.add.at(counts, (i[:, None], j), seen)
    return counts
