"""The figures of all logs of one run of bench/, in one form, as CSV and as JSON.

A measurement is one thing that was measured in rounds, with a figure for each side in each of them: what hawser did, and
what it is compared with. From it come a figure for each side and a ratio for each pair, medians over the rounds with the
lowest and the highest.
"""

import csv
import json
import os
import statistics

from log import METRICS, Log, Refused, verdict


class Kind:
    """A sort of figure: what it is called, its unit, and which way is better."""

    def __init__(self, title, unit, lower_is_better):
        self.title = title
        self.unit = unit
        self.lower_is_better = lower_is_better

    def ratio(self, candidate, other):
        return candidate / other if self.lower_is_better else other / candidate


KINDS = {
    "latency": Kind("Latency, half a round trip", "µs", True),
    "bandwidth": Kind("Bandwidth, one way", "MB/s", False),
    "rate": Kind("Message rate", "messages/s", False),
    "goodput": Kind("Goodput beside loss", "MB/s", False),
    "stall": Kind("A message to a receiver that computes", "µs", True),
    "start": Kind("A job that begins, meets and ends", "ms", True),
    "instructions": Kind("Instructions of the component for a message", "instructions", True),
}

WHERE = ("host", "transport", "over", "kind", "bytes", "loss", "case", "ranks")

# Which transport a log is of; one that speaks for itself is of none here. Below the host's folder.
LOGS = {
    "pairs.log": "mtl ofi",
    "usnic.log": "btl usnic",
    "smcuda/log": "btl smcuda",
    "start.log": "btl usnic",
    "instructions.log": "mtl ofi",
}


class Measurement:
    """A figure of each side in each round, of one thing."""

    def __init__(self, candidate, rounds, **where):
        self.where = {name: where.get(name) for name in WHERE}
        self.kind = KINDS[where["kind"]]
        self.candidate = candidate
        self.rounds = rounds  # [round][side]

    def sides(self):
        """The candidate, then whom it is compared with."""
        named = dict.fromkeys(side for row in self.rounds.values() for side in row)
        return sorted(named, key=lambda side: side != self.candidate)

    def figure(self, side):
        values = [row[side] for row in self.rounds.values() if side in row]
        return summary(values) | {"side": side, "unit": self.kind.unit}

    def ratio(self, side):
        """The candidate beside that side, below 1 where the candidate is better; None where they never met."""
        pairs = [(row[self.candidate], row[side]) for row in self.rounds.values() if {self.candidate, side} <= row.keys()]
        ratios = [self.kind.ratio(*pair) for pair in pairs]
        if not ratios:
            return None
        # What is counted does not vary: one round settles it.
        word = verdict(ratios)
        if self.where["kind"] == "instructions":
            word = word.rstrip("?")
        return summary(ratios) | {"candidate": self.candidate, "side": side, "verdict": word}

    def ratios(self):
        found = (self.ratio(side) for side in self.sides() if side != self.candidate)
        return [ratio for ratio in found if ratio]


def summary(values):
    return {"rounds": len(values), "median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def pivot(sides):
    """[side][round] as [round][side]."""
    rounds = {}
    for side, row in sides.items():
        for key, value in row.items():
            rounds.setdefault(key, {})[side] = value
    return rounds


def measurements(log, transport):
    """What a log holds."""
    for (host, over), rows in log.figures.items():
        place = {"host": host, "transport": transport, "over": over}
        for metric in METRICS:
            for (kind, size, key), row in sorted(rows.items()):
                if (kind, key) == (metric.kind, metric.typical):
                    # A control of stock beside itself still has two sides.
                    name = "stock again" if log.candidate == "stock" else log.candidate
                    named = {number: {name if side == "candidate" else side: value for side, value in sides.items()}
                             for number, sides in row.items()}
                    yield Measurement(name, named, kind=kind, bytes=size, **place)
    for (host, over), sides in log.goodput.items():
        cells = {(size, loss) for sizes in sides.values() for size, losses in sizes.items() for loss in losses}
        for size, loss in sorted(cells):
            rounds = pivot({side: sizes.get(size, {}).get(loss, {}) for side, sizes in sides.items()})
            yield Measurement("usnic", rounds, host=host, transport=transport, over=over, kind="goodput", bytes=size, loss=loss)
    for (host, over), rows in log.stalls.items():
        for (milliseconds, loss), sides in sorted(rows.items()):
            for at, what in enumerate(("median", "p90")):
                rounds = {key: {side: pair[at] for side, pair in row.items()} for key, row in pivot(sides).items()}
                yield Measurement("usnic", rounds, host=host, transport=transport, over=over, kind="stall",
                                  case=f"{milliseconds} ms, {what}", loss=float(loss))
    for host, rows in log.starts.items():
        for ranks, sides in sorted(rows.items()):
            yield Measurement("usnic", pivot(sides), host=host, transport=transport, over="lo", kind="start", ranks=ranks)
    for (host, over), cases in log.instructions.items():
        for case, variants in cases.items():
            rounds = {1: {side: inside + tls for side, (inside, tls, _) in variants.items()}}
            yield Measurement("hawser", rounds, host=host, transport=transport, over=over, kind="instructions", bytes=8,
                              case=case)


class Part:
    """A script that bench/whole.sh ran, or did not run."""

    def __init__(self, name, host, status, seconds, said):
        self.name, self.host, self.status, self.seconds, self.said = name, host, status, seconds, said

    @property
    def fine(self):
        return self.status == "0" and not self.said

    @property
    def word(self):
        if self.status == "-":
            return "not run"
        if self.status != "0":
            return f"failed ({self.status})"
        return "in part" if self.said else "ran"


class Run:
    """All that one run has left in a folder."""

    def __init__(self, folder):
        self.headers = {}  # [host]: lines on versions, machine and time
        self.loads = {}  # [host]: the highest load average that a run found
        self.measurements = []
        self.refused = []  # logs of which nothing is shown, and why
        self.parts = []
        hosts = sorted(name for name in os.listdir(folder) if os.path.isdir(os.path.join(folder, name)) and name != "report")
        for host in hosts:
            for name, transport in LOGS.items():
                path = os.path.join(folder, host, name)
                if not os.path.exists(path):
                    continue
                try:
                    log = Log(path)
                except Refused as refusal:
                    self.refused.append(str(refusal).replace(folder, "").lstrip("/"))
                    continue
                self.headers.setdefault(host, log.header)
                self.loads[host] = max(log.load, self.loads.get(host, 0))
                self.measurements += measurements(log, transport)
        table = os.path.join(folder, "report", "parts.tsv")
        if os.path.exists(table):
            with open(table, encoding="utf-8", errors="replace") as lines:
                self.parts = [Part(*line.rstrip("\n").split("\t", 4)) for line in lines]

    def hosts(self):
        return list(dict.fromkeys(one.where["host"] for one in self.measurements))

    def of(self, **where):
        """The measurements of which that is true."""
        return [one for one in self.measurements if all(one.where[name] == value for name, value in where.items())]


FIGURE = (*WHERE, "side", "unit", "rounds", "median", "lowest", "highest")
RATIO = (*WHERE, "candidate", "side", "rounds", "median", "lowest", "highest", "verdict")


def figure_rows(run):
    return [one.where | one.figure(side) for one in run.measurements for side in one.sides()]


def ratio_rows(run):
    return [one.where | ratio for one in run.measurements for ratio in one.ratios()]


def write_rows(path, names, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def write(run, folder):
    """figures.csv, ratios.csv, and both with all else as figures.json."""
    figures, ratios = figure_rows(run), ratio_rows(run)
    write_rows(os.path.join(folder, "figures.csv"), FIGURE, figures)
    write_rows(os.path.join(folder, "ratios.csv"), RATIO, ratios)
    with open(os.path.join(folder, "figures.json"), "w", encoding="utf-8") as file:
        json.dump({
            "format": 1,
            "hosts": {host: {"header": header, "load": run.loads[host]} for host, header in run.headers.items()},
            "parts": [vars(part) for part in run.parts],
            "refused": run.refused,
            "figures": figures,
            "ratios": ratios,
        }, file, indent=1, ensure_ascii=False)
        file.write("\n")
