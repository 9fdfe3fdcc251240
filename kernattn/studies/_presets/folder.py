"""The folder of a study, read for its figures or its report."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kernattn.errors import FileFormatError, ParameterError
from kernattn.studies._presets.fields import draw_fields
from kernattn.studies._presets.preset import Figure, Preset
from kernattn.studies._presets.table import PRESETS
from kernattn.studies._presets.verdict import Verdict
from kernattn.studies._presets.whole import check_whole
from kernattn.studies._records import Record, read_config, read_records


class Study(NamedTuple):
    """What a folder holds; a sweep of one's own has no preset."""

    folder: Path
    name: str
    preset: Preset | None
    config: Mapping[str, Any]
    records: list[Record]

    def figures(self, across: str | None = None, by: str | None = None) -> Mapping[str, Figure]:
        """Return its figures by name: those of the preset, or one for each field that a sweep of one's own measured."""
        if self.preset is None:
            return draw_fields(self.records, self.config, across, by)
        if across is not None or by is not None:
            raise ParameterError(
                f"across and by are for a sweep of your own; the figures of {self.name} have their axes"
            )
        return self.preset.figures

    def verdicts(self) -> list[Verdict]:
        """Return the verdicts of the preset."""
        return [] if self.preset is None else self.preset.verdicts(self.records)


def read_study(folder: Path) -> Study:
    """Return the study of a folder: all of it, for verdicts and figures of a preset speak of the whole design."""
    records, config = read_records(folder), read_config(folder)
    if not records:
        raise ParameterError(f"{folder} holds no record yet: run its study first")
    name, home = str(config.get("study")), str(config.get("sweep") or "")
    ours = home.startswith("kernattn.")  # any sweep may have the name of a preset
    preset, cells = PRESETS.get(name) if ours else None, config.get("cells", len(records))
    check_whole(folder, config, records, preset is None)
    if preset is not None and len(records) < cells:
        raise ParameterError(f"{folder} holds {len(records)} of {cells} cells: run its study again, which goes on")
    if preset is None:  # cells of a sweep of one's own may measure other fields
        fields = dict.fromkeys(field for record in records for field in record)
        records = [{**fields, **record} for record in records]
    return Study(folder, name, preset, config, records)


@contextmanager
def of_this_version(folder: Path) -> Iterator[None]:
    """Say what it means that records lack a field."""
    try:
        yield
    except KeyError as error:
        raise FileFormatError(
            f"{folder}: records lack the field {error}: another version measured them; run the study again"
        ) from error
