"""What is raced: for every case its inputs, our call, the peers' calls and the work that nobody can avoid."""

from kernattn.bench.cases.race import Options, Race
from kernattn.bench.cases.table import CASES

__all__ = ["CASES", "Options", "Race"]
