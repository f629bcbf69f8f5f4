"""Pictures of the pages as SVG: price against accuracy, answers with intervals, climbs, spending over time."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["LINE_COLOURS", "draw_answers", "draw_price_curve", "draw_rungs", "draw_spending"]

_WIDTH, _HEIGHT = 560, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 16, 36, 56
_MOST_BARS = 40
LINE_COLOURS = 7
"""How many colours of lines the styles have."""
_MOST_RUNGS = 14  # the last ones; the intervals of the first are so wide that nothing else would be seen


def draw_price_curve(
    points: Sequence[tuple[float, float]], chosen: float, *, unit: str, cap: float | None = None
) -> str:
    """Return the price (epsilon) against the largest error, both on logarithmic axes; the chosen error is marked.

    A dashed line is the most that one question may cost.

    >>> "<svg" in draw_price_curve([(1, 0.4), (2, 0.2)], 2, unit="rows")
    True
    """
    usable = [(error, price) for error, price in points if error > 0 and price > 0]
    if len(usable) < 2:
        return ""
    line = [cap] if cap is not None and cap > 0 else []
    across, down = _log_scale([x for x, _ in usable]), _log_scale([*line, *(y for _, y in usable)])
    places = [(_place_x(across, x), _place_y(down, y)) for x, y in usable]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    marks = [
        f'<circle class="dot" r="{7 if math.isclose(error, chosen) else 4}" cx="{x:.1f}" cy="{y:.1f}"><title>'
        f"within {_short(error)}{escape(unit)}: epsilon {_short(price)}</title></circle>"
        for (x, y), (error, price) in zip(places, usable, strict=True)
    ]
    labels = _axis_labels([usable[0][0], usable[len(usable) // 2][0], usable[-1][0]], across, unit)
    prices = _side_labels([y for _, y in usable], down)
    for most in line:
        y = _place_y(down, most)
        prices += (
            f'<line class="cap" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"></line>'
            f'<text x="{_WIDTH - _RIGHT}" y="{y + (-6 if y > 44 else 16):.1f}" text-anchor="end">'
            f"most for one question: {_short(most)}</text>"
        )
    title = f"Price from epsilon {_short(min(p for _, p in usable))} to {_short(max(p for _, p in usable))}"
    body = f'{labels}{prices}<polyline class="curve" points="{path}"></polyline>{"".join(marks)}'
    return _svg(body, title, x_title="largest error", y_title="epsilon")


def draw_answers(rows: Sequence[tuple[str, float, float | None, float | None]]) -> str:
    """Return bars with their intervals: label, value, low and high of each.

    >>> draw_answers([("Oslo", 3.0, 2.0, 4.0)]).count("<rect")
    1
    """
    shown = [row for row in rows[:_MOST_BARS] if all(x is None or math.isfinite(x) for x in row[1:])]
    if not shown:
        return ""
    ends = [0.0, *(x for row in shown for x in row[1:] if x is not None)]
    low, high = min(ends), max(ends)
    span = (high - low) or 1.0
    height = 26 * len(shown) + 30

    def across(value: float) -> float:
        return 150 + (value - low) / span * (_WIDTH - 150 - 24)

    parts = [f'<line class="axis" x1="{across(0):.1f}" x2="{across(0):.1f}" y1="6" y2="{height - 22}"></line>']
    for number, (label, value, left, right) in enumerate(shown):
        top = 8 + 26 * number
        start, end = sorted((across(0), across(value)))
        parts.append(f'<text x="142" y="{top + 14}" text-anchor="end">{escape(_cut(label))}</text>')
        parts.append(
            f'<rect class="bar" x="{start:.1f}" y="{top}" width="{max(end - start, 1):.1f}" height="18" rx="3" opacity="0.75">'
            f"<title>{escape(label)}: {_short(value)}</title></rect>"
        )
        if left is not None and right is not None:
            middle = top + 9
            parts.append(
                f'<line class="whisker" x1="{across(left):.1f}" x2="{across(right):.1f}" y1="{middle}" y2="{middle}"></line>'
            )
    parts += [
        f'<text x="{across(low):.1f}" y="{height - 6}" text-anchor="middle">{_short(low)}</text>',
        f'<text x="{across(high):.1f}" y="{height - 6}" text-anchor="end">{_short(high)}</text>',
    ]
    return _wrap("".join(parts), "Answers with their intervals", height)


def draw_rungs(rungs: Sequence[tuple[float, float, float, float]]) -> str:
    """Return the last rungs of a climb, from private to accurate: epsilon, value, low and high of each.

    >>> draw_rungs([(0.1, 5.0, 1.0, 9.0), (0.2, 4.0, 3.0, 5.0)]).count("<circle")
    2
    >>> draw_rungs([(0.1, 5.0, 1.0, 9.0)])
    ''
    """
    shown = [rung for rung in rungs[-_MOST_RUNGS:] if all(map(math.isfinite, rung)) and rung[0] > 0]
    if len(shown) < 2:
        return ""
    low, high = min(rung[2] for rung in shown), max(rung[3] for rung in shown)
    span, across = (high - low) or 1.0, _log_scale([rung[0] for rung in shown])

    def down(value: float) -> float:
        return _TOP + (1 - (value - low) / span) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<text x="{_LEFT - 8}" y="{down(value) + 4:.1f}" text-anchor="end">{_short(value)}</text>'
        f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{down(value):.1f}" y2="{down(value):.1f}"></line>'
        for value in (low, high)
    ]
    parts.append(_axis_labels([shown[0][0], shown[len(shown) // 2][0], shown[-1][0]], across, ""))
    for number, (epsilon, value, left, right) in enumerate(shown):
        x = _place_x(across, epsilon)
        parts.append(
            f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{down(left):.1f}" y2="{down(right):.1f}"></line>'
            f'<circle class="dot" r="{7 if number == len(shown) - 1 else 4}" cx="{x:.1f}" cy="{down(value):.1f}"><title>'
            f"epsilon {_short(epsilon)}: {_short(value)}, between {_short(left)} and {_short(right)}</title></circle>"
        )
    title = f"Answers from epsilon {_short(shown[0][0])} to {_short(shown[-1][0])}, where the climb stopped"
    return _svg("".join(parts), title, x_title="epsilon", y_title="answer")


def draw_spending(lines: Mapping[str, Sequence[float]], times: Sequence[datetime.datetime], budget: float) -> str:
    """Return what was spent after each charge, one line per name; the first name is everything together.

    Parameters
    ----------
    lines : mapping
        For each name, what was spent after each charge.
    times : sequence of datetime
        When the charges were made, in their order.
    budget : float
        What may be spent.

    Examples
    --------
    >>> days = [datetime.datetime(2030, 5, 1), datetime.datetime(2030, 5, 2)]
    >>> draw_spending({"all": [0.1, 0.3], "ann": [0.1, 0.1]}, days, 1.0).count("<polyline")
    2
    """
    if not times or budget <= 0:
        return ""
    most = max(lines[next(iter(lines))])
    near = budget <= 5 * most  # a budget far above would flatten all lines
    top = max(budget, most) * 1.02 if near else 1.25 * most
    right, begun = _WIDTH - _RIGHT, times[0]
    span = (times[-1] - begun).total_seconds()
    # Charges of one minute have no order in time.
    shares = [(at - begun).total_seconds() / span if span else (n + 0.5) / len(times) for n, at in enumerate(times)]
    across = [_LEFT + (0.03 + 0.94 * share) * (right - _LEFT) for share in shares]

    def down(amount: float) -> float:
        return _TOP + (1 - amount / top) * (_HEIGHT - _TOP - _BOTTOM)

    several = times[-1].date() != begun.date()
    form, day = ("%Y-%m-%d", "") if several else ("%H:%M", begun.strftime(" of %Y-%m-%d"))
    parts = [
        f'<text x="{_LEFT}" y="{_HEIGHT - 34}">{begun.strftime(form)}</text>'
        f'<text x="{right}" y="{_HEIGHT - 34}" text-anchor="end">{times[-1].strftime(form)}</text>'
        f'<text x="{_LEFT - 8}" y="{down(0) + 4:.1f}" text-anchor="end">0</text>'
        f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{down(0):.1f}" y2="{down(0):.1f}"></line>'
        f'<text x="{_LEFT - 8}" y="{down(most) + 4:.1f}" text-anchor="end">{_short(most)}</text>'
    ]
    if near:
        y = down(budget)
        parts.append(
            f'<line class="cap" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"></line>'
            f'<text x="{right}" y="{y + 16:.1f}" text-anchor="end">budget: {_short(budget)}</text>'
        )
    for number, (name, amounts) in reversed(list(enumerate(lines.items()))):
        seen = {round(x): amount for x, amount in zip(across, amounts, strict=True)}  # the last one of every pixel
        points, before = [f"{_LEFT:.1f},{down(0):.1f}"], 0.0
        for x, amount in seen.items():
            if amount != before:
                points += [f"{x},{down(before):.1f}", f"{x},{down(amount):.1f}"]
            before = amount
        points.append(f"{right:.1f},{down(before):.1f}")
        parts.append(
            f'<polyline class="line line-{number % LINE_COLOURS}" points="{" ".join(points)}"><title>'
            f"{escape(name)}: {_short(before)}</title></polyline>"
        )
    title = f"Spent {_short(most)} of {_short(budget)}"
    x_title = f"time{day} (UTC)" if span else f"charges of one minute{day}"
    return _svg("".join(parts), title, x_title=x_title, y_title="epsilon spent")


def _log_scale(values: Sequence[float]) -> tuple[float, float]:
    low, high = math.log(min(values)), math.log(max(values))
    return (low, high) if high - low > 0.1 else (low - 0.5, high + 0.5)


def _place_x(scale: tuple[float, float], value: float) -> float:
    return _LEFT + (math.log(value) - scale[0]) / (scale[1] - scale[0]) * (_WIDTH - _LEFT - _RIGHT)


def _place_y(scale: tuple[float, float], value: float) -> float:
    return _TOP + (1 - (math.log(value) - scale[0]) / (scale[1] - scale[0])) * (_HEIGHT - _TOP - _BOTTOM)


def _axis_labels(values: Sequence[float], scale: tuple[float, float], unit: str) -> str:
    anchors = ("start", "middle", "end")
    return "".join(
        f'<text x="{_place_x(scale, value):.1f}" y="{_HEIGHT - 34}" text-anchor="{anchor}">{_short(value)}'
        f"{'%' if unit == '%' else ''}</text>"
        for value, anchor in zip(values, anchors, strict=False)
    )


def _side_labels(values: Sequence[float], scale: tuple[float, float]) -> str:
    ends = sorted({min(values), max(values)})
    return "".join(
        f'<text x="{_LEFT - 8}" y="{_place_y(scale, value) + 4:.1f}" text-anchor="end">{_short(value)}</text>'
        f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{_place_y(scale, value):.1f}" '
        f'y2="{_place_y(scale, value):.1f}"></line>'
        for value in ends
    )


def _svg(body: str, title: str, *, x_title: str, y_title: str) -> str:
    names = (
        f'<text x="{(_WIDTH + _LEFT) / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(x_title)}</text>'
        f'<text x="0" y="16">{escape(y_title)}</text>'
    )
    return _wrap(names + body, title, _HEIGHT)


def _wrap(body: str, title: str, height: int) -> str:
    return (
        f'<svg class="picture" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title, quote=True)}">'
        f"{body}</svg>"
    )


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _cut(label: str, most: int = 18) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"
