#!/usr/bin/env python3
"""Turns the measurements of run.sh, usnic.sh and instructions.sh into tables.

    report.py pairs LOG
    report.py usnic LOG
    report.py instructions --title T --component OBJECT[:FIRST-LAST] --cases C.. --iterations A B
                           --prefix PATH

`pairs` reads the log of rounds in which each side ran once, the candidate and what it is compared
with. The ratio of a round is candidate over other for latency and other over candidate for bandwidth
and rate, so that below 1 the candidate is the better one; reported is the median over the rounds.
`usnic` adds what usnic.sh measures besides, and says which goals are met.

`instructions` reads callgrind's PATH.CASE.COUNT and reports the difference between the two counts,
for one iteration.
"""

import argparse
import re
import statistics
import sys
from collections import Counter, defaultdict

# Medians closer to 1 than this count as even.
EVEN = 0.01
# Fewer rounds than this settle nothing, even when they agree: two equal sides do that by chance.
SETTLES = 5


# Rounds of runs


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


def nested(depth):
    return defaultdict(lambda: nested(depth - 1)) if depth else {}


class Log:
    """What one of the scripts has written."""

    def __init__(self, path):
        self.header = []
        self.candidate = None  # which variant that was
        self.load = 0.0  # highest load average that a run found
        self.figures = nested(3)  # [host, over][kind, size, key][round][side]
        self.resends = nested(2)  # [host, over][size]: pairs of segments and resends
        self.goodput = nested(4)  # [host, over][side][size][loss][round]
        self.stalls = nested(3)  # [host, over][ms, loss][side]: pairs of median and 90th percentile
        with open(path) as lines:
            for line in lines:
                if line.startswith("#"):
                    self.header.append(line[1:].strip())
                else:
                    self.read(*line.split())

    def read(self, kind, *words):
        values = dict(word.split("=", 1) for word in words if "=" in word)
        if kind == "run":
            self.run = values
            self.place = values["host"], values["over"]
            self.load = max(self.load, float(values["load"]))
            if values["side"] == "candidate":
                self.candidate = values["variant"]
            return
        run = self.run
        if kind == "check" and int(values["wrong"]):
            sys.exit(f"report.py: wrong payload in {run}")
        if kind == "resends" and run.get("loss", "0") == "0":
            pair = int(values["segments"]), int(values["again"])
            self.resends[self.place].setdefault(int(values["size"]), []).append(pair)
        elif kind == "computing":
            pair = float(values["median_us"]), float(values["p90_us"])
            sides = self.stalls[self.place][int(values["ms"]), run["loss"]]
            sides.setdefault(run["side"], []).append(pair)
        elif kind == "bandwidth" and "loss" in run:
            speeds = self.goodput[self.place][run["side"]][int(values["size"])]
            speeds.setdefault(int(run["loss"]), {})[run["round"]] = float(values["median_mb_s"])
        elif kind in [metric.kind for metric in METRICS]:
            for key, value in values.items():
                if key.startswith(("median_", "min_", "max_")):
                    row = self.figures[self.place][kind, int(values["size"]), key]
                    row.setdefault(int(run["round"]), {})[run["side"]] = float(value)


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


def print_metric(metric, rows, candidate, side):
    """Prints one table; returns (size, ratio, verdict) for each of its rows."""
    sizes = sorted({size for kind, size, _ in rows if kind == metric.kind})
    if not sizes:
        return []
    print(f"\n  {metric.kind}: {metric.title}")
    print(
        f"  {'bytes':>9} {side:>10} {candidate:>10} {'ratio':>7} {'lowest':>7} {'highest':>7}"
        f" {'of best':>8}  verdict"
    )
    results = []
    for size in sizes:
        ratios, both = ratios_of(metric, rows, size, metric.typical, side)
        best_ratios, _ = ratios_of(metric, rows, size, metric.best, side)
        middle = statistics.median(ratios)
        word = verdict(ratios)
        print(
            f"  {size:>9}"
            f" {number(statistics.median(row[side] for row in both)):>10}"
            f" {number(statistics.median(row['candidate'] for row in both)):>10}"
            f" {middle:>7.3f} {min(ratios):>7.3f} {max(ratios):>7.3f}"
            f" {statistics.median(best_ratios):>8.3f}  {word}"
        )
        results.append((size, middle, word))
    return results


def sides_of(rows):
    """Whom the candidate is compared with, in the order of the log."""
    return list(dict.fromkeys(side for row in rows.values() for runs in row.values()
                              for side in runs if side != "candidate"))


def pairs_report(arguments):
    print_pairs(Log(arguments.log))


def print_pairs(log):
    if not log.figures:
        sys.exit("report.py: the log has no figures")
    candidate = log.candidate
    if candidate == "stock":
        candidate = "stock'"
        print("A control: stock against itself; what differs from 1 here is noise.")
    for line in log.header:
        print(line)
    print(f"load average before a run: up to {log.load}, of which the runs themselves make up to 2")
    print(
        f"Ratios are medians over the rounds: {candidate} over the other for latency, the other over"
        f"\n{candidate} for bandwidth and rate: below 1 {candidate} is better. `lowest` and"
        " `highest` are the extreme\nrounds; `of best` compares the best sample of each run"
        f" instead of its median one. Even: within {EVEN:.0%}.\nA question mark: the rounds"
        f" disagree on which is better, or are fewer than {SETTLES}."
    )
    for (host, over), rows in log.figures.items():
        for side in sides_of(rows):
            rounds = max(sum(side in runs for runs in row.values()) for row in rows.values())
            print(f"\n{host}, {over}, {candidate} beside {side}: {rounds} round{'s' * (rounds > 1)}")
            summary = []
            for metric in METRICS:
                for size, middle, word in print_metric(metric, rows, candidate, side):
                    summary.append((word, f"{metric.kind} {size} B ({middle:.3f})"))
            print()
            for word in ("win", "win?", "even", "loss?", "loss"):
                named = [text for other, text in summary if other == word]
                print(f"  {word + ':':<6} {len(named)}" + (f": {', '.join(named)}" if named else ""))


# What else usnic.sh measures


class Goal:
    """A limit on the ratio of a metric to a side, for sizes from one to another, over the networks so named."""

    def __init__(self, text, kind, side, first, last, limit, over=""):
        self.over = over
        self.text = text
        self.metric = next(metric for metric in METRICS if metric.kind == kind)
        self.side = side
        self.sizes = range(first, last + 1)
        self.limit = limit

    def missed(self, rows):
        """(size, ratio) where it is missed, by the median; `None` if nothing was measured."""
        sizes = sorted({size for kind, size, _ in rows if kind == self.metric.kind and size in self.sizes})
        found = [(size, ratios_of(self.metric, rows, size, self.metric.typical, self.side)[0])
                 for size in sizes]
        found = [(size, statistics.median(ratios)) for size, ratios in found if ratios]
        return [pair for pair in found if pair[1] > self.limit] if found else None


ANY = 1, 1 << 40
GOALS = [
    Goal("latency up to 256 B at most 1.15 of bare UDP", "latency", "udp", 1, 256, 1.15, over="short"),
    Goal("latency not above TCP's", "latency", "tcp", *ANY, 1 + EVEN),
    Goal("bandwidth not below TCP's", "bandwidth", "tcp", *ANY, 1 + EVEN),
    Goal("message rate at least 2.5 of TCP's", "rate", "tcp", *ANY, 1 / 2.5),
    Goal("bandwidth from 1 MiB on at least 0.8 of bare UDP", "bandwidth", "udp", 1 << 20, 1 << 40, 1.25),
    Goal("bandwidth of what is protected, from 1 MiB on, at least 0.6 of what is not", "bandwidth", "plain", 1 << 20,
         1 << 40, 1 / 0.6, over="9000"),
]
RESENDS = 0.01
GOODPUT = {1: 0.8, 5: 0.5}


def told(name, missed):
    print(f"  {'met' if not missed else 'MISSED':<7} {name}" + (f": {', '.join(missed)}" if missed else ""))


def print_resends(place, sizes):
    print(f"\n{', '.join(place)}: segments that usnic sent again without loss, by the size whose bandwidth was measured")
    print(f"  {'bytes':>9} {'segments':>10} {'again':>8} {'share':>8}")
    for size, pairs in sorted(sizes.items()):
        segments, again = (sum(column) for column in zip(*pairs))
        print(f"  {size:>9} {segments:>10} {again:>8} {again / max(segments, 1):>8.3%}")
    segments, again = (sum(column) for column in zip(*(pair for pairs in sizes.values() for pair in pairs)))
    print(f"  {'all':>9} {segments:>10} {again:>8} {again / max(segments, 1):>8.3%}")
    return again / max(segments, 1)


def print_goodput(place, sides):
    """Prints the goodput of each side; returns usnic's ratios to no loss: [size, loss]."""
    ratios = {}
    print(f"\n{', '.join(place)}: goodput one way, MB/s, and beside that without loss, medians over the rounds")
    print(f"  {'bytes':>9} {'side':>6} {'loss':>5} {'MB/s':>10} {'ratio':>7} {'lowest':>7} {'highest':>7}")
    for side, sizes in sides.items():
        for size, losses in sorted(sizes.items()):
            for loss, rounds in sorted(losses.items()):
                beside = [speed / losses[0][key] for key, speed in rounds.items() if losses[0].get(key)]
                middle = statistics.median(beside)
                print(
                    f"  {size:>9} {side:>6} {loss:>3} % {number(statistics.median(rounds.values())):>10}"
                    f" {middle:>7.3f} {min(beside):>7.3f} {max(beside):>7.3f}"
                )
                if side == "usnic":
                    ratios[size, loss] = middle
    return ratios


def print_stalls(place, rows):
    """Prints what a message costs a receiver that computes; returns where usnic is above TCP."""
    above = []
    print(f"\n{', '.join(place)}: one message to a receiver that computes, microseconds after its return, and usnic"
          " beside tcp, medians over the rounds")
    print(f"  {'ms':>5} {'loss':>6} {'':>8} {'usnic':>10} {'tcp':>10} {'ratio':>7} {'lowest':>7} {'highest':>7}")
    for (milliseconds, loss), sides in sorted(rows.items()):
        for at, what in enumerate(("median", "p90")):
            usnic, tcp = ([pair[at] for pair in sides[side]] for side in ("usnic", "tcp"))
            ratios = [one / other for one, other in zip(usnic, tcp)]
            middle = statistics.median(ratios)
            print(f"  {milliseconds:>5} {loss:>4} % {what:>8} {number(statistics.median(usnic)):>10}"
                  f" {number(statistics.median(tcp)):>10} {middle:>7.3f} {min(ratios):>7.3f} {max(ratios):>7.3f}")
            if middle > 1 + EVEN:
                above.append(f"{milliseconds} ms, {loss} %, {what} ({middle:.3f})")
    return above


def usnic_report(arguments):
    log = Log(arguments.log)
    if log.figures:
        print_pairs(log)
    verdicts = []
    for place, rows in log.figures.items():
        for goal in (goal for goal in GOALS if goal.over in place[1]):
            missed = goal.missed(rows)
            if missed is not None:
                verdicts.append((place, goal.text, [f"{size} B ({ratio:.3f})" for size, ratio in missed]))
    for place, sizes in log.resends.items():
        share = print_resends(place, sizes)
        missed = [f"{share:.3%}"] if share >= RESENDS else []
        verdicts.append((place, f"fewer than {RESENDS:.0%} of the segments sent again without loss", missed))
    for place, sides in log.goodput.items():
        ratios = print_goodput(place, sides)
        for loss, least in GOODPUT.items():
            missed = [f"{size} B ({ratio:.3f})" for (size, other), ratio in ratios.items()
                      if other == loss and ratio < least]
            verdicts.append((place, f"goodput at {loss} % loss at least {least} of that without", missed))
    for place, rows in log.stalls.items():
        above = print_stalls(place, rows)
        verdicts.append((place, "a receiver that computes waits for a message no longer than over TCP", above))
    print("\nGoals, by the medians over the rounds:")
    for place in dict.fromkeys(place for place, _, _ in verdicts):
        print(f" {', '.join(place)}")
        for other, text, missed in verdicts:
            if other == place:
                told(text, missed)


# Instructions


class Component:
    """The part of the process that counts as the component: an object, or a range of addresses in
    one, as in the object's file."""

    def __init__(self, text):
        self.object, _, limits = text.partition(":")
        self.limits = [int(limit, 16) for limit in limits.split("-")] if limits else None

    def has(self, object_name, address):
        if object_name.rsplit("/", 1)[-1] != self.object:
            return False
        return not self.limits or self.limits[0] <= address <= self.limits[1]


class Profile:
    """What one callgrind run with --dump-instr=yes --compress-pos=no collected.

    Every instruction is judged by its own address: where an object has no symbols, callgrind does
    not notice a jump from one function to another.
    """

    def __init__(self, path, component):
        self.component = component
        self.functions = Counter()  # instructions, by function of the component
        self.tls = Counter()  # in __tls_get_addr, by the component's function that called it
        self.calls = Counter()  # calls of the component's functions
        self.objects = Counter()  # instructions by object, the component apart
        self.names = {}
        with open(path) as file:
            self.read(file)

    def name(self, kind, text):
        """Resolves callgrind's name compression: "(ID) NAME" defines, "(ID)" refers."""
        match = re.fullmatch(r"\((\d+)\)(?: (.*))?", text)
        if not match:
            return text
        identifier, name = match.groups()
        if name is not None:
            self.names[kind, identifier] = name
        return self.names[kind, identifier]

    def read(self, file):
        here = object_name = called = called_object = None
        call_follows = False
        for line in file:
            line = line.rstrip("\n")
            if line.startswith("positions:") and line.split()[1] != "instr":
                sys.exit(f"report.py: {file.name} has no addresses")
            elif line.startswith("ob="):
                object_name = self.name("ob", line[3:])
            elif line.startswith("fn="):
                here = self.name("fn", line[3:])
            elif line.startswith("cob="):
                called_object = self.name("ob", line[4:])
            elif line.startswith("cfn="):
                called = self.name("fn", line[4:])
            elif line.startswith("calls="):
                count, target = line[6:].split()[:2]
                if self.component.has(called_object or object_name, int(target, 16)):
                    self.calls[called] += int(count)
                called_object = None
                call_follows = True
            elif line.startswith("0x"):
                position, *_, cost = line.split()
                inside = self.component.has(object_name, int(position, 16))
                if call_follows:  # what the call cost in all
                    if inside and called.startswith("__tls_get_addr"):
                        self.tls[here] += int(cost)
                    call_follows = False
                else:
                    self.objects["component" if inside else object_name] += int(cost)
                    if inside:
                        self.functions[here] += int(cost)


def per_iteration(shorter, longer, iterations):
    return {
        key: (longer[key] - shorter[key]) / iterations
        for key in longer.keys() | shorter.keys()
        if longer[key] != shorter[key]
    }


CASES = {
    "send": "Irecv, Send, Wait",
    "waitall": "Irecv, Isend, Waitall",
    "poll": "Test, nothing arrives",
    "iprobe": "Iprobe, nothing there",
}


def rounded(value):
    return f"{value:.1f}".removesuffix(".0")


def short(function):
    """A function without the hash that ends a Rust name, cut to fit."""
    function = re.sub(r"::h[0-9a-f]{16}$", "", function)
    return function if len(function) <= 64 else "..." + function[-61:]


def instructions_report(arguments):
    component = Component(arguments.component)
    first, second = arguments.iterations
    measured = {}
    for case in arguments.cases:
        shorter, longer = (
            Profile(f"{arguments.prefix}.{case}.{count}", component) for count in (first, second)
        )
        measured[case] = [
            per_iteration(getattr(shorter, part), getattr(longer, part), second - first)
            for part in ("functions", "tls", "calls", "objects")
        ]

    print(f"\n{arguments.title}: instructions an iteration, 8-byte messages to itself")
    print(f"  component: {arguments.component}")
    print(f"  {'':<24} {'component':>9} {'its TLS':>8} {'sum':>7} {'everything':>11}")
    for case, (functions, tls, _, objects) in measured.items():
        if not functions:
            sys.exit(f"report.py: nothing of {arguments.component} ran in {case}")
        inside, in_tls = sum(functions.values()), sum(tls.values())
        print(
            f"  {CASES[case]:<24} {rounded(inside):>9} {rounded(in_tls):>8}"
            f" {rounded(inside + in_tls):>7} {rounded(sum(objects.values())):>11}"
        )

    for case, (functions, tls, calls, objects) in measured.items():
        print(f"\n  {CASES[case]}: by function of the component")
        print(f"    {'self':>7} {'TLS':>6} {'calls':>6}")
        for name, cost in sorted(functions.items(), key=lambda item: -item[1]):
            print(
                f"    {rounded(cost):>7} {rounded(tls.get(name, 0)):>6}"
                f" {rounded(calls.get(name, 0)):>6}  {short(name)}"
            )
        ordered = sorted(objects.items(), key=lambda item: -item[1])
        print(
            "    by object: "
            + ", ".join(
                f"{name.rsplit('/', 1)[-1]} {rounded(cost)}" for name, cost in ordered if cost >= 1
            )
        )


def main():
    parser = argparse.ArgumentParser(description="Tables from run.sh, usnic.sh and instructions.sh.")
    commands = parser.add_subparsers(required=True)

    pairs = commands.add_parser("pairs")
    pairs.add_argument("log")
    pairs.set_defaults(report=pairs_report)

    usnic = commands.add_parser("usnic")
    usnic.add_argument("log")
    usnic.set_defaults(report=usnic_report)

    instructions = commands.add_parser("instructions")
    instructions.add_argument("--title", required=True)
    instructions.add_argument("--component", required=True)
    instructions.add_argument("--cases", nargs="+", choices=list(CASES), required=True)
    instructions.add_argument("--iterations", nargs=2, type=int, required=True)
    instructions.add_argument("--prefix", required=True)
    instructions.set_defaults(report=instructions_report)

    arguments = parser.parse_args()
    arguments.report(arguments)


if __name__ == "__main__":
    main()
