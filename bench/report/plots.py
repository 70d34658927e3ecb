"""Plots of a run, drawn by gnuplot as SVG: each once for a light page and once for a dark one.

Points are medians over the rounds, bars reach from the lowest round to the highest. Sizes and what grows with them are on
logarithmic axes; what may be compared by length begins at nothing.
"""

import re
import subprocess
from os import path

from figures import KINDS

# The first is hawser, whatever it is compared with. Told apart without colours by the form of their points too.
THEMES = {
    "light": {"paper": "#ffffff", "ink": "#1d2126", "grid": "#d5dae0",
              "sides": ("#0a5fc2", "#c4500a", "#1a7f4b", "#8a3ba8", "#7a6a00", "#b0194f", "#4d5560")},
    "dark": {"paper": "#171a1f", "ink": "#e4e7eb", "grid": "#3a4048",
             "sides": ("#6cb0ff", "#ff9d5c", "#5ad496", "#d79bf0", "#dccb55", "#ff86ae", "#aab4c0")},
}
POINTS = (7, 9, 5, 13, 11, 15, 6)
SIZE = 720, 440

LABELS = {
    "hawser": "hawser", "usnic": "hawser usnic", "smcuda": "hawser smcuda", "stock": "the host's own", "stock again": "the host's own again",
    "tcp": "the host's tcp", "rxd": "the host's udp;ofi_rxd", "udp": "bare UDP", "vader": "the host's vader",
    "sm": "the host's sm", "plain": "hawser usnic, unprotected",
}
CASES = {
    "send": "Irecv, Send, Wait", "waitall": "Irecv, Isend, Waitall", "poll": "Test, nothing", "iprobe": "Iprobe, nothing",
}


def label(side):
    return LABELS.get(side, side)


def size_text(size):
    for unit, word in ((1 << 20, " MiB"), (1 << 10, " KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{word}"
    return f"{size} B"


def short_size(size):
    return size_text(size).replace(" KiB", "K").replace(" MiB", "M").replace(" B", "")


def quoted(text):
    """A text for gnuplot, which reads nothing else in it."""
    return "'" + re.sub(r"[\x00-\x1f]", " ", text).replace("'", "''") + "'"


class Plot:
    """Sides over an axis. `points[side]` are (x, median, lowest, highest)."""

    def __init__(self, name, title, notes, across, up, points, *, ticks=None, doubling=False, log=False, lines=True):
        self.name = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        self.title = title
        self.notes = notes
        self.across = across
        self.up = up
        self.points = points
        self.ticks = ticks  # (x, text)
        self.doubling = doubling
        self.log = log
        self.lines = lines

    def file(self, theme):
        return f"{self.name}{'' if theme == 'light' else '-' + theme}.svg"

    def largest(self):
        return max((point[1] for points in self.points.values() for point in points), default=0)

    def script(self, theme, folder):
        """What gnuplot is to do."""
        colour = THEMES[theme]
        ink = f"textcolor rgb '{colour['ink']}'"
        lines = [
            f"set terminal svg size {SIZE[0]},{SIZE[1]} dynamic font 'DejaVu Sans,sans-serif,14' background rgb '{colour['paper']}'",
            f"set output {quoted(path.join(folder, self.file(theme)))}",
            "set tmargin 5.5",
            f"set label 1 {quoted(self.title)} at screen 0.5,0.94 center noenhanced {ink} font ',17'",
            *(f"set label {2 + row} {quoted(text)} at screen 0.5,{0.89 - 0.033 * row:.3f} center noenhanced {ink} font ',11'"
              for row, text in enumerate(self.notes)),
            f"set xlabel {quoted(self.across)} noenhanced {ink} offset 0,0.4",
            f"set ylabel {quoted(self.up)} noenhanced {ink}",
            f"set border 3 linecolor rgb '{colour['ink']}'",
            f"set tics nomirror {ink}",
            f"set grid linecolor rgb '{colour['grid']}' linetype 1",
            f"set key outside bottom center horizontal noenhanced {ink}",
            f"set format y '{'%.0s%c' if self.log and self.largest() >= 1e5 else '%.10g'}'",
        ]
        if not self.lines:
            lines.append("set style fill solid 0.45")
        if self.doubling:
            lines.append("set logscale x 2")
        lines.append("set logscale y 10" if self.log else "set yrange [0:*]")
        positions = [point[0] for points in self.points.values() for point in points] or [1]
        if self.ticks:
            lines.append("set xtics (" + ", ".join(f"{quoted(text.replace('%', '%%'))} {at:g}" for at, text in self.ticks) + ") noenhanced")
        if self.doubling:
            lines.append(f"set xrange [{min(positions) / 1.5:g}:{max(positions) * 1.5:g}]")
        elif self.ticks:
            lines.append(f"set xrange [{min(at for at, _ in self.ticks) - 0.6:g}:{max(at for at, _ in self.ticks) + 0.6:g}]")
        drawn = []
        how = "yerrorlines" if self.lines else "yerrorbars" if self.log else "boxerrorbars"
        for number, (side, points) in enumerate(self.points.items()):
            lines.append(f"$side{number} << END")
            lines += [" ".join(f"{value:.6g}" for value in point) for point in points]
            lines.append("END")
            look = f"linecolor rgb '{colour['sides'][number % 7]}' linewidth {2.5 if number == 0 else 1.6}"
            if how != "boxerrorbars":
                look += f" pointtype {POINTS[number % 7]} pointsize 0.7"
            # Of four columns it would take the third and fourth for the length of a bar and the width of a box.
            columns = "1:2:3:4:(0.12)" if how == "boxerrorbars" else "1:2:3:4"
            drawn.append(f"$side{number} using {columns} with {how} {look} title {quoted(label(side))}")
        lines.append("plot " + ", ".join(drawn))
        return "\n".join(lines) + "\n"


def points_of(measured, across):
    """[side]: a point for each measurement, at `across` of it."""
    points = {}
    for one in measured:
        for side in one.sides():
            figure = one.figure(side)
            points.setdefault(side, []).append((across(one), figure["median"], figure["lowest"], figure["highest"]))
    return points


def beside(measured, text):
    """The same for things that have no order: points side by side over a text for each, and the texts."""
    texts = list(dict.fromkeys(text(one) for one in measured))
    # The candidates of several transports are all hawser, and have the first place and colour.
    first = {one.candidate for one in measured}
    points = {}
    for one in measured:
        at, here = texts.index(text(one)) + 1, one.sides()
        for number, side in enumerate(here):
            figure = one.figure(side)
            offset = (number - (len(here) - 1) / 2) * 0.14
            points.setdefault("hawser" if side in first else side, []).append(
                (at + offset, figure["median"], figure["lowest"], figure["highest"]))
    return dict(sorted(points.items(), key=lambda item: item[0] != "hawser")), list(enumerate(texts, 1))


def over_text(one):
    return one.where["over"] if one.where["transport"] != "btl smcuda" else "shared memory"


def plots_of(run, host):
    """All plots of a host: [(heading, [plot])]."""
    notes = run.headers[host]
    found = []
    places = dict.fromkeys((one.where["transport"], one.where["over"]) for one in run.of(host=host))
    for transport, over in places:
        row = []
        here = {"host": host, "transport": transport, "over": over}
        for kind in ("latency", "bandwidth"):
            measured = run.of(kind=kind, **here)
            if measured:
                sizes = sorted({one.where["bytes"] for one in measured})
                row.append(Plot(
                    f"{host} {transport} {over} {kind}", f"{host}, {transport} over {over_text(measured[0])}: {kind}", notes,
                    "bytes of a message", f"{KINDS[kind].title.lower()}, {KINDS[kind].unit}",
                    points_of(measured, lambda one: one.where["bytes"]), doubling=True, log=True,
                    ticks=[(size, short_size(size)) for size in sizes[::max(1, len(sizes) // 12 + (len(sizes) > 12))]]))
        for size in sorted({one.where["bytes"] for one in run.of(kind="goodput", **here)}):
            measured = run.of(kind="goodput", bytes=size, **here)
            row.append(Plot(
                f"{host} {transport} {over} goodput {size}", f"{host}, {transport} over {over}: goodput of {size_text(size)}", notes,
                "packets lost, %", "goodput one way, MB/s", points_of(measured, lambda one: one.where["loss"]),
                ticks=[(loss, f"{loss} %") for loss in sorted({one.where["loss"] for one in measured})]))
        stalls = run.of(kind="stall", **here)
        if stalls:
            points, ticks = beside(stalls, lambda one: f"{one.where['case']}, {one.where['loss']:g} %")
            row.append(Plot(f"{host} {transport} {over} stall", f"{host}, {transport} over {over}: a receiver that computes", notes,
                            "how long it computes, of which messages, packets lost", "after its return, µs", points, ticks=ticks,
                            log=True, lines=False))
        if row:
            found.append((f"{transport} over {over_text(run.of(**here)[0])}", row))
    rates = run.of(host=host, kind="rate")
    together = []
    if rates:
        points, ticks = beside(rates, lambda one: f"{one.where['transport'].split()[-1]} {one.where['over']}")
        together.append(Plot(f"{host} rate", f"{host}: messages of {size_text(rates[0].where['bytes'])} a second", notes, "transport",
                             "messages a second", points, ticks=ticks, log=True, lines=False))
    counted = run.of(host=host, kind="instructions")
    if counted:
        points, ticks = beside(counted, lambda one: CASES.get(one.where["case"], one.where["case"]))
        together.append(Plot(f"{host} instructions", f"{host}, mtl ofi over {counted[0].where['over']}: instructions of a message", notes,
                             "calls for a message of 8 bytes to itself", "instructions of the component", points, ticks=ticks, lines=False))
    starts = run.of(host=host, kind="start")
    if starts:
        points, ticks = beside(starts, lambda one: f"{one.where['ranks']} rank{'s' * (one.where['ranks'] > 1)}")
        together.append(Plot(f"{host} start", f"{host}: a job that begins, meets and ends", notes, "ranks of the job",
                             "mpirun, from begin to end, ms", points, ticks=ticks, lines=False))
    if together:
        found.insert(0, ("all transports", together))
    return found


def draw(plots, folder, gnuplot="gnuplot"):
    """Draws all; returns what went wrong, by the name of the plot: all of them where gnuplot is missing."""
    scripts = {plot.name: "".join("reset session\n" + plot.script(theme, folder) + "unset output\n" for theme in THEMES)
               for plot in plots}
    try:
        if not ended(gnuplot, "".join(scripts.values())):
            return {}
        # Which of them it is: gnuplot stops at the first.
        told = {name: ended(gnuplot, script) for name, script in scripts.items()}
    except FileNotFoundError:
        return {plot.name: f"{gnuplot} is missing: tests/setup.sh bench installs it" for plot in plots}
    return {name: text for name, text in told.items() if text}


def ended(gnuplot, script):
    """Runs a script; the last line of what gnuplot complains of, or nothing."""
    done = subprocess.run([gnuplot], input=script, capture_output=True, text=True, check=False)
    said = done.stderr.strip()
    return said.splitlines()[-1].strip() if said else f"{gnuplot} ends with {done.returncode}" * (done.returncode != 0)
