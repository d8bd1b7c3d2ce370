"""Step times from the moments of decision, on logs small enough to follow by hand."""

import numpy as np
import pytest

from ppas.simulator.step_times import step_durations

NAN = np.nan
# Calls at which steps of 2, 3 and 4 s are decided, the empty ones that follow, a pause until
# 100 s, and one more step of 5 s.
SYNC = ([0, 2, 5, 9, 100, 105], [1, 1, 1, 0, 1, 0], [2, 3, 4, NAN, 5, NAN])
ASYNC = ([0, 0, 2, 5, 9, 100, 100, 105], [1, 1, 1, 0, 0, 1, 0, 0],
         [2, 3, 4, NAN, NAN, 5, NAN, NAN])  # fmt: skip


@pytest.mark.parametrize("steps_in_flight, log", [(1, SYNC), (2, ASYNC)])
def test_a_step_lasts_until_its_result_and_idle_time_is_nobodys(steps_in_flight, log):
    times, busy, durations = log
    found = step_durations(np.array(times, float), np.array(busy, bool), steps_in_flight)
    np.testing.assert_array_equal(found, durations)


def test_a_step_after_an_idle_engine_starts_with_its_own_decision():
    # Asynchronous: the second step is decided late, at 7 s, when the first is long done.
    times, busy = np.array([0.0, 1.0, 5.0, 7.0, 7.0, 9.0]), np.array([1, 0, 0, 1, 0, 0], bool)
    assert step_durations(times, busy, 2).tolist()[3] == 2.0


def test_steps_whose_end_is_not_logged_have_no_duration():
    found = step_durations(np.array([0.0, 0.0, 2.0]), np.ones(3, bool), 2)
    assert found[0] == 2
    assert np.isnan(found[1:]).all()
