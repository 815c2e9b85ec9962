"""Every bad input has its message: a folder holds files and the exact text said of them.

A case is a folder: the files of a study (those that are not there are taken from its `base`),
`expected.txt` with what is said on stderr, and `case.yaml`: its `kind`, and where they are not
these, `base: good`, `command: check .`, `exit: 1`, `says: ""` (on stdout), `prepare: []` (see
tests/bad_machine.py) and `changes: []`, the files that may be other than before. In expected texts
`<here>` is the folder of the case.
"""

import logging
import re
import shlex
import shutil
import socket
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import bad_launches  # noqa: F401  (preparations of hosts)
from tests.bad_machine import Machine
from tests.evening import SMALL
from tuner import cli
from tuner.definitions import yaml_source
from tuner.definitions.validation import load_study
from tuner.frozen import Frozen

FOLDER = Path(__file__).parent / "bad_input"
BASES = {"good": FOLDER / "good", "night": SMALL}
CASES = sorted(path.parent.name for path in FOLDER.glob("*/case.yaml"))
KINDS = {
    "YAML traps",
    "wrong types",
    "unknown keys and flags",
    "impossible or contradictory conditions",
    "empty or infinite spaces",
    "wrong values",
    "missing or unreadable files",
    "unwritable folders",
    "busy ports",
    "absent GPU",
    "absent interpreter",
    "absent container runtime",
    "wrong model path",
    "bad URL",
    "wrong content from a server",
    "full disk",
    "clock jump",
    "two runs at once",
    "records from a newer version",
    "damaged records",
}


class Case(Frozen):
    kind: str
    base: str = "good"
    command: str = "check ."
    exit: int = 1
    says: str = ""
    prepare: list[str] = []
    changes: list[str] = []


def case_of(name: str) -> Case:
    return Case.model_validate(yaml_source.read(FOLDER / name / "case.yaml").value)


@pytest.fixture
def machine(request, monkeypatch) -> Iterator[Machine]:
    """A copy of the case that any user may enter, and everything undone afterwards."""
    with tempfile.TemporaryDirectory(prefix="bad-input-") as base:
        Path(base).chmod(0o755)
        shutil.copytree(FOLDER / "good", Path(base) / "good")
        folder = shutil.copytree(
            FOLDER / request.param,
            Path(base) / "case",
            symlinks=True,
            ignore=shutil.ignore_patterns("expected.txt", "case.yaml"),
        )
        base_of = BASES[case_of(request.param).base]
        if base_of != BASES["good"] or not (folder / "study.yaml").exists():
            for path in base_of.iterdir():
                if not (folder / path.name).exists():
                    shutil.copy(path, folder / path.name)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("NO_COLOR", "1")
        made = Machine(folder, monkeypatch)
        made.prepare("no_host")
        with made.stack:
            yield made
        monkeypatch.undo()


def typed(words: list[str], patch: pytest.MonkeyPatch) -> object:
    """Type `tuner WORDS`: the exit code."""
    patch.setattr(sys, "excepthook", sys.excepthook)  # main sets its own
    patch.setattr(sys, "argv", ["tuner", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code


def kept(folder: Path) -> dict[str, object]:
    """Everything in a folder, with its content where it is a file."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name, what = str(path.relative_to(folder)), path.lstat().st_mode
        if stat.S_ISLNK(what):
            found[name] = path.readlink()
        else:
            found[name] = path.read_bytes() if stat.S_ISREG(what) else stat.S_IFMT(what)
    return found


NORMAL = (
    (r"(?m)^\d\d:\d\d:\d\d ", ""),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
    (r"\bprocess \d+( \([^)]*\))?", "process <n>"),
    (r"\bport \d+", "port <n>"),
    (r"\d+\.\d s\b", "<t> s"),
    (r"\bready after \d+ s\b", "ready after <t> s"),
    (r"at column \d{4,}", "at column <n>"),  # as long as an identity is
    (r"bad-input-\w+", "bad-input"),
)


def normal(text: str, folder: Path) -> str:
    """A text without what is another in each run."""
    for found, name in ((str(folder.resolve()), "<here>"), (sys.executable, "<python>"),
                        (socket.gethostname(), "<host>"), (300 * "n", "<long>")):  # fmt: skip
        text = text.replace(found, name)
    for pattern, name in NORMAL:
        text = re.sub(pattern, name, text)
    return text


@pytest.mark.parametrize(
    ("machine", "name"), [(name, name) for name in CASES], indirect=["machine"]
)
def test_bad_input_is_told_in_exactly_these_words_and_loses_nothing(machine, name, capsys):
    case = case_of(name)
    for what in case.prepare:
        machine.prepare(what)
    before = kept(machine.folder)
    for do in machine.last:
        do()
    last_resort = logging.lastResort  # pytest's own handlers would take its place
    assert last_resort is not None
    logging.getLogger().addHandler(last_resort)
    command = case.command
    for word, meant in {"LONG": 300 * "n", **machine.words}.items():
        command = command.replace(word, meant)
    words = shlex.split(command)
    code = typed(words, machine.patch)
    machine.stack.close()
    logging.getLogger().removeHandler(last_resort)
    said = capsys.readouterr()
    assert normal(said.err, machine.folder) == (FOLDER / name / "expected.txt").read_text()
    assert code == case.exit
    assert case.says in said.out
    assert said.out == "" or case.exit == 0
    after = kept(machine.folder)
    assert {path: after.get(path) for path in before if path not in case.changes} == {
        path: what for path, what in before.items() if path not in case.changes
    }


def test_there_are_many_cases_of_every_kind_and_no_folder_without_its_text():
    folders = {path.name for path in FOLDER.iterdir() if path.is_dir()} - {"good"}
    assert folders == set(CASES)
    kinds = Counter(case_of(name).kind for name in CASES)
    assert set(kinds) == KINDS
    assert min(kinds.values()) >= 3, kinds
    assert len(CASES) >= 60


def test_the_good_files_that_cases_refer_to_are_good(monkeypatch):
    monkeypatch.chdir(FOLDER / "good")
    assert load_study(Path("study.yaml")).space.hypotheses[0].id == "small-graphs"
