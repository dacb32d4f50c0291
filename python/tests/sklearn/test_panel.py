"""`StreamingForecaster.fit_panel`: one forecaster for each series of a long table."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from ttr.sklearn import ForecasterPanel, StreamingForecaster

MODEL = "StreamingForecaster"
DAYS = np.datetime64("2024-01-01") + np.arange(400)


def series(rows: int, seed: int = 0) -> NDArray[np.float64]:
    random = np.random.default_rng(seed)
    return np.sin(np.arange(rows) / 3 + seed) + 0.1 * random.standard_normal(rows)


def table(**columns: Any) -> dict[str, Any]:
    """Series of one table: name=(stamps, values)."""
    return {
        "unique_id": np.repeat(list(columns), [len(y) for _, y in columns.values()]),
        "ds": np.concatenate([ds for ds, _ in columns.values()]),
        "y": np.concatenate([y for _, y in columns.values()]),
    }


def taken(whole: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {name: np.asarray(column)[rows] for name, column in whole.items()}


LONG = table(
    a=(DAYS[:90], series(90)), b=(DAYS[30:100], series(70, 1)), c=(DAYS[:60], series(60, 2))
)


def fitted(whole: Any = LONG, freq: Any = None, **options: Any) -> ForecasterPanel:
    return StreamingForecaster(**{"lags": 4, **options}).fit_panel(whole, freq)


# ---- What a panel is -----------------------------------------------------------------------------


@pytest.mark.parametrize("horizon, reach", [(1, 1), (5, 5), (1, 5)])
@pytest.mark.filterwarnings("ignore:.*have no bounds")
def test_every_series_has_its_forecaster(horizon: int, reach: int) -> None:
    panel = fitted(horizon=horizon, ahead=reach)
    ahead = panel.forecast(5, level=[0.8, 0.95])
    bounds = [f"{MODEL}-{side}-{level}" for level in (80, 95) for side in ("lo", "hi")]
    assert list(ahead) == ["unique_id", "ds", MODEL, *bounds]
    assert list(ahead["unique_id"]) == ["a"] * 5 + ["b"] * 5 + ["c"] * 5
    for i, (name, end) in enumerate([("a", 90), ("b", 100), ("c", 60)]):
        rows = slice(5 * i, 5 * i + 5)
        alone = StreamingForecaster(lags=4, horizon=horizon, ahead=reach).fit(
            LONG["y"][LONG["unique_id"] == name]
        )
        np.testing.assert_array_equal(ahead["ds"][rows], DAYS[end : end + 5])
        np.testing.assert_array_equal(ahead[MODEL][rows], alone.forecast(5)[:, 0])
        for level in (80, 95):
            lower, upper = alone.forecast_interval(5, level / 100)
            np.testing.assert_array_equal(ahead[f"{MODEL}-lo-{level}"][rows], lower[:, 0])
            np.testing.assert_array_equal(ahead[f"{MODEL}-hi-{level}"][rows], upper[:, 0])
    assert np.isfinite(ahead[f"{MODEL}-lo-80"]).sum() == 3 * reach
    assert panel.reasons_ == {} and str(panel.freq_) == "1 days"


def test_rows_stand_in_any_order() -> None:
    order = np.random.default_rng(0).permutation(len(LONG["y"]))
    mixed = fitted(taken(LONG, order)).forecast(3)
    expected = fitted().forecast(3)
    for name in "abc":
        mine, its = (whole[MODEL][whole["unique_id"] == name] for whole in (mixed, expected))
        np.testing.assert_array_equal(mine, its)


def test_rows_that_are_not_there_are_missing() -> None:
    gone = np.r_[0:20, 23:220]
    y = LONG["y"].copy()
    y[20:23] = np.nan
    np.testing.assert_array_equal(
        fitted(taken(LONG, gone)).forecast(3)[MODEL], fitted({**LONG, "y": y}).forecast(3)[MODEL]
    )
    none = {**LONG, "y": [None if np.isnan(value) else value for value in y]}
    np.testing.assert_array_equal(
        fitted(none).forecast(3)[MODEL], fitted({**LONG, "y": y}).forecast(3)[MODEL]
    )


def test_more_rows_come() -> None:
    late = (LONG["ds"] > DAYS[49]) & (LONG["unique_id"] != "c")
    panel = fitted(taken(LONG, ~late), ahead=3)
    panel = pickle.loads(pickle.dumps(panel)).partial_fit(taken(LONG, late))
    whole = fitted(ahead=3)
    for column in ("ds", MODEL, f"{MODEL}-lo-90"):
        mine, its = panel.forecast(3, 0.9)[column], whole.forecast(3, 0.9)[column]
        np.testing.assert_array_equal(mine, its)
    panel.partial_fit(table(new=(DAYS[:30], series(30)), c=(DAYS[62:64], series(2))))
    assert list(panel.forecasters_) == ["a", "b", "c", "new"]
    assert panel.forecasters_["c"].n_seen_ == 64  # two days were missing


def test_the_template_stays() -> None:
    model = StreamingForecaster("weighted_rls", lags=3, decay=0.9)
    panel = model.fit_panel(LONG)
    assert not hasattr(model, "reader_")
    for one in panel.forecasters_.values():
        assert one.get_params() == clone(model).get_params()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(library: str) -> None:
    frames = pytest.importorskip(library)
    ahead = fitted(frames.DataFrame(LONG), ahead=4).forecast(4, level=0.9)
    expected = fitted(ahead=4).forecast(4, level=0.9)
    assert isinstance(ahead, frames.DataFrame) and list(ahead.columns) == list(expected)
    assert ahead["unique_id"].to_list() == expected["unique_id"].tolist()
    np.testing.assert_array_equal(np.asarray(ahead["ds"]), expected["ds"])
    np.testing.assert_array_equal(ahead[MODEL].to_numpy(), expected[MODEL])


def test_arrow_and_parquet(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    frame = arrow.table({**LONG, "price": np.zeros(len(LONG["y"]))})
    parquet.write_table(frame, tmp_path / "panel.parquet")
    expected = fitted(ahead=4).forecast(4, level=0.9)
    for given in (frame.drop_columns("price"), tmp_path / "panel.parquet"):
        ahead = fitted(given, ahead=4).forecast(4, level=0.9)
        assert isinstance(ahead, arrow.Table) and ahead.column_names == list(expected)
        for name, column in expected.items():
            np.testing.assert_array_equal(ahead[name].to_numpy(), column)
    with pytest.raises(ValueError, match="and no others but has .*'price'"):
        fitted(frame)


@pytest.mark.parametrize("names", [[7, 3], ["x", 3], [(1, "x"), (1, "y")], ["x", "y"]])
def test_ids_of_any_type(names: list[Any]) -> None:
    ids = np.empty(60, object)
    for i in range(60):
        ids[i] = names[i // 30]
    panel = fitted({"unique_id": ids, "ds": np.tile(np.arange(30), 2), "y": series(60)})
    assert list(panel.forecasters_) == names
    assert len(panel.forecast(2)["unique_id"]) == 4


# ---- Few rows ------------------------------------------------------------------------------------


def test_few_rows_are_told() -> None:
    few = table(
        whole=(DAYS[:30], series(30)),
        one=(DAYS[:1], [3.0]),
        silent=(DAYS[:9], [np.nan] * 9),
        late=(DAYS[:9], [np.nan] * 6 + [1.0, 2.0, 3.0]),
        enough=(DAYS[:4], series(4)),
    )
    panel = fitted(few)
    assert panel.reasons_ == {
        "one": "4 rows from the first value on are needed, and 1 are there",
        "silent": "4 rows from the first value on are needed, and 0 are there",
        "late": "4 rows from the first value on are needed, and 3 are there",
    }
    with pytest.warns(UserWarning, match="rows 2 to 2 ahead have no bounds"):
        ahead = panel.forecast(2, level=0.9)
    known = np.isfinite(ahead[MODEL])
    assert list(ahead["unique_id"][known]) == ["whole", "whole", "enough", "enough"]
    assert ahead["ds"][2] == DAYS[1]  # a stamp follows from the panel's spacing
    panel.partial_fit(table(one=(DAYS[1:9], series(8)), silent=(DAYS[9:20], series(11))))
    assert list(panel.reasons_) == ["late"]


# ---- Stamps --------------------------------------------------------------------------------------


def stamps_of(*texts: str) -> NDArray[Any]:
    return np.array(texts, "M8[D]")


MONTHS = np.arange("2023-01", "2024-06", dtype="M8[M]")
ENDS = (MONTHS + 1).astype("M8[D]") - 1
FIRSTS = MONTHS.astype("M8[D]")
WEEKDAYS = np.busday_offset("2024-01-01", np.arange(30), roll="forward")


@pytest.mark.parametrize(
    "ds, spacing, expected",
    [
        (np.arange(2000, 2020), "1", [2020, 2021]),
        (np.arange(20, dtype=np.uint8) * 5, "5", [100, 105]),
        (np.arange(20) * 0.1, "0.1", [2.0, 2.1]),
        (DAYS[:20] + 0, "1 days", stamps_of("2024-01-21", "2024-01-22")),
        (DAYS[:140:7], "7 days", stamps_of("2024-05-20", "2024-05-27")),
        (ENDS, "1 month", stamps_of("2024-06-30", "2024-07-31")),
        (ENDS[:-2], "1 month", stamps_of("2024-04-30", "2024-05-31")),
        (FIRSTS, "1 month", stamps_of("2024-06-01", "2024-07-01")),
        (FIRSTS + 27, "1 month", stamps_of("2024-06-28", "2024-07-28")),
        (FIRSTS[::3], "3 months", stamps_of("2024-07-01", "2024-10-01")),
        (ENDS[2::3], "3 months", stamps_of("2024-06-30", "2024-09-30")),
        (
            np.arange("2000", "2012", dtype="M8[Y]"),
            "12 months",
            np.array(["2012", "2013"], "M8[Y]"),
        ),
        (WEEKDAYS, "1 weekday", stamps_of("2024-02-12", "2024-02-13")),
        (WEEKDAYS[:-1], "1 weekday", stamps_of("2024-02-09", "2024-02-12")),
        (
            np.datetime64("2024-01-01T00:00") + 15 * np.arange(20),
            "15 minutes",
            np.array(["2024-01-01T05:00", "2024-01-01T05:15"], "M8[m]"),
        ),
        (
            WEEKDAYS + np.timedelta64(17, "h"),
            "1 weekday",
            np.array(["2024-02-12T17", "2024-02-13T17"], "M8[h]"),
        ),
    ],
)
def test_stamps_go_on(ds: Any, spacing: str, expected: Any) -> None:
    panel = fitted(table(a=(ds, series(len(ds)))))
    assert str(panel.freq_) == spacing
    ahead = panel.forecast(2)["ds"]
    if np.asarray(expected).dtype.kind == "M":
        np.testing.assert_array_equal(ahead, expected)
    else:
        np.testing.assert_allclose(ahead, expected, rtol=1e-12)
    assert panel.forecasters_["a"].n_seen_ == len(ds)
    if len(ds) > 10:
        gone = np.delete(np.arange(len(ds)), [5, 6])
        assert fitted(table(a=(ds[gone], series(len(gone))))).forecasters_["a"].n_seen_ == len(ds)


@pytest.mark.parametrize(
    "freq, ds, steps",
    [
        ("D", DAYS[[0, 2, 3]], 4),
        ("1D", DAYS[[0, 2, 3]], 4),
        (np.timedelta64(1, "D"), DAYS[[0, 2, 3]], 4),
        ("1M", FIRSTS[[0, 3, 4]], 5),
        ("Y", FIRSTS[[0, 12]], 2),
        ("B", WEEKDAYS[[0, 6]], 7),
        ("12h", DAYS[:3], 5),
        (2, np.array([0, 2, 8]), 5),
        (0.5, np.array([0, 2, 3]), 7),
    ],
)
def test_what_lies_between_is_given(freq: Any, ds: Any, steps: int) -> None:
    panel = fitted(table(a=(ds, np.ones(len(ds)))), freq)
    assert panel.forecasters_["a"].n_seen_ == steps


def test_dates_of_python() -> None:
    ahead = fitted({**LONG, "ds": LONG["ds"].tolist()}).forecast(2)
    np.testing.assert_array_equal(ahead["ds"], fitted().forecast(2)["ds"])


# ---- Refused -------------------------------------------------------------------------------------


def without(name: str) -> dict[str, Any]:
    return {column: values for column, values in LONG.items() if column != name}


def changed(column: str, row: int, value: Any) -> dict[str, Any]:
    values = LONG[column].astype(object) if value is None else LONG[column].copy()
    values[row] = value
    return {**LONG, column: values}


STEPS = table(daily=(DAYS[:60], series(60)), weekly=(DAYS[:210:7], series(30)))


@pytest.mark.parametrize(
    "whole, freq, text",
    [
        (
            without("y"),
            None,
            r"table must be .* unique_id, ds, y and no others but has \['unique_id', 'ds'\]",
        ),
        ({**LONG, "price": LONG["y"]}, None, "and no others but has .*'price'"),
        (series(30), None, "and no others but has ndarray"),
        (
            {**LONG, "y": LONG["y"][1:]},
            None,
            r"one length, 1 or more, but are \[\(220,\), \(220,\), \(219,\)\]",
        ),
        (taken(LONG, slice(0, 0)), None, "one length, 1 or more"),
        (
            changed("unique_id", 5, None),
            None,
            "unique_id must be there in every row but is missing in row 5",
        ),
        (
            changed("ds", 95, np.datetime64("NaT")),
            None,
            "ds of 'b' must be there .* is NaT in row 95",
        ),
        (
            changed("ds", 95, LONG["ds"][93]),
            None,
            "ds of 'b' must differ .* rows 93 and 95 are both of 2024-02-03",
        ),
        (
            changed("y", 95, np.inf),
            None,
            "y of 'b' must be finite or missing but is infinite in row 95",
        ),
        ({**LONG, "y": LONG["y"].astype(str)}, None, "y must be numbers but has the type <U"),
        (
            {**LONG, "ds": LONG["ds"].astype(str)},
            None,
            r"ds must be numbers or dates .*numpy.array\(ds, 'datetime64",
        ),
        (
            table(a=(DAYS[:1], [1.0])),
            None,
            "freq must be given where no series has two rows.*'a' has one, row 0",
        ),
        (
            table(a=(np.r_[0:9, 9.5, 11:20], series(19))),
            None,
            r"ds of 'a' must come every 1 but row 9 \(9.5\) comes behind row 8 \(8.0\)",
        ),
        (
            table(a=([0, 1, 2, 10**9], series(4))),
            None,
            "at most 100000 rows but row 3 .* 999999998 steps behind row 2",
        ),
        (STEPS, None, "series must all come every 1 days but 'weekly' comes every 7 days"),
        (LONG, 7, "freq must be a timedelta64, .* but is 7"),
        (LONG, "fortnight", "freq must be a timedelta64, .* but is 'fortnight'"),
        (LONG, np.timedelta64(0, "D"), "freq must be a timedelta64"),
        (table(a=([1, 2, 3], [1.0, 2.0, 3.0])), "D", "freq must be a number above 0 but is 'D'"),
        (table(a=([1, 2, 3], [1.0, 2.0, 3.0])), -1, "freq must be a number above 0 but is -1"),
        (table(a=([1, 2, 3], [1.0, 2.0, 3.0])), "B", "freq must be a number above 0 but is 'B'"),
        (
            table(a=([1, 2, np.inf], [1.0, 2.0, 3.0])),
            None,
            "ds of 'a' must be there .* is inf in row 2",
        ),
        (LONG, "7D", "ds of 'a' must come every 7 days but row 1 .* comes behind row 0"),
    ],
)
def test_what_is_no_panel(whole: Any, freq: Any, text: str) -> None:
    with pytest.raises(ValueError, match=rf"\[fit_panel\].*{text}"):
        fitted(whole, freq)


def test_series_of_other_steps_where_freq_is_given() -> None:
    assert fitted(STEPS, "1D").forecasters_["weekly"].n_seen_ == 204


def test_more_rows_come_behind() -> None:
    panel = fitted()
    before = panel.forecast(2)[MODEL]
    late = table(a=(DAYS[90:92], series(2)), b=(DAYS[99:101], series(2)))
    with pytest.raises(
        ValueError, match=r"\[partial_fit\] ds of 'b' .* row 2 \(2024-04-09\) comes behind what"
    ):
        panel.partial_fit(late)
    with pytest.raises(ValueError, match=r"\[partial_fit\] table must be"):
        panel.partial_fit(series(3))
    with pytest.raises(
        ValueError, match=r"\[partial_fit\] ds must be dates as before but are numbers"
    ):
        panel.partial_fit(table(d=([1, 2], series(2))))
    np.testing.assert_array_equal(panel.forecast(2)[MODEL], before)


def test_forecasts_that_are_none() -> None:
    panel = fitted()
    with pytest.raises(ValueError, match="steps must be 1 or more"):
        panel.forecast(0)
    with pytest.raises(ValueError, match="level must be above 0 and below 1 but is 95"):
        panel.forecast(2, level=[0.8, 95])
