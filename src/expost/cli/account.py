"""``expost account``: what a plan of noisy steps costs, in every currency."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from expost.cli.console import PICTURES, emit, err, new_file, out, print_table
from expost.core import InvalidRequest
from expost.core.rational import decimal_text, rational

__all__ = ["account"]


def account(
    gaussian: Annotated[float, typer.Option(help="Noise multiplier of each step: noise over sensitivity.")],
    delta: Annotated[float, typer.Option(help="Probability with which epsilon may be exceeded.")],
    sampling: Annotated[float, typer.Option(help="Poisson sampling rate of each step; 1 for all rows.")] = 1.0,
    steps: Annotated[int, typer.Option(help="Number of steps.", min=0)] = 1,
    plot: Annotated[Path | None, typer.Option(help="Draw the trade-off curve to a PNG or SVG file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """What Gaussian steps cost, by each way of accounting; the smallest is the answer.

    Example: [bold]expost account --gaussian 1.1 --sampling 0.01 --steps 10000 --delta 1e-5[/bold]
    """
    from expost.accounting import GaussianEvent, PoissonSampled, Repeat, account_report, plot_tradeoff
    from expost.accounting import account as account_of

    new_file(plot, kinds=PICTURES)
    if not 0 < delta < 1:
        raise InvalidRequest("Expected a delta between 0 and 1", got=delta, do="Pass e.g. --delta 1e-5")
    report = account_report(gaussian=gaussian, delta=delta, sampling=sampling, steps=steps)
    if as_json:
        emit(report)
    else:
        out.print(f"[bold]epsilon {_up(report['epsilon'])}[/bold] at delta {delta:g} ({report['adjacency']})")
        print_table(
            "by each way of accounting",
            ("currency", "epsilon"),
            ((name, _up(value)) for name, value in report["currencies"].items()),
        )
        out.print(report["meaning"])
    if plot is not None:
        step = GaussianEvent(rational(gaussian, "gaussian"))
        rate = rational(sampling, "sampling")
        plan = Repeat(step if rate == 1 else PoissonSampled(rate, step), steps)
        plot_tradeoff(account_of(plan).tradeoff(), path=str(plot))
        (err if as_json else out).print(f"picture: {plot}")


def _up(value: float) -> str:
    """A cost for people: rounded up, never down."""
    return decimal_text(Fraction(str(value))) if math.isfinite(value) else "inf"
