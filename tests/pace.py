"""The speed of a machine, as a unit for bounds on time, so that a slow machine keeps them, too."""

import time
from collections.abc import Callable


def work(done: Callable[[], object]) -> float:
    """CPU seconds of a call, without those of other processes."""
    began = time.process_time()
    done()
    return time.process_time() - began


def pace() -> float:
    """Seconds in which this machine counts to five million: from 0.1 on a fast one to 0.3."""
    return work(lambda: sum(1 for _ in range(5_000_000)))
