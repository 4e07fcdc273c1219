#!/usr/bin/env python3
"""Draws the plots of docs/benchmarks.md from the newest results of `just bench` (needs matplotlib).

Each plot has one message, which is its title. Values are medians, as in the tables.
"""

import json
import statistics
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FuncFormatter  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs/images/benchmarks"
NAMES = {
    "generic": "generic (1.36)",
    "hint": "hint (1.37)",
    "evented": "evented (≤ 1.36)",
    "best-generic": "pleg, polling",
    "ours": "pleg",
}
COLOURS = {
    "generic": "#8c959f",
    "hint": "#bf8700",
    "evented": "#8250df",
    "best-generic": "#54aeff",
    "ours": "#0969da",
}
NANOS = 1e9


class Results:
    """The samples of one file."""

    def __init__(self, path):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.samples = [line for line in lines if line["line"] == "sample"]

    def median(self, workload, subject, figure, **point):
        """The median of a figure; None if it was not measured."""
        values = [
            figure(sample["metrics"])
            for sample in self.samples
            if sample["workload"] == workload
            and sample["subject"] == subject
            and all(sample.get(key) == value for key, value in point.items())
        ]
        return statistics.median(values) if values else None

    def known(self, workload, key, **point):
        """The values of a parameter with which a workload was measured."""
        return sorted(
            {
                sample[key]
                for sample in self.samples
                if sample["workload"] == workload
                and all(sample.get(k) == v for k, v in point.items())
            }
        )


def duration(seconds, _position=None):
    """As a person writes it."""
    for limit, factor, unit in [(1e-3, 1e6, "µs"), (1, 1e3, "ms"), (float("inf"), 1, "s")]:
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    return ""


def save(figure, name):
    figure.savefig(OUT / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def bars(title, label, values, name):
    """One bar for each subject, on a scale of powers of ten."""
    values = {subject: value for subject, value in values.items() if value}
    figure, axes = plt.subplots(figsize=(7, 0.5 + 0.45 * len(values)))
    subjects = list(values)[::-1]
    drawn = axes.barh(
        [NAMES[s] for s in subjects],
        [values[s] for s in subjects],
        color=[COLOURS[s] for s in subjects],
    )
    axes.bar_label(drawn, [duration(values[s]) for s in subjects], padding=4)
    axes.set_xscale("log")
    axes.margins(x=0.18)
    axes.xaxis.set_major_formatter(FuncFormatter(duration))
    axes.set_xlabel(label)
    axes.set_title(title, loc="left", fontsize=11)
    save(figure, name)


def visible(results):
    point = {"rate": 100, "pods": 1000}
    lag = lambda metrics: metrics.get("latency_p50", 0) / NANOS  # noqa: E731
    values = {s: results.median("restarts", s, lag, **point) for s in NAMES}
    bars(
        "A change is visible in the cache at once, not after half a second",
        "from the change until the cache shows it: median; 1,000 pods, 100 events/s; logarithmic",
        values,
        "visible",
    )


def idle(results):
    cpu = lambda metrics: metrics["subject_cpu"] / metrics["seconds"] * 3600 / NANOS  # noqa: E731
    values = {s: results.median("idle", s, cpu, pods=1000) for s in NAMES}
    bars(
        "A node on which nothing happens costs almost nothing",
        "CPU time in an idle hour; 1,000 pods; logarithmic",
        values,
        "idle",
    )


def churn(results):
    sizes = results.known("churn", "pods")
    figure, every = plt.subplots(1, len(sizes), figsize=(9, 3), sharey=True)
    cpu = lambda metrics: metrics["subject_cpu"] / metrics["seconds"] / NANOS  # noqa: E731
    for axes, pods in zip(every, sizes):
        rates = results.known("churn", "per_hundred_seconds", pods=pods)
        for subject in ["generic", "hint", "ours"]:
            values = [
                results.median("churn", subject, cpu, pods=pods, per_hundred_seconds=rate)
                for rate in rates
            ]
            axes.plot(
                [rate / 100 for rate in rates],
                [1000 * value for value in values],
                marker="o",
                color=COLOURS[subject],
                label=NAMES[subject],
            )
        axes.set_title(f"{pods:,} pods", fontsize=10)
        axes.grid(alpha=0.3)
    figure.supxlabel("pods that come and go per second", fontsize=10, y=-0.06)
    every[0].set_ylabel("CPU time per second, ms")
    every[0].legend(frameon=False)
    figure.suptitle(
        "Events cost per change, lists per pod: where much changes on a small node, lists are cheaper",
        fontsize=11,
        x=0.06,
        ha="left",
        y=1.03,
    )
    save(figure, "churn")


def own_writes(results):
    latencies = results.known("own-writes", "latency", parallel=10)
    figure, axes = plt.subplots(figsize=(7, 2.6))
    read = lambda metrics: metrics["read_p50"] / NANOS  # noqa: E731
    for offset, subject in [(-0.2, "generic"), (0.2, "ours")]:
        values = [
            results.median("own-writes", subject, read, parallel=10, latency=latency)
            for latency in latencies
        ]
        drawn = axes.bar(
            [index + offset for index in range(len(latencies))],
            values,
            width=0.38,
            color=COLOURS[subject],
            label=NAMES[subject],
        )
        axes.bar_label(drawn, [duration(value) for value in values], padding=2, fontsize=9)
    axes.set_yscale("log")
    axes.margins(y=0.25)
    axes.yaxis.set_major_formatter(FuncFormatter(duration))
    axes.set_xticks(range(len(latencies)), [f"{ms} ms per call" for ms in latencies])
    axes.set_ylabel("read, median")
    axes.legend(frameon=False, loc="upper left")
    axes.set_title("Ten pod workers read their own changes without waiting in line", loc="left", fontsize=11)
    save(figure, "own-writes")


def main():
    newest = max((ROOT / "benches/results").glob("*-run.jsonl"))
    results = Results(newest)
    OUT.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update({"font.size": 10, "svg.hashsalt": "pleg", "svg.fonttype": "none"})
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    for draw in [visible, idle, churn, own_writes]:
        draw(results)
    print(f"drawn from {newest.name}")


if __name__ == "__main__":
    main()
