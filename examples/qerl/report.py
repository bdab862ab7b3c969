"""What the runs of qerl.py say together: a table, and a plot with bands of 95 % confidence over seeds.

    python examples/qerl/report.py out/qerl
"""

import json
import math
import pathlib
import statistics
import sys
from collections.abc import Sequence

# Of Student's distribution, by degrees of freedom: 95 % lie within so many standard errors.
STUDENT = (math.nan, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)


def name(run: dict) -> str:
    return f"{run['train']} {run['recipe']} noise {run['noise']}"


def mean_and_bound(values: Sequence[float]) -> tuple[float, float]:
    """The mean over seeds, and how far from it the true one may be. NaN of a single seed."""
    mean, freedom = statistics.fmean(values), len(values) - 1
    if freedom == 0:
        return mean, math.nan
    factor = STUDENT[freedom] if freedom < len(STUDENT) else 1.96
    return mean, factor * statistics.stdev(values) / math.sqrt(len(values))


def grouped(runs: list[dict]) -> dict[str, list[dict]]:
    groups: dict[str, list[dict]] = {}
    for run in runs:
        groups.setdefault(name(run), []).append(run)
    return groups


def table(runs: list[dict]) -> str:
    """A row for each way of training: over seeds, mean and bound."""
    phases = list(runs[0]["seconds"])
    heads = ["seeds", "held out", "reward at last", "entropy, first quarter", "entropy at last", *(f"{p} ms" for p in phases)]
    rows = ["| way | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for way, group in grouped(runs).items():
        quarter = max(1, len(group[0]["entropy"]) // 4)
        columns = ([run["held_out"] for run in group], [run["reward"][-1] for run in group],
                   [statistics.fmean(run["entropy"][:quarter]) for run in group], [run["entropy"][-1] for run in group])
        cells = ["{:.3f} ± {:.3f}".format(*mean_and_bound(column)) for column in columns]
        cells += [f"{1e3 * statistics.fmean([run['seconds'][phase] for run in group]):.1f}" for phase in phases]
        rows.append(f"| {way} | {len(group)} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def plot(runs: list[dict], path: pathlib.Path) -> bool:
    """Reward, entropy and sigma by update. False if matplotlib is not there."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(15, 4))
    for way, group in grouped(runs).items():
        for axis, what in zip(axes, ("reward", "entropy", "sigma"), strict=True):
            points = [mean_and_bound(values) for values in zip(*(run[what] for run in group), strict=True)]
            means = [mean for mean, _ in points]
            (line,) = axis.plot(means, label=way, linestyle="-" if group[0]["noise"] == "on" else "--")
            if len(group) > 1 and what != "sigma":
                low, high = ([mean + sign * bound for mean, bound in points] for sign in (-1, 1))
                axis.fill_between(range(len(points)), low, high, color=line.get_color(), alpha=0.15)
            axis.set_title(what)
            axis.set_xlabel("update")
    axes[0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    return True


def write(folder: pathlib.Path) -> None:
    runs = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    (folder / "table.md").write_text(table(runs) + "\n")
    print(table(runs))
    if plot(runs, folder / "plot.png"):
        print(f"plotted in {folder / 'plot.png'}")


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
