import re
from pathlib import Path

import pytest

from expost.core import InvalidRequest, PureLoss, RenyiGuarantee, RenyiLoss, epsilon, gdp
from expost.ledger.charge_rule import _RULES, rule_for

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("pair", _RULES, ids=" in ".join)
def test_every_rule_names_a_listed_source_or_a_proof_that_exists(pair):
    keys = set(re.findall(r"^\| (\w+) \|", (ROOT / "docs" / "references.md").read_text(encoding="utf-8"), re.M))
    sources = [part.strip().split(",")[0] for part in _RULES[pair].theorem.split(";")]

    for source in sources:
        # The proof of pure ex-post composition belongs to the accounting room.
        assert source in keys or source.startswith("docs/proofs/"), source


def test_a_refusal_names_the_currencies_that_would_do():
    with pytest.raises(InvalidRequest, match=r"account in gdp .* got 'pure'. Use an account in approx or pure or zcdp"):
        rule_for(PureLoss(1), gdp(1))


def test_renyi_losses_need_the_orders_of_the_account():
    with pytest.raises(InvalidRequest, match="Use the Renyi orders of the account"):
        rule_for(RenyiLoss(((2, 1),)), RenyiGuarantee(((3, 1),)))
    with pytest.raises(InvalidRequest, match="Use an account in rdp"):
        rule_for(RenyiLoss(((2, 1),)), epsilon(1))
