"""Each protection taken away is found out by the checker; with it in place, the same seed is clean."""

from __future__ import annotations

import pytest
from mutants import MUTANTS, TRIES, Mutant, caught
from simulate import simulate


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_protection_taken_away_is_found_out(mutant: Mutant) -> None:
    result = caught(mutant, range(mutant.seed, mutant.seed + TRIES))
    assert result is not None, (
        f"without the protection that {mutant.protection}, nothing was found in {TRIES} runs from seed "
        f"{mutant.seed} on; `python tests/simulation/mutants.py {mutant.name}` searches from 1"
    )
    assert simulate(result.seed, mutant.rates).findings == ()
