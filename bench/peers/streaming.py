#!/usr/bin/env python3
"""Linear regression that learns row by row: ttr beside padasip, statsmodels and river, in one run.

    pip install scikit-learn padasip statsmodels river polars-ds bayesianbandits
    bench/peers/streaming.py                             # every series and method
    bench/peers/streaming.py --digits                    # coefficients beside a fit of the rows that count
    bench/peers/streaming.py --series sine --rounds 5 --markdown table.md

Every method predicts a row from what it has learned of the rows before, then learns it. *rmse* is
that of the predictions behind the first quarter of the rows, over that of the naive prediction: the
last value of a series, the mean so far where rows are no series. *us a row* is processor time to
predict and learn it, the median over interleaved rounds; ttr's fit and statsmodels learn all rows
in one call. *ends* says whether its last prediction is a number, and if not, the first row of which
there was none.

--digits: coefficients behind every row, of all rows so far (recursive) or of the last hundred (rolling),
beside numpy.linalg.lstsq of those rows around their mean: the decimal digits that agree, the least
over a hundred rows spread over the last half, and processor time a row. *plain*: standard normal
features. *offset*: 10^6 added to each. *quiet*: behind half of the rows features are a thousandth.
"""

import argparse
import csv
import importlib.util
import pathlib
import statistics
import sys
import time
import warnings

import numpy as np

import common

# ---- Series: X [n, p], y [n], naive [n], and the forgetting that suits them ----------------------


def lagged(series, lags):
    windows = np.lib.stride_tricks.sliding_window_view(series, lags)[:-1]
    return windows[:, ::-1].copy(), series[lags:], series[lags - 1 : -1]


def co2(random):
    with (common.ROOT / "data/co2_weekly.csv").open(newline="") as file:
        rows = [row["co2"] for row in csv.DictReader(file)]
    return *lagged(np.array([float(row) for row in rows if row]), 52), 1.0


def plane(random):
    x = random.standard_normal((5000, 8)) * np.logspace(-1, 1, 8)
    y = x @ random.standard_normal(8) + 3 + 0.5 * random.standard_normal(len(x))
    return x, y, so_far(y), 1.0


def drift(random):
    x = random.standard_normal((5000, 8))
    coefficients = np.cumsum(0.03 * random.standard_normal((len(x), 8)), axis=0)
    y = (x * coefficients).sum(1) + 0.5 * random.standard_normal(len(x))
    return x, y, so_far(y), 0.98


def sine(random):
    return *lagged(np.sin(0.1 * np.arange(20016)), 16), 0.95


def rescaled(random):
    """An oscillation whose unit changes by 10^6 midway."""
    x = np.zeros(5004)
    for t in range(2, len(x)):
        x[t] = 1.6 * x[t - 1] - 0.8 * x[t - 2] + 0.3 * random.standard_normal()
    x[2504:] *= 1e6
    return *lagged(x, 4), 0.99


def so_far(y):
    return np.concatenate([[0.0], np.cumsum(y)[:-1] / np.arange(1, len(y))])


SERIES = {f.__name__: f for f in (co2, plane, drift, sine, rescaled)}

# ---- Methods: run(X, y, forgetting) gives predictions, or None where there are none --------------


def ttr_regressor(x, y, forgetting):
    from ttr.sklearn import StreamingRegressor

    model = StreamingRegressor(f"affine_rls{{factor: qr, decay: {forgetting}, importance: input}}")
    rows = [dict(enumerate(row)) for row in x.tolist()]
    start = time.process_time()
    predictions = []
    for row, value in zip(rows, y.tolist()):
        predictions.append(model.predict_one(row))
        model.learn_one(row, value)
    return np.array(predictions), time.process_time() - start


def ttr_fit(x, y, forgetting):
    from ttr.sklearn import StreamingRegressor

    model = StreamingRegressor(f"affine_rls{{factor: qr, decay: {forgetting}, importance: input}}")
    start = time.process_time()
    model.fit(x, y)
    return None, time.process_time() - start


def ttr_forecaster(x, y, forgetting):
    """Reads the series itself; nothing where rows are none."""
    from ttr.sklearn import StreamingForecaster

    if not np.array_equal(x[1:, 1:], x[:-1, :-1]):
        return None, None
    model = StreamingForecaster(f"rls{{decay: {forgetting}, ridge: 0.1}}", lags=x.shape[1])
    start = time.process_time()
    model.fit(np.concatenate([x[0, ::-1], y]))
    return model.forecasts_[x.shape[1] :, 0], time.process_time() - start


def ttr_memory(x, y, forgetting):
    import ttr

    memory = ttr.Memory(f"affine_rls{{factor: qr, decay: {forgetting}}}", key_dim=x.shape[1])
    start = time.process_time()
    predictions = []
    for row, value in zip(x, y):
        predictions.append(memory.retrieve(row)[0])
        memory.memorize(row, value)
    return np.array(predictions), time.process_time() - start


def padasip_rls(x, y, forgetting):
    import padasip

    x = np.hstack([x, np.ones((len(x), 1))])
    model = padasip.filters.FilterRLS(x.shape[1], mu=forgetting, eps=1e-3)
    start = time.process_time()
    predictions = []
    for row, value in zip(x, y):
        predictions.append(model.predict(row))
        model.adapt(value, row)
    return np.array(predictions), time.process_time() - start


def statsmodels_recursive(x, y, forgetting):
    from statsmodels.regression.recursive_ls import RecursiveLS

    x = np.hstack([x, np.ones((len(x), 1))])
    start = time.process_time()
    fit = RecursiveLS(y, x).fit()
    took = time.process_time() - start
    before = fit.recursive_coefficients.filtered[:, :-1]
    return np.concatenate([[0.0], (x[1:] * before.T).sum(1)]), took


def bandits_normal(x, y, forgetting):
    from bayesianbandits import ExponentialForgetting, NormalRegressor

    x = np.hstack([x, np.ones((len(x), 1))])
    rule = ExponentialForgetting(forgetting) if forgetting < 1 else None
    model = NormalRegressor(alpha=1e-3, beta=1.0, forgetting=rule)
    start = time.process_time()
    predictions = [0.0]
    try:
        model.partial_fit(x[:1], y[:1])
        for row, value in zip(x[1:], y[1:]):
            predictions.append(float(model.predict(row[None])[0]))
            model.partial_fit(row[None], np.array([value]))
    except np.linalg.LinAlgError:  # it says itself that it cannot go on
        predictions += [np.nan] * (len(y) - len(predictions))
    return np.array(predictions), time.process_time() - start


def river_model(make):
    def run(x, y, forgetting):
        model = make()
        rows = [dict(enumerate(row)) for row in x.tolist()]
        start = time.process_time()
        predictions = []
        for row, value in zip(rows, y.tolist()):
            try:
                predictions.append(model.predict_one(row))
                model.learn_one(row, value)
            except (OverflowError, ValueError):  # numbers that its own checks refuse
                predictions += [np.nan] * (len(y) - len(predictions))
                break
        return np.array(predictions, float), time.process_time() - start

    return run


def river_sgd():
    from river import linear_model

    return linear_model.LinearRegression()


def river_scaled():
    from river import linear_model, preprocessing

    return preprocessing.StandardScaler() | linear_model.LinearRegression()


def river_passive():
    from river import linear_model, preprocessing

    return preprocessing.StandardScaler() | linear_model.PARegressor()


def river_bayesian():
    from river import linear_model, preprocessing

    return preprocessing.StandardScaler() | linear_model.BayesianLinearRegression()


METHODS = {
    "ttr, learn_one": ("ttr", ttr_regressor),
    "ttr, fit": ("ttr", ttr_fit),
    "ttr.Memory": ("ttr", ttr_memory),
    "ttr, StreamingForecaster": ("ttr", ttr_forecaster),
    "padasip FilterRLS": ("padasip", padasip_rls),
    "statsmodels RecursiveLS": ("statsmodels", statsmodels_recursive),
    "bayesianbandits NormalRegressor": ("bayesianbandits", bandits_normal),
    "river LinearRegression": ("river", river_model(river_sgd)),
    "river scaler, LinearRegression": ("river", river_model(river_scaled)),
    "river scaler, PARegressor": ("river", river_model(river_passive)),
    "river scaler, BayesianLinearRegression": ("river", river_model(river_bayesian)),
}

# ---- Digits: coefficients [n, p + 1] behind every row, the constant last -------------------------

WINDOW = 100


def digits_tables():
    random = np.random.default_rng(2)
    x = random.standard_normal((20_000, 4))
    quiet = np.where(np.arange(len(x)) < len(x) // 2, 1.0, 1e-3)[:, None]
    for name, features in {"plain": x, "offset": x + 1e6, "quiet": x * quiet}.items():
        y = features @ [1.0, -2.0, 0.5, 3.0] + 4 + 0.1 * random.standard_normal(len(x))
        yield name, features, y


def expected(x, y, window, rows):
    """By orthogonal factors, around the mean of the rows that count."""
    found = []
    for t in rows:
        part = slice(max(t + 1 - window, 0) if window else 0, t + 1)
        middle = x[part].mean(0)
        whole = np.hstack([x[part] - middle, np.ones((len(x[part]), 1))])
        coefficients = np.linalg.lstsq(whole, y[part], rcond=None)[0]
        found.append(np.append(coefficients[:-1], coefficients[-1] - middle @ coefficients[:-1]))
    return np.array(found)


def coefficients_ttr(window):
    def run(x, y, rows):
        from ttr.sklearn import StreamingRegressor

        model = StreamingRegressor("affine_rls{factor: qr, ridge: 0}" if window is None else
                                   "affine_rls{ridge: 0}", window=window)
        wanted, found = set(rows.tolist()), []
        table = [dict(enumerate(row)) for row in x.tolist()]
        start = time.process_time()
        for t, (row, value) in enumerate(zip(table, y.tolist())):
            model.learn_one(row, value)
            if t in wanted:
                found.append(np.append(model.coef_, model.intercept_))
        return np.array(found), time.process_time() - start

    return run


def coefficients_padasip(x, y, rows):
    import padasip

    x = np.hstack([x, np.ones((len(x), 1))])
    model = padasip.filters.FilterRLS(x.shape[1], mu=1.0, eps=1e-3)
    start = time.process_time()
    found = []
    for row, value in zip(x, y):
        model.adapt(value, row)
        found.append(model.w.copy())
    return np.array(found)[rows], time.process_time() - start


def coefficients_recursive(x, y, rows):
    from statsmodels.regression.recursive_ls import RecursiveLS

    x = np.hstack([x, np.ones((len(x), 1))])
    start = time.process_time()
    fit = RecursiveLS(y, x).fit()
    return fit.recursive_coefficients.filtered.T[rows], time.process_time() - start


def coefficients_rolling(x, y, rows):
    from statsmodels.regression.rolling import RollingOLS

    x = np.hstack([x, np.ones((len(x), 1))])
    start = time.process_time()
    return RollingOLS(y, x, window=WINDOW).fit().params[rows], time.process_time() - start


def coefficients_polars(call, **options):
    def run(x, y, rows):
        import polars
        import polars_ds

        names = [f"x{i}" for i in range(x.shape[1])]
        frame = polars.DataFrame(x, schema=names).with_columns(y=polars.Series(y))
        regression = getattr(polars_ds, call)
        start = time.process_time()
        given = regression(*names, target="y", add_bias=True, **options)
        found = frame.select(given.alias("fit")).get_column("fit")
        took = time.process_time() - start
        return np.array(found.struct.field("coeffs").gather(rows).to_list(), float), took

    return run


def coefficients_bandits(x, y, rows):
    from bayesianbandits import NormalRegressor

    x = np.hstack([x, np.ones((len(x), 1))])
    model = NormalRegressor(alpha=1e-6, beta=1.0)
    wanted, found = set(rows.tolist()), []
    start = time.process_time()
    for t, (row, value) in enumerate(zip(x, y)):
        model.partial_fit(row[None], np.array([value]))
        if t in wanted:
            found.append(np.array(model.coef_))
    return np.array(found), time.process_time() - start


DIGITS = {
    "recursive": {
        "ttr, learn_one": ("ttr", coefficients_ttr(None)),
        "padasip FilterRLS": ("padasip", coefficients_padasip),
        "statsmodels RecursiveLS": ("statsmodels", coefficients_recursive),
        "polars-ds recursive_lin_reg": (
            "polars_ds", coefficients_polars("recursive_lin_reg", start_with=10)
        ),
        "bayesianbandits NormalRegressor": ("bayesianbandits", coefficients_bandits),
    },
    "rolling": {
        "ttr, window=100": ("ttr", coefficients_ttr(WINDOW)),
        "statsmodels RollingOLS": ("statsmodels", coefficients_rolling),
        "polars-ds rolling_lin_reg": (
            "polars_ds", coefficients_polars("rolling_lin_reg", window_size=WINDOW)
        ),
    },
}


def digits_of(found, exact):
    """The digits of the slopes, the least over rows; none where one is not finite."""
    if not np.isfinite(found).all():
        return "-"
    apart = np.abs(found - exact)[:, :-1].max(1) / np.abs(exact[:, :-1]).max(1)
    return f"{max(-np.log10(max(apart.max(), 1e-16)), 0):.1f}"


def digits_cells():
    cells = [["of", "method", "table", "digits", "us a row"]]
    for kind, methods in DIGITS.items():
        for name, x, y in digits_tables():
            rows = np.linspace(len(x) // 2, len(x) - 1, 100).astype(int)
            exact = expected(x, y, WINDOW if kind == "rolling" else None, rows)
            for method, (package, run) in methods.items():
                if not importlib.util.find_spec(package):
                    continue
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    try:
                        found, took = run(x, y, rows)
                    except np.linalg.LinAlgError:  # it says itself that it cannot go on
                        cells.append([kind, method, name, "refuses", ""])
                        continue
                cells.append([kind, method, name, digits_of(found, exact), f"{took / len(y) * 1e6:.3g}"])
    return cells


# ---- The table -----------------------------------------------------------------------------------


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--series", nargs="+", choices=SERIES, default=list(SERIES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--digits", action="store_true", help="coefficients beside a fit of the rows")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the table")
    return parser.parse_args()


def compare(name, methods, rounds):
    """The rows of one series."""
    x, y, naive, forgetting = SERIES[name](np.random.default_rng(1))
    predictions, times = {}, {method: [] for method in methods}
    for _ in range(rounds):
        for method, run in methods.items():
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                guess, took = run(x, y, forgetting)
            if took is not None:
                predictions[method] = guess
                times[method].append(took / len(y) * 1e6)
    settled = slice(len(y) // 4, None)
    rmse = lambda guess: float(np.sqrt(np.mean((guess - y)[settled] ** 2)))
    for method, guess in predictions.items():
        row = [name, method, "", f"{statistics.median(times[method]):.3g}", ""]
        if guess is not None:
            lost = np.flatnonzero(~np.isfinite(guess))
            row[2] = "-" if len(lost) else f"{rmse(guess) / rmse(naive):.3g}"
            row[4] = f"not finite from row {lost[0]}" if len(lost) else "finite"
        yield row


def main():
    options = arguments()
    common.restart(1, False)
    if options.digits:
        print(common.processor())
        common.write_table(digits_cells(), options.markdown, text=(0, 1, 2))
        return
    methods = {}
    for name, (package, run) in METHODS.items():
        if importlib.util.find_spec(package):
            methods[name] = run
        else:
            print(f"{name} is left out: {package} is not installed", file=sys.stderr)
    cells = [["series", "method", "rmse, of naive", "us a row", "ends"]]
    for name in options.series:
        cells += compare(name, methods, options.rounds)
        print(f"{name}: done", file=sys.stderr)
    print(common.processor())
    common.write_table(cells, options.markdown, text=(0, 1, 4))


if __name__ == "__main__":
    main()
