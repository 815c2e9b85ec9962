"""Which declared names nothing reads: small packages that hold every way to read one, or none."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.flags.questions import reads

DECLARED = """
from dataclasses import dataclass

@dataclass
class Args:
    steps: int = 1
    other: int = 2

    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--steps", type=int, default=Args.steps, help="steps")
        parser.add_argument("--other", type=int, default=Args.other)
"""


def package(folder: Path, **files: str) -> Path:
    """A package `engine` that declares `steps` and reads `other`, with further modules."""
    root = folder / "engine"
    root.mkdir(parents=True, exist_ok=True)
    texts = {"args": DECLARED, "main": "def run(args):\n    return args.other\n", **files}
    for name, text in texts.items():
        (root / (name if "." in name else f"{name}.py")).write_text(text)
    return root


def unread(root: Path) -> set[str]:
    return set(reads.unread([root], {"steps", "other"}))


def test_a_flag_that_is_only_declared_is_found_with_its_place(tmp_path):
    assert reads.unread([package(tmp_path)], {"steps", "other"}) == {"steps": "engine/args.py:11"}


@pytest.mark.parametrize(
    "text",
    [
        "def run(args):\n    return args.steps\n",
        "def run(args):\n    del args.steps\n",
        "def run(args):\n    args.steps += 1\n",
        "def run(args):\n    return getattr(args, 'steps')\n",
        "def run(args):\n    return vars(args)['steps']\n",
        "def run(args):\n    return args.get('steps', 1)\n",
        "from operator import attrgetter\nread = attrgetter('parallel.steps')\n",
        "import sys\nasked = '--steps' in sys.argv\n",
        "def run(**kwargs):\n    return inner(**kwargs)\ndef inner(steps=1):\n    return steps\n",
        "def run(args):\n    return launch(steps=args.steps)\n",
        "def run(args):\n    return launch(args.steps)\n",
        "def run(args):\n    match args:\n        case Args(steps=1):\n            return 1\n",
        "LINE = 'runs {steps} at a time'\n",
        "LINE = 'runs %(steps)s at a time'\n",
        "from engine.args import Args\nSTEPS = Args.steps\n",
        "class Worker:\n    def __init__(self, args):\n        self.steps = args.steps\n",
        "def run(args, kind):\n    return getattr(args, f'{kind}eps')\n"
        "def more(args, kind):\n    return getattr(args, f'{kind}teps')\n",
        "this is not python: steps\n",
    ],
    ids=lambda text: text.splitlines()[-1].strip(),
)
def test_every_way_to_read_a_flag_keeps_it_alive(tmp_path, text):
    assert unread(package(tmp_path, more=text)) == set()


@pytest.mark.parametrize(
    "text",
    [
        "def run(args):\n    args.steps = 4\n",
        "def run():\n    return Args(steps=4)\n",
        "def run(args):\n    raise ValueError('steps are not supported here')\n",
        "# args.steps was read here once\n",
        'def run():\n    """Takes args.steps."""\n',
        "def run(args):\n    return args.more_steps, args.steps_more\n",
        "class Other:\n    steps: int = 1\n",
        "ORDER = ('steps', 'other')\n",
        "class Config:\n    steps: int = Args.steps\n",
    ],
    ids=lambda text: text.splitlines()[-1].strip(),
)
def test_what_only_mentions_a_flag_does_not_read_it(tmp_path, text):
    assert unread(package(tmp_path, more=text)) == {"steps"}


@pytest.mark.parametrize(
    "text",
    [
        "def run(args, kind):\n    return getattr(args, f'cuda_graph_{kind}_bs')\n",
        "def run(args, kind):\n    return getattr(args, f'cuda_graph_{kind}')\n",
        "def run(args, kind):\n    return getattr(args, 'cuda_graph_' + kind)\n",
        "def run(args, kind):\n    return getattr(args, kind + '_decode_bs')\n",
        "def run(args, kind):\n    return getattr(args, 'cuda_graph_%s_bs' % kind)\n",
        "def run(args, kind):\n    return getattr(args, 'cuda_graph_{}_bs'.format(kind))\n",
        "def run(args):\n    return {n: v for n, v in args if n.startswith('cuda_graph_')}\n",
        "def run(args):\n    return {n: v for n, v in args if n.endswith('_decode_bs')}\n",
        "def run(args):\n    return {n.removeprefix('cuda_'): v for n, v in args}\n",
    ],
    ids=lambda text: text.splitlines()[-1].strip(),
)
def test_a_name_that_is_put_together_reads_all_that_it_could_become(tmp_path, text):
    root = package(tmp_path, more=text)
    assert reads.unread([root], {"cuda_graph_decode_bs"}) == {}


def test_a_name_put_together_of_almost_nothing_says_nothing(tmp_path):
    text = "def run(args, a, b):\n    return f'{a}_{b}', a + '_s', f'{a}'\n"
    assert unread(package(tmp_path, more=text)) == {"steps"}


CONFIG = "class Config:\n    steps: int = 1\n"
COPY = "from engine.config import Config\ndef run(args):\n    return Config(steps=args.steps)\n"


def test_a_copy_into_a_field_that_nothing_reads_is_no_read(tmp_path):
    assert unread(package(tmp_path, config=CONFIG, more=COPY)) == {"steps"}


@pytest.mark.parametrize(
    "config",
    [
        CONFIG + "def run(config):\n    return config.steps\n",
        CONFIG + "from dataclasses import asdict\ndef run(config):\n    return asdict(config)\n",
        CONFIG + "def run(config):\n    return config.__dict__\n",
        "class Config:\n    def __init__(self, steps):\n        self.n = steps\n",
        "def Config(**given):\n    return given\n",
    ],
)
def test_a_copy_into_what_may_be_read_is_a_read(tmp_path, config):
    assert unread(package(tmp_path, config=config, more=COPY)) == set()


def test_a_compiled_module_or_a_template_may_read_a_flag_but_a_document_does_not(tmp_path):
    assert unread(package(tmp_path / "a", **{"core.so": "\0steps\0"})) == set()
    assert unread(package(tmp_path / "b", **{"page.jinja": "{{ steps }}"})) == set()
    assert unread(package(tmp_path / "c", **{"README.md": "args.steps"})) == {"steps"}


def test_an_empty_file_is_no_obstacle(tmp_path):
    assert unread(package(tmp_path, **{"py.typed": "", "empty": ""})) == {"steps"}


def test_variables_are_found_wherever_they_are_named_whole(tmp_path):
    text = "import os\nA = os.getenv('ENG_ONE')\nB = envs.ENG_TWO\nC = 'MY_ENG_THREE', 'ENG_'\n"
    root = package(tmp_path, more=text, **{"core.so": "\0ENG_FOUR\0", "README.md": "ENG_FIVE"})
    assert reads.variables([root], ["ENG_", "OTHER_"]) == ["ENG_FOUR", "ENG_ONE", "ENG_TWO"]


def test_as_a_script_it_looks_through_the_plugins_as_well(tmp_path):
    package(tmp_path, __init__="")
    plugin = tmp_path / "plugin"
    plugin.mkdir()
    (plugin / "__init__.py").write_text("def register(args):\n    return args.steps\n")
    asked = ["engine", json.dumps(["steps", "third"]), "ENG_"]

    def answer():
        script = Path(reads.__file__).read_text()
        done = subprocess.run(
            [sys.executable, "-c", script, *asked],
            env={"PYTHONPATH": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            check=True,
        )
        return json.loads(done.stdout)

    assert answer() == {"unread": {"steps": "engine/args.py:11", "third": ""}, "variables": []}
    metadata = tmp_path / "plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[engine.plugins]\nmine = plugin:register\n")
    assert answer() == {"unread": {"third": ""}, "variables": []}
