"""Where the ends of the floats begin, for each dtype that sums run in."""

from typing import NamedTuple


class Ends(NamedTuple):
    """Sizes of projections and values, and how many octaves sums keep free for them.

    A value times the weight of a key, times the largest of an ordinary row and query (2^16 each) and 2^24 tokens, is a
    float.
    """

    held: float  # a 64th of the largest float, where projections and log scales are held: sums of a few are finite
    large: float  # values from here on leave keys less room to rise above the unit of their chunk
    huge: float  # values from here on are summed some octaves lower
    lift: float  # how many
    rise: float  # by how many octaves keys may rise above the first of their chunk
    low_rise: float  # the same beside large values
    faint: float  # positive features of keys, and sums of them, that are smaller count as 0
    low: float  # the normaliser of positive features that is smaller loses digits in its products
    raised: float  # by how many octaves a query is raised whose normaliser is low
    raised_most: float  # the same where the normaliser is below 2^-(raised_most + 2)


SINGLE = Ends(2.0**122 * (1 - 2.0**-24), 2.0**36, 2.0**72, 56.0, 50.0, 14.0, 2.0**-112, 2.0**-100, 98.0, 110.0)
DOUBLE = Ends(2.0**1018 * (1 - 2.0**-53), 2.0**600, 2.0**896, 128.0, 300.0, 50.0, 2.0**-990, 2.0**-880, 878.0, 990.0)
ENDS = {"float32": SINGLE, "float64": DOUBLE}
