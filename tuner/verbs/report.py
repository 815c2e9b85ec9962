"""Write the whole of a study into one page. Starts nothing."""

from pathlib import Path

from tuner.night.opening import open_study
from tuner.records import Records
from tuner.views.files import write_whole
from tuner.views.report import report as gathered
from tuner.views.report import written

FILE = "report.html"


def report(path: Path, output: Path | None) -> Path:
    """The page's path: `report.html` in the study's folder where nothing else is said.

    Raises DefinitionError, RecordsError, and TunerError where it cannot be written.
    """
    study = open_study(path)
    target = output or study.folder / FILE
    write_whole(target, written(gathered(study, Records(study.folder))))
    return target
