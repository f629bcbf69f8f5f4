"""The command ``expost demo``: accuracy-first releases end to end, on generated data."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expost.cli.console import new_folder, out, print_receipt
from expost.core import InvalidRequest, MissingExtra, Release, epsilon
from expost.ledger import open_ledger

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["demo"]

_FEATURES = {"dep_delay": (-40, 300), "distance": (0, 5000), "hour": (0, 24)}
_LONGEST = 300  # minutes: the public unit of the delay
_EXCESS_RISK = 0.005


def demo(
    output: Annotated[Path, typer.Option(help="Folder for the ledger and the pictures.")] = Path("demo-output"),
    rows: Annotated[int, typer.Option(help="Rows of generated data.", min=10_000)] = 100_000,
) -> None:
    """Count and fit a model to accuracy targets, and show what each cost and what the 2017 method would have.

    Example: [bold]expost demo --output /tmp/demo[/bold]
    """
    from expost.experiments.experiment_data import generated_flights

    new_folder(output)
    _forget(output)
    table = generated_flights(rows)
    count = _count(table, output)
    model = _fit(table, "auto", cap=10)
    out.print(f"\n[bold]2. A model of the arrival delay[/bold], excess risk at most {_EXCESS_RISK}, 90 % sure\n")
    print_receipt(model.receipt)
    baseline = _fit(table, "paper2017", cap=1000)
    ratio = float(baseline.receipt.bill.amounts()["epsilon"] / model.receipt.bill.amounts()["epsilon"])
    out.print(f"\n  the method of 2017 on the same rows   {baseline.receipt.bill}")
    out.print(f"  expost                                {model.receipt.bill}   ({ratio:.0f} times less)")
    _draw(count, output / "climb.png", "the count's climb")
    _draw(_fit(table, "certificate", cap=10), output / "model-climb.png", "a model's climb")


def _forget(output: Path) -> None:
    """Remove the ledger of an earlier demo. The data is generated, so every demo starts with a full budget."""
    old = output / "demo.ledger"
    if old.exists():
        with open_ledger(old, create=False) as book:
            ours = set(book.accounts()) <= {"dataset:demo-flights"}
        if not ours:
            raise InvalidRequest("Expected no ledger but a demo's", got=str(old), do="Name another folder")
    for file in output.glob("demo.ledger*"):
        file.unlink()


def _count(table: pa.Table, output: Path) -> Release[Any]:
    from expost.data import Dataset
    from expost.session import Session

    flights = Dataset(table, name="demo-flights")
    with Session(flights, epsilon(1), ledger=output / "demo.ledger") as session:
        out.print("[bold]1. How many flights?[/bold] Within 1 %, 95 % sure, from a budget of epsilon 1\n")
        release = session.count(within="1%")
        low, high = release.interval or (None, None)
        out.print(f"  answer    [bold]{release.value}[/bold], between {low} and {high} (95 % sure)\n")
        print_receipt(release.receipt)
        out.print(f"\n  left in {output / 'demo.ledger'}: {session.remaining().text(down=True)}")
    return release


def _fit(table: pa.Table, method: str, *, cap: float) -> Release[Any]:
    from expost.models import Ridge
    from expost.models.fit_record import RepeatedFitWarning

    aim: dict[str, Any] = {"excess_risk": _EXCESS_RISK, "regularization": 0.005, "max_epsilon": cap}
    limits: dict[str, Any] = {"bounds": list(_FEATURES.values()), "feature_bound": 1.0, "target_bounds": 1.0}
    ridge = Ridge(**aim, **limits, method=method)
    delay = table["arr_delay"].to_numpy() / _LONGEST
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RepeatedFitWarning)  # the demo compares two methods on made-up rows
        release: Release[Any] = ridge.fit(table.select(list(_FEATURES)), delay).release_
    return release


def _draw(release: Release[Any], path: Path, what: str) -> None:
    try:
        release.plot(str(path))
    except MissingExtra as error:
        out.print(f"  no picture: {error}")
    else:
        out.print(f"  picture of {what}: {path}")
