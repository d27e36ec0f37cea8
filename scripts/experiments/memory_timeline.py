"""The memory of one training step over its time, from what benchmarks/memory --timeline writes: a picture and a page.

usage: memory_timeline.py TIMELINE.jsonl --out DIR     writes memory.png and memory.html
"""

import argparse
import json
import pathlib

from record import page, picture, pyplot, table

COLOURS = {"parameters": "tab:gray", "optimizer state": "tab:brown", "inputs": "tab:olive", "gradients": "tab:orange",
           "activations": "tab:blue", "recomputed": "tab:purple",
           "backward": "tab:cyan", "optimizer": "tab:pink", "workspace": "tab:red"}
MIB = 1 << 20


def read(path):
    """What the report says, and the pieces of memory."""
    with open(path, encoding="utf-8") as file:
        report, *spans = map(json.loads, file)
    return report, spans


def by_kind(report, spans):
    """For each kind the bytes that live at the times 0 to the end."""
    length = report["end"] + 1
    lives = {}
    for kind in COLOURS:
        change = [0] * (length + 1)
        for span in spans:
            if span["kind"] == kind:
                change[span["begin"]] += span["bytes"]
                change[span["end"]] -= span["bytes"]
        total, levels = 0, []
        for bytes_more in change[:length]:
            total += bytes_more
            levels.append(total)
        if any(levels):
            lives[kind] = levels
    return lives


def place_of(span):
    if span["kind"] == "gradients":
        return f"of {span['op']}"
    return " ".join(part for part in (span["module"], span["op"]) if part) or span["kind"]


def draw(report, spans, path, title="", largest=24):
    """Above, what lives at each time; below, the largest pieces, from when to when."""
    lives = by_kind(report, spans)
    temporary = [span for span in spans if not (span["begin"] == 0 and span["end"] == report["end"])]
    rows = sorted(sorted(temporary, key=lambda span: -span["bytes"])[:largest], key=lambda span: -span["begin"])
    figure, (above, below) = pyplot().subplots(2, 1, figsize=(10, 8), sharex=True, constrained_layout=True)
    above.stackplot(range(report["end"] + 1), [[level / MIB for level in levels] for levels in lives.values()],
                    labels=lives, colors=[COLOURS[kind] for kind in lives], step="post", linewidth=0)
    above.axhline(report["peak"] / MIB, color="black", linewidth=0.7, linestyle=":")
    above.set_ylabel("MiB")
    above.set_title(f"{title}peak {report['peak']:,} bytes")
    above.legend(loc="upper left", fontsize="small")
    for row, span in enumerate(rows):
        below.barh(row, span["end"] - span["begin"], left=span["begin"], height=0.8, color=COLOURS[span["kind"]])
    below.set_yticks(range(len(rows)), [f"{place_of(span)}, {span['bytes'] / MIB:.3g} MiB" for span in rows],
                     fontsize="x-small")
    below.set_xlabel("time: what is taken and given back, counted")
    for axis in (above, below):
        for time in (report["backward_begin"], report["step_begin"]):
            axis.axvline(time, color="black", linewidth=0.7)
    below.text(report["backward_begin"], len(rows) - 0.4, " backward", fontsize="x-small")
    below.text(report["step_begin"], len(rows) - 0.4, " optimizer", fontsize="x-small")
    figure.savefig(path, dpi=100)
    pyplot().close(figure)


def sums(report):
    """The table of a report."""
    keys = ("parameters", "buffers", "gradients", "state", "inputs", "activations", "workspace", "peak", "arena",
            "lower_bound", "static_peak")
    return table(["", "bytes"], [[key.replace("_", " "), f"{report[key]:,}"] for key in keys])


def pieces(report, spans, most=60):
    """The largest pieces that do not live all the time."""
    temporary = [span for span in spans if not (span["begin"] == 0 and span["end"] == report["end"])]
    lines = [[place_of(span), span["kind"], f"{span['bytes']:,}", span["begin"], span["end"],
              "yes" if span["begin"] <= report["peak_time"] < span["end"] else ""]
             for span in sorted(temporary, key=lambda span: -span["bytes"])[:most]]
    return table(["module and operator", "kind", "bytes", "from", "to", "at the peak"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("timeline")
    parser.add_argument("--out", required=True, help="folder for memory.png and memory.html")
    arguments = parser.parse_args()
    report, spans = read(arguments.timeline)
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    what = f"{report['net']}, {report['batch']}, {report['optimizer']}: "
    draw(report, spans, out / "memory.png", what)
    recomputed = f"<p>Recomputed: {report['recomputed']}</p>" if report["recomputed"] else ""
    (out / "memory.html").write_text(
        page(f"Memory of a step of {report['net']}", sums(report), recomputed,
             picture(out / "memory.png", "what lives when"), "<h2>The largest pieces</h2>", pieces(report, spans)),
        encoding="utf-8")
    print(f"wrote {out / 'memory.png'} and {out / 'memory.html'}")


if __name__ == "__main__":
    main()
