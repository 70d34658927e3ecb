"""Tables in text of what run.sh, usnic.sh, smcuda.sh and start.sh have measured, and the goals of usnic."""

import statistics

from log import EVEN, METRICS, SETTLES, number, ratios_of, sides_of, verdict


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


def print_pairs(log):
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
            rounds = sorted(sides["usnic"].keys() & sides["tcp"].keys())
            usnic, tcp = ([sides[side][key][at] for key in rounds] for side in ("usnic", "tcp"))
            ratios = [one / other for one, other in zip(usnic, tcp)]
            middle = statistics.median(ratios)
            print(f"  {milliseconds:>5} {loss:>4} % {what:>8} {number(statistics.median(usnic)):>10}"
                  f" {number(statistics.median(tcp)):>10} {middle:>7.3f} {min(ratios):>7.3f} {max(ratios):>7.3f}")
            if middle > 1 + EVEN:
                above.append(f"{milliseconds} ms, {loss} %, {what} ({middle:.3f})")
    return above


def print_starts(log):
    for host, rows in log.starts.items():
        print(f"{host}: a job that begins, meets and ends, milliseconds")
        print(f"  {'ranks':>5} {'usnic':>8} {'least':>8} {'tcp':>8} {'least':>8} {'usnic/tcp':>9}")
        for ranks, sides in sorted(rows.items()):
            usnic, tcp = sides["usnic"], sides["tcp"]
            ratio = statistics.median(usnic[key] / tcp[key] for key in usnic.keys() & tcp.keys())
            print(f"  {ranks:>5} {statistics.median(usnic.values()):>8.0f} {min(usnic.values()):>8.0f}"
                  f" {statistics.median(tcp.values()):>8.0f} {min(tcp.values()):>8.0f} {ratio:>9.2f}")


def print_usnic(log):
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
