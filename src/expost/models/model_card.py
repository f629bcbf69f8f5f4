"""A model card: what a fitted model was made of, what it promised, paid and reached, and what it is not for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from expost.core import InvalidRequest, Measure, Outcome, Receipt, explain_arguments
from expost.core.card_page import CardPage, PageSection
from expost.core.whole_file import write_file

__all__ = ["CardSection", "ModelCard", "describe_model"]

_FORMAT = 1
_MOST_SHOWN = 200  # coefficients in HTML and Markdown; JSON has all
_FACTS = 4  # at the top of the page
_NO_INTERVAL = "None is reported: no law is proved for the error of single coefficients of this method."
_NOT_FOR = (
    "Rows outside the declared bounds or categories: values are moved to the nearest bound, and unknown categories count "
    "as other or missing.",
    "Statements about causes: coefficients describe how columns vary together after clipping, shrinkage and noise.",
    "Decisions about a person without a check by somebody who may see that person's data.",
    "Groups that are rare in the rows: the noise hides them, and the accuracy above is that of all rows together.",
)
_BILL_FIELDS = (
    *("question", "method", "target", "outcome", "paid", "at most", "paid before", "in all", "of which"),
    *("account",),
)
_ROW_TERMS = (
    *(
        "target column",
        "rows",
        "rows (public)",
        "rows, about",
        "rows, off by at most about",
        "weight of the rows, about",
        "declared rows",
        "features",
        "selected columns",
        "selected from",
        "rows clipped to",
        "targets clipped to",
        "values clipped to",
    ),
    *("missing values", "feature bound", "target bounds"),
)
_FOR_PROGRAMS = ("settings", "prices", "events", "target", "baseline", "columns", "steps")


@dataclass(frozen=True)
class CardSection:
    """A titled part of a card: lines of a label and a text, then sentences."""

    title: str
    lines: tuple[tuple[str, str], ...] = ()
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class ModelCard:
    """What a fitted model is, in public and released facts only.

    It prints as Markdown, shows as HTML in a notebook, and is written as HTML, Markdown or JSON.

    Parameters
    ----------
    title : str
        The kind of model.
    sections : tuple of CardSection
        The parts, in reading order.
    coefficients : tuple of dict
        One entry per coefficient: ``class`` (if there are several), ``feature``, ``value`` and ``interval``, which is
        None where none is valid.
    receipt : Receipt
        The receipt of the fit.

    Examples
    --------
    >>> from expost import Ridge
    >>> X = np.random.default_rng(0).uniform(-0.3, 0.3, (500, 2))
    >>> public = {"feature_bound": 1.0, "target_bounds": 1.0, "simulation_seed": 1}
    >>> card = Ridge(epsilon=1.0, method="certificate", **public).fit(X, X[:, 0]).card()
    >>> card.to_dict()["title"], [section.title for section in card.sections][:3]
    ('Ridge', ['Data', 'What was promised, paid and reached', 'How it was fitted'])
    """

    title: str
    sections: tuple[CardSection, ...]
    coefficients: tuple[dict[str, Any], ...]
    receipt: Receipt
    warnings: tuple[str, ...] = field(default=(), kw_only=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the card as JSON values, with the whole receipt."""
        return {
            "format": _FORMAT,
            "title": self.title,
            "warnings": list(self.warnings),
            "sections": [
                {"title": each.title, "lines": dict(each.lines), "sentences": list(each.sentences)}
                for each in self.sections
            ],
            "coefficients": list(self.coefficients),
            "receipt": self.receipt.to_dict(),
        }

    def to_json(self) -> str:
        """Return the card as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def to_markdown(self) -> str:
        """Return the card as Markdown text."""
        parts = [f"# Model card: {self.title}"] + [f"> **{_cell(each)}**" for each in self.warnings]
        for section in self.sections:
            parts.append(f"## {section.title}")
            if section.lines:
                rows = [f"| {_cell(label)} | {_cell(text)} |" for label, text in section.lines]
                parts.append("\n".join(["| | |", "| --- | --- |", *rows]))
            if section.sentences:
                parts.append("\n".join(f"* {_cell(each)}" for each in section.sentences))
            if section.title == _COEFFICIENTS and self.coefficients:
                head, cells = self._coefficient_cells()
                rules = ["---", *["---:"] * (len(head) - 1)]
                table = [head, rules, *([*map(_cell, each)] for each in cells)]
                parts.append("\n".join(f"| {' | '.join(each)} |" for each in table))
        return "\n\n".join(parts) + "\n"

    def to_html(self) -> str:
        """Return the card as one HTML page without scripts or links to other files."""
        sections = [
            PageSection(each.title, each.lines, each.sentences)
            if each.title != _COEFFICIENTS or not self.coefficients
            else PageSection(each.title, each.lines, each.sentences, *self._coefficient_cells())
            for each in self.sections
        ]
        return CardPage(self.title, _headline(self.receipt), self.warnings, sections).to_html()

    def _coefficient_cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the head and the rows of the table of coefficients; estimates are shown if there are some."""
        shown = self.coefficients[:_MOST_SHOWN]
        estimated = any(each.get("estimate") is not None for each in self.coefficients)
        head = ["feature", "value", *(["estimate"] if estimated else []), "interval"]
        rows = [
            [
                _coefficient_name(each),
                _number_text(each["value"]),
                *([_number_text(each.get("estimate"))] if estimated else []),
                _interval_text(each["interval"]),
            ]
            for each in shown
        ]
        return head, rows

    @explain_arguments
    def save(self, path: str | Path) -> None:
        """Write the card as HTML, Markdown or JSON, by the ending of the file's name.

        Parameters
        ----------
        path : str or Path
            A file that ends in ``.html``, ``.md`` or ``.json``. Its folder must exist.

        Raises
        ------
        InvalidRequest
            The ending is another one, or the file cannot be written.
        """
        made = {".html": self.to_html, ".htm": self.to_html, ".md": self.to_markdown, ".json": self.to_json}
        shown = str(path) if isinstance(path, Path) else path
        ending = Path(path).suffix.lower() if isinstance(path, str | Path) else ""
        if ending not in made:
            raise InvalidRequest("Expected a file name ending in .html, .md or .json", got=shown, do="Rename it")
        try:
            write_file(path, made[ending]().encode())
        except (OSError, ValueError):
            raise InvalidRequest(
                "Expected a file that can be written", got=shown, do="Create its folder first"
            ) from None

    def __str__(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return self.to_html()


_COEFFICIENTS = "Coefficients"


def describe_model(model: Any) -> ModelCard:
    """Return the card of a fitted estimator or pipeline. Only public and released facts are read."""
    receipt: Receipt = model.receipt_
    last = model.steps[-1][1] if hasattr(model, "named_steps") else model
    coefficients = _list_coefficients(last)
    sections = (
        CardSection("Data", tuple(dict(_data_lines(last, receipt)).items())),
        CardSection("What was promised, paid and reached", tuple(_bill_lines(receipt)), (receipt.meaning,)),
        CardSection("How it was fitted", tuple(_fit_lines(receipt))),
        CardSection("Baseline", sentences=(_baseline(last, receipt),)),
        CardSection(_COEFFICIENTS, sentences=tuple(_coefficient_notes(last, coefficients))),
        CardSection("What it must not be used for", sentences=_NOT_FOR),
        CardSection("How to check it", tuple(_check_lines(receipt))),
    )
    warnings = ["Simulation: the noise came from a seed, so nothing is private. Do not publish."] * receipt.simulation
    if receipt.outcome is Outcome.NOT_MET:
        warnings.append("The accuracy asked for was not reached.")
    return ModelCard(type(model).__name__, sections, coefficients, receipt, warnings=tuple(warnings))


def _data_lines(model: Any, receipt: Receipt) -> Iterable[tuple[str, str]]:
    """Yield what is public about the rows: columns, bounds, target, unit and neighbours."""
    names = getattr(model, "feature_names_in_", None)
    width = getattr(model, "n_features_in_", None)
    listed = f"{len(names)}: {', '.join(map(str, names))}" if names is not None else f"{width}, without names"
    if names is not None or width is not None:
        yield "columns", listed
    given = model.get_params(deep=False)
    encoder, classes = getattr(model, "encoder_", None), getattr(model, "classes_", given.get("classes"))
    if (
        encoder is not None
    ):  # of the model, not of its arguments: a dataset may declare columns, and a file has no arguments
        yield "declared columns", _public_text({each.name: each.declared for each in encoder.columns})
    if given.get("bounds") is not None:
        yield "bounds", _public_text(given["bounds"])
    if classes is not None:
        yield "classes", _public_text(classes)
    if given.get("target_bounds") is not None and not hasattr(model, "classes_"):
        yield "target bounds", _public_text(given["target_bounds"])
    yield "unit", str(receipt.unit)
    size = "public" if receipt.adjacency.public_size else "private"
    yield "neighbours", f"{receipt.adjacency.value}; the number of units is {size}"
    for name, value in receipt.terms.items():
        if name in _ROW_TERMS and isinstance(value, str | int | float | list):
            yield name, _public_text(value)


def _fit_lines(receipt: Receipt) -> Iterable[tuple[str, str]]:
    """Yield the public terms of the fit that a reader can use; hashes and records for programs stay in the JSON."""
    for name, value in receipt.terms.items():
        if name not in (*_ROW_TERMS, *_FOR_PROGRAMS) and isinstance(value, str | int | float):
            yield name, _public_text(value)


def _bill_lines(receipt: Receipt) -> Iterable[tuple[str, str]]:
    """Yield the lines of the receipt about accuracy and price."""
    fields = replace(receipt, terms={}).rows()  # a term may have the label of a field
    return ((label, text) for label, text in fields if label in (*_BILL_FIELDS, receipt.achieved_label))


def _baseline(model: Any, receipt: Receipt) -> str:
    """Return what a model that learned nothing would reach, from public facts or from what was released."""
    released = receipt.terms.get("baseline")
    if released is not None:
        return f"Released with the model: {released}."
    measure = None if receipt.target is None else receipt.target.measure
    if measure is Measure.R2:
        return "Predicting the mean of the target would be R^2 = 0."
    classes = getattr(model, "classes_", None)
    if classes is not None:
        return (
            f"Guessing among the {len(classes)} classes would be right in 1 of {len(classes)} rows. The share of the largest "
            "class was not released; it may be far higher."
        )
    return "None was released. Compare with a private mean of the target before relying on the model."


def _list_coefficients(model: Any) -> tuple[dict[str, Any], ...]:
    """Return the released coefficients by name, with intervals where the model has valid ones."""
    if hasattr(model, "coefficients"):  # models of tables: by column and level, in the units of the columns
        return tuple(map(_table_coefficient, model.coefficients().lines))
    values = getattr(model, "coef_", None)
    if values is None:
        return ()
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))
    names = getattr(model, "feature_names_in_", None)
    columns = [str(name) for name in names] if names is not None else [f"x{place}" for place in range(table.shape[1])]
    columns = columns if len(columns) == table.shape[1] else [f"x{place}" for place in range(table.shape[1])]
    intervals = getattr(model, "coefficient_intervals_", None)
    classes = getattr(model, "classes_", None)
    # Two classes share one row of coefficients, which are those of the second one.
    labels = (
        [None] if len(table) == 1 else [str(each) for each in (classes if classes is not None else range(len(table)))]
    )
    constants = np.atleast_1d(np.asarray(getattr(model, "intercept_", np.zeros(len(table))), dtype=np.float64))
    found: list[dict[str, Any]] = []
    for place, (label, row) in enumerate(zip(labels, table.tolist(), strict=False)):
        own = {} if label is None else {"class": label}
        ends = None if intervals is None or label is not None else intervals
        pairs = zip(
            columns, row, [None] * len(row) if ends is None else [list(map(float, e)) for e in ends], strict=True
        )
        found += [own | {"feature": name, "value": value, "interval": interval} for name, value, interval in pairs]
        if place < len(constants):
            found.append(own | {"feature": "intercept", "value": float(constants[place]), "interval": None})
    return tuple(found)


def _table_coefficient(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of a table of coefficients as an entry of a card."""
    level = f" = {line['level']}" if line["level"] else ""
    ends = None if line.get("low") is None else [line["low"], line["high"]]
    found = {"feature": f"{line['column']}{level}, {line['meaning']}", "value": line["coefficient"], "interval": ends}
    own = {"class": line["class"]} if "class" in line else {}
    return own | found | ({"estimate": line["estimate"]} if "estimate" in line else {})


def _coefficient_notes(model: Any, coefficients: tuple[dict[str, Any], ...]) -> Iterable[str]:
    if not coefficients:
        yield "The model has no coefficients of columns."
        return
    yield "Released values, for rows within the bounds, in the units of the columns."
    if hasattr(model, "coefficients"):
        yield model.coefficients().note
    elif all(each["interval"] is None for each in coefficients):
        yield f"Intervals: {_NO_INTERVAL}"
    if len(coefficients) > _MOST_SHOWN:
        yield f"The first {_MOST_SHOWN} of {len(coefficients)} are shown; the JSON form has all."


def _check_lines(receipt: Receipt) -> Iterable[tuple[str, str]]:
    entry = receipt.ledger_entry
    yield "ledger entry", entry or "none: this fit is recorded nowhere"
    if entry is not None:
        yield "look it up", f'in the ledger that paid: session.receipt("{entry}"), "expost ledger verify"'
    if receipt.citations:
        yield "theorems", "; ".join(receipt.citations)


def _public_text(value: Any) -> str:
    """Return a public argument as short text; arrays and mappings as JSON where that is possible."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_public_text(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return "(" + ", ".join(_public_text(each) for each in value) + ")"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _coefficient_name(entry: Mapping[str, Any]) -> str:
    return f"{entry['class']}: {entry['feature']}" if "class" in entry else str(entry["feature"])


def _headline(receipt: Receipt) -> list[tuple[str, str]]:
    """Return the facts that a reader looks for first."""
    facts = [("outcome", receipt.outcome.value), ("paid", str(receipt.bill))]
    if receipt.target is not None:
        facts.insert(0, ("promised", str(receipt.target)))
    measured = [
        (name, text) for name, text in receipt.terms.items() if name.startswith("measured ") and "±" in str(text)
    ]
    return [*facts, *((name, str(text)) for name, text in measured)][:_FACTS]


def _number_text(value: Any) -> str:
    return "none" if value is None else f"{value:.5g}"


def _interval_text(interval: Any) -> str:
    return "none" if interval is None else f"{interval[0]:.5g} to {interval[1]:.5g}"


def _cell(text: str) -> str:
    """Return text for a cell of a Markdown table: on one line, with nothing that ends the cell or starts HTML."""
    return " ".join(text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").split())
