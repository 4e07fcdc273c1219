#!/usr/bin/env python3
"""Makes docs/benchmarks.md, its plots and the table of the README from the newest results of `just bench` and
`just bench-real`.

  benchmarks.py [--results DIR] [--docs DIR] [--readme FILE] [--prune]

--prune deletes results files that are not the newest of their kind. Values are medians of the repetitions.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = {
    "runtime-alone": "runtime alone",
    "generic": "generic (1.36)",
    "hint": "hint (1.37)",
    "ours": "pleg",
}
COLOURS = {"runtime-alone": "#57ab5a", "generic": "#8c959f", "hint": "#bf8700", "ours": "#0969da"}


class Results:
    """The samples of the newest simulated run and of the newest run on real containerd."""

    def __init__(self, directory: Path, prune: bool):
        newest: dict[bool, tuple] = {}
        files = [(f, [json.loads(x) for x in f.read_text().splitlines()]) for f in directory.glob("*.jsonl")]
        for file, lines in files:
            key = (lines[0]["date"], file, lines)
            real = lines[0]["mode"].startswith("real")
            newest[real] = max(newest.get(real, key), key, key=lambda k: k[:2])
        chosen = [newest[real] for real in sorted(newest)]
        if prune:
            for file, _ in files:
                if file not in [c[1] for c in chosen]:
                    file.unlink()
        self.runs = [(file.name, lines[0], duration(lines)) for _, file, lines in chosen]
        self.samples = [x for _, _, lines in chosen for x in lines if x["line"] == "sample"]

    def values(self, figure, **where) -> list[float]:
        """The figure of the samples that have these values. `figure` is a metric, or a function of the metrics."""
        get = figure if callable(figure) else lambda metrics: metrics.get(figure)
        where.setdefault("daemon", None)
        chosen = [s for s in self.samples if all(s.get(k) == v for k, v in where.items())]
        return [v for v in (get(s["metrics"]) for s in chosen) if v is not None]

    def median(self, figure, **where) -> float | None:
        values = self.values(figure, **where)
        return statistics.median(values) if values else None

    def ratio(self, figure, of: str, to: str, **where) -> str:
        """The figure of one subject, divided by that of another."""
        one, other = (self.median(figure, subject=s, **where) for s in (of, to))
        return f"{number(one / other)} times" if one and other else "–"

    def worse(self, figure, unit, groups: list) -> str:
        """The groups in which pleg needs more than the generic PLEG, with both medians."""
        medians = [(label, *(self.median(figure, subject=s, **w) for s in ("ours", "generic"))) for label, w in groups]
        found = [f"{unit(o)} against {unit(g)} ({label})" for label, o, g in medians if o and g and o > g]
        return ", ".join(found) or "nowhere higher"

    def all(self, key: str, workload: str, simulated: bool = True) -> list:
        """All values that a key has in the samples of a workload."""
        chosen = [s for s in self.samples if s["workload"] == workload and simulated == ("daemon" not in s)]
        return sorted({s[key] for s in chosen})


def duration(lines: list) -> str:
    """The time from the start of a run to the end of its last measurement; empty if the file does not have it."""
    ends = [datetime.fromisoformat(x["ended"]) for x in lines if "ended" in x]
    return f", in {(max(ends) - datetime.fromisoformat(lines[0]['date'])).seconds:,} s" if ends else ""


def number(value: float) -> str:
    if value >= 1000:
        digits = 2 - math.floor(math.log10(value))
        return f"{round(value, digits):,.0f}"
    return f"{value:.3g}"


def time(nanos: float) -> str:
    for limit, factor, unit in [(1e3, 1, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms"), (math.inf, 1e9, "s")]:
        if abs(nanos) < limit * 0.9995:
            return f"{number(nanos / factor)} {unit}"
    return ""


def size(value: float) -> str:
    return f"{number(value)} B" if value < 1e5 else f"{number(value / 1e6)} MB"


def hourly(metric: str):
    return lambda metrics: metrics[metric] * 3600 / metrics["seconds"] if metric in metrics else None


def secondly(metric: str):
    return lambda metrics: metrics[metric] / metrics["seconds"] if metric in metrics else None


def kib(metric: str):
    return lambda metrics: metrics[metric] * 1024 if metric in metrics else None


# A group is a label and the fields and values that select its samples. A column is a title, a function that computes a
# figure from the metrics of a sample, and a function that formats the figure with its unit.


def cell(results: Results, figure, unit, where: dict) -> str:
    values = results.values(figure, **where)
    if not values:
        return "–"
    text = unit(statistics.median(values))
    if len(values) > 1 and max(values) > 1.1 * min(values):
        text += f" ({unit(min(values))} – {unit(max(values))})"
    return text


def table(results: Results, groups: list, columns: list) -> str:
    """A table with a row for each group and subject."""
    lines = ["| | subject | " + " | ".join(c[0] for c in columns) + " |", "| --- |" * 2 + " --- |" * len(columns)]
    lines[1] = lines[1].replace("||", "|")
    for label, where in groups:
        for subject, name in NAMES.items():
            cells = [cell(results, f, unit, {**where, "subject": subject}) for _, f, unit in columns]
            if any(c != "–" for c in cells):
                lines.append(f"| {label} | {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def svg(width: int, height: int, title: str, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    style = 'font-family="sans-serif" font-size="12" fill="#1f2328"'
    frame = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    heading = f'<text x="10" y="20" font-size="14">{title}</text>'
    return "\n".join([f"{head} {style}>", frame, heading, *parts, "</svg>"]) + "\n"


def bars(results: Results, title: str, unit, rows: list) -> str:
    """A plot with a bar for each row and subject, on a log scale. A row is a label, a figure and a selection."""
    bars, y = [], 36
    values = []
    for label, figure, where in rows:
        found = [(s, results.median(figure, **where, subject=s)) for s in NAMES]
        values.append((label, [(s, v) for s, v in found if v]))
    every = [v for _, found in values for _, v in found] or [1, 10]
    low = math.floor(math.log10(min(every)) - 0.3)
    scale = 430 / max(math.log10(max(every)) - low, 1)
    for label, found in values:
        bars.append(f'<text x="10" y="{y + 12}" font-weight="bold">{label}</text>')
        y += 18
        for subject, value in found:
            length = (math.log10(value) - low) * scale
            bars.append(f'<text x="10" y="{y + 12}">{NAMES[subject]}</text>')
            bars.append(f'<rect x="120" y="{y + 1}" width="{length:.1f}" height="14" fill="{COLOURS[subject]}"/>')
            bars.append(f'<text x="{125 + length:.1f}" y="{y + 12}">{unit(value)}</text>')
            y += 18
        y += 6
    return svg(640, y + 4, f"{title} (logarithmic)", bars)


def lines(results: Results, title: str, panels: list, figure, rates: list[float]) -> str:
    """A plot with a panel for each number of pods. A panel has a line for each subject, by the rate of new pods."""
    parts = []
    every = results.values(figure, workload="churn")
    top, fastest = max(every, default=1) * 1.05, max(rates, default=1)
    for n, pods in enumerate(panels):
        left = 60 + n * 310
        place = lambda rate, value, left=left: (left + rate / fastest * 240, 230 - value / top * 170)  # noqa: E731
        parts.append(f'<path d="M{left} 60V230H{left + 250}" fill="none" stroke="#8c959f"/>')
        parts.append(f'<text x="{left + 80}" y="50">{number(pods)} pods</text>')
        parts += [f'<text x="{place(r, 0)[0]:.0f}" y="246" text-anchor="middle">{number(r)}</text>' for r in rates]
        for nth in (0.5, 1):
            parts.append(f'<text x="{left - 5}" y="{234 - nth * 170:.0f}" text-anchor="end">{time(top * nth)}</text>')
        for subject in ("generic", "hint", "ours"):
            where = {"workload": "churn", "subject": subject, "pods": pods}
            found = [(r, results.median(figure, **where, pods_per_second=r)) for r in rates]
            points = " ".join("{:.1f},{:.1f}".format(*place(r, v)) for r, v in found if v is not None)
            parts.append(f'<polyline points="{points}" fill="none" stroke-width="2" stroke="{COLOURS[subject]}"/>')
    for nth, subject in enumerate(("generic", "hint", "ours")):
        x = 60 + nth * 130
        parts.append(f'<rect x="{x}" y="272" width="10" height="10" fill="{COLOURS[subject]}"/>')
        parts.append(f'<text x="{x + 15}" y="281">{NAMES[subject]}</text>')
    parts.append('<text x="60" y="263">pods that come and go per second</text>')
    return svg(80 + 310 * max(len(panels), 1), 292, title, parts)


def break_even(results: Results, pods: int, metric: str) -> str:
    """The rate of new pods above which this CPU time is less with the generic PLEG, by linear interpolation."""
    before = None
    for rate in results.all("pods_per_second", "churn"):
        where = {"workload": "churn", "pods": pods, "pods_per_second": rate}
        ours, generic = (results.median(secondly(metric), subject=s, **where) for s in ("ours", "generic"))
        more = ours - generic
        if more > 0:
            if before is None:
                return f"at every measured rate (from {number(rate)} pods/s)"
            (slower, less) = before
            return f"from about {number(slower + (rate - slower) * less / (less - more))} pods/s on"
        before = (rate, more)
    return f"at no measured rate (up to {number(before[0])} pods/s)" if before else "–"


PAGE = """# Benchmarks

Generated by `scripts/benchmarks.py` from {sources}; do not edit.

**pleg** is this project. **generic** and **hint** are ports to Rust of upstream's PLEGs of Kubernetes 1.36 and 1.37
(`crates/rivals`): both list the node every second; hint relists a pod at once when an event reports a death. The cost of
a Go program was not measured. **runtime alone** decodes events and drops them.

Each subject is a process with one thread, on a simulated runtime or on a containerd of its own. Values are medians; the
least and the largest value follow if they differ by more than a tenth.

## 1. What does an idle node cost?

CPU time, calls and wake-ups in an hour in which nothing happens, computed from {idle_seconds} s.

{idle}
![CPU time in an idle hour](images/benchmarks/idle.svg)

pleg lists once a minute and makes a status call every 15 seconds. Where it gains less: a real daemon does more than answer
calls, so its CPU time falls by less than that of pleg.

## 2. How soon does an observer see a death or a start?

Containers die and are replaced at a fixed rate; a consumer of lifecycle events reads the cache. On containerd, each
container exits after 1.5 seconds; the times are those of its status.

{changes}
![Time from a death or a start until an observer sees it](images/benchmarks/changes.svg)

pleg shows a death as soon as it has the event. Where it is worse: it reads the pod about 250 ms after other events, so an
observer sees a start later than a death. And it pays for every event. CPU time per event, against that with the generic
PLEG:

* its own: {event_worse}
* of the runtime: {runtime_worse}

Events that record everything cost less. Release 0.2 recorded starts and removals from events as well: any change was
visible after 80.5 µs (median, 1,000 pods, 100 events/s), with 179 µs of CPU time and half a call per event. Upstream's
evented PLEG (up to 1.36) does the same: 57 µs, and 120 calls in an idle hour (0.2: 360), but 127 containers were shown in a
wrong state afterwards.

## 3. How long does a pod worker wait until it sees its own change?

Workers restart their pods and read after every call to the runtime. The duration of a call is fixed.

{own_writes}
![Duration of a read after an own change](images/benchmarks/own-writes.svg)

Upstream reads one pod after the other, pleg several at a time. Where it gains little: with fast calls.

## 4. What do pods that come and go cost?

Pods are created, run for three seconds, and are removed. Use in a second; the calls that change the pods are included.

{churn}
![CPU time in a second by rate of pods](images/benchmarks/churn.svg)

pleg pays for each change, the ports for each pod of the node. Where it is worse: with many changes, CPU time is higher than
with the generic PLEG.

{break_even}

## 5. How long do a start and a storm take?

The time from the start of the process until the cache shows all pods; and, after all pods have died at once, until the cache
shows that.

{storm}
![Time until the cache shows all pods](images/benchmarks/storm.svg)

pleg needs no calls to show deaths. With fast calls, its start takes {start_ratio} as long as that of the
generic PLEG.

## 6. How much memory does a generator hold?

Allocated memory on a settled node, and that of each further pod; resident memory is that of the idle process.

{memory}
![Memory of each further pod](images/benchmarks/memory.svg)

pleg keeps no lists. Where it is worse than the generic PLEG: resident memory is {resident_worse}.

## How it is measured

* The simulated runtime encodes everything but states and times in advance, maps in random order. A list of one pod makes it
  visit every item of the node, as in real runtimes.
* Subjects are measured in turn, A B, B A, A B; on idle nodes and with pods that come and go, at the same time.
* An event that is sent late because the previous one was not read counts from when it was due. Changes between two lists,
  which a port misses, are *unseen*.
* The ports decode each row of a list in full, and have upstream's locks, queues and limits.
* On containerd, the CPU of the runtime is that of the daemon's process, without shims, runc and containers.

```console
$ just bench         # 25 minutes on two cores
$ just bench-real    # 20 minutes, as root on Linux
$ just bench-quick   # 4 minutes
```

The machine should do nothing else. The first two write a file of raw values into `benches/results` and make this page; the
last one makes a page in `target/bench-quick`.

{machines}
"""


def page(results: Results) -> tuple[str, dict[str, str], str]:
    """The page, its plots and the table of the README."""
    daemons = results.all("daemon", "idle", simulated=False)
    pods = {s["daemon"]: s["pods"] for s in results.samples if "daemon" in s}
    real = [(f"{d}, {pods[d]} pods", {"daemon": d}) for d in daemons]

    def sizes(workload: str) -> list:
        return [(f"{number(pods)} pods", {"pods": pods}) for pods in results.all("pods", workload)]

    def of(workload: str, groups: list) -> list:
        return [(label, {**where, "workload": workload}) for label, where in groups]

    def text(rate: int) -> str:
        return f"{number(rate)} events/s"

    idle = of("idle", sizes("idle") + real)
    rates = [(text(r), {"rate": r}) for r in results.all("rate", "changes")]
    changes = of("changes", rates + real)
    keys = {(s["call_ms"], s["workers"]) for s in results.samples if s["workload"] == "own-writes" and "daemon" not in s}
    worker = lambda n: f"{n} worker{'s' if n > 1 else ''}"  # noqa: E731
    own = [(f"{worker(n)}, {ms} ms per call", {"workers": n, "call_ms": ms}) for ms, n in sorted(keys)]
    own_writes = of("own-writes", own + real)
    churn_sizes, churn_rates = results.all("pods", "churn"), results.all("pods_per_second", "churn")
    churn = of("churn", [
        (f"{number(pods)} pods, {number(rate)} pods/s", {"pods": pods, "pods_per_second": rate})
        for pods in churn_sizes for rate in churn_rates
    ])
    storm = of("storm", [(f"{ms} ms per call", {"call_ms": ms}) for ms in results.all("call_ms", "storm")] + real)
    memory = of("memory", sizes("memory")) + [(f"{label}, process", where) for label, where in idle]
    cpu = [("CPU", "cpu", time), ("CPU of the runtime", "runtime_cpu", time), ("calls", "calls", number)]
    tables = {
        "idle": table(results, idle, [(t, hourly(m), u) for t, m, u in cpu] + [("wake-ups", hourly("woken"), number)]),
        "changes": table(results, changes, [
            (f"{what}, {part}", f"{what}_{part}", time) for what in ("death", "start") for part in ("p50", "p99")
        ] + [("deaths unseen", "death_unseen", number), ("starts unseen", "start_unseen", number),
             ("CPU per event", "cpu_per_event", time), ("CPU of the runtime per event", "runtime_cpu_per_event", time)]),
        "own_writes": table(results, own_writes, [
            ("read, p50", "read_p50", time), ("read, p99", "read_p99", time), ("calls per read", "calls_per_read", number),
            ("CPU per read, with its write", "cpu_per_read", time),
            ("CPU of the runtime", "runtime_cpu_per_read", time)]),
        "churn": table(results, churn, [(t, secondly(m), u) for t, m, u in cpu]),
        "storm": table(results, storm, [
            ("start until synced", "synced", time), ("storm until shown", "shown", time),
            ("CPU in the storm", "cpu", time), ("calls in the storm", "calls", number)]),
        "memory": table(results, memory, [
            ("allocated", "held", size), ("for each further pod", "held_per_pod", size),
            ("resident", kib("resident_kib"), size)]),
    }
    plots = {
        "idle": bars(results, "CPU time in an idle hour", time, [(label, hourly("cpu"), w) for label, w in idle]),
        "changes": bars(results, "From a change until an observer sees it: median", time, [
            (f"{what}, {label}", f"{what}_p50", w) for label, w in changes for what in ("death", "start")]),
        "own-writes": bars(results, "Read after an own change: median", time, [
            (label, "read_p50", w) for label, w in own_writes]),
        "churn": lines(results, "CPU time in a second", churn_sizes, secondly("cpu"), churn_rates),
        "storm": bars(results, "Until the cache shows all pods", time, [
            (f"{what}, {label}", metric, w)
            for label, w in storm for what, metric in (("start", "synced"), ("storm", "shown"))]),
        "memory": bars(results, "Memory of each further pod", size, [
            (label, "held_per_pod", w) for label, w in of("memory", sizes("memory"))]),
    }
    machines = [
        "* `{file}`: {cpu}, {cores} threads, {memory_mib} MiB, Linux {kernel}; {date}{took}; {libraries}.".format(
            file=file, took=took, **m, libraries=", ".join(f"{k} {v}" for k, v in sorted(m["versions"].items())))
        for file, m, took in results.runs
    ]
    loads = [s["load"] for s in results.samples]
    machines.append(f"* Load average before each measurement: {statistics.median(loads):.1f} (median), {max(loads):.1f} (most).")
    sources = " and ".join(f"`{file}` (mode {m['mode']}, {m['date'][:10]})" for file, m, _ in results.runs)
    seconds = sorted({s["metrics"]["seconds"] for s in results.samples if s["workload"] == "idle"})
    first = {"workload": "changes", "rate": results.all("rate", "changes")[0]}
    calls = {"workload": "storm", "call_ms": results.all("call_ms", "storm")[0]}
    out = PAGE.format(
        sources=sources, machines="\n".join(machines), **tables,
        idle_seconds=" or ".join(number(s) for s in seconds),
        event_worse=results.worse("cpu_per_event", time, changes),
        runtime_worse=results.worse("runtime_cpu_per_event", time, changes),
        resident_worse=results.worse(kib("resident_kib"), size, idle),
        start_ratio=results.ratio("synced", "ours", "generic", **calls),
        break_even="\n".join(
            f"* {number(p)} pods: its own {break_even(results, p, 'cpu')},"
            f" that of the runtime {break_even(results, p, 'runtime_cpu')}."
            for p in churn_sizes),
    )
    large = {"workload": "idle", "pods": results.all("pods", "idle")[-1]}
    many = max(keys, key=lambda k: (k == (5, 10), k))
    rows = [
        ("an idle hour: CPU", hourly("cpu"), time, large),
        ("calls in that hour", hourly("calls"), number, large),
        ("a death until seen", "death_p50", time, first),
        ("a start until seen", "start_p50", time, first),
        ("CPU time per event", "cpu_per_event", time, first),
        (f"a worker's read after its own change ({worker(many[1])})", "read_p50", time,
         {"workload": "own-writes", "call_ms": many[0], "workers": many[1]}),
        ("memory per pod", "held_per_pod", size, {"workload": "memory"}),
    ]
    readme = ["| | generic PLEG (1.36) | hint PLEG (1.37) | this project |", "| --- | --- | --- | --- |"]
    for title, figure, unit, where in rows:
        medians = [results.median(figure, subject=s, **where) for s in ("generic", "hint", "ours")]
        readme.append(f"| {title} | " + " | ".join("–" if m is None else unit(m) for m in medians) + " |")
    return out, plots, "\n".join(readme)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, default=ROOT / "benches/results")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--prune", action="store_true")
    args = parser.parse_args()
    out, plots, table_of_readme = page(Results(args.results, args.prune))
    images = args.docs / "images/benchmarks"
    images.mkdir(parents=True, exist_ok=True)
    (args.docs / "benchmarks.md").write_text(out)
    for name, plot in plots.items():
        (images / f"{name}.svg").write_text(plot)
    before, _, rest = args.readme.read_text().partition("<!-- benchmarks -->\n")
    _, _, after = rest.partition("<!-- end -->")
    args.readme.write_text(f"{before}<!-- benchmarks -->\n{table_of_readme}\n<!-- end -->{after}")


if __name__ == "__main__":
    main()
