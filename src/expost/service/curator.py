"""The curator: answers the questions of analysts about an owner's tables, charges them, and loses none."""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from expost.core import BudgetExceeded, ExpostError, InvalidRequest, Loss, Release, TargetNotMet
from expost.data import Dataset
from expost.data.description import Description
from expost.ledger import Ledger, open_ledger
from expost.ledger.ledger_account import LARGEST_QUESTION_CAP
from expost.models.descent.training_watch import stop_when
from expost.models.saved_model import model_document
from expost.service.access_token import Identity, Role, TokenRecord, TokenSecret
from expost.service.kept_answer import KeptAnswer
from expost.service.question_form import TESTS, AskedFit, AskedQuestion, AskedStatement
from expost.service.question_limits import QuestionLimits
from expost.service.service_settings import DatasetSettings, ServiceSettings
from expost.service.service_store import RequestRecord, RequestState, ServiceStore
from expost.service.time_grid import TimeGrid
from expost.session import Session
from expost.session.wire_format import encode_price, encode_release

__all__ = ["Curator", "Refused", "error_body", "status_of"]

_BEAT_SECONDS, _LOST_SECONDS = 2.0, 15.0
_MOST_OWN_TOKENS = 10
_STATUS = {
    "invalid_request": 400,
    "wrong_arguments": 400,
    "missing_extra": 400,
    "budget_exceeded": 409,
    "target_not_met": 422,
    "engine_failed": 503,
    "table_changed": 503,
    "release_overtaken": 503,
    "ledger_busy": 503,
    "ledger_unsound": 503,
    "seal_broken": 503,
}


class Refused(ExpostError):
    """A request that the service refuses: its status, a stable code and one sentence."""

    code = "refused"
    cost = "nothing spent, data untouched"

    def __init__(self, status: int, code: str, message: str, cost: str = "nothing spent, data untouched") -> None:
        super().__init__(message)
        self.status, self.told_code, self.cost = status, code, cost


def status_of(error: ExpostError) -> int:
    """Return the HTTP status of an error."""
    return error.status if isinstance(error, Refused) else _STATUS.get(error.code, 503)


def error_body(error: ExpostError) -> dict[str, Any]:
    """Return the one form of every error: a code, a sentence, and what it cost."""
    code = error.told_code if isinstance(error, Refused) else error.code
    body: dict[str, Any] = {"code": code, "message": str(error), "cost": error.cost}
    if isinstance(error, TargetNotMet):
        try:
            body["release"] = encode_release(error.release)
        except InvalidRequest:  # a model, which is given only if it is good enough
            body["release"] = encode_release(Release(None, error.release.receipt))
    return {"error": body}


def _cancelled(cost: str) -> dict[str, Any]:
    return error_body(Refused(409, "cancelled", "This question was cancelled.", cost))


_INTERRUPTED = {
    "error": {
        "code": "interrupted",
        "message": "The service stopped while it computed this answer. Ask again under another key.",
        "cost": "what was reserved for it stays charged",
    }
}


_FAILED = {
    "error": {
        "code": "failed",
        "message": "The service failed while it computed this answer. Tell the owner.",
        "cost": "what was reserved for it stays charged",
    }
}
_LOG = logging.getLogger("expost.service")


@dataclass
class _PublicSize:
    """The number of public groups of a question, which its time grid depends on."""

    cells: int = 1


class Curator:
    """Everything that a service does, without HTTP. Safe for many threads; several processes may share its stores.

    Parameters
    ----------
    settings : ServiceSettings
        The owner's decisions.
    clock : callable, optional
        Returns the time in seconds, for tests.
    """

    def __init__(self, settings: ServiceSettings, *, clock: Callable[[], float] = time.time) -> None:
        self.settings, self._clock = settings, clock
        self.store = ServiceStore(settings.state)
        self.ledger: Ledger = open_ledger(settings.ledger)
        self._grid = TimeGrid(settings.time_grid)
        self._sessions: dict[tuple[str, str | None], Session] = {}
        self._tables: dict[str, Dataset] = {}  # opened again since the start
        self._lock = threading.RLock()
        self._worker = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        for each in settings.datasets:
            self._open_session(each, None)  # opens the accounts, which is the owner's right
        self._stops, self._put_off = set[str](), set[str]()
        self._stopping = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="beat", daemon=True)
        self._beating.start()

    def close(self) -> None:
        """Stop the background thread and close the stores."""
        self._stopping.set()
        self._beating.join()
        self.store.close()
        self.ledger.close()

    def now(self) -> datetime.datetime:
        """Return the time of the service, in UTC."""
        return datetime.datetime.fromtimestamp(self._clock(), datetime.UTC)

    # Tokens and identities

    def create_token(
        self,
        *,
        role: Role,
        subject: str,
        dataset: str | None = None,
        budget: Any = None,
        lifetime: datetime.timedelta | None = None,
        actor: str = "owner",
    ) -> TokenSecret:
        """Make a token, and open the analyst's account if it is for one.

        Parameters
        ----------
        role : Role
            What it is for.
        subject : str
            Who holds it.
        dataset : str, optional
            The dataset that it opens. An analyst's token needs one.
        budget : Guarantee or what ``as_guarantee`` reads, optional
            What this analyst may spend on the dataset; needed for the first token of an analyst.
        lifetime : timedelta, optional
            How long the token works. Default: until it is revoked.
        actor : str, default "owner"
            Who makes it, for the audit log.
        """
        subject = _check_subject(subject)
        if any(each.subject == subject and each.role is not role for each in self.store.list_tokens()):
            # Questions and answers belong to a name: with two roles one could read what the other has paid for.
            raise InvalidRequest("Expected one role per name", got=subject, do="Use another name for this role")
        if role is Role.OWNER and dataset is not None:
            raise InvalidRequest("Expected no dataset: an owner's token opens all of them", do="Leave it out")
        if role is Role.ANALYST:
            if dataset is None:
                raise InvalidRequest("Expected the dataset of an analyst's token", do="Name one dataset")
            described = self.describe_dataset(dataset)
            account = f"analyst:{subject}/{dataset}"
            if account not in self.ledger.accounts():
                if budget is None:
                    raise InvalidRequest("Expected a budget for a new analyst", do="Pass e.g. --epsilon 0.5")
                self._open_session(described, subject, budget)
        elif dataset is not None:
            self.describe_dataset(dataset)
        secret = TokenSecret.make()
        record = TokenRecord.of(secret, role=role, subject=subject, dataset=dataset, now=self.now(), lifetime=lifetime)
        self.store.add_token(record)
        self.log(actor, "create token", dataset, token=secret.token_id, role=role.value, subject=subject)
        return secret

    def create_own_token(self, who: Identity, lifetime: datetime.timedelta) -> TokenSecret:
        """Make a token with the rights of the one that somebody is signed in with, and that ends with it.

        Parameters
        ----------
        who : Identity
            Who makes it for himself or herself.
        lifetime : timedelta
            How long it works, unless the first token ends before.
        """
        found = self.store.find_token(who.token_id)
        first = found if found is None or found.parent is None else self.store.find_token(found.parent)
        if first is None or not first.is_usable(self.now()):
            raise Refused(401, "unauthorized", "Your token no longer works. Ask the owner.")
        if len(self.own_tokens(who)) >= _MOST_OWN_TOKENS:
            raise InvalidRequest(
                f"Expected at most {_MOST_OWN_TOKENS} tokens that you made", do="Revoke one that you no longer use"
            )
        secret = TokenSecret.make()
        record = TokenRecord.of(
            secret, role=first.role, subject=first.subject, dataset=first.dataset, now=self.now(), lifetime=lifetime
        )
        expires = record.expires if first.expires is None else min(record.expires or first.expires, first.expires)
        self.store.add_token(replace(record, expires=expires, parent=first.token_id))
        self.log(who.actor, "create own token", first.dataset, token=secret.token_id, parent=first.token_id)
        return secret

    def own_tokens(self, who: Identity) -> list[TokenRecord]:
        """Return the usable tokens with the same rights that somebody made on the page, oldest first."""
        usable = self.usable_tokens(who.subject)
        return [each for each in usable if each.parent is not None and each.dataset == who.dataset]

    def revoke_own_token(self, who: Identity, token_id: str) -> None:
        """Revoke a token that somebody made on the page."""
        if token_id not in {each.token_id for each in self.own_tokens(who)}:
            raise Refused(404, "not_found", "There is no such token of yours.")
        self.revoke_token(token_id, actor=who.actor)

    def usable_tokens(self, subject: str) -> list[TokenRecord]:
        """Return the tokens of a name that are neither revoked nor expired, oldest first."""
        now = self.now()
        return [each for each in self.store.list_tokens() if each.subject == subject and each.is_usable(now)]

    def revoke_token(self, token_id: str, *, actor: str = "owner") -> None:
        """Revoke a token; requests that it has begun end, but their answers are not given to it any more."""
        if not self.store.revoke_token(token_id, self.now()):
            raise Refused(404, "not_found", "There is no such token, or it was revoked before.")
        self.log(actor, "revoke token", None, token=token_id)

    def rotate_token(
        self, token_id: str, *, lifetime: datetime.timedelta | None = None, actor: str = "owner"
    ) -> TokenSecret:
        """Revoke a token and make another one for its holder. Own tokens that were made with it end with it.

        Parameters
        ----------
        token_id : str
            The token that ends.
        lifetime : timedelta, optional
            How long the new one works. Default: as long as the old one would have.
        actor : str, default "owner"
            Who rotates it, for the audit log.
        """
        old, now = self.store.find_token(token_id), self.now()
        if old is None or old.revoked is not None:
            raise Refused(404, "not_found", "There is no such token, or it was revoked before.")
        if old.parent is not None:
            raise InvalidRequest(
                "Expected a token that an owner made", do="Its holder makes another one on the page My tokens"
            )
        if lifetime is None and not old.is_usable(now):
            raise InvalidRequest("Expected a length of time, because this token has expired", do="Pass e.g. 30d")
        secret = TokenSecret.make()
        record = TokenRecord.of(
            secret, role=old.role, subject=old.subject, dataset=old.dataset, now=now, lifetime=lifetime
        )
        record = record if lifetime is not None else replace(record, expires=old.expires)
        if not self.store.replace_token(token_id, record):
            raise Refused(404, "not_found", "There is no such token, or it was revoked before.")
        self.log(actor, "rotate token", old.dataset, token=secret.token_id, instead=token_id, subject=old.subject)
        return secret

    def log(self, actor: str, action: str, dataset: str | None, **detail: Any) -> None:
        """Append a line to the audit log."""
        self.store.log(actor, action, dataset=dataset, at=self.now(), **detail)

    # Datasets

    def describe_dataset(self, name: str) -> DatasetSettings:
        """Return the settings of a dataset or refuse."""
        found = self.settings.dataset(name)
        if found is None:
            raise Refused(404, "not_found", "There is no such dataset.")
        return found

    def session(self, dataset: str, identity: Identity) -> Session:
        """Return the session that pays for someone's questions about a dataset."""
        described = self.describe_dataset(dataset)
        return self._open_session(described, identity.subject if identity.role is Role.ANALYST else None)

    def _open_session(self, described: DatasetSettings, analyst: str | None, budget: Any = None) -> Session:
        with self._lock:
            key, dataset = (described.name, analyst), self._find_table(described)
            if key not in self._sessions or self._sessions[key].dataset is not dataset:
                payer = None if analyst is None else f"{analyst}/{described.name}"
                opened = f"dataset:{described.name}" in self.ledger.accounts()
                self._sessions[key] = Session(
                    dataset,
                    None if opened else described.budget,
                    question_cap=None if opened or described.question_cap is None else float(described.question_cap),
                    ledger=self.ledger,
                    analyst=payer,
                    analyst_budget=budget,
                )
            return self._sessions[key]

    def _find_table(self, described: DatasetSettings) -> Dataset:
        """Return a table as its owner has it now: opened again if its files have changed."""
        found = self._tables.get(described.name, described.dataset)
        if described.description is not None and found.has_changed():
            # A table that cannot be opened stays as it is, and refuses its questions. The reason would show the owner's paths.
            with suppress(ExpostError, OSError):
                found = self._tables[described.name] = Description.read(described.description).open()
        return found

    def limits_of(self, dataset: str) -> QuestionLimits:
        """Return what one question of an analyst about a dataset may cost."""
        described = self.describe_dataset(dataset)
        return self.store.find_limits(dataset) or described.limits

    def change_limits(self, dataset: str, limits: QuestionLimits, *, actor: str) -> None:
        """Decide what one question of an analyst about a dataset may cost, from now on and for all workers.

        Parameters
        ----------
        dataset : str
            The name of the dataset.
        limits : QuestionLimits
            The limits.
        actor : str
            Who decides, for the audit log.
        """
        described = self.describe_dataset(dataset)
        if limits.question_cap is not None:
            # The cap of questions that name an accuracy and no cap of their own, which receipts state.
            self.ledger.change_budget(f"dataset:{described.name}", question_cap=float(limits.question_cap))
        self.store.change_limits(dataset, limits)
        self.log(actor, "change limits", dataset, **limits.to_dict())

    # Prices

    def price(self, dataset: str, identity: Identity, asked: AskedQuestion) -> dict[str, Any]:
        """Return what a question would cost. Nothing is spent and no row is read."""
        whole = self.session(dataset, identity)
        with _refusing(asked.statistic):
            session = asked.session(whole)
            self.check_size(asked, session)
            if asked.statistic in TESTS:
                return encode_price(session.price(asked.build(session)))
            return encode_price(session.price(asked.statistic, **asked.arguments))

    def check_size(self, asked: AskedQuestion, session: Session) -> None:
        """Refuse a question with more groups than the service allows.

        Parameters
        ----------
        asked : AskedQuestion
            The question.
        session : Session
            The session that would answer it.
        """
        given = {name: value for name, value in asked.arguments.items() if name != "expect"}
        if given.get("within") is not None and asked.statistic not in TESTS:
            given.setdefault("max_epsilon", LARGEST_QUESTION_CAP)  # groups do not depend on it, and it need not be read
        self._check_groups(_count_cells(AskedQuestion(asked.statistic, given).build(session), session))

    def _check_groups(self, groups: int) -> None:
        most = self.settings.limits.groups
        if groups > most:
            raise InvalidRequest(f"Expected at most {most} groups", got=groups, do="Ask for fewer groups or bins")

    def price_of(self, kind: str, dataset: str, identity: Identity, body: Any) -> dict[str, Any]:
        """Return what a request would cost, of the kind "ask", "fit" or "sql"."""
        if kind == "ask":
            return self.price(dataset, identity, AskedQuestion.read(body))
        if kind == "sql":
            return self.price_statement(dataset, identity, AskedStatement.read(body))
        return self.price_fit(dataset, identity, AskedFit.read(body))

    def price_statement(self, dataset: str, identity: Identity, asked: AskedStatement) -> dict[str, Any]:
        """Return what a statement in SQL would cost. Nothing is spent and no row is read."""
        whole = self.session(dataset, identity)
        with _refusing("the statement"):
            price = asked.session(whole).sql_price(asked.text, **asked.terms)
            self._check_groups(price.groups)
        parts = [
            {"question": each.question, "sensitivity": each.sensitivity, "worst_case": each.worst_case.to_json()}
            | {"climbs": each.climbs}
            for each in price.parts
        ]
        return encode_price(price.quote) | {"parts": parts, "unit": price.unit, "groups": price.groups}

    def price_fit(self, dataset: str, identity: Identity, asked: AskedFit) -> dict[str, Any]:
        """Return what a fit would cost. Nothing is spent and no row is read."""
        terms: dict[str, Any] = {"features": asked.features, "target": asked.target}
        session = self.session(dataset, identity)
        with _refusing(asked.estimator):
            return encode_price(session.price(asked.build(), **terms))

    # Requests

    def begin(self, dataset: str, identity: Identity, kind: str, body: Any, key: str) -> tuple[RequestRecord, bool]:
        """Store a request, or return the one that is stored under its key, and whether it is new.

        The request is checked first: what can be refused from public facts is refused here and stored nowhere.
        """
        text = json.dumps(body, sort_keys=True, ensure_ascii=False)
        name = _request_id(identity.subject, dataset, key)
        earlier = self.store.find_request(name)
        if earlier is None:
            self._check_thawed(dataset)
            price = self.price_of(kind, dataset, identity, body)
            if price["above_cap"]:
                raise BudgetExceeded(
                    f"Expected a question within its cap, and this one costs {price['worst_case_text']}: "
                    f"{price['above_cap']}",
                    do="Ask for less accuracy",
                )
            limits, worst = self.limits_of(dataset), Loss.from_json(price["worst_case"]).amounts()
            bound = identity.role is Role.ANALYST
            if bound and limits.forbids(worst):
                raise BudgetExceeded(
                    f"Expected a question of at most epsilon {float(limits.question_cap or 0):g}, the owner's cap of one "
                    "question",
                    got=price["worst_case_text"],
                    do="Ask for less",
                )
            waits = bound and limits.defers(worst)
            record = RequestRecord(
                request_id=name,
                subject=identity.subject,
                dataset=dataset,
                kind=kind,
                body=text,
                question=price["question"],
                state=RequestState.WAITING if waits else RequestState.RUNNING,
                worker=None if waits else self._worker,
                beat=None if waits else self._clock(),
                created=self.now().isoformat(timespec="microseconds"),
            )
            earlier = self.store.add_request(record, actor=identity.actor, at=self.now())
            if earlier is None:
                return record, True
        if earlier.body != text or earlier.kind != kind:
            raise Refused(409, "key_reused", "This Idempotency-Key belongs to another request. Use a new one.")
        return self.recover(earlier), False

    def _check_thawed(self, dataset: str) -> None:
        if self.store.is_frozen(dataset):
            raise Refused(409, "frozen", "The owner has frozen this dataset. Ask the owner.")

    def own_request(self, who: Identity, request_id: str) -> RequestRecord:
        """Return a request of the one who sent it, finished if its worker has stopped; refuse everybody else."""
        record = self.store.find_request(request_id)
        if record is None or record.subject != who.subject or who.dataset not in (None, record.dataset):
            raise Refused(404, "not_found", "There is no such question of yours.")
        return self.recover(record)

    def run(self, record: RequestRecord, identity: Identity) -> RequestRecord | None:
        """Answer a request that was just stored, and return it as it is stored now, or None if this is not known.

        This is called once per request, by the worker that stored it.
        """
        began, size = self._clock(), _PublicSize()
        status, response = 503, _FAILED
        try:
            if self._is_in(record, RequestState.STOPPING):
                status, response = 409, _cancelled("nothing spent, data untouched")
            else:
                status, response = self._respond(record, identity, size)
            json.dumps(response, allow_nan=False)
        except KeyboardInterrupt:
            stopped = record.request_id in self._stops
            status, response = (
                (409, _cancelled("what was reserved for it stays charged")) if stopped else (503, _INTERRUPTED)
            )
        except Exception as error:  # its message may carry cells
            _LOG.error("a question failed: %s", type(error).__name__)
            status, response = 503, _FAILED
        visible = self._grid.leave_at(began, self._clock(), cells=size.cells, fit=record.kind == "fit")
        try:
            # An answer that was kept is charged: if the ledger or the database failed after that, it is settled later.
            if not (status == 503 and self._is_in(record, RequestState.KEPT)):
                return self._finish(record, status, response, visible)
        except SQLAlchemyError as error:
            _LOG.error("a question was put off: %s", type(error).__name__)
        self._put_off.add(record.request_id)
        return None

    def _respond(self, record: RequestRecord, identity: Identity, size: _PublicSize) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of the response to a request."""
        whole, body, keep = self.session(record.dataset, identity), json.loads(record.body), self._keeper(record)
        try:
            if record.kind == "fit":
                fit = AskedFit.read(body)
                terms: dict[str, Any] = {"features": fit.features, "target": fit.target, "keep": keep}
                with stop_when(lambda: record.request_id in self._stops):
                    model = whole.fit(fit.build(), request_id=record.request_id, **terms)
                return 200, {"model": model_document(model)}
            if record.kind == "sql":
                statement = AskedStatement.read(body)
                place = statement.session(whole)
                size.cells = max(1, place.sql_price(statement.text, **statement.terms).groups)
                terms = {"request_id": record.request_id, "keep": keep, **statement.terms}
                table = place.sql(statement.text, **terms)
                return 200, {"release": encode_release(table)}
            question = AskedQuestion.read(body)
            session = question.session(whole)
            query = question.build(session)
            size.cells = _count_cells(query, session)
            release = session.ask(query, request_id=record.request_id, keep=keep)
            return 200, {"release": encode_release(release)}
        except ExpostError as error:
            if isinstance(error, InvalidRequest) and whole.dataset.has_changed():
                # Opening it again failed, which is no fault of who asks.
                message = "The table was changed, and cannot be opened again. Tell the owner."
                error = Refused(503, "table_changed", message, error.cost)
            return status_of(error), error_body(error)

    def _keeper(self, record: RequestRecord) -> Callable[..., None]:
        def keep(hold: Any, release: Any, outcome: Any) -> None:
            model = None
            if record.kind == "fit":
                model, release = model_document(release.value), Release(None, release.receipt)
            kept = KeptAnswer(hold, release, outcome, model)
            try:
                kept.to_json()
            except InvalidRequest:  # it would be told as a refusal that costs nothing, but rows have been read
                raise TypeError from None
            self._store_kept(record.request_id, kept)

        return keep

    def _store_kept(self, request_id: str, kept: KeptAnswer) -> None:
        terms: dict[str, Any] = {"state": RequestState.KEPT, "kept": kept.to_json()}
        if not self.store.change_request(request_id, only_by=self._worker, **terms):
            # This process was taken for dead and another one has finished the request: there must be no second answer.
            raise RuntimeError

    def _finish(
        self, record: RequestRecord, status: int, body: Mapping[str, Any], visible: float
    ) -> RequestRecord | None:
        """Store the response; only then may it leave. Return the request as it is now, None if another worker has it."""
        text = json.dumps(body, ensure_ascii=False, allow_nan=False)
        terms: dict[str, Any] = {"status": status, "response": text, "visible": visible, "kept": None}
        terms["state"] = RequestState.DONE
        stored = self.store.change_request(record.request_id, only_by=self._worker, **terms)
        self._stops.discard(record.request_id)
        self._put_off.discard(record.request_id)
        return replace(record, **terms) if stored else None

    def recover(self, record: RequestRecord) -> RequestRecord:
        """Finish a request whose worker has stopped; return it as it is otherwise."""
        own = record.worker == self._worker
        left = record.request_id in self._put_off if own else self._is_lost(record)
        if record.state not in RequestState.UNFINISHED or not left:
            return record
        if self.store.adopt_request(record, self._worker, self._clock()):
            self._put_off.add(record.request_id)  # until it is finished: the database may fail again
            if record.kept is None:
                self._finish(record, 503, _INTERRUPTED, self._clock())
            else:
                kept = KeptAnswer.from_json(record.kept)
                release = kept.settle(self.ledger, lambda again: self._store_kept(record.request_id, again))
                met = release.receipt.outcome.met
                error = None if met else TargetNotMet.of(release)
                answered = {"release": encode_release(release)}
                if kept.model is not None:
                    answered = {"model": kept.model | {"receipt": release.receipt.to_dict()}}
                response = answered if error is None else error_body(error)
                self._finish(record, 200 if met else 422, response, self._clock())
        return self.store.find_request(record.request_id) or record

    def recover_all(self) -> int:
        """Finish all requests whose workers have stopped, and return how many there were."""
        lost = 0
        for state in RequestState.UNFINISHED:
            for record in self.store.list_requests(state=state, last=10_000):
                lost += self.recover(record) is not record
        return lost

    def _is_lost(self, record: RequestRecord) -> bool:
        return record.beat is None or self._clock() - record.beat > _LOST_SECONDS

    def _beat(self) -> None:
        while not self._stopping.wait(_BEAT_SECONDS):
            try:
                self.store.beat(self._worker, self._clock())
                stopping = self.store.list_requests(state=RequestState.STOPPING)
                self._stops |= {each.request_id for each in stopping if each.worker == self._worker}
                self.recover_all()
            except Exception:  # the database may be away for a while; the next beat tries again
                continue

    def _is_in(self, record: RequestRecord, state: str) -> bool:
        """Return whether a request is in a state now."""
        now = self.store.find_request(record.request_id)
        return now is not None and now.state == state

    def cancel(self, who: Identity, request_id: str) -> RequestRecord:
        """End one's own request: one that waits costs nothing, one that runs ends at its next public point.

        Statistics have none, so they are answered and charged once they have begun.
        """
        record = self.own_request(who, request_id)
        if record.state == RequestState.WAITING:
            return self.decide(request_id, approved=False, actor=who.actor)
        if not self.store.change_request(request_id, only_if=RequestState.RUNNING, state=RequestState.STOPPING):
            raise Refused(409, "running", "This question has ended, or has its answer already.", "see its receipt")
        if record.worker == self._worker:
            self._stops.add(request_id)
        self.log(who.actor, "cancel", record.dataset, request=request_id)
        return self.own_request(who, request_id)

    # Approvals

    def decide(self, request_id: str, *, approved: bool, actor: str) -> RequestRecord:
        """Approve a waiting request, which the caller then runs, or refuse it."""
        record = self.store.find_request(request_id)
        if record is None or record.state != RequestState.WAITING:
            raise Refused(404, "not_found", "There is no such request that waits.")
        if approved:
            self._check_thawed(record.dataset)
            changed = self.store.change_request(
                request_id,
                only_if=RequestState.WAITING,
                state=RequestState.RUNNING,
                worker=self._worker,
                beat=self._clock(),
            )
        else:
            refusal = error_body(Refused(403, "not_approved", "The owner has refused this question."))
            changed = self.store.change_request(
                request_id,
                only_if=RequestState.WAITING,
                state=RequestState.DONE,
                status=403,
                response=json.dumps(refusal),
                visible=self._clock(),
            )
        if not changed:
            raise Refused(409, "decided", "This request was decided before.")
        self.log(actor, "approve" if approved else "refuse", record.dataset, request=request_id)
        return self.store.find_request(request_id) or record


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Refuse arguments that a price fails on. Prices read no row, so that the failure depends on the request alone."""
    try:
        yield
    except ExpostError:
        raise
    except Exception:
        raise InvalidRequest(f"Expected arguments of {what} that can be computed", do="Correct them") from None


def _count_cells(query: Any, session: Session) -> int:
    """Return the number of public groups of a question."""
    names = getattr(query, "by", None)
    names = [names] if isinstance(names, str) else names if isinstance(names, list | tuple) else []
    bins = getattr(query, "bins", None)
    cells = bins if isinstance(bins, int) else 1
    for name in names:
        if isinstance(name, str) and name in session.dataset.categories:
            cells *= max(1, len(session.dataset.categories[name]))
    return cells


def _request_id(subject: str, dataset: str, key: str) -> str:
    if not key.isprintable() or not 1 <= len(key) <= 200:
        raise InvalidRequest("Expected an Idempotency-Key of 1 to 200 printable characters", do="Send a new UUID")
    return hashlib.sha256(json.dumps([subject, dataset, key]).encode()).hexdigest()


def _check_subject(subject: object) -> str:
    text = subject.strip() if isinstance(subject, str) else ""
    if not 1 <= len(text) <= 100 or not text.isprintable() or "/" in text or "*" in text:
        raise InvalidRequest(
            "Expected a name of 1 to 100 printable characters without / and *", got=subject, do='Pass e.g. "analyst-1"'
        )
    return text
