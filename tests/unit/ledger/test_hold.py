import pickle

from expost.core import PureLoss
from expost.ledger import Hold


def test_a_hold_travels_between_processes_and_does_not_show_its_ticket():
    hold = Hold("3-ab", ("dataset:a",), PureLoss(1), "count", ticket="hidden")

    assert pickle.loads(pickle.dumps(hold)) == hold
    assert "hidden" not in repr(hold)
