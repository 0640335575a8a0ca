"""The progress line, with a clock and a terminal of our own."""

import io
import math

import pytest

from attn_jax.notices import Progress, clock_time, notice, short


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_the_line():
    clock = Clock()
    bar = Progress("training", 1500, stream=Stream(False), clock=clock)
    bar.update(1180, 0)
    clock.now = 1.0
    bar.update(1200, 41000, loss=0.01234)
    assert bar.line() == "training      [################....]  1200/1500  loss 0.01234  41k tokens/s  0:15 left"


def test_speed_is_of_the_last_seconds_and_without_the_compilation():
    clock = Clock()
    bar = Progress("training", 1000, stream=Stream(False), clock=clock, window=10)
    for second in range(100):  # from the fiftieth on ten times as fast; the first step took 1000 s
        clock.now = 1000.0 + second
        bar.update(second, 10 if second < 50 else 100)
    assert "100 tokens/s" in bar.line()
    assert "15:01 left" in bar.line()


def test_the_compilation_of_a_later_step_does_not_count():
    """Of a batch of another shape: no time left is told before two steps in a row have run."""
    clock = Clock()
    bar = Progress("training", 360, stream=Stream(False), clock=clock)
    for step in (1, 2):
        bar.compiles()
        clock.now += 100.0
        bar.update(step, 10)
        assert bar.line().endswith(f"{step}/360")
    clock.now += 1.0
    bar.update(3, 10)
    assert bar.line().endswith("3/360  10 tokens/s  5:57 left")


def test_a_pause_does_not_count():
    """Ten tokens a second; an evaluation that took an hour changes neither speed nor time left."""
    clock = Clock()
    bar = Progress("training", 100, stream=Stream(False), clock=clock, window=10)
    for second in range(1, 51):
        clock.now += 1.0
        bar.update(second, 10)
        if second == 45:
            with bar.pause():
                clock.now += 3600.0
    assert bar.line().endswith("50/100  10 tokens/s  0:50 left")
    assert bar.lap() == 10


def test_a_lap_is_the_speed_since_the_last_one():
    clock = Clock()
    bar = Progress("training", 100, stream=Stream(False), clock=clock, window=1)
    assert math.isnan(bar.lap())
    clock.now = 1000.0  # the compilation
    for step, units in enumerate((500, 10, 20, 60, 100), 1):
        bar.update(step, units)
        clock.now += 1.0
        if step == 1:
            assert math.isnan(bar.lap())
        if step == 3:
            assert bar.lap() == 15
    assert bar.lap() == 80


def test_what_goes_on_before_the_first_step_is_said_at_once_and_replaced():
    for terminal in (True, False):
        clock, stream = Clock(), Stream(terminal)
        with Progress("training", 10, stream=stream, clock=clock) as bar:
            bar.say("compiling ...")
            assert stream.getvalue().strip("\r\x1b[K\n") == "training      compiling ..."
            clock.now += 0.01
            bar.update(1)
        lines = stream.getvalue().replace("\r\x1b[K", "\n").split("\n")
        assert [line for line in lines if line] == ["training      compiling ...", bar.line()]
        assert stream.getvalue().count("\n") == (1 if terminal else 2)


def test_terminal_is_rewritten_in_place(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    clock, stream = Clock(), Stream(True)
    with Progress("training", 10, stream=stream, clock=clock) as bar:
        for step in range(1, 11):
            clock.now += 1.0
            bar.update(step, loss=1.0, accuracy=0.123456789)
    text = stream.getvalue()
    assert text.count("\n") == 1 and text.endswith("\n")
    assert text.count("\r\x1b[K") == 10
    assert all(len(line.rstrip("\n")) < 60 for line in text.split("\r\x1b[K"))
    assert "10/10" in text


def test_a_log_file_gets_a_plain_line_now_and_then():
    clock, stream = Clock(), Stream(False)
    with Progress("training", 1000, stream=stream, clock=clock) as bar:
        for step in range(1, 1001):
            clock.now += 0.1
            bar.update(step)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 5  # at once, after 30, 60, 90 s, and the last
    assert "\r" not in stream.getvalue()
    assert lines[-1].startswith("training      [####################]  1000/1000")


def test_updates_come_at_most_ten_times_a_second():
    clock, stream = Clock(), Stream(True)
    bar = Progress("training", 1000, stream=stream, clock=clock)
    for step in range(1, 1001):
        clock.now += 0.001
        bar.update(step)
    assert 8 <= stream.getvalue().count("\r") <= 12


def test_clear_makes_room_on_a_terminal_only():
    for terminal in (True, False):
        stream = Stream(terminal)
        bar = Progress("training", 10, stream=stream, clock=Clock())
        bar.update(1)
        before = stream.getvalue()
        bar.clear()
        assert stream.getvalue() == before + ("\r\x1b[K" if terminal else "")


def test_nothing_done_nothing_written():
    stream = Stream(True)
    with Progress("training", 10, stream=stream, clock=Clock()):
        pass
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (950, "950"), (999.6, "1.0k"), (4100, "4.1k"), (41234, "41k"), (1.2e6, "1.2M"), (5e9, "5000M")],
)
def test_short(number, text):
    assert short(number) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (12, "0:12"), (185, "3:05"), (3723, "1:02:03")])
def test_clock_time(seconds, text):
    assert clock_time(seconds) == text


def test_notice_is_a_line_on_stderr(capsys):
    notice("hello")
    assert capsys.readouterr() == ("", "hello\n")
