"""A session whose rows and ledger are with a service: the same methods, prices and releases."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Self, Unpack

import pyarrow as pa

from expost.client.http_transport import HttpTransport
from expost.client.remote_dataset import RemoteDataset
from expost.core import (
    Guarantee,
    InvalidRequest,
    Loss,
    MissingExtra,
    Query,
    QuestionCap,
    Receipt,
    Release,
    explain_arguments,
)
from expost.core.release import draw_picture
from expost.data import Dataset, Expression
from expost.ledger import LedgerHistory
from expost.ledger.ledger_entry import EntryKind, LedgerEntry
from expost.models.saved_model import restore_document
from expost.session.price_quote import CurveTerms, PriceCurve, PriceQuote, QuotedTerms
from expost.session.statistic_methods import STATISTICS, StatisticMethods, check_statistic
from expost.session.wire_format import decode_price, decode_release, decode_value, encode_value
from expost.stats import PrivateKeys
from expost.stats.query_terms import Column

__all__ = ["RemoteSession", "connect"]

_NAMES: dict[Any, str] = {kind: name for name, kind in STATISTICS.items()}
_NO_PLACE: tuple[tuple[Any, ...], ...] = ()


class RemoteSession(StatisticMethods):
    """Asks a service about one of its datasets. Notebooks written for a ``Session`` run unchanged.

    Use ``expost.connect``.

    Parameters
    ----------
    transport : HttpTransport
        The connection.
    dataset : RemoteDataset
        The public description of the dataset.
    """

    def __init__(
        self, transport: HttpTransport, dataset: RemoteDataset, place: tuple[tuple[Any, ...], ...] = _NO_PLACE
    ) -> None:
        self._transport, self.dataset, self._place = transport, dataset, place
        self._path = f"/v1/datasets/{dataset.name}"

    # Questions

    @explain_arguments
    def ask(self, query: Query, *, request_id: str | None = None) -> Release[Any]:
        """Answer any query; the named methods build the common ones.

        Parameters
        ----------
        query : Query
            A statistic of ``expost.stats`` or a hypothesis test.
        request_id : str, optional
            A name for this request. A second run under the same name returns the first answer.

        Returns
        -------
        Release
            The value, its interval and its receipt.

        Raises
        ------
        InvalidRequest, BudgetExceeded
            Nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.
        """
        return self._answer_query(_RemoteQuestion(*_describe_query(query)), request_id=request_id)

    def _answer_query(self, query: Any, request_id: str | None = None) -> Release[Any]:
        found = self._transport.ask(f"{self._path}/ask", self._body(query), request_id)
        return decode_release(found["release"])

    def _query_of(self, statistic: str, arguments: dict[str, Any]) -> Any:
        return _RemoteQuestion(statistic, {name: each for name, each in arguments.items() if name != "self"})

    def _question_cap(self) -> QuestionCap:
        raise NotImplementedError  # the service knows the cap

    def _body(self, question: _RemoteQuestion) -> dict[str, Any]:
        body = {"statistic": question.statistic, "arguments": _write_arguments(question.arguments)}
        return body if not self._place else body | {"place": encode_value([list(step) for step in self._place])}

    def price(
        self, statistic: Any, *subject: Column | float | Sequence[Column | float], **terms: Unpack[QuotedTerms]
    ) -> PriceQuote:
        """Return what a query would cost: the worst case, and a guess from receipts that are public already.

        Parameters
        ----------
        statistic : str, Query or estimator
            A statistic's name, a query, or an unfitted estimator.
        *subject : str, Expression, float or a sequence of these
            With a name: the positional arguments of the statistic, such as its column.
        **terms : QuotedTerms
            With a name: the keyword arguments of the statistic. With an estimator: ``features=`` and ``target=``.
        """
        given: dict[str, Any] = dict(terms)
        if hasattr(statistic, "fit_with"):
            return decode_price(self._transport.post(f"{self._path}/price-fit", _describe_fit(statistic, **given)))
        return decode_price(self._transport.post(f"{self._path}/price", self._named(statistic, subject, given)))

    def price_curve(
        self,
        statistic: str,
        *subject: Column | float | Sequence[Column | float],
        within: Sequence[float | str],
        **terms: Unpack[CurveTerms],
    ) -> PriceCurve:
        """Return what a query would cost at several accuracies, as a table and a picture. Nothing is spent.

        Parameters
        ----------
        statistic : str
            A statistic's name.
        *subject : str, Expression, float or a sequence of these
            The positional arguments of the statistic, such as its column.
        within : sequence of float or str
            The errors allowed, such as ``["1%", "5%", "20%"]``.
        **terms : CurveTerms
            The other keyword arguments of ``price``; ``expect=`` where the price depends on the data.
        """
        body = self._named(statistic, subject, {"within": list(within), **terms})
        found = self._transport.post(f"{self._path}/price-curve", body)
        return PriceCurve(tuple(found["within"]), tuple(map(decode_price, found["quotes"])))

    def simulate(
        self,
        statistic: Any,
        *subject: Column | float | Sequence[Column | float],
        made_up_rows: int = 1000,
        seed: int = 0,
        **terms: Unpack[QuotedTerms],
    ) -> Release[Any]:
        """Answer a query about made-up rows of the same description, to see what it would show and cost. It is free.

        Parameters
        ----------
        statistic : str or Query
            A statistic's name, or a query.
        *subject : str, Expression, float or a sequence of these
            With a name: the positional arguments of the statistic, such as its column.
        made_up_rows : int, default 1000
            How many rows to make up.
        seed : int, default 0
            Equal seeds give equal rows and equal noise.
        **terms : QuotedTerms
            With a name: the keyword arguments of the statistic, such as ``within=3``.
        """
        body = self._named(statistic, subject, dict(terms)) | {"made_up_rows": made_up_rows, "seed": seed}
        return decode_release(self._transport.post(f"{self._path}/simulate", body)["release"])

    def dummy(self, rows: int = 1000, *, seed: int = 0) -> Dataset:
        """Return a dataset of made-up rows with the same description, to develop against on this machine. It is free.

        Parameters
        ----------
        rows : int, default 1000
            How many rows to make up. A public number of rows overrides it.
        seed : int, default 0
            Equal seeds give equal rows.
        """
        found = self._transport.get(f"{self._path}/dummy", rows=rows, seed=seed)
        return self.dataset.describe_rows(decode_value(found["columns"]))

    def _named(self, statistic: Any, subject: tuple[Any, ...], terms: dict[str, Any]) -> dict[str, Any]:
        """Return the body of a question that is given by its name and arguments, or as a query."""
        if not isinstance(statistic, str):
            return self._body(_RemoteQuestion(*_describe_query(statistic)))
        check_statistic(statistic)
        names = list(inspect.signature(STATISTICS[statistic]).parameters)
        if len(subject) > len(names):
            raise InvalidRequest(f"Expected at most {len(names)} arguments of {statistic}", do="Name them")
        return self._body(_RemoteQuestion(statistic, dict(zip(names, subject, strict=False)) | terms))

    @explain_arguments
    def fit(
        self,
        estimator: Any,
        *,
        features: Sequence[str] | None = None,
        target: str | None = None,
        request_id: str | None = None,
    ) -> Any:
        """Fit an estimator where the rows are, and return it fitted.

        Parameters
        ----------
        estimator : estimator
            An unfitted estimator, such as ``expost.Regressor(...)``.
        features : sequence of str, optional
            The feature columns.
        target : str, optional
            The target column.
        request_id : str, optional
            A name for this request. A second run under the same name returns the first model.
        """
        if self._place:
            raise InvalidRequest(
                "Expected a whole dataset: models are not fitted to parts of a table", do="Fit the whole"
            )
        body = _describe_fit(estimator, features=features, target=target)
        return restore_document(self._transport.ask(f"{self._path}/fit", body, request_id)["model"])

    # Statements

    @explain_arguments
    def sql(
        self,
        text: str,
        *,
        dialect: str = "duckdb",
        tables: Mapping[str, Any] | None = None,
        bounds: Mapping[str, Any] | None = None,
        max_rows_per_unit: int | None = None,
        request_id: str | None = None,
    ) -> Any:
        """Answer a statement: one table with intervals, one receipt, one charge.

        Parameters
        ----------
        text : str
            One SELECT, then the accuracy or the privacy level: ``ERROR WITHIN 5%`` or ``WITH EPSILON 0.1``. With
            ``EXPLAIN PRICE`` before it nothing is spent, and its price is returned.
        dialect : {"duckdb", "postgres", "spark"}, default "duckdb"
            The dialect of SQL.
        tables : mapping of str to table, optional
            Public tables that the statement may join, by their names. They are sent to the service.
        bounds : mapping of str to pair, optional
            Public limits of columns that the statement makes, by their names.
        max_rows_per_unit : int, optional
            The most rows of one unit that count after a join of private tables.
        request_id : str, optional
            A name for this request. A second run under the same name returns the first answer.

        Returns
        -------
        StatementRelease
            The table; of ``EXPLAIN PRICE``, a ``StatementPrice``.
        """
        found = self._transport.ask(
            f"{self._path}/sql", self._statement(text, dialect, tables, bounds, max_rows_per_unit), request_id
        )
        return decode_release(found["release"]) if "release" in found else _read_statement_price(found)

    @explain_arguments
    def sql_price(
        self,
        text: str,
        *,
        dialect: str = "duckdb",
        tables: Mapping[str, Any] | None = None,
        bounds: Mapping[str, Any] | None = None,
        max_rows_per_unit: int | None = None,
    ) -> Any:
        """Return what a statement would cost: its releases, their sensitivity, the worst and the likely price.

        Parameters
        ----------
        text : str
            The statement, as in ``sql``.
        dialect : {"duckdb", "postgres", "spark"}, default "duckdb"
            The dialect of SQL.
        tables : mapping of str to table, optional
            Public tables that the statement may join, by their names. They are sent to the service.
        bounds : mapping of str to pair, optional
            Public limits of columns that the statement makes, by their names.
        max_rows_per_unit : int, optional
            The most rows of one unit that count after a join of private tables.

        Returns
        -------
        StatementPrice
        """
        body = self._statement(text, dialect, tables, bounds, max_rows_per_unit)
        return _read_statement_price(self._transport.post(f"{self._path}/sql-price", body))

    def _statement(
        self,
        text: str,
        dialect: str,
        tables: Mapping[str, Any] | None,
        bounds: Mapping[str, Any] | None,
        max_rows_per_unit: int | None,
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"sql": text, "dialect": dialect}
        if tables is not None:
            body["tables"] = {name: encode_value(pa.table(each).to_pydict()) for name, each in tables.items()}
        if bounds is not None:
            body["bounds"] = _write_arguments(dict(bounds))
        if max_rows_per_unit is not None:
            body["max_rows_per_unit"] = max_rows_per_unit
        return body if not self._place else body | {"place": encode_value([list(step) for step in self._place])}

    # Parts

    @explain_arguments
    def part(self, column: str, value: Any) -> RemoteSession:
        """Return a session about the rows whose column has one of its public categories.

        Parameters
        ----------
        column : str
            A stored column with public categories.
        value : object
            One of the categories.
        """
        return RemoteSession(self._transport, self.dataset, (*self._place, ("part", column, value)))

    @explain_arguments
    def parts(self, column: str) -> dict[Any, RemoteSession]:
        """Return the parts of all public categories of a column.

        Parameters
        ----------
        column : str
            A stored column with public categories.
        """
        return {value: self.part(column, value) for value in self.dataset.values(column)}

    @explain_arguments
    def window(self, first: str, last: str | None = None) -> RemoteSession:
        """Return a session about one or several time windows of a unit with a time window.

        Parameters
        ----------
        first : str
            A day in the first window, written ``YYYY-MM-DD``.
        last : str, optional
            A day in the last window. Default: the first window only.
        """
        return RemoteSession(self._transport, self.dataset, (*self._place, ("window", first, last)))

    # The books

    @property
    def accounts(self) -> Sequence[str]:
        """Return the accounts that every query charges."""
        return tuple(self._transport.get(f"{self._path}/budget")["accounts"])

    def remaining(self) -> Loss:
        """Return what is left for this analyst."""
        return Loss.from_json(self._transport.get(f"{self._path}/budget")["remaining"])

    def spent(self) -> Loss:
        """Return what was spent on the dataset."""
        return Loss.from_json(self._transport.get(f"{self._path}/budget")["spent_on_dataset"])

    def history(self) -> LedgerHistory:
        """Return everything that this analyst was charged for, oldest first; it prints as a table."""
        entries = self._transport.get(f"{self._path}/history")["entries"]
        return LedgerHistory(LedgerEntry(**{**each, "kind": EntryKind(each["kind"])}) for each in entries)

    def plot(self, path: str | None = None) -> Any:
        """Draw what this analyst spent over time; of several windows, the first.

        Parameters
        ----------
        path : str, optional
            A PNG or SVG file to write.
        """
        found = self._transport.get(f"{self._path}/budget")
        budget = Guarantee.from_json(found["budget"])
        return draw_picture("budget", self.history(), account=found["accounts"][-1], budget=budget, path=path)

    def receipt(self, entry: str) -> Receipt:
        """Return the receipt kept under an entry's id.

        Parameters
        ----------
        entry : str
            The id, as in ``release.receipt.ledger_entry``.
        """
        return Receipt.from_dict(self._transport.get(f"{self._path}/receipts/{entry}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def __repr__(self) -> str:
        return f"RemoteSession({self.dataset.name!r} at {self._transport.url})"


class _RemoteQuestion:
    """A statistic by name, with its arguments, on its way to a service."""

    def __init__(self, statistic: str, arguments: dict[str, Any]) -> None:
        self.statistic = statistic
        self.arguments = {name: value for name, value in arguments.items() if value is not None}


@explain_arguments
def connect(url: str, token: str, *, dataset: str | None = None, timeout: float = 60.0) -> RemoteSession:
    """Open a session with a service.

    Parameters
    ----------
    url : str
        The address of the service, e.g. ``"https://host"``.
    token : str
        The analyst's token.
    dataset : str, optional
        The dataset to ask about. Default: the only one that the token opens.
    timeout : float, default 60
        Seconds to wait for one response.

    Returns
    -------
    RemoteSession
        It has the methods of ``Session``.

    Raises
    ------
    InvalidRequest
        If the address or the token cannot be one, or the token opens several datasets and none is named.

    Examples
    --------
    >>> connect("host", "expost_1_2")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected the address of a service. Pass e.g. "https://host".
    """
    return open_remote(HttpTransport(url, token, timeout=timeout), dataset)


def open_remote(transport: HttpTransport, dataset: str | None) -> RemoteSession:
    """Return a session over a connection."""
    if dataset is None:
        names = [each["name"] for each in transport.get("/v1/datasets")["datasets"]]
        if len(names) != 1:
            raise InvalidRequest("Expected a dataset, of several", do=f"Pass dataset=, one of: {', '.join(names)}")
        dataset = names[0]
    return RemoteSession(transport, RemoteDataset(transport.get(f"/v1/datasets/{dataset}")))


def _read_statement_price(found: Mapping[str, Any]) -> Any:
    try:
        statements = importlib.import_module("expost.sql")
    except ModuleNotFoundError as error:
        raise MissingExtra("sql", package=error.name or "sqlglot") from None
    parts = (
        statements.PricedPart(**{**each, "worst_case": Loss.from_json(each["worst_case"])}) for each in found["parts"]
    )
    return statements.StatementPrice(decode_price(found), tuple(parts), found["unit"], found.get("groups", 1))


def _describe_query(query: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a query object."""
    query = getattr(query, "query", query)
    if not is_dataclass(query) or isinstance(query, type):
        raise InvalidRequest("Expected a query", got=query, do='Pass e.g. expost.stats.Count(within="5%")')
    names = inspect.signature(type(query)).parameters
    found = {each.name: getattr(query, each.name) for each in fields(query) if each.name in names}
    return _NAMES.get(type(query), type(query).__name__), found


def _describe_fit(estimator: Any, features: Sequence[str] | None = None, target: str | None = None) -> dict[str, Any]:
    if not hasattr(estimator, "get_params"):
        raise InvalidRequest("Expected an estimator of expost", got=estimator, do="Pass e.g. expost.Regressor(...)")
    defaults = type(estimator)().get_params(deep=False)
    given = estimator.get_params(deep=False)
    changed = {name: value for name, value in given.items() if not _same(value, defaults[name])}
    return {
        "estimator": type(estimator).__name__,
        "settings": _write_arguments(changed),
        "features": None if features is None else list(features),
        "target": target,
    }


def _same(first: Any, second: Any) -> bool:
    try:
        return bool(first is second or first == second)
    except ValueError:  # arrays
        return False


def _write_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: _write_argument(value) for name, value in arguments.items()}


def _write_argument(value: Any) -> Any:
    if isinstance(value, Expression):
        return {"$kind": "expression", "of": repr(value)}
    if isinstance(value, PrivateKeys):
        terms = {name: getattr(value, name) for name in ("column", "epsilon", "delta", "where")}
        return {"$kind": "PrivateKeys", **_write_arguments({n: v for n, v in terms.items() if v is not None})}
    if isinstance(value, tuple):
        return {"$kind": "tuple", "of": list(map(_write_argument, value))}
    if isinstance(value, list):
        return list(map(_write_argument, value))
    if isinstance(value, dict):
        return {name: _write_argument(each) for name, each in value.items()}
    return encode_value(value)
