"""What the scripts of bench/ have written: logs of runs, one line for each figure.

A log begins with lines after a `#`: versions, the machine, the time. A line `run` says what ran, and what follows
belongs to it until the next. What a line is, its first word says; the others are NAME=VALUE. Lines that begin with
another word are a program's own, and passed over.

A log that is not whole is refused: a line that does not end or lacks a value, a run without its last line. So is one
whose messages arrived wrong.
"""

import math
import statistics
from collections import defaultdict

# Medians closer to 1 than this count as even.
EVEN = 0.01
# Fewer rounds than this settle nothing, even when they agree: two equal sides do that by chance.
SETTLES = 5


class Refused(Exception):
    """A log of which nothing is shown, and why."""


class Metric:
    """A figure of the ping-pong: how its lines name it, and which way is better."""

    def __init__(self, kind, title, typical, best, lower_is_better):
        self.kind = kind
        self.title = title
        self.typical = typical
        self.best = best
        self.lower_is_better = lower_is_better

    def ratio(self, candidate, baseline):
        return candidate / baseline if self.lower_is_better else baseline / candidate


METRICS = [
    Metric("latency", "half a round trip, microseconds", "median_us", "min_us", True),
    Metric("bandwidth", "one way, MB/s", "median_mb_s", "max_mb_s", False),
    Metric("rate", "messages a second", "median_msg_s", "max_msg_s", False),
]


def measured(text):
    """A figure: all of them are more than nothing."""
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{text} is no measurement")
    return value


def nested(depth):
    return defaultdict(lambda: nested(depth - 1)) if depth else {}


class Log:
    """What one of the scripts has written."""

    def __init__(self, path):
        self.path = path
        self.header = []
        self.candidate = None  # which variant that was
        self.load = 0.0  # highest load average that a run found
        self.figures = nested(3)  # [host, over][kind, size, key][round][side]
        self.resends = nested(2)  # [host, over][size]: pairs of segments and resends
        self.goodput = nested(4)  # [host, over][side][size][loss][round]
        self.stalls = nested(4)  # [host, over][ms, loss][side][round]: median and 90th percentile
        self.starts = nested(3)  # [host][ranks][side][round]: milliseconds
        self.instructions = nested(3)  # [host, over][case][variant]: of the component, of its TLS, of all
        self.run = None
        self.begun = None  # the line of a run whose last line has not come
        try:
            lines = open(path, encoding="utf-8", errors="replace")
        except OSError as error:
            raise Refused(f"{path}: {error.strerror}") from error
        number = 0
        with lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith("\n"):
                    raise Refused(f"{path}, line {number}: the log is torn: the line does not end")
                if line.startswith("#"):
                    self.header.append(line[1:].strip())
                elif line.split():
                    self.take(number, *line.split())
        self.whole(number + 1)
        if not (self.figures or self.goodput or self.stalls or self.starts or self.instructions):
            raise Refused(f"{path}: the log has no figures")

    def whole(self, number):
        if self.begun:
            raise Refused(f"{self.path}, line {number}: the log is torn: the run of line {self.begun} has no end")

    def take(self, number, kind, *words):
        values = dict(word.split("=", 1) for word in words if "=" in word)
        try:
            if kind == "run":
                self.whole(number)
                self.begun = number
                self.enter(values)
            elif kind == "check":
                self.begun = None
                if int(values["wrong"]):
                    raise Refused(f"{self.path}, line {number}: wrong payload in {self.run}")
            elif kind == "start":
                sides = self.starts[values["host"]][int(values["ranks"])]
                sides.setdefault(values["side"], {})[int(values["round"])] = measured(values["us"]) / 1000
            elif kind == "instructions":
                row = self.instructions[values["host"], values["over"]][values["case"]]
                row[values["variant"]] = [float(values[part]) for part in ("component", "tls", "all")]
            elif self.run:
                self.read(kind, values)
        except KeyError as error:
            raise Refused(f"{self.path}, line {number}: the log is torn: {error} is missing") from error
        except ValueError as error:
            raise Refused(f"{self.path}, line {number}: the log is torn: {error}") from error

    def enter(self, values):
        self.run = values
        self.place = values["host"], values["over"]
        self.load = max(self.load, float(values["load"]))
        self.round = int(values["round"])
        if values["side"] == "candidate":
            self.candidate = values["variant"]

    def read(self, kind, values):
        run = self.run
        if kind == "resends" and run.get("loss", "0") == "0":
            pair = int(values["segments"]), int(values["again"])
            self.resends[self.place].setdefault(int(values["size"]), []).append(pair)
        elif kind == "computing":
            pair = measured(values["median_us"]), measured(values["p90_us"])
            self.stalls[self.place][int(values["ms"]), run["loss"]][run["side"]][self.round] = pair
        elif kind == "bandwidth" and "loss" in run:
            speeds = self.goodput[self.place][run["side"]][int(values["size"])]
            speeds.setdefault(int(run["loss"]), {})[self.round] = measured(values["median_mb_s"])
        elif kind in [metric.kind for metric in METRICS]:
            metric = next(metric for metric in METRICS if metric.kind == kind)
            for key in (metric.typical, metric.best):
                row = self.figures[self.place][kind, int(values["size"]), key]
                row.setdefault(self.round, {})[run["side"]] = measured(values[key])


def verdict(ratios):
    """win, loss or even by the median; with a question mark where the pairs do not settle it."""
    middle = statistics.median(ratios)
    if abs(middle - 1) < EVEN:
        return "even"
    word = "win" if middle < 1 else "loss"
    agreed = all((ratio < 1) == (middle < 1) for ratio in ratios)
    return word if agreed and len(ratios) >= SETTLES else word + "?"


def number(value):
    if value >= 10000:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 1000 else f"{value:.2f}"


def ratios_of(metric, rows, size, key, side):
    """The rounds' ratios of the candidate to a side, and the figures of both."""
    both = [row for row in rows[metric.kind, size, key].values() if {"candidate", side} <= row.keys()]
    return [metric.ratio(row["candidate"], row[side]) for row in both], both


def sides_of(rows):
    """Whom the candidate is compared with, in the order of the log."""
    return list(dict.fromkeys(side for row in rows.values() for runs in row.values()
                              for side in runs if side != "candidate"))
