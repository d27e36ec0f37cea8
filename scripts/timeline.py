#!/usr/bin/env python3
"""Draws one training step of a trace.json (--profile of the examples, Profiler::save_trace): what each thread did when.

usage: timeline.py TRACE OUT.png [--step N]      N counts from the end: 1, the default, is the last whole step
"""

import argparse
import json

COLOURS = {"forward": "tab:blue", "backward": "tab:orange", "all_reduce": "tab:green", "optimizer": "tab:gray"}


def kind_of(event):
    if event["name"] in ("all_reduce", "broadcast"):
        return "all_reduce"
    return "optimizer" if event["name"].endswith("_step") else event["args"]["pass"]


def bars_of(events, step=1):
    """(row, milliseconds from the step's begin, milliseconds, kind) for each kernel of the thread that computes and
    each collective of the one that communicates, and the length of the step; times in the trace are microseconds."""
    events = [event for event in events if event["ph"] == "X"]
    computing = next(event["tid"] for event in events if event["args"]["pass"] == "backward")
    # A step ends with the last of the optimizer's kernels that follow each other.
    updates = sorted(event["ts"] + event["dur"] for event in events if event["tid"] == computing and
                     event["cat"] == "kernel" and kind_of(event) == "optimizer")
    backward = sorted(event["ts"] for event in events if event["tid"] == computing and kind_of(event) == "backward")
    ends = [end for end, following in zip(updates, updates[1:] + [float("inf")])
            if following == float("inf") or any(end < time < following for time in backward)]
    begin, end = ends[-step - 1], ends[-step]
    bars = []
    for event in events:
        communicates = event["tid"] != computing
        if not begin <= event["ts"] < end or (event["cat"] == "kernel") == communicates:
            continue
        if communicates and kind_of(event) != "all_reduce":
            continue
        row = "communicating" if communicates else "computing"
        bars.append((row, (event["ts"] - begin) / 1000, event["dur"] / 1000, kind_of(event)))
    return bars, (end - begin) / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("out")
    parser.add_argument("--step", type=int, default=1)
    settings = parser.parse_args()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with open(settings.trace, encoding="utf-8") as file:
        bars, length = bars_of(json.load(file)["traceEvents"], settings.step)
    rows = sorted({row for row, *_ in bars}, reverse=True)
    figure, axes = pyplot.subplots(figsize=(10, 1.8), dpi=100)
    for row, begin, duration, kind in bars:
        axes.barh(rows.index(row), duration, left=begin, height=0.6, linewidth=0.3, edgecolor="white",
                  color=COLOURS[kind])
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_xlim(0, length)
    axes.set_xlabel("ms of one step")
    axes.legend([pyplot.Rectangle((0, 0), 1, 1, color=colour) for colour in COLOURS.values()], COLOURS, ncols=4,
                loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
    figure.savefig(settings.out, bbox_inches="tight")


if __name__ == "__main__":
    main()
