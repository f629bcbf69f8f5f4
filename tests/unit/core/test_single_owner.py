"""An object that spends stays in its process, and one thread at a time draws from it."""

import copy
import pickle
import threading

import pytest
from tests.forked import told_by_a_fork

from expost.core import InvalidRequest, SingleOwner


class Board(SingleOwner):
    _owned_noun, _copies_are_itself = "board", True


class Path(SingleOwner):
    _owned_noun = "path"


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_a_copy_is_the_object_itself_where_libraries_copy(duplicate) -> None:
    board = Board()

    assert duplicate(board) is board


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_holder_of_exact_answers_cannot_be_copied(duplicate) -> None:
    with pytest.raises(TypeError, match="A path cannot be pickled or copied"):
        duplicate(Path())


def test_no_owner_can_be_pickled() -> None:
    with pytest.raises(TypeError, match="A board cannot be pickled"):
        pickle.dumps(Board())


def test_a_fork_is_refused() -> None:
    board = Board()

    def use() -> str:
        try:
            board._check_owner()
        except InvalidRequest as error:
            return str(error)
        return "allowed"

    assert told_by_a_fork(use) == "This board belongs to another process (it was forked). Open a new board here."
    board._check_owner()


def test_a_restored_object_has_a_new_owner() -> None:
    path = Path.__new__(Path)
    path._take_ownership()

    with path._draw_alone():
        assert path._owner_lock.locked()


def test_threads_take_turns() -> None:
    path, inside, most = Path(), [], []

    def draw() -> None:
        for _ in range(200):
            with path._draw_alone():
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert max(most) == 1
