"""Studies: sweeps over settings, one record a cell, with a summary and figures made from the records alone.

Arguments that do not fit raise ParameterError, as do folders that cannot be written to, and figures and reports of a
study that is not measured to its end. A folder that holds no study, or one that another version measured, raises
FileFormatError, a package that is not installed MissingExtra.
"""

from kernattn._environment import describe, versions
from kernattn._runtime.deprecated import old_names
from kernattn.studies._cells import TrialFailed
from kernattn.studies._images import REAL_ROWS, real_rows
from kernattn.studies._means import medians
from kernattn.studies._palette import line_style
from kernattn.studies._presets.plot import figures, plot
from kernattn.studies._presets.study import study
from kernattn.studies._presets.table import PRESETS
from kernattn.studies._records import StudyConflict, read_records
from kernattn.studies._report import report
from kernattn.studies._run import run
from kernattn.studies._style import style
from kernattn.studies._sweep import Cell, Stop, Sweep
from kernattn.studies._tables import Split, Table, diamonds, flights

__all__ = [
    "PRESETS",
    "REAL_ROWS",
    "Cell",
    "Split",
    "Stop",
    "StudyConflict",
    "Sweep",
    "Table",
    "TrialFailed",
    "describe",
    "diamonds",
    "figures",
    "flights",
    "line_style",
    "medians",
    "plot",
    "read_records",
    "real_rows",
    "report",
    "run",
    "study",
    "style",
    "versions",
]


def __dir__() -> list[str]:
    return __all__


__getattr__ = old_names(
    __name__,
    {"look": "kernattn.studies.line_style", "MissingExtra": "kernattn.errors.MissingExtra"},
    gone={
        "AttentionSettings": 'the options of study("attention", out, axes=, draws=, precision=, seed=, quick=)',
        "attention_study": 'study("attention", out, axes=, draws=, precision=, seed=, data=)',
        "regrets": "measure_regrets of examples/plot_regret.py",
        "regret_table": "a function of examples/plot_regret.py",
    },
)
