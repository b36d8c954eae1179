"""Each scenario is harmless with its protection, and found out without it."""

from __future__ import annotations

import pytest
from scenarios import SCENARIOS, SEEDS, Scenario, played

CLEAN_SEEDS = SEEDS[:5]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[one.name for one in SCENARIOS])
def test_with_its_protection_nothing_is_lost_or_doubled(scenario: Scenario) -> None:
    runs = {seed: played(scenario, seed) for seed in CLEAN_SEEDS}
    assert {seed: run.findings for seed, run in runs.items() if run.findings} == {}
    refusals = [str(refusal) for run in runs.values() for refusal in run.refusals]
    assert any(scenario.refused in refusal for refusal in [*refusals, ""])


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[one.name for one in SCENARIOS])
def test_without_it_the_checker_finds_it_out(scenario: Scenario) -> None:
    with scenario.mutant():
        found = next((seed for seed in SEEDS if played(scenario, seed).findings), None)
    assert found is not None, f"nothing was found without this: {scenario.protection}"
    assert played(scenario, found).findings == ()
