"""Tests of `aioproducer.metrics.registry`: Kafka's windows, and histograms."""

from __future__ import annotations

import math
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.metrics.registry import Histogram, Sensor, Windows

TWO = Windows(2, 30.0)


def test_an_idle_sensor_has_no_average_and_a_rate_of_zero() -> None:
    """MTR-01."""
    sensor = Sensor(TWO, 100.0)
    assert math.isnan(sensor.average(101.0))
    assert math.isnan(sensor.maximum(101.0))
    assert (sensor.rate(101.0), sensor.count_rate(101.0), sensor.total, sensor.count) == (
        0.0,
        0.0,
        0.0,
        0,
    )


@pytest.mark.parametrize(
    ("now", "seconds"),
    [(100.0, 30.0), (101.0, 31.0), (129.0, 59.0), (130.0, 30.0), (145.0, 45.0), (159.0, 59.0)],
)
def test_a_rate_is_of_the_time_that_was_lived_and_one_sample_more(
    now: float, seconds: float
) -> None:
    """Kafka's `Rate.windowSize`: until all samples but one are whole, those that are missing count as whole."""
    sensor = Sensor(TWO, 100.0)
    sensor.record(100.0, 60.0)
    assert sensor.rate(now) == pytest.approx(60.0 / seconds)
    assert sensor.count_rate(now) == pytest.approx(1.0 / seconds)


def test_what_is_older_than_all_samples_is_forgotten_but_for_the_total() -> None:
    """Averages, maxima and rates look back; totals do not."""
    sensor = Sensor(TWO, 0.0)
    sensor.record(1.0, 100.0)
    sensor.record(31.0, 10.0)
    assert sensor.maximum(40.0) == 100.0
    assert sensor.average(40.0) == 55.0
    sensor.record(61.0, 20.0)
    assert sensor.maximum(62.0) == 20.0
    assert sensor.average(62.0) == 15.0
    assert math.isnan(sensor.maximum(200.0))
    assert sensor.rate(200.0) == 0.0
    assert (sensor.total, sensor.count) == (130.0, 3)


def test_one_sample_alone_is_a_window() -> None:
    """`metrics_num_samples=1`."""
    sensor = Sensor(Windows(1, 10.0), 0.0)
    sensor.record(0.0, 5.0)
    assert sensor.rate(0.0) == 0.5
    sensor.record(11.0, 7.0)
    assert sensor.maximum(12.0) == 7.0


@given(
    st.lists(
        st.tuples(st.floats(0, 200), st.lists(st.floats(0, 1e6), min_size=1, max_size=5)),
        max_size=40,
    )
)
def test_many_at_once_are_as_one_after_another(events: list[tuple[float, list[float]]]) -> None:
    """`record_all` is `record` for each."""
    one, many = Sensor(TWO, 0.0), Sensor(TWO, 0.0)
    for now, values in sorted(events):
        many.record_all(now, values)
        for value in values:
            one.record(now, value)
    assert many.count == one.count
    assert many.total == pytest.approx(one.total)
    for now in (200.0, 230.0, 300.0):
        assert many.rate(now) == pytest.approx(one.rate(now))
        assert many.count_rate(now) == pytest.approx(one.count_rate(now))
        assert many.maximum(now) == pytest.approx(one.maximum(now), nan_ok=True)
        assert many.average(now) == pytest.approx(one.average(now), nan_ok=True)


def test_a_histogram_counts_each_value_once_up_to_and_with_its_bound() -> None:
    """Prometheus's `le`."""
    histogram = Histogram((1.0, 2.0, 5.0))
    histogram.observe_weighed([(5.0, 1), (0.0, 1), (1.0, 2), (1.5, 1), (5.1, 3)])
    read = histogram.read()
    assert (read.bounds, read.counts) == ((1.0, 2.0, 5.0), (3, 1, 1, 3))
    assert read.sum == pytest.approx(23.8)
    assert histogram.read().count == 8


@given(st.lists(st.floats(0, 120), min_size=1, max_size=200), st.floats(0, 1))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(values: list[float], part: float) -> None:
    """Within the bounds around the value of that rank; above the last bound it is the last bound."""
    bounds = (0.01, 0.1, 1.0, 10.0, 100.0)
    histogram = Histogram(bounds)
    histogram.observe_all(values)
    true = sorted(values)[max(math.ceil(part * len(values)) - 1, 0)]
    low = max((bound for bound in bounds if bound < true), default=0.0)
    high = min((bound for bound in bounds if bound >= true), default=bounds[-1])
    assert min(low, bounds[-1]) <= histogram.read().quantile(part) <= high + 1e-9


def test_nothing_has_no_quantiles() -> None:
    """NaN, as its average would be."""
    assert math.isnan(Histogram((1.0,)).read().quantile(0.5))
    assert repr(Histogram((1.0,)).read()) == "<Distribution: 0 values, p50 nan, p99 nan>"


@given(
    st.lists(
        st.tuples(st.floats(0, 120) | st.sampled_from([0.01, 0.1, 1.0]), st.integers(1, 9)),
        min_size=1,
        max_size=40,
    )
)
def test_many_values_are_counted_as_one_after_another(pairs: list[tuple[float, int]]) -> None:
    """Each in the first bucket with a bound that is not below it."""
    bounds = (0.01, 0.1, 1.0, 10.0)
    weighed, plain = Histogram(bounds), Histogram(bounds)
    counts, plain_counts = [0] * 5, [0] * 5
    for value, times in pairs:
        at = bisect_left(bounds, value)
        counts[at] += times
        plain_counts[at] += 1
    weighed.observe_weighed(pairs)
    plain.observe_all([value for value, _ in pairs])
    assert weighed.read().counts == tuple(counts)
    assert plain.read().counts == tuple(plain_counts)
    assert weighed.read().sum == pytest.approx(sum(value * times for value, times in pairs))
    assert plain.read().sum == pytest.approx(sum(value for value, _ in pairs))
