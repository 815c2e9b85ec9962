"""What of its space a study searches, in words."""

from tests.evening import edit, folder
from tuner.definitions.validation import load_study
from tuner.views.scope import scope, searched

MORE = """parameters:
  tp-size: {type: choice, choices: [1, 2], default: 1}
  token: {env: API_KEY, type: choice, choices: [a, b], default: a}
  quick: {type: bool}
  block: {type: choice, choices: [null, 16]}
  old: {type: bool, versions: "<0.5"}
  older: {flag: old, type: choice, choices: [a], versions: "<0.4"}
  kernels: {build: true, type: choice, choices: [null, patched]}
"""
FIXED = """model: small
fixed:
  flags: {tp-size: 8, quick: false, block: null}
  env: {API_KEY: "${API_KEY}"}
"""


def test_everything_that_is_not_searched_is_said_and_no_secret(tmp_path):
    night = folder(
        tmp_path,
        space="""  - {id: old, change: {old: true}, claim: c, gain_percent: [1, 2]}
  - {id: new, change: {quick: true}, claim: c, gain_percent: [1, 2], versions: '>=1'}""",
    )
    edit(night, "space.yaml", "parameters:\n", MORE)
    edit(night, "study.yaml", "model: small\n", FIXED)
    study = load_study(night)
    assert scope(study).sentences() == [
        "not in rehearsal 0.5.9: old (versions <0.5), older (versions <0.4)",
        "pinned by fixed: tp-size = 8, token = (hidden), quick = false, block = null",
        "builds that the study does not have: patched",
        "hypotheses for other versions: new",
        "left out: old: changes old, which is not in this version",
    ]
    assert searched(study) == 3


def test_a_space_that_is_searched_as_a_whole_has_nothing_to_say(tmp_path):
    study = load_study(folder(tmp_path))
    assert scope(study).sentences() == []
    assert searched(study) == len(study.space.parameters)
