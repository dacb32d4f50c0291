"""Experiments that train: `python -m ttr.experiments`. Those without training: `ttr experiment`."""
