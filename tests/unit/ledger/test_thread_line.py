import threading

from expost.ledger.thread_line import ThreadLine


def test_threads_get_the_lock_in_the_order_in_which_they_came():
    line, order, threads = ThreadLine(), [], []

    def stand(number):
        with line.wait_in(60):
            order.append(number)

    with line.wait_in(1):
        for number in range(8):
            threads.append(threading.Thread(target=stand, args=(number,)))
            threads[-1].start()
            while len(line._waiting) <= number:
                pass
    for thread in threads:
        thread.join()

    assert order == list(range(8))


def test_who_gives_up_leaves_the_line_and_the_rest_moves_on():
    line, reached = ThreadLine(), []

    def give_up():
        with line.wait_in(0.01) as first:
            reached.append(first)

    with line.wait_in(1):
        threads = [threading.Thread(target=give_up) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with line.wait_in(1) as first:
        reached.append(first)

    assert reached == [False, False, False, True]
    assert not line._waiting


def test_an_exception_gives_the_lock_back():
    line = ThreadLine()
    for _ in range(2):
        try:
            with line.wait_in(1) as first:
                assert first
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass

    with line.wait_in(0) as first:
        assert first
