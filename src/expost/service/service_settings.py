"""What the owner of a service decides: tables, budgets, caps, addresses and limits, in one TOML file."""

from __future__ import annotations

import os
import tomllib
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

from expost.core import Guarantee, InvalidRequest, as_guarantee
from expost.core.rational import rational
from expost.data import Dataset
from expost.data.description import Description
from expost.service.question_limits import QuestionLimits

__all__ = ["DatasetSettings", "OpenIdSettings", "RequestLimits", "ServiceSettings"]

OPENID_SECRET = "EXPOST_OPENID_SECRET"
"""The environment variable with the secret that the provider gave to this service."""

_SERVICE = {
    "ledger",
    "state",
    "host",
    "port",
    "certificate",
    "key",
    "time_grid",
    "secure_cookies",
    "limits",
    "datasets",
    "openid",
}
_DATASET = {"description", "title", "budget", "question_cap", "approval_above"}


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """What one request, one token and one worker may use.

    Parameters
    ----------
    body_bytes : int, default 65536
        The longest body of a request.
    depth : int, default 12
        The deepest nesting of a body.
    body_seconds : float, default 30
        How long the body of a request may take to arrive.
    requests_per_minute : int, default 600
        What one token may send to one worker in a minute.
    jobs_per_token : int, default 4
        The questions of one token that may run at the same time.
    workers : int, default 4
        The questions that one process answers at the same time.
    wait_seconds : float, default 20
        How long an answer is waited for before the request returns the address of its job.
    groups : int, default 100000
        The most groups that one question may have.
    """

    body_bytes: int = 65536
    depth: int = 12
    body_seconds: float = 30.0
    requests_per_minute: int = 600
    jobs_per_token: int = 4
    workers: int = 4
    wait_seconds: float = 20.0
    groups: int = 100_000

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 10**9:
                raise InvalidRequest(f"Expected limits.{each.name} to be a number above 0", got=value, do="Correct it")


@dataclass(frozen=True, kw_only=True)
class DatasetSettings:
    """One table of the service, and what may be spent on it.

    Parameters
    ----------
    dataset : Dataset
        The table and its public description. It needs a name.
    title : str, default ""
        A public title for the pages. Default: the name.
    budget : Guarantee
        The budget of the table.
    question_cap : Fraction, optional
        The most epsilon that one question of an analyst may cost. Default: a tenth of the budget where its asker names none.
    approval_above : Fraction, optional
        Questions that may cost more than this epsilon wait for the owner. Default: none waits.
    description : Path, optional
        The description that the table is opened from again when its files have changed. Default: it is not opened again.
    """

    dataset: Dataset
    title: str = ""
    budget: Guarantee
    question_cap: Fraction | None = None
    approval_above: Fraction | None = None
    description: Path | None = None

    def __post_init__(self) -> None:
        if not self.dataset.name:
            raise InvalidRequest("Expected a dataset with a name", do='Write name = "flights" in its description')
        _ = self.limits
        if not self.title:
            object.__setattr__(self, "title", self.dataset.name)

    @property
    def limits(self) -> QuestionLimits:
        """What one question of an analyst may cost, unless the owner decides otherwise while the service runs."""
        return QuestionLimits(self.question_cap, self.approval_above)

    @property
    def name(self) -> str:
        """The name of the dataset."""
        return str(self.dataset.name)


@dataclass(frozen=True, kw_only=True)
class OpenIdSettings:
    """How people of an organisation sign in to the pages with OpenID Connect.

    Parameters
    ----------
    issuer : str
        The provider, e.g. ``"https://login.example.org"``. Its addresses and keys are read from there.
    client_id : str
        The name of this service at the provider.
    secret : str
        The secret of this service at the provider. A file of settings has none: it is in ``EXPOST_OPENID_SECRET``.
    address : str
        The address of this service as browsers see it, e.g. ``"https://host"``.
    name_claim : str, default "email"
        The claim whose value is the name that tokens are made for. An email address must be verified.
    scope : str, default "openid email"
        What the provider is asked for.
    """

    issuer: str
    client_id: str
    secret: str = field(repr=False)
    address: str
    name_claim: str = "email"
    scope: str = "openid email"

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, str) or not value.strip():
                where = f"{OPENID_SECRET} in the environment" if each.name == "secret" else f"openid.{each.name}"
                raise InvalidRequest(f"Expected {where} as a text", do="Set it")
        for name in ("issuer", "address"):
            if not is_private_address(getattr(self, name)):
                raise InvalidRequest(f"Expected openid.{name} with https", got=getattr(self, name), do="Correct it")

    @property
    def redirect_address(self) -> str:
        """The address that the provider sends browsers back to."""
        return f"{self.address.rstrip('/')}/login/openid/back"


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """All decisions of an owner.

    Parameters
    ----------
    datasets : tuple of DatasetSettings
        The tables.
    ledger : str
        Where charges are recorded: a path, or the address of a PostgreSQL database.
    state : str
        Where tokens, requests and the audit log are kept: a path, or the address of a PostgreSQL database.
    host : str, default "127.0.0.1"
        The address to listen at.
    port : int, default 8000
        The port to listen at.
    certificate, key : str, optional
        The files of a TLS certificate and its key. Without them a reverse proxy should speak TLS.
    time_grid : float, optional
        Answers leave at multiples of this many seconds. Default: from the public size of each question.
    secure_cookies : bool, default False
        Whether cookies of the pages are sent over TLS only. Always so with a certificate.
    limits : RequestLimits
        What requests may use.
    openid : OpenIdSettings, optional
        How people of an organisation sign in. Default: with tokens only.
    """

    datasets: tuple[DatasetSettings, ...]
    ledger: str
    state: str
    host: str = "127.0.0.1"
    port: int = 8000
    certificate: str | None = None
    key: str | None = None
    time_grid: float | None = None
    secure_cookies: bool = False
    limits: RequestLimits = field(default_factory=RequestLimits)
    openid: OpenIdSettings | None = None

    def __post_init__(self) -> None:
        names = [each.name for each in self.datasets]
        if not names or len(set(names)) != len(names):
            raise InvalidRequest("Expected datasets with different names", do="Write one [[datasets]] per table")
        if (self.certificate is None) != (self.key is None):
            raise InvalidRequest("Expected a certificate together with its key", do="Write both, or none")
        if self.time_grid is not None and not (isinstance(self.time_grid, int | float) and 0 < self.time_grid <= 3600):
            raise InvalidRequest("Expected time_grid in seconds, up to an hour", got=self.time_grid, do="Write 0.25")
        if not isinstance(self.port, int) or not 0 <= self.port < 65536:
            raise InvalidRequest("Expected a port from 0 to 65535", got=self.port, do="Write port = 8000")

    @classmethod
    def read(cls, path: str | Path) -> ServiceSettings:
        """Read the owner's file. Paths in it are relative to its folder.

        Parameters
        ----------
        path : str or Path
            The TOML file.

        Raises
        ------
        InvalidRequest
            If the file cannot be read, or something in it is missing or misspelt.
        """
        path = Path(path)
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            raise InvalidRequest("Expected a readable file of settings", got=str(path), do="Check the path") from None
        except tomllib.TOMLDecodeError as error:
            raise InvalidRequest(f"Expected settings in TOML: {error}", do="Correct the line") from None
        return cls.parse(data, path.parent)

    @classmethod
    def parse(cls, data: Mapping[str, Any], folder: Path) -> ServiceSettings:
        """Read settings from the tables of a TOML file.

        Parameters
        ----------
        data : mapping
            The tables.
        folder : Path
            The folder that relative paths start from.
        """
        _check_names(data, _SERVICE, "settings")
        tables = data.get("datasets")
        if not isinstance(tables, list) or not tables:
            raise InvalidRequest("Expected at least one dataset", do='Write [[datasets]] and description = "FILE.toml"')
        limits = data.get("limits", {})
        _check_names(limits, {each.name for each in fields(RequestLimits)}, "limits")
        plain: dict[str, Any] = {
            name: data[name] for name in ("host", "port", "time_grid", "secure_cookies") if name in data
        }
        plain |= {name: _locate(data[name], folder) for name in ("certificate", "key") if name in data}
        return cls(
            datasets=tuple(_read_dataset(each, folder) for each in tables),
            ledger=_locate(data.get("ledger", "service.ledger"), folder),
            state=_locate(data.get("state", "service.state"), folder),
            limits=RequestLimits(**limits),
            openid=_read_openid(data["openid"]) if "openid" in data else None,
            **plain,
        )

    def dataset(self, name: str) -> DatasetSettings | None:
        """Return the settings of a dataset, None if there is none of this name.

        Parameters
        ----------
        name : str
            The name of the dataset.
        """
        return next((each for each in self.datasets if each.name == name), None)


def is_private_address(address: str) -> bool:
    """Return whether nobody between can read what is sent to an address: by TLS, or on this machine."""
    parts = urllib.parse.urlsplit(address)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1"))


def _read_openid(data: Any) -> OpenIdSettings:
    names = {each.name for each in fields(OpenIdSettings)} - {"secret"}
    _check_names(data, names, "openid")
    missing = next((name for name in ("issuer", "client_id", "address") if name not in data), None)
    if missing is not None:
        raise InvalidRequest(f"Expected openid.{missing}", do="See docs/howto/serve-analysts.md")
    return OpenIdSettings(secret=os.environ.get(OPENID_SECRET, ""), **data)


def _read_dataset(data: Any, folder: Path) -> DatasetSettings:
    if not isinstance(data, dict):
        raise InvalidRequest("Expected a table for each dataset", do="Write [[datasets]]")
    _check_names(data, _DATASET, "dataset")
    if "description" not in data or "budget" not in data:
        raise InvalidRequest(
            "Expected a description and a budget of each dataset", do='Write description = "FILE.toml" and budget = 1.0'
        )
    optional = {name: rational(data[name], name) for name in ("question_cap", "approval_above") if name in data}
    description = Path(_locate(data["description"], folder))
    return DatasetSettings(
        dataset=Description.read(description).open(),
        description=description,
        title=str(data.get("title", "")),
        budget=as_guarantee(_as_budget(data["budget"]), "budget"),
        **optional,
    )


def _as_budget(given: Any) -> Any:
    return tuple(given) if isinstance(given, list) else given


def _locate(text: Any, folder: Path) -> str:
    if not isinstance(text, str) or not text:
        raise InvalidRequest("Expected a path or an address as a text", got=text, do="Write it in quotes")
    return text if "://" in text or Path(text).is_absolute() else str(folder / text)


def _check_names(data: Mapping[str, Any], known: set[str], where: str) -> None:
    if not isinstance(data, Mapping):
        raise InvalidRequest(f"Expected a table of {where}", do="See docs/howto/serve-analysts.md")
    unknown = next((name for name in data if name not in known), None)
    if unknown is not None:
        raise InvalidRequest(f"Expected one of {', '.join(sorted(known))} in the {where}", got=unknown, do="Correct it")
