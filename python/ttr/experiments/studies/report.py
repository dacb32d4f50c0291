"""What runs say together: tables for people and programs, and the picture."""

from __future__ import annotations

from .._chart import Axis, Panel, Series, chart
from .._figures import columns, csv_text, figure, mean, mean_cells
from ..tasks.task import ALL
from .results import Cell, Results


def table(results: Results) -> str:
    """CSV: a line for each task, method and x."""
    names = "task,method,recipe,parameters,rate,x,score,standard_error,seeds,seconds"
    rows = []
    for cell in results.cells.values():
        first = cell.runs[0]
        seconds = sum(run["seconds"] for run in cell.runs) / len(cell.runs)
        about = [cell.task, cell.method, first["settings"]["recipe"], first["parameters"]]
        for x in (*cell.places, ALL):
            figures = mean_cells(list(cell.at(x).values()), ".5g", ".2g")
            rows.append([*about, cell.rate, x, *figures, len(cell.runs), f"{seconds:.1f}"])
    return csv_text(names, rows)


def text(results: Results) -> str:
    """The tables for people, one a task."""
    return "\n\n".join(_task_text(results, name) for name in results.tasks if results.of(name))


def _task_text(results: Results, name: str) -> str:
    task, cells = results.tasks[name], results.of(name)
    places = cells[0].places
    lines = [["method", "parameters", "rate", *places, ALL]]
    for c in cells:
        scores = [figure(list(c.at(x).values()), task.digits) for x in (*places, ALL)]
        rate = f"{c.rate:g}" if c.rate else ""
        lines.append([c.method, str(c.runs[0]["parameters"] or ""), rate, *scores])
    return f"{name}: {task.measure} by {task.x_label}\n{columns(lines)}"


def series(cell: Cell, name: str = "") -> Series:
    x, y, error = cell.line()
    return Series(name or cell.method, x, y, error)


def panels_by_x(results: Results) -> list[Panel]:
    """A panel a task: its scores by x, errors by their logarithm."""
    panels = []
    for name, task in results.tasks.items():
        lines = [series(cell) for cell in results.of(name)]
        if lines:
            title = f"{name}: {task.measure}"
            panels.append(Panel(title, lines, Axis(log=task.is_error), task.x_label))
    return panels


def panels_by_number(results: Results, ends: tuple[float, float], separator: str) -> list[Panel]:
    """A panel a task: the score over all by the number that ends a method's name, a line for what stands
    before ``separator``; a level line for a method without a number."""
    panels = []
    for name, task in results.tasks.items():
        lines: dict[str, Series] = {}
        for cell in results.of(name):
            middle, error = mean(list(cell.at().values()))
            family, _, number = cell.method.rpartition(separator)
            if family and number.isdigit():
                line = lines.setdefault(family, Series(family, [], [], []))
                line.x, line.y = [*line.x, float(number)], [*line.y, middle]
                line.error = [*line.error, error]
            else:
                lines[cell.method] = Series(cell.method, [*map(float, ends)], [middle] * 2, [error] * 2)
        if lines:
            title = f"{name}: {task.measure}"
            panels.append(Panel(title, list(lines.values()), Axis(log=task.is_error)))
    return panels


def picture(title: str, results: Results, panels: list[Panel], x_label: str) -> str:
    """SVG; empty where nothing can draw it."""
    seeds = max(len(cell.runs) for cell in results.cells.values())
    words = "one seed"
    if seeds > 1:
        words = f"mean of {seeds} seeds and its standard error"
    return chart(title, words, panels, x_label)
