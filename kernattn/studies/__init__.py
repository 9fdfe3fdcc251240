"""Studies: sweeps over settings, one record a cell, with a summary and figures made from the records alone."""

from kernattn._environment import describe, versions
from kernattn.errors import MissingExtra
from kernattn.studies._cells import TrialFailed
from kernattn.studies._images import REAL_ROWS, real_rows
from kernattn.studies._palette import look
from kernattn.studies._presets.attention.settings import AttentionSettings
from kernattn.studies._presets.attention.study import attention_study
from kernattn.studies._presets.plot import figures, plot
from kernattn.studies._presets.study import study
from kernattn.studies._presets.table import PRESETS
from kernattn.studies._records import StudyConflict, read_records
from kernattn.studies._regret import regret_table, regrets
from kernattn.studies._report import report
from kernattn.studies._run import run
from kernattn.studies._style import style
from kernattn.studies._sweep import Cell, Stop, Sweep
from kernattn.studies._tables import Split, Table, diamonds, flights

__all__ = [
    "PRESETS",
    "REAL_ROWS",
    "AttentionSettings",
    "Cell",
    "MissingExtra",
    "Split",
    "Stop",
    "StudyConflict",
    "Sweep",
    "Table",
    "TrialFailed",
    "attention_study",
    "describe",
    "diamonds",
    "figures",
    "flights",
    "look",
    "plot",
    "read_records",
    "real_rows",
    "regret_table",
    "regrets",
    "report",
    "run",
    "study",
    "style",
    "versions",
]


def __dir__() -> list[str]:
    return __all__
