"""Figure 3 by Zoology's procedure (Arora et al. 2023), which the paper says that it follows: a
fixed training set, epochs, a run for each length and learning rate, its block around one layer.

`data`: the sets. `model`: the network. `train`: one run, which goes on where it was cut off.
`grid`: all runs and their order. `report`: table, picture, claims. `command`: what brings them
together.
"""
