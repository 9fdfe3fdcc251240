"""Studies: sweeps over settings, one record a cell, with a summary and figures made from the records alone."""

from kernattn._environment import describe, versions
from kernattn.errors import MissingExtra
from kernattn.studies._attention import attention_study
from kernattn.studies._images import REAL_ROWS, real_rows
from kernattn.studies._records import StudyConflict, read_records
from kernattn.studies._settings import Settings, preset
from kernattn.studies._verdicts import verdicts

__all__ = [
    "REAL_ROWS",
    "MissingExtra",
    "Settings",
    "StudyConflict",
    "attention_study",
    "describe",
    "preset",
    "read_records",
    "real_rows",
    "verdicts",
    "versions",
]
