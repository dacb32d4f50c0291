"""Comparisons of layers on tasks, with what they share: every method a recipe, every task a law of
data, equal surroundings, rates swept, seeds repeated.

`study`: what a comparison is, and one run. `results`: runs as figures. `report`: table and picture.
`command`: the grid of runs.
"""
