#!/usr/bin/env python3
"""E3, RGB to grey: 0.2989 R + 0.5870 G + 0.1140 B on 200 photographs of STL-10, resized to 128x128, by plain loops, by
OpenMP and on the GPU. Writes E3.jsonl, E3.html, E3_times.png and E3_picture.png.
"""

import json
import pathlib

from record import Runs, Skipped, arguments_of, call, page, picture, program, pyplot, table, where

ROWS = ("naive", "openmp", "cuda")
ELSEWHERE = {"loops in Python": 205, "a CUDA kernel": 0.18}  # seconds, reported for the same task


def measure(row, picture_file, more):
    command = [program("benchmarks/grayscale"), "--backends", row, *more]
    output, _ = call([*command, "--picture", picture_file] if picture_file else command)
    if not output:
        raise Skipped(f"this build and machine have no backend {row}")
    return {"options": more, "device": "cuda" if row == "cuda" else "cpu", **json.loads(output)}


def draw(runs, path):
    figure, axis = pyplot().subplots(figsize=(7, 3.2), constrained_layout=True)
    names = [f"{run['row']}, {where(run)}" for run in runs]
    for shift, key, label in ((-0.2, "seconds", "alone"), (0.2, "seconds_with_copies", "with copies")):
        bars = axis.barh([place + shift for place in range(len(runs))], [1000 * run[key] for run in runs], 0.38,
                         label=label)
        axis.bar_label(bars, fmt="%.3g", fontsize=7, padding=2)
    axis.set_yticks(range(len(runs)), names, fontsize="small")
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.set_xlabel("ms for 200 photographs")
    axis.margins(x=0.15)
    axis.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def render(results):
    folder = results.folder
    newest = {run["row"]: run for run in results.runs()}
    runs = [newest[row] for row in ROWS if row in newest]
    draw(runs, folder / "E3_times.png")
    lines = [[run["row"], run["threads"] if run["device"] == "cpu" else "", f"{1000 * run['seconds']:.3f}",
              f"{1000 * run['seconds_with_copies']:.3f}", f"{run['max_difference']:.2g}", where(run), run["code"]]
             for run in runs]
    shown = folder / "E3_picture.png"
    text = page(
        "E3: RGB to grey",
        "<p>200 photographs of STL-10's test set, resized to 128x128, float32: medians. On the CPU nothing is copied; "
        "on the GPU copies are from ordinary memory to the device and back.</p>",
        table(["backend", "threads", "ms", "ms with copies", "largest difference from naive", "on", "code"], lines),
        results.skipped(ROWS),
        "<p>Reported elsewhere, on another machine: " +
        ", ".join(f"{seconds} s with {what}" for what, seconds in ELSEWHERE.items()) + ".</p>",
        picture(folder / "E3_times.png", "milliseconds by backend"),
        *(["<h2>Photographs and results</h2>", picture(shown, "photographs above, grey below")]
          if shown.exists() else []))
    (folder / "E3.html").write_text(text, encoding="utf-8")
    print(f"wrote {folder / 'E3.html'}")


def main():
    arguments, more = arguments_of(__doc__, ROWS)
    results = Runs("E3", pathlib.Path(arguments.out))
    if not arguments.render:
        results.folder.mkdir(parents=True, exist_ok=True)
        shown = None if arguments.record else str(results.folder / "E3_picture.png")
        for row in arguments.rows:
            results.record(row, lambda: measure(row, shown, more))
    if not arguments.record:
        render(results)


if __name__ == "__main__":
    main()
