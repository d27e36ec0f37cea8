#!/usr/bin/env python3
"""Draws one training step of a trace.json (--profile of the examples, Profiler::save_trace): what each thread did when.

usage: timeline.py TRACE OUT.png [--step N]      N counts from the end: 1, the default, is the last whole step
"""

import argparse
import json

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

COLOURS = {"forward": "tab:blue", "backward": "tab:orange", "all_reduce": "tab:green", "optimizer": "tab:gray"}


def kind_of(event):
    if event["name"] in ("all_reduce", "broadcast"):
        return "all_reduce"
    if event["name"].endswith("_step") or event["name"] in ("Adam", "SGD"):
        return "optimizer"
    return event["args"]["pass"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("out")
    parser.add_argument("--step", type=int, default=1)
    settings = parser.parse_args()
    events = [e for e in json.load(open(settings.trace, encoding="utf-8"))["traceEvents"] if e["ph"] == "X"]
    main_thread = next(e["tid"] for e in events if e["args"]["pass"] == "backward")
    steps = sorted(e["ts"] for e in events if e["tid"] == main_thread and kind_of(e) == "optimizer" and
                   e["cat"] == "kernel")
    ends = [a for a, b in zip(steps, steps[1:] + [float("inf")]) if b - a > 1000]  # the last kernel of each step
    begin, end = ends[-settings.step - 1], ends[-settings.step]
    rows = {"computing": main_thread}
    rows |= {"communicating": e["tid"] for e in events if e["name"] == "all_reduce" and e["tid"] != main_thread}
    figure, axes = pyplot.subplots(figsize=(10, 1.8), dpi=100)
    for row, (label, thread) in enumerate(rows.items()):
        for event in events:
            if event["tid"] != thread or not begin < event["ts"] <= end or event["dur"] < 5:
                continue
            if (event["cat"] == "kernel") == (thread != main_thread):
                continue  # of the computing thread the kernels, of the other one the collectives
            axes.barh(row, event["dur"] / 1000, left=(event["ts"] - begin) / 1000, height=0.6, linewidth=0.3,
                      edgecolor="white", color=COLOURS[kind_of(event)])
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_xlabel("ms of one step")
    axes.legend([pyplot.Rectangle((0, 0), 1, 1, color=colour) for colour in COLOURS.values()], COLOURS, ncols=4,
                loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
    figure.savefig(settings.out, bbox_inches="tight")


if __name__ == "__main__":
    main()
