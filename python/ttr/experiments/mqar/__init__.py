"""Multi-query associative recall, trained: figure 3 of test-time regression (Wang, Shi and Fox
2025), one layer and one convolution of length two for the keys.

`law`: the examples. `model`: the network. `train`: one run. `report`: table, picture, claims.
`command`: the grid of runs.
"""
