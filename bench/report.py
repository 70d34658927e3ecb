#!/usr/bin/env python3
"""Turns the measurements of run.sh and instructions.sh into tables.

    report.py pairs LOG
    report.py instructions --title T --component OBJECT[:FIRST-LAST] --cases C.. --iterations A B
                           --prefix PATH

`pairs` reads run.sh's log. The ratio of a pair is candidate over baseline for latency and baseline
over candidate for bandwidth and rate, so that below 1 the candidate is the better one; reported is
the median over the pairs.

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
# Fewer pairs than this settle nothing, even when they agree: two equal sides do that by chance.
SETTLES = 5


# Pairs of runs


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


def read_log(path):
    """Returns the header's lines, the variant compared, the highest load average that a run found,
    and figures[host, provider][kind, size, key][pair][side]."""
    header, variant, load = [], None, 0.0
    figures = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    with open(path) as log:
        for line in log:
            if line.startswith("#"):
                header.append(line[1:].strip())
                continue
            kind, *words = line.split()
            values = dict(word.split("=", 1) for word in words if "=" in word)
            if kind == "run":
                run = values
                load = max(load, float(run["load"]))
                if run["side"] == "candidate":
                    variant = run["variant"]
            elif kind == "check" and int(values["wrong"]):
                sys.exit(f"report.py: wrong payload in {run}")
            elif kind in [metric.kind for metric in METRICS]:
                rows = figures[run["host"], run["provider"]]
                for key, value in values.items():
                    if key.startswith(("median_", "min_", "max_")):
                        row = rows[kind, int(values["size"]), key]
                        row[int(run["pair"])][run["side"]] = float(value)
    return header, variant, load, figures


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


def print_metric(metric, rows, variant):
    """Prints one table; returns (size, ratio, verdict) for each of its rows."""
    sizes = sorted({size for kind, size, _ in rows if kind == metric.kind})
    if not sizes:
        return []
    print(f"\n  {metric.kind}: {metric.title}")
    print(
        f"  {'bytes':>9} {'stock':>10} {variant:>10} {'ratio':>7} {'lowest':>7} {'highest':>7}"
        f" {'of best':>8}  verdict"
    )
    results = []
    for size in sizes:
        pairs = list(rows[metric.kind, size, metric.typical].values())
        best = list(rows[metric.kind, size, metric.best].values())
        ratios = [metric.ratio(pair["candidate"], pair["baseline"]) for pair in pairs]
        best_ratios = [metric.ratio(pair["candidate"], pair["baseline"]) for pair in best]
        middle = statistics.median(ratios)
        word = verdict(ratios)
        print(
            f"  {size:>9}"
            f" {number(statistics.median(pair['baseline'] for pair in pairs)):>10}"
            f" {number(statistics.median(pair['candidate'] for pair in pairs)):>10}"
            f" {middle:>7.3f} {min(ratios):>7.3f} {max(ratios):>7.3f}"
            f" {statistics.median(best_ratios):>8.3f}  {word}"
        )
        results.append((size, middle, word))
    return results


def pairs_report(arguments):
    header, variant, load, figures = read_log(arguments.log)
    if not figures:
        sys.exit("report.py: the log has no figures")
    if variant == "stock":
        variant = "stock'"
        print("A control: stock against itself; what differs from 1 here is noise.")
    for line in header:
        print(line)
    print(f"load average before a run: up to {load}, of which the runs themselves make up to 2")
    print(
        f"Ratios are medians over the pairs of runs, {variant}/stock for latency and"
        f" stock/{variant} for\nbandwidth and rate: below 1 {variant} is better. `lowest` and"
        " `highest` are the extreme pairs; `of\nbest` compares the best sample of each run"
        f" instead of its median one. Even: within {EVEN:.0%}. A\nquestion mark: the pairs"
        f" disagree on which is better, or are fewer than {SETTLES}."
    )
    for (host, provider), rows in figures.items():
        pairs = max(len(row) for row in rows.values())
        print(f"\n{host}, {provider}, {pairs} pair{'s' * (pairs > 1)}")
        summary = []
        for metric in METRICS:
            for size, middle, word in print_metric(metric, rows, variant):
                summary.append((word, f"{metric.kind} {size} B ({middle:.3f})"))
        print()
        for word in ("win", "win?", "even", "loss?", "loss"):
            named = [text for other, text in summary if other == word]
            print(f"  {word + ':':<6} {len(named)}" + (f": {', '.join(named)}" if named else ""))


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
    parser = argparse.ArgumentParser(description="Tables from run.sh and instructions.sh.")
    commands = parser.add_subparsers(required=True)

    pairs = commands.add_parser("pairs")
    pairs.add_argument("log")
    pairs.set_defaults(report=pairs_report)

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
