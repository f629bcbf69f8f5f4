import os
import signal
import threading
import time

import pytest

from expost.ledger.turn_queue import _COUNTER, TurnQueue, _read_number


def waiting(queue):
    """How many numbers were taken so far."""
    with open(queue.path, "rb") as file:
        return _read_number(file.fileno(), _COUNTER)


class Client:
    """A process that stands in the queue, writes its name when it is its turn, and leaves."""

    def __init__(self, path, name, seconds=60.0):
        self.pid = os.fork()
        if self.pid == 0:
            with TurnQueue(path).wait_for_turn(seconds) as reached, open(path, "a") as file:
                file.write(f"{name}{'' if reached else ' gave up'}\n")
            os._exit(0)


def line_up(path, count, **terms):
    """Clients that came one after the other. Locks end with a close, so that numbers are read in another process."""
    clients, queue = [], TurnQueue(path)
    for number in range(count):
        clients.append(Client(path, number, **terms))
        deadline = time.monotonic() + 60
        while in_a_fork(lambda: waiting(queue)) < number + 2 and time.monotonic() < deadline:
            time.sleep(0.002)
    return clients


def in_a_fork(count):
    child = os.fork()
    if child == 0:
        os._exit(count())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def wait_for(clients):
    for client in clients:
        os.waitpid(client.pid, 0)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "a.ledger")


def test_processes_get_their_turn_in_the_order_in_which_they_came(path):
    with TurnQueue(path).wait_for_turn(1):
        clients = line_up(path, 8)
    wait_for(clients)

    with open(path) as file:
        assert file.read().split() == list("01234567")


def test_nobody_waits_for_the_dead(path):
    with TurnQueue(path).wait_for_turn(1):
        clients = line_up(path, 6)
        for killed in (0, 2, 3):
            os.kill(clients[killed].pid, signal.SIGKILL)
    wait_for(clients)

    with open(path) as file:
        assert file.read().split() == list("145")


def test_who_waits_for_a_process_that_was_stopped_gives_up_in_the_end(path):
    with TurnQueue(path).wait_for_turn(1):
        stopped = line_up(path, 1)
        os.kill(stopped[0].pid, signal.SIGSTOP)
    with TurnQueue(path).wait_for_turn(0.2) as reached:
        assert not reached
    os.kill(stopped[0].pid, signal.SIGCONT)
    wait_for(stopped)

    with TurnQueue(path).wait_for_turn(60) as reached:
        assert reached


def test_threads_of_one_process_take_turns_too(path):
    inside, most = [0], [0]

    def stand():
        for _ in range(5):
            with TurnQueue(path).wait_for_turn(60) as reached:
                assert reached
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.001)
                inside[0] -= 1

    keeper = TurnQueue(path)  # handles of one file share one line
    with keeper.wait_for_turn(1):
        threads = [threading.Thread(target=stand) for _ in range(4)]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()

    assert most == [1]


@pytest.mark.parametrize("content", [b"", b"x", b"\xff" * 16, b"nonsense" * 9])
def test_a_damaged_file_costs_the_order_and_nothing_else(path, content):
    with open(path + ".lock", "wb") as file:
        file.write(content)

    for _ in range(3):
        with TurnQueue(path).wait_for_turn(10) as reached:
            assert reached


def test_who_waits_gets_ready_before_the_turn_and_who_need_not_wait_does_not(path):
    calls = []
    with TurnQueue(path).wait_for_turn(1, prepare=lambda: calls.append("in vain")):
        child = os.fork()
        if child == 0:
            with TurnQueue(path).wait_for_turn(60, prepare=lambda: open(path, "w").close()):
                os._exit(0)
        while not os.path.exists(path):
            time.sleep(0.001)
    os.waitpid(child, 0)

    assert calls == []
