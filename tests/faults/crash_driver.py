"""Kills spenders at chosen instants and checks the books after each death; run as a script, single-threaded.

usage: crash_driver.py URL lines|deep|random|crowd|parts COUNT [careless]

A spender tells through a pipe what was acknowledged to it: ``held`` after each of two stages, ``released`` when the
answer leaves.
The driver exits with an error when an acknowledged spend is missing, the total exceeds the budget, the books do not
verify, or an answer left uncharged. ``careless`` lets the answer leave before the bill: the driver must notice.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from fractions import Fraction

import expost.ledger
from expost.core import BudgetExceeded, PureGuarantee, PureLoss, Receipt, epsilon
from expost.ledger import EntryKind, HoldState, Ledger, open_ledger, posting, sql_table

WHOLE, PARTS = "dataset:flights", ["dataset:flights/site=A", "dataset:flights/site=B"]
ACCOUNTS = [PARTS[0], "analyst:ann"]
STAGE, WORST, PAID = Fraction(1, 100), Fraction(1, 50), Fraction(1, 200)
BUDGET = epsilon(10)
RECEIPT = Receipt(question="count", method="test", promise=PureGuarantee(WORST), bill=PureLoss(PAID))
DEATHS_PER_LEDGER = 15
HOUSE = os.path.dirname(expost.ledger.__file__)


def measure() -> int:
    """Stands for the exact answer and its noise."""
    exact = 41
    noise = 1
    return exact + noise


def spend(ledger: Ledger, tell, *, careless: bool, accounts=ACCOUNTS, staged: bool = True) -> None:
    """Spend for one answer about a part; a careless spender lets it leave before the bill is written."""
    if staged:
        hold = ledger.hold(accounts, PureLoss(STAGE), question="count", up_to=PureLoss(WORST))
        tell("held", hold.id)
        with contextlib.suppress(BudgetExceeded):  # others were faster: it stays with its stage
            hold = ledger.extend(hold, PureLoss(WORST))
            tell("held", hold.id)
    else:
        hold = ledger.hold(accounts, PureLoss(WORST), question="count")
        tell("held", hold.id)
    answer = measure()
    if careless:
        tell("released", answer)
    ledger.settle(hold, RECEIPT)
    if not careless:
        tell("released", answer)


class Spender:
    """A child process that spends, and what it had been told when it died."""

    def __init__(self, body) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            status = 1
            try:
                body(lambda word, what: os.write(writing, json.dumps([word, what]).encode() + b"\n"))
                status = 0
            except BaseException:
                traceback.print_exc()  # the exit below skips the usual one
            finally:
                sys.stderr.flush()
                os._exit(status)
        os.close(writing)
        self._pipe, self._words = os.fdopen(reading, "rb"), b""

    def first_word(self) -> None:
        """Wait until it tells something."""
        self._words += self._pipe.readline()

    def told(self) -> tuple[list, int]:
        """All it told, and how it ended."""
        with self._pipe:
            lines = [json.loads(line) for line in (self._words + self._pipe.read()).splitlines()]
        _, status = os.waitpid(self.pid, 0)
        return lines, status


class Tracer:
    """Counts executed lines, notes where each line first comes in each phase, and kills its process at one count."""

    def __init__(self, limit: int, *, deep: bool) -> None:
        self.limit, self.deep = limit, deep
        self.count, self.phase = 0, 0
        self.first: dict[tuple[int, str, int], int] = {}

    def on_call(self, frame, event, argument):
        file = frame.f_code.co_filename
        return self.on_line if self.deep or file.startswith(HOUSE) or file == __file__ else None

    def on_line(self, frame, event, argument):
        if event == "line":
            self.count += 1
            self.first.setdefault((self.phase, frame.f_code.co_filename, frame.f_lineno), self.count)
            if self.count == self.limit:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.on_line


def check(ledger: Ledger, held: set[str], releases: int) -> None:
    """The promises of the ledger, from its record and from what was acknowledged."""
    ledger.verify()
    entries = ledger.history()
    holds = {entry.id: entry.body for entry in entries if entry.kind is EntryKind.HOLD}
    settled = {entry.body["hold"] for entry in entries if entry.kind is EntryKind.SETTLE}
    extended = {body["extends"] for body in holds.values() if "extends" in body}
    left = holds.keys() - settled - extended
    total = PureLoss(PAID * len(settled) + sum(Fraction(holds[each]["worst_case"]["epsilon"]) for each in left))

    assert held <= holds.keys(), "an acknowledged hold is missing"
    assert releases <= len(settled), "an answer left uncharged"
    assert {hold.id for hold in ledger.open_holds()} == left, "an unsettled hold was given back"
    for account in [WHOLE, *ACCOUNTS]:
        assert ledger.spent(account) == total, "the total is not the sum of the charges"
        assert total.within(BUDGET), "the total exceeds the budget"


def kill_at_lines(url: str, *, stride: int, deep: bool, careless: bool) -> Counter:
    """One death for each line of the ledger before and after the hold, at its first execution there.

    A fresh ledger every now and then keeps checking the books quick. ``deep`` counts the lines of all libraries too.
    """

    def body(limit):
        def run(tell):
            tracer = Tracer(limit, deep=deep)

            def note(word, what):
                tell(word, what)
                tracer.phase += 1

            ledger.budget(ACCOUNTS[0])  # this process connects before the count starts
            for cache in (sql_table._read_totals, sql_table._read_loss, sql_table._read_part):
                cache.cache_clear()  # every run then executes the same lines
            sys.settrace(tracer.on_call)
            spend(ledger, note, careless=careless)
            sys.settrace(None)
            for instant in sorted(tracer.first.values()):
                tell("line", instant)

        return run

    ledger = prepared(url, "count")
    Spender(body(-1)).told()  # the first spend of an account runs a few lines more than all later ones
    instants = [what for word, what in Spender(body(-1)).told()[0] if word == "line"]
    seen = Counter(lines=len(instants))
    for death, limit in enumerate(instants[::stride]):
        if death % DEATHS_PER_LEDGER == 0:
            ledger, held, releases = prepared(url, death), set(), 0
        told, status = Spender(body(limit)).told()
        if not os.WIFSIGNALED(status):
            assert limit > 0.9 * instants[-1], f"the spender survived line {limit}"  # a few lines are cached
            seen["survived"] += 1
            continue
        held |= {what for word, what in told if word == "held"}
        releases += sum(word == "released" for word, _ in told)
        seen[told[-1][0] if told else "nothing"] += 1
        check(ledger, held, releases)
    return seen


def kill_at_random(ledger: Ledger, *, count: int, careless: bool) -> Counter:
    def forever(tell):
        while True:
            spend(ledger, tell, careless=careless)  # the first one connects and tells the driver that it runs

    held, releases, seen = set(), 0, Counter()
    instants = random.Random(1)
    for death in range(count):
        spender = Spender(forever)
        spender.first_word()
        time.sleep(instants.uniform(0, 0.03) * (8 if death % 2 else 1))  # on a busy machine all takes longer
        os.kill(spender.pid, signal.SIGKILL)
        told, _ = spender.told()
        held |= {what for word, what in told if word == "held"}
        releases += sum(word == "released" for word, _ in told)
        seen[told[-1][0] if told else "nothing"] += 1
        check(ledger, held, releases)
    return seen


def used_up(ledger: Ledger, accounts: list) -> bool:
    """Whether, in one consistent look, nobody holds anything and the next question does not fit: then it never will."""

    def look(page):
        quiet = all(row.state is not HoldState.OPEN for row in page.all_holds())
        left = [posting.remaining_budget(page, posting.find_account(page, name)) for name in accounts]
        return quiet and not all(PureLoss(WORST).within(rest) for rest in left)

    return ledger._read(look)


def together(ledger: Ledger, choices: list) -> list:
    """Processes that each spend from their accounts until refused; all connect first, then a gate opens for all."""
    waiting, gate = os.pipe()

    def until_refused(number, accounts):
        def run(tell):
            os.close(gate)
            ledger.budget(WHOLE)
            tell("ready", None)
            os.read(waiting, 1)
            while True:
                try:
                    spend(ledger, tell, careless=False, accounts=accounts, staged=number % 4 == 0)
                except BudgetExceeded:  # passes if it was only for the holds of others
                    if used_up(ledger, accounts):
                        return

        return run

    spenders = [Spender(until_refused(number, accounts)) for number, accounts in enumerate(choices)]
    for spender in spenders:
        spender.first_word()
    os.close(gate)
    told = [spender.told() for spender in spenders]
    assert all(status == 0 for _, status in told), "a spender failed"
    return told


def crowd(ledger: Ledger, *, count: int) -> Counter:
    """Many processes spend the whole budget at once."""
    for account in [WHOLE, "analyst:ann"]:
        ledger.change_budget(account, epsilon(1))
    told = together(ledger, [ACCOUNTS] * count)
    words = Counter(word for lines, _ in told for word, _ in lines)
    assert words["released"] == len([e for e in ledger.history() if e.kind is EntryKind.SETTLE])
    assert words["released"] <= words["held"] <= 2 * words["released"]
    check(ledger, {what for lines, _ in told for word, what in lines if word == "held"}, words["released"])
    rest = ledger.remaining(ACCOUNTS[0])
    assert not PureLoss(WORST).within(rest), "the budget was not used up"
    assert ledger.spent(ACCOUNTS[0]) == PureLoss(PAID * words["released"])
    return words + Counter(busy=sum(len(lines) > 1 for lines, _ in told))


def crowd_of_parts(ledger: Ledger, *, count: int) -> Counter:
    """Many processes spend on two parts and on the whole at once; a whole question counts in both parts."""
    ledger.change_budget(WHOLE, epsilon(1))
    choices = [[PARTS[0]], [PARTS[1]], [PARTS[1]], [WHOLE]]
    told = together(ledger, [choices[number % 4] for number in range(count)])
    ledger.verify()
    paid = Counter(tuple(entry.charges) for entry in ledger.history() if entry.kind is EntryKind.SETTLE)
    assert sum(word == "released" for lines, _ in told for word, _ in lines) == paid.total()
    whole, parts = paid[(WHOLE,)], [paid[(part,)] for part in PARTS]
    assert [ledger.spent(part) for part in PARTS] == [PureLoss(PAID * number) for number in parts]
    assert ledger.spent(WHOLE) == PureLoss(PAID * (whole + max(parts))), "the whole is not its own and the largest part"
    assert ledger.spent(WHOLE).within(epsilon(1)), "the total exceeds the budget"
    assert not any(PureLoss(WORST).within(ledger.remaining(part)) for part in PARTS), "a part was not used up"
    return Counter(whole=whole, first=parts[0], second=parts[1])


def prepared(url: str, name: object = "") -> Ledger:
    """A ledger with open accounts; the URL may have a place for a name."""
    ledger = open_ledger(url.replace("NAME", str(name)))
    for account in [WHOLE, "analyst:ann"]:
        ledger.open_account(account, BUDGET)
    for part in PARTS:
        ledger.open_part(part, of=WHOLE, by="site")
    return ledger


def main(url: str, mode: str, count: str, *flags: str) -> None:
    gc.freeze()  # forks then share their memory, which makes a death cheaper
    careless = "careless" in flags
    if mode in {"lines", "deep"}:
        seen = kill_at_lines(url, stride=int(count), deep=mode == "deep", careless=careless)
    elif mode == "random":
        seen = kill_at_random(prepared(url), count=int(count), careless=careless)
    else:
        seen = (crowd_of_parts if mode == "parts" else crowd)(prepared(url), count=int(count))
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
