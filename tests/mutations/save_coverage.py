"""A plugin of pytest that writes the counts when the tests of a process have ended.

A worker of pytest-xdist that takes more than some seconds to end is killed, and its counts would be lost.
"""

import coverage


def pytest_sessionfinish() -> None:
    """Writes the counts so far."""
    if current := coverage.Coverage.current():
        current.save()
