#!/usr/bin/env python3
"""Draws the curves of training runs.

usage: scripts/report.py [RUN ...] [--out DIR]

A RUN is a folder with a log.jsonl (default: runs/mnist), or such a file. Writes curves.png and report.html, which holds
the picture and the last line of each run, to DIR (default: the folder of the first run). Needs matplotlib.
"""

import argparse
import base64
import html
import json
import os
import pathlib
import sys

KEYS = ("epoch", "train_loss", "test_loss", "train_accuracy", "test_accuracy")


def read_run(name):
    """The epochs of a run: a list of dictionaries with at least KEYS."""
    path = pathlib.Path(name)
    if path.is_dir():
        path = path / "log.jsonl"
    epochs = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                epoch = json.loads(line)
                epochs.append({**epoch, **{key: float(epoch[key]) for key in KEYS}})
            except (ValueError, TypeError, KeyError) as error:
                raise SystemExit(f"report: {path}:{number} is no line of a training log: {error!r}")
    if not epochs:
        raise SystemExit(f"report: {path} has no epochs yet")
    return path.parent, epochs


def draw(runs, path):
    """Loss and accuracy over the epochs; training dashed, test solid, one colour a run."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    for number, (folder, epochs) in enumerate(runs):
        x = [epoch["epoch"] for epoch in epochs]
        for axis, what, scale in ((axes[0], "loss", 1), (axes[1], "accuracy", 100)):
            for part, style in (("train", "--"), ("test", "-")):
                y = [scale * epoch[f"{part}_{what}"] for epoch in epochs]
                label = part if len(runs) == 1 else f"{folder.name} {part}"
                axis.plot(x, y, style, marker="o", markersize=3, color=f"C{number % 10}", label=label)
    axes[0].set_ylabel("loss")
    axes[1].set_ylabel("accuracy, %")
    for axis in axes:
        axis.set_xlabel("epoch")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=120)


def describe(runs, picture):
    """A page that needs no other file."""

    def cell(value):
        if isinstance(value, list):
            return "<td>" + " ".join(f"{number:.4g}" for number in value) + "</td>"
        return f"<td>{html.escape(value if isinstance(value, str) else f'{value:.4g}')}</td>"

    keys = [key for key in runs[0][1][-1] if all(key in epochs[-1] for _, epochs in runs)]
    head = "".join(f"<th>{html.escape(key)}</th>" for key in keys)
    rows = "\n".join(
        f"<tr><td>{html.escape(str(folder))}</td>{''.join(cell(epochs[-1][key]) for key in keys)}</tr>"
        for folder, epochs in runs
    )
    image = base64.b64encode(picture.read_bytes()).decode()
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>gradus: training runs</title>
<style>
body {{ font-family: sans-serif; margin: 2em; }}
table {{ border-collapse: collapse; font-size: 0.8em; }}
td, th {{ border: 1px solid #ccc; padding: 0.3em 0.6em; text-align: right; }}
img {{ max-width: 100%; }}
</style></head><body>
<h1>Training runs</h1>
<p><img alt="loss and accuracy by epoch" src="data:image/png;base64,{image}"></p>
<h2>Last epoch of each run</h2>
<table><tr><th>run</th>{head}</tr>
{rows}
</table></body></html>
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", default=["runs/mnist"], metavar="RUN")
    parser.add_argument("--out", help="folder for curves.png and report.html")
    arguments = parser.parse_args()
    try:
        runs = [read_run(name) for name in arguments.runs]
        out = pathlib.Path(arguments.out or runs[0][0])
        os.makedirs(out, exist_ok=True)
        draw(runs, out / "curves.png")
        (out / "report.html").write_text(describe(runs, out / "curves.png"), encoding="utf-8")
    except ImportError as error:
        raise SystemExit(f"report: the plot needs matplotlib ({error}); install python3-matplotlib with apt or "
                         "matplotlib with pip")
    except OSError as error:
        raise SystemExit(f"report: {error}")
    print(f"wrote {out / 'curves.png'} and {out / 'report.html'}")


if __name__ == "__main__":
    main()
