"""The command ``expost ledger``: show, verify, export and manage a ledger."""

from __future__ import annotations

import json
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from expost.cli.account_table import account_tables
from expost.cli.console import PICTURES, emit, err, kept_apart, new_file, out, print_table
from expost.cli.table_source import describe_source
from expost.core import Guarantee, InvalidRequest, epsilon, gdp, zcdp
from expost.core.release import draw_picture
from expost.core.whole_file import write_file
from expost.ledger import EntryKind, Ledger, LedgerEntry, new_key, open_ledger
from expost.ledger.backup import back_up_ledger, restore_ledger
from expost.ledger.known_source import KnownSource, check_reason
from expost.ledger.ledger_account import check_name
from expost.ledger.repair import diagnose_ledger, repair_ledger

__all__ = ["ledger"]

ledger = typer.Typer(no_args_is_help=True, help="Read, check and manage a ledger.")

Where = Annotated[str, typer.Argument(help="A ledger: a file, sqlite:///FILE or postgresql://HOST/DATABASE.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@ledger.command()
def show(
    where: Where,
    account: Annotated[str | None, typer.Option(help="Only this account.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the account's budget over time to a PNG or SVG file.")] = None,
    as_json: Json = False,
) -> None:
    """Show accounts, budgets, what is left, and every entry.

    Example: [bold]expost ledger show flights.ledger --account dataset:flights[/bold]
    """
    new_file(plot, kinds=PICTURES)
    kept_apart(plot, where)
    with _existing(where) as book:
        names = book.accounts() if account is None else [account]
        totals = [
            (
                name,
                book.budget(name),
                book.question_cap(name),
                book.spent(name),
                book.remaining(name),
                _counted(book, name),
            )
            for name in names
        ]
        shown = [
            (name, budget, f"{float(cap):.4g}", spent, left.text(down=True))
            for name, budget, cap, spent, left, _ in totals  # what an account counts is told by its entries
        ]
        entries = book.history(account)
        tables = [found for name, found in account_tables(book).items() if name in names]
        if as_json:
            lines = [_line(entry) for entry in entries]
            known = [table.to_json() for table in tables]
            emit({"accounts": [_total(*total) for total in totals], "tables": known, "entries": lines})
        else:
            print_table("accounts", ("account", "budget", "a question", "spent", "left"), shown)
            if tables:
                columns = ("account", "source", "unit", "adjacency", "columns", "code")
                print_table("tables", columns, [table.cells for table in tables])
            for table in tables:
                for reason in table.reasons:
                    out.print(f"{table.account}: {reason}", markup=False)
            rows = ((entry.id, _when(entry), entry.kind.value, _subject(entry), _charged(entry)) for entry in entries)
            print_table("entries", ("entry", "when (UTC)", "what", "question or account", "charged"), rows)
        if plot is not None:
            _draw(book, account, plot)
            (err if as_json else out).print(f"picture: {plot}")


@ledger.command()
def verify(
    where: Where,
    anchor: Annotated[str | None, typer.Option(help="An entry's id known from elsewhere that must be there.")] = None,
    as_json: Json = False,
) -> None:
    """Recompute every total and the whole chain; a changed, removed or reordered entry is found.

    Example: [bold]expost ledger verify flights.ledger[/bold]
    """
    with _existing(where) as book:
        report = book.verify(anchor=anchor)
    if as_json:
        emit(asdict(report))
    else:
        out.print(f"[green]sound[/green]: {report}")


@ledger.command()
def export(
    where: Where,
    output: Annotated[Path, typer.Option(help="File to write; JSON lines.")],
    as_json: Json = False,
) -> None:
    """Write every entry, receipts included, as JSON lines.

    Example: [bold]expost ledger export flights.ledger --output flights.jsonl[/bold]
    """
    new_file(output, begins=(b"{",))
    kept_apart(output, where)
    with _existing(where) as book:
        lines = [json.dumps(_line(entry), ensure_ascii=False) for entry in book.history()]
    write_file(output, ("\n".join(lines) + "\n").encode())
    _say(f"{len(lines)} entries written to {output}", {"entries": len(lines), "output": str(output)}, as_json)


@ledger.command()
def budget(
    where: Where,
    account: Annotated[str, typer.Argument(help="Account, for example dataset:flights or analyst:ann.")],
    epsilon_amount: Annotated[float | None, typer.Option("--epsilon", help="Pure budget.")] = None,
    delta: Annotated[float, typer.Option(help="With --epsilon: an (epsilon, delta) budget.")] = 0.0,
    rho: Annotated[float | None, typer.Option(help="Zero-concentrated budget.")] = None,
    mu: Annotated[float | None, typer.Option(help="Gaussian budget.")] = None,
    question_cap: Annotated[
        float | None, typer.Option(help="Epsilon that one question may cost if it names no cap; a tenth of the budget.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="The table that the account pays for; default: the first that is asked about.")
    ] = None,
    another_budget: Annotated[
        str | None, typer.Option(help="Why rows that another account pays for get another budget; recorded.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Open an account with a budget, or give it another one (owners only; the change is recorded).

    A budget belongs to a table, not to its name. A second account for the same file, table or content is refused
    unless --another-budget gives the reason.

    Example: [bold]expost ledger budget flights.ledger dataset:flights --epsilon 1 --source flights.parquet[/bold]
    """
    amount, name = _budget(epsilon_amount, delta, rho, mu), check_name(account, template=True)
    reason = None if another_budget is None else check_reason(another_budget, "--another-budget")
    if reason is not None and source is None:
        raise InvalidRequest("--another-budget needs --source", do="Name the table")
    table = None if source is None else describe_source(source, {}).source_identity()
    with open_ledger(where) as book:
        name = _dataset_name(book, name, has_source=table is not None)
        exists = name in (*book.accounts(), *book.templates())
        if table is not None:
            terms: dict[str, Any] = {} if exists else {"budget": amount, "question_cap": question_cap}
            book.bind_source(name, table, **terms, another_budget=reason)
        elif not exists:
            book.open_account(name, amount, question_cap=question_cap)
        if exists and (book.budget(name) != amount or question_cap is not None):
            book.change_budget(name, amount, question_cap=question_cap)
        cap = book.question_cap(name)
    told = f"{name}: {amount}; one question may cost {cap.note}"
    _say(told, {"account": name, "budget": amount.to_json(), "question_cap": str(Fraction(cap))}, as_json)


@ledger.command()
def rebind(
    where: Where,
    account: Annotated[str, typer.Argument(help="Account of a dataset, for example dataset:flights.")],
    source: Annotated[str, typer.Argument(help="The table that it pays for from now on: a description or a file.")],
    why: Annotated[str, typer.Option(help="The reason; it is recorded.")],
    another_budget: Annotated[
        str | None, typer.Option(help="Why rows that another account pays for get another budget; recorded.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Let an account pay for another source too, such as a file that moved and changed (owners only).

    What is spent stays spent.

    Example: [bold]expost ledger rebind flights.ledger dataset:flights new/flights.parquet --why "moved"[/bold]
    """
    reason, name = check_reason(why, "--why"), check_name(account)
    another = None if another_budget is None else check_reason(another_budget, "--another-budget")
    table = describe_source(source, {}).source_identity()
    with _existing(where) as book:
        name = _dataset_name(book, name, has_source=True)
        book.bind_source(name, table, another_budget=another, rebound=reason)
    _say(f"{name}: pays for this source too", {"account": name, "places": list(table.places), "why": reason}, as_json)


@ledger.command()
def holds(where: Where, as_json: Json = False) -> None:
    """List holds that are neither settled nor written off; each stays charged at its worst case.

    Example: [bold]expost ledger holds flights.ledger[/bold]
    """
    with _existing(where) as book:
        rows = [(hold.id, ", ".join(hold.accounts), str(hold.worst_case), hold.question) for hold in book.open_holds()]
    if as_json:
        emit([dict(zip(("id", "accounts", "worst_case", "question"), row, strict=True)) for row in rows])
    else:
        print_table("open holds", ("hold", "accounts", "worst case", "question"), rows)


@ledger.command("new-key")
def create_key() -> None:
    """Print a new key for the secrets a ledger keeps; the owner sets it as EXPOST_LEDGER_KEY.

    Example: [bold]expost ledger new-key[/bold]
    """
    typer.echo(new_key())


@ledger.command("write-off")
def write_off(where: Where, hold: Annotated[str, typer.Argument(help="The hold's id.")], as_json: Json = False) -> None:
    """Close a hold whose run was lost; it stays charged at its worst case.

    Example: [bold]expost ledger write-off flights.ledger 4f1c[/bold]
    """
    with _existing(where) as book:
        entry = book.write_off(hold)
    _say(f"written off as spent: {entry}", {"hold": hold, "entry": entry}, as_json)


@ledger.command("anchor")
def print_anchor(where: Where, as_json: Json = False) -> None:
    """Print a note of the newest entry. Keep it elsewhere: verify and restore compare the ledger with it.

    With EXPOST_LEDGER_KEY set it has a code that nobody else can make.

    Example: [bold]expost ledger anchor flights.ledger[/bold]
    """
    with _existing(where) as book:
        anchor = book.anchor()
    _say(anchor, {"anchor": anchor}, as_json)


@ledger.command("backup")
def write_backup(
    where: Annotated[str, typer.Argument(help="The ledger file.")],
    target: Annotated[Path, typer.Argument(help="The new file to write.")],
    as_json: Json = False,
) -> None:
    """Copy a ledger that may be in use, check the copy, and print its anchor. Copying the file itself loses entries.

    Example: [bold]expost ledger backup flights.ledger flights.backup[/bold]
    """
    kept_apart(target, where)
    anchor = back_up_ledger(where, str(target))
    _say(f"backed up to {target}, anchor {anchor}", {"backup": str(target), "anchor": anchor}, as_json)


@ledger.command("restore")
def restore_backup(
    backup: Annotated[Path, typer.Argument(help="A file that expost ledger backup wrote.")],
    target: Annotated[str, typer.Argument(help="The ledger file to write; it must not exist.")],
    anchor: Annotated[str, typer.Option(help="The newest anchor that was kept elsewhere.")],
    as_json: Json = False,
) -> None:
    """Put a backup in the place of a ledger that is gone. A backup older than the anchor is refused.

    Example: [bold]expost ledger restore flights.backup flights.ledger --anchor 12-9f86d081884c7d65[/bold]
    """
    report = restore_ledger(str(backup), target, anchor=anchor)
    if as_json:
        emit(asdict(report))
    else:
        out.print(f"[green]restored[/green]: {report}")


@ledger.command("repair")
def repair(
    where: Annotated[str, typer.Argument(help="The ledger file.")],
    charge_rest: Annotated[
        bool, typer.Option("--charge-rest", help="Repair it: count all that is left as spent.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Explain what is wrong with a ledger file and what would be lost. Nothing is changed without --charge-rest.

    A repair never lowers what is charged, and deletes no entry.

    Example: [bold]expost ledger repair flights.ledger[/bold]
    """
    found = repair_ledger(where) if charge_rest else diagnose_ledger(where)
    lines = found.explain_lines()
    if charge_rest and found.problem is not None:
        lines.append("Repaired.")
    charges = {name: loss.to_json() for name, loss in found.charges.items()}
    document = asdict(found) | {"charges": charges, "repaired": charge_rest and found.problem is not None}
    _say("\n".join(lines), document, as_json)


def _say(sentence: str, document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(document)
    else:
        out.print(sentence, markup=False)


def _dataset_name(book: Ledger, name: str, *, has_source: bool) -> str:
    """Return the account that a name without a prefix stands for: that of the dataset, if it has one."""
    full = f"dataset:{name}"
    known = book.accounts()
    return full if ":" not in name and name not in known and (has_source or full in known) else name


def _existing(where: str) -> Ledger:
    """Open an existing ledger; reading must not create one."""
    return open_ledger(where, create=False)


def _budget(amount: float | None, delta: float, rho: float | None, mu: float | None) -> Guarantee:
    given = [name for name, value in (("--epsilon", amount), ("--rho", rho), ("--mu", mu)) if value is not None]
    if len(given) != 1:
        raise InvalidRequest(
            "Expected exactly one of --epsilon, --rho, --mu", got=", ".join(given) or None, do="Give one"
        )
    if amount is not None:
        return epsilon(amount, delta)
    return zcdp(rho) if rho is not None else gdp(mu or 0)


def _counted(book: Ledger, name: str) -> str:
    """Return which units an account counts; empty before its first question."""
    adjacency = book.counts(name)
    return "" if adjacency is None else adjacency.value


def _total(name: str, budget: Guarantee, cap: Fraction, spent: Any, left: Any, counts: str) -> dict[str, Any]:
    amounts = {"budget": budget.to_json(), "question_cap": str(cap), "spent": spent.to_json(), "left": left.to_json()}
    return {"account": name, "counts": counts or None} | amounts


def _line(entry: LedgerEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "sequence": entry.sequence,
        "kind": entry.kind.value,
        "at": entry.at,
        "body": entry.body,
        "previous": entry.previous,
        "hash": entry.hash,
    }


def _when(entry: LedgerEntry) -> str:
    return entry.at[:16].replace("T", " ")


def _subject(entry: LedgerEntry) -> str:
    if entry.kind is EntryKind.SOURCE:
        known = KnownSource(account=entry.body["account"]).add_entry(entry.body)
        return f"{known.account}: {known.text if known.places else 'other content'}"
    return entry.question or str(entry.body.get("account") or entry.body.get("secret") or entry.body.get("hold") or "")


def _charged(entry: LedgerEntry) -> str:
    return "; ".join(f"{account}: {loss}" for account, loss in entry.charges.items())


def _draw(book: Ledger, account: str | None, path: Path) -> None:
    if account is None:
        raise InvalidRequest("--plot needs --account", do="Name the account to draw")
    draw_picture("budget", book.history(account), account=account, budget=book.budget(account), path=path)
