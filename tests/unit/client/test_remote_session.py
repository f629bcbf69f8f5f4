"""A remote session has the methods of a session, and gives the same kinds of answers and errors."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.served import CANARY, Served, write_people

import expost
from expost.client import RemoteSession
from expost.client.http_transport import HttpTransport, ServiceRefused
from expost.client.remote_session import open_remote
from expost.core import BudgetExceeded, InvalidRequest, TargetNotMet
from expost.stats import Count, PrivateKeys
from expost.stats.hypothesis import BinomialTest

LOCAL_ONLY = {"ledger", "build_query", "table", "view"}  # tables of a service are its owner's


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served(write_people(tmp_path))
    with found.http:
        yield found


@pytest.fixture
def remote(served: Served) -> RemoteSession:
    return open_remote(HttpTransport("http://testserver", served.tokens["ann"], client=served.http), None)


def test_it_has_the_methods_of_a_session_with_the_same_signatures() -> None:
    for name, method in inspect.getmembers(expost.Session):
        if name.startswith("_") or name in LOCAL_ONLY:
            continue
        other = getattr(RemoteSession, name, None)

        assert other is not None, name
        if callable(method):
            own = set(inspect.signature(method).parameters) - {"keep", "public_validation"}
            assert own <= set(inspect.signature(other).parameters), name


def test_answers_are_of_the_same_types(served: Served, remote: RemoteSession) -> None:
    local = expost.Session(served.settings.datasets[0].dataset, budget=(50, 1e-5))
    for ask in (
        lambda session: session.count(epsilon=0.1),
        lambda session: session.mean("age", by="city", epsilon=0.1),
        lambda session: session.covariance(["age", "pay"], epsilon=0.1),
        lambda session: session.histogram("age", edges=[18, 40, 90], epsilon=0.1),
        lambda session: session.quantiles("age", [0.25, 0.75], epsilon=0.1),
        lambda session: session.count(by=PrivateKeys("city", epsilon=0.2, delta=1e-7), epsilon=0.2),
        lambda session: session.count(where=expost.col("age") >= 65, epsilon=0.1),
        lambda session: session.ask(BinomialTest("city", equals="Rome", null=0.4, epsilon=0.1)),
        lambda session: session.ask(Count(epsilon=0.1)),
        lambda session: session.part("city", "Rome").count(epsilon=0.1),
    ):
        here, there = ask(local), ask(remote)

        assert type(here) is type(there)
        assert here.receipt.question == there.receipt.question
        assert here.receipt.bill == there.receipt.bill
        assert type(here.value) is type(there.value)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_not_finite_is_refused_by_its_name(remote: RemoteSession, number: float) -> None:
    with pytest.raises(InvalidRequest, match=f"Expected finite numbers, got '{number}'"):
        remote.count(within=number)


def test_the_budget_is_drawn_from_the_own_account(remote: RemoteSession, tmp_path: Path) -> None:
    remote.count(epsilon=0.1)
    figure = remote.plot(str(tmp_path / "budget.svg"))

    assert "analyst:ann/people: 0.1 of 3 spent" in [axes.get_title(loc="left") for axes in figure.axes]
    assert (tmp_path / "budget.svg").stat().st_size > 1000


def test_prices_are_those_of_the_service(served: Served, remote: RemoteSession) -> None:
    price = remote.price("mean", "age", within=3)

    assert price.question == "mean of age"
    assert remote.price(Count(epsilon=0.25)).worst_case.amounts()["epsilon"] == 0.25
    fit = remote.price(expost.Regressor(epsilon=0.25, columns={"age": (18, 90)}), target="pay")
    assert float(fit.worst_case.amounts()["epsilon"]) == pytest.approx(0.25, abs=1e-3)
    assert remote.spent().amounts()["epsilon"] == 0


def test_price_curves_and_answers_about_made_up_rows_are_those_of_a_session(
    served: Served, remote: RemoteSession
) -> None:
    local = expost.Session(
        served.settings.datasets[0].dataset, (5, 1e-5), question_cap=0.5, analyst="a", analyst_budget=(3.0, 1e-6)
    )
    for name, *subject in (("count",), ("mean", "age"), ("value-counts", "city")):
        terms = {"within": ["2%", "5%", "20%"], "expect": 3000}
        assert str(remote.price_curve(name, *subject, **terms)) == str(local.price_curve(name, *subject, **terms))
        here, there = (each.simulate(name, *subject, within="20%", seed=7) for each in (local, remote))
        assert (there.value, there.interval, there.receipt.bill) == (here.value, here.interval, here.receipt.bill)
        assert there.receipt.simulation
    assert (
        remote.price("count", within="5%", expect=3000).likely == local.price("count", within="5%", expect=3000).likely
    )
    with pytest.raises(TargetNotMet):
        remote.simulate("median", "age", within=0.01)
    with pytest.raises(InvalidRequest, match="accuracies"):
        remote.price_curve("count", within=[])
    with pytest.raises(InvalidRequest, match="made-up rows"):
        remote.simulate("count", within=100, made_up_rows=10**9)
    assert remote.spent().amounts()["epsilon"] == 0


def test_made_up_rows_have_the_description_and_none_of_the_rows(served: Served, remote: RemoteSession) -> None:
    real, made = served.settings.datasets[0].dataset, remote.dummy(200, seed=3)

    assert (made.schema, made.bounds, made.time_ranges) == (real.schema, real.bounds, real.time_ranges)
    assert made.categories == real.categories and made.unit == real.unit
    assert real.dummy_table(200, seed=3).to_pylist() == made.dummy_table(200, seed=3).to_pylist()
    with expost.Session(made, budget=10) as session:
        counts = session.count_over_time("seen", every="quarter", epsilon=10)
    assert sum(row.value for row in counts.value.rows) == pytest.approx(200, abs=20)
    text = served.call("ann", "GET", "/v1/datasets/people/dummy?rows=200&seed=3&format=csv").text
    assert text.splitlines()[0] == "age,city,pay,seen" and len(text.splitlines()) == 201
    assert CANARY not in text
    for wrong in ("rows=0", "rows=100001", "rows=x", "seed=-1", "format=xml"):
        assert served.call("ann", "GET", f"/v1/datasets/people/dummy?{wrong}").status_code == 400


def test_a_fitted_model_comes_back_ready(remote: RemoteSession) -> None:
    model = remote.fit(expost.Regressor(epsilon=0.5, columns={"age": (18, 90)}, target_bounds=(0, 100)), target="pay")

    assert np.isfinite(model.predict({"age": [20, 30]})).all()
    assert model.receipt_.epsilon <= 1


def test_the_books_are_there(remote: RemoteSession) -> None:
    release = remote.count(epsilon=0.5)

    assert remote.receipt(release.receipt.ledger_entry) == release.receipt
    assert float(remote.remaining().amounts()["epsilon"]) == pytest.approx(2.5)
    assert "count of rows" in str(remote.history())
    assert remote.accounts == ("dataset:people", "analyst:ann/people")


def test_errors_are_those_of_a_session(remote: RemoteSession) -> None:
    with pytest.raises(InvalidRequest, match="agee"):
        remote.mean("agee", within=3)
    with pytest.raises(InvalidRequest, match="Did you mean 'within'"):
        remote.mean("age", withn=3)
    with pytest.raises(BudgetExceeded):
        remote.count(epsilon=4)
    with pytest.raises(TargetNotMet) as missed:
        remote.median("age", within=0.01, max_epsilon=0.05)
    assert not missed.value.receipt.outcome.met
    with pytest.raises(InvalidRequest, match="estimator"):
        remote.fit("Ridge", target="pay")


def test_a_bad_address_or_token_is_refused_in_words(served: Served) -> None:
    with pytest.raises(InvalidRequest, match="address"):
        expost.connect("ftp://host", "expost_1_2")
    with pytest.raises(InvalidRequest, match="token"):
        expost.connect("http://host", "nonsense")
    transport = HttpTransport("http://testserver", "expost_1_2", client=served.http)
    with pytest.raises(ServiceRefused, match="valid token"):
        open_remote(transport, None)


def test_a_lost_connection_is_tried_again_under_the_same_key(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx2

    monkeypatch.setattr("expost.client.http_transport.time.sleep", lambda seconds: None)
    keys: list[str] = []

    class Flaky:
        def request(self, method: str, url: str, **terms: object) -> object:
            response = served.http.request(method, url, **terms)
            if method == "POST" and url.endswith("/ask"):
                keys.append(terms["headers"]["Idempotency-Key"])
                if len(keys) == 1:
                    raise httpx2.ReadError("the answer was lost on its way")
            return response

    remote = open_remote(HttpTransport("http://testserver", served.tokens["ann"], client=Flaky()), None)
    release = remote.count(epsilon=0.5)

    assert len(keys) == 2 and keys[0] == keys[1]
    assert float(remote.remaining().amounts()["epsilon"]) == pytest.approx(2.5)
    assert release.receipt.outcome.met
