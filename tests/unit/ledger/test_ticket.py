import os

from expost.ledger import ticket
from expost.ledger.ticket import is_of_this_process, new_ticket


def test_tickets_of_a_process_differ_and_are_its_own():
    tickets = [new_ticket() for _ in range(3)]

    assert len(set(tickets)) == 3 and all(map(is_of_this_process, tickets))
    assert not is_of_this_process("") and not is_of_this_process("0123456789abcdef" * 2)


def test_a_process_of_another_number_has_other_tickets(monkeypatch):
    mine = new_ticket()
    monkeypatch.setattr(os, "getpid", lambda: -7)

    assert not is_of_this_process(mine) and is_of_this_process(new_ticket())


def test_a_fork_that_has_the_number_of_its_parent_has_other_tickets(monkeypatch):
    monkeypatch.setattr(ticket, "_NAMES", dict(ticket._NAMES))
    mine = new_ticket()
    ticket._NAMES.clear()  # what the hook of a fork does

    assert not is_of_this_process(mine)
