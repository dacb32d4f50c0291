"""Forecasts of a panel on one process of Dask and on two, each with one thread.

    python bench/cluster.py [SERIES] [ROUNDS]     # needs dask[dataframe,distributed]; 2000 series

Series of 1000 rows, 16 lags, 12 rows ahead. Seconds of wall time, the least of
the rounds, and whether the numbers are the same; two processes are to take 1/1.6 of one or less where
two cores are free.
"""

from __future__ import annotations

import sys
import time

import dask.dataframe
import numpy as np
import pandas
from dask.distributed import Client, LocalCluster
from ttr.sklearn import StreamingForecaster, dask as ttr_dask

ROWS, LAGS, AHEAD, PARTS = 1000, 16, 12, 8


def table(series: int) -> pandas.DataFrame:
    random = np.random.default_rng(0)
    days = np.datetime64("2020-01-01", "ns") + np.arange(ROWS).astype("m8[D]")
    return pandas.DataFrame(
        {
            "unique_id": np.repeat(np.arange(series), ROWS),
            "ds": np.tile(days, series),
            "y": random.standard_normal((series, ROWS)).cumsum(1).ravel(),
        }
    )


def timed(workers: int, frame: pandas.DataFrame, rounds: int) -> tuple[float, pandas.DataFrame]:
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        # Series lie in one partition each; the table is with the workers before time is taken.
        parts = dask.dataframe.from_pandas(frame, npartitions=PARTS, sort=False)
        parts = client.persist(parts.shuffle("unique_id"))
        parts.map_partitions(len).compute()
        taken = []
        for trial in range(rounds):
            # Another step, which least squares do not take: Dask knows an answer that it has given.
            forecaster = StreamingForecaster(lags=LAGS, step=0.5 + trial / 1000)
            start = time.perf_counter()
            ahead = ttr_dask.forecast_panel(forecaster, parts, "1D", AHEAD, shuffle=False)
            found = ahead.compute()
            taken.append(time.perf_counter() - start)
    return min(taken), found.sort_values(["unique_id", "ds"], ignore_index=True)


def main() -> None:
    series = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    frame = table(series)
    seconds, numbers = zip(*(timed(workers, frame, rounds) for workers in (1, 2)))
    same = numbers[0].equals(numbers[1])
    print(
        f"{series} series: one process {seconds[0]:.2f} s, two {seconds[1]:.2f} s: "
        f"{seconds[0] / seconds[1]:.2f} x, the same numbers: {same}"
    )


if __name__ == "__main__":
    main()
