"""The commands ``expost serve`` and ``expost token``: a service for analysts who share no rows."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expost.cli.console import Json, emit, err, out, print_table
from expost.core import InvalidRequest, epsilon

if TYPE_CHECKING:
    from expost.service import Curator, ServiceSettings

__all__ = ["serve", "token"]

_OWNER_FILE = Annotated[Path, typer.Argument(help="The owner's file of settings (TOML).")]
_FOUND_FILE = Annotated[Path, typer.Argument(help="The owner's file of settings (TOML).", show_default=True)]
_DEFAULT_FILE = Path("owner.toml")


def serve(
    settings: Annotated[Path | None, typer.Argument(help="The owner's file of settings (TOML).")] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Serve a generated table, with tokens printed once.")] = False,
    host: Annotated[str | None, typer.Option(help="The address to listen at.")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen at.")] = None,
    workers: Annotated[int, typer.Option(help="Processes; more than one needs PostgreSQL.", min=1, max=64)] = 1,
) -> None:
    """Serve tables over HTTP: a page and an API for analysts, who see answers and never a row.

    Example: [bold]expost serve --demo[/bold]
    """
    import dataclasses

    service = _import_service()
    if demo == (settings is not None):
        raise InvalidRequest("Expected a file of settings, or --demo", do="Run: expost serve owner.toml")
    folder = Path(tempfile.mkdtemp(prefix="expost-demo-")) if settings is None else settings.parent
    path = _write_demo(folder) if settings is None else settings
    chosen = service.ServiceSettings.read(path)
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    chosen = dataclasses.replace(chosen, **given)
    if workers > 1 and not all("://" in place for place in (chosen.ledger, chosen.state)):
        raise InvalidRequest(
            "Expected the ledger and the state in PostgreSQL for several workers",
            got=f"--workers {workers}",
            do="Write ledger and state = postgresql://user@host/database, or leave --workers out",
        )
    if demo:
        _print_demo_tokens(chosen)
    _run_server(chosen, path, given, workers)


def _run_server(settings: ServiceSettings, path: Path, given: dict[str, Any], workers: int) -> None:
    import inspect
    import json
    import os

    import uvicorn

    scheme = "https" if settings.certificate else "http"
    err.print(f"serving at {scheme}://{settings.host}:{settings.port}", markup=False)
    os.environ["EXPOST_SERVICE"] = json.dumps({"path": str(path), **given})
    # By default a worker that is silent for 5 seconds is killed. Imports take longer on a busy machine, so none would ever start.
    name = "timeout_worker_healthcheck"  # of uvicorn 0.37 and later
    patience: dict[str, Any] = {name: 120} if name in inspect.signature(uvicorn.run).parameters else {}
    uvicorn.run(
        "expost.service.worker:application",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=workers,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
        access_log=False,  # paths have names of datasets and jobs
        server_header=False,
        log_level="warning",
        **patience,
    )


def _print_demo_tokens(settings: ServiceSettings) -> None:
    from expost.service import Curator, Role

    curator = Curator(settings)
    owner = curator.create_token(role=Role.OWNER, subject="owner")
    analyst = curator.create_token(role=Role.ANALYST, subject="analyst-1", dataset="flights", budget=(2, 1e-6))
    curator.close()
    out.print(f"[bold]owner's token[/bold]      {owner.text}")
    out.print(f"[bold]analyst's token[/bold]    {analyst.text}")
    out.print("Both are shown once. Open the page and paste one of them.")


def _write_demo(folder: Path) -> Path:
    import pyarrow.parquet as pq

    from expost.experiments.experiment_data import generated_flights

    table = generated_flights(100_000)
    pq.write_table(table, folder / "flights.parquet")
    limits = {
        "dep_delay": [-40, 300],
        "arr_delay": [-60, 300],
        "distance": [0, 5000],
        "hour": [0, 24],
        "month": [1, 12],
    }
    bounds = "\n".join(f"{name} = {pair}" for name, pair in limits.items() if name in table.column_names)
    lists = (
        {"origin": ["EWR", "JFK", "LGA"], "carrier": sorted(set(table["carrier"].to_pylist()))}
        if "carrier" in (table.column_names)
        else {"origin": ["EWR", "JFK", "LGA"]}
    )
    known = "\n".join(f"{name} = {values}" for name, values in lists.items() if name in table.column_names)
    (folder / "flights.toml").write_text(
        f'source = "flights.parquet"\nname = "flights"\n\n[bounds]\n{bounds}\n\n[categories]\n{known}\n',
        encoding="utf-8",
    )
    owner = folder / "owner.toml"
    owner.write_text(
        'ledger = "service.ledger"\nstate = "service.state"\n\n[[datasets]]\ndescription = "flights.toml"\n'
        'title = "Flights from New York (generated)"\nbudget = [10.0, 1e-5]\n',
        encoding="utf-8",
    )
    return owner


token = typer.Typer(no_args_is_help=True, help="Make, list and revoke the tokens of a service.")


@token.command()
def create(
    settings: _FOUND_FILE = _DEFAULT_FILE,
    analyst: Annotated[str | None, typer.Option(help="The analyst who gets the token.")] = None,
    auditor: Annotated[str | None, typer.Option(help="The auditor who gets the token.")] = None,
    owner: Annotated[str | None, typer.Option(help="The owner who gets the token.")] = None,
    dataset: Annotated[str | None, typer.Option(help="The dataset that it opens.")] = None,
    level: Annotated[float | None, typer.Option("--epsilon", help="The budget of a new analyst.")] = None,
    delta: Annotated[float, typer.Option(help="The delta of that budget.")] = 0.0,
    expires: Annotated[str | None, typer.Option(help="How long it works, e.g. 30d.")] = None,
    as_json: Json = False,
) -> None:
    """Make a token. Its text is printed once and kept nowhere.

    Example: [bold]expost token create owner.toml --analyst analyst-1 --dataset flights --epsilon 0.5 --expires 30d[/bold]
    """
    service = _import_service()
    from expost.service.access_token import parse_duration

    given = {
        role: name
        for role, name in (
            (service.Role.ANALYST, analyst),
            (service.Role.AUDITOR, auditor),
            (service.Role.OWNER, owner),
        )
        if name is not None
    }
    if len(given) != 1:
        raise InvalidRequest("Expected one of --analyst, --auditor, --owner", do="Name who gets the token")
    ((role, subject),) = given.items()
    with _open_curator(settings) as curator:
        secret = curator.create_token(
            role=role,
            subject=subject,
            dataset=dataset,
            budget=None if level is None else epsilon(level, delta),
            lifetime=None if expires is None else parse_duration(expires),
        )
    if as_json:
        emit({"token": secret.text, "id": secret.token_id})
    else:
        out.print(secret.text, markup=False)


@token.command("list")
def list_tokens(settings: _FOUND_FILE = _DEFAULT_FILE, as_json: Json = False) -> None:
    """List all tokens, without their secrets.

    Example: [bold]expost token list owner.toml[/bold]
    """
    _import_service()
    from expost.service.owner_routes import token_facts

    with _open_curator(settings) as curator:
        found = list(map(token_facts, curator.store.list_tokens()))
    if as_json:
        emit(found)
        return
    plain = ("id", "role", "subject", "dataset")
    rows = [
        [
            *(str(each[name] or "all") for name in plain),
            each["created"][:10],
            "revoked" if each["revoked"] else (each["expires"] or "never")[:10],
        ]
        for each in found
    ]
    print_table("tokens", (*plain, "made", "until"), rows)


@token.command()
def revoke(settings: _OWNER_FILE, token_id: Annotated[str, typer.Argument(help="The id of the token.")]) -> None:
    """Revoke a token.

    Example: [bold]expost token revoke owner.toml 1f0c...[/bold]
    """
    _import_service()
    with _open_curator(settings) as curator:
        curator.revoke_token(token_id)
    out.print(f"revoked {token_id}", markup=False)


@token.command()
def rotate(
    settings: _OWNER_FILE,
    token_id: Annotated[str, typer.Argument(help="The id of the token.")],
    expires: Annotated[
        str | None, typer.Option(help="How long the new one works, e.g. 30d. Default: as long as the old one.")
    ] = None,
) -> None:
    """Replace a token: make a new one for the same holder, and revoke the old one.

    Example: [bold]expost token rotate owner.toml 1f0c... --expires 30d[/bold]
    """
    _import_service()
    from expost.service.access_token import parse_duration

    lifetime: datetime.timedelta | None = None if expires is None else parse_duration(expires)
    with _open_curator(settings) as curator:
        secret = curator.rotate_token(token_id, lifetime=lifetime)
    out.print(secret.text, markup=False)


@contextmanager
def _open_curator(settings: Path) -> Iterator[Curator]:
    """Open the curator of a file of settings, and close it at the end."""
    from expost.service import Curator, ServiceSettings

    curator = Curator(ServiceSettings.read(settings))
    try:
        yield curator
    finally:
        curator.close()


def _import_service() -> Any:
    """Import the service here, so that other commands start without it."""
    import expost.service

    return expost.service
