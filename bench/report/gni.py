"""What gni.sh has measured, as tables in text, and the goals of the provider.

A ratio is of the best samples of two runs of one round, gni to the other for latency and the other to gni for bandwidth and
rate, and stands for the median over the rounds: below 1 gni is better. The best, because samples are short: on a machine that
does something else, too, those are what nobody has interrupted.
"""

import statistics
from collections import defaultdict

from log import METRICS, Log, number, ratios_of, sides_of, verdict

LATENCY, BANDWIDTH, RATE = METRICS
MATCHING = ("posted", "unexpected")


class GniLog(Log):
    """With the figures that no other log has."""

    def __init__(self, path):
        self.memory = defaultdict(lambda: defaultdict(list))  # [host][side]: bytes of who was inserted, and sent to
        self.idle = defaultdict(lambda: defaultdict(list))  # [host][side]: µs a second, alone and connected
        self.unable = defaultdict(set)  # [host, over, side]: why there are no figures
        super().__init__(path)

    def read(self, kind, values):
        host, over = self.place
        side = self.run["variant"]
        if kind == "memory":
            self.memory[host][side].append((int(values["inserted"]), int(values["sent"])))
        elif kind == "idle":
            seconds = int(values["seconds"])
            self.idle[host][side].append((int(values["alone_us"]) / seconds, int(values["connected_us"]) / seconds))
        elif kind == "unable":
            self.unable[host, over, side].add(values.get("refused", "not offered"))
        else:
            super().read(kind, values)


def ratio(metric, rows, size, side):
    """The ratio in text, with its verdict; nothing where they never met."""
    found, _ = ratios_of(metric, rows, size, metric.best, side)
    return found and (statistics.median(found), verdict(found))


def best(metric, rows, size, side):
    """The side's best sample, median over the rounds; None if it has none."""
    values = [runs[side] for runs in rows[metric.kind, size, metric.best].values() if side in runs]
    return statistics.median(values) if values else None


def sizes_of(metric, rows):
    return sorted({size for kind, size, key in rows if (kind, key) == (metric.kind, metric.best)})


def print_speed(place, rows):
    sides = sides_of(rows)
    print(f"\n{', '.join(place)}: gni, and its ratio to others")
    for metric in METRICS:
        sizes = sizes_of(metric, rows)
        beside = [side for side in sides if any(best(metric, rows, size, side) for size in sizes)]
        if not sizes:
            continue
        print(f"\n  {metric.kind}: {metric.title}")
        print(f"  {'bytes':>9} {'gni':>10}" + "".join(f" {side:>18}" for side in beside))
        for size in sizes:
            mine = best(metric, rows, size, "candidate")
            if mine is None:
                continue
            line = f"  {size:>9} {number(mine):>10}"
            for side in beside:
                found = ratio(metric, rows, size, side)
                line += f" {f'{found[0]:.3f} {found[1]:<6}' if found else '':>18}"
            print(line.rstrip())


def counts_of(log, host, kind):
    found = {int(over.split("-")[1]) for place, over in [*log.figures, *((h, o) for h, o, _ in log.unable)]
             if place == host and over.startswith(f"{kind}-")}
    return sorted(found)


def print_matching(log, host, kind):
    """Prints what a message costs beside so many; returns how much more the most costs gni than the fewest."""
    counts = counts_of(log, host, kind)
    if not counts:
        return None
    sides = ["candidate", *dict.fromkeys(side for count in counts for side in sides_of(log.figures[host, f"{kind}-{count}"]))]
    print(f"\n{host}: half a round trip of 8 bytes beside so many {kind}, microseconds")
    print(f"  {'':>10}" + "".join(f" {count:>10}" for count in counts))
    for side in sides:
        line = f"  {'gni' if side == 'candidate' else side:>10}"
        for count in counts:
            value = best(LATENCY, log.figures[host, f"{kind}-{count}"], 8, side)
            line += f" {number(value) if value else '-':>10}"
        print(line)
    for count in counts:
        for side in sides[1:]:
            for why in sorted(log.unable.get((host, f"{kind}-{count}", side), ())):
                print(f"  {side}, {count}: {why if why == 'not offered' else f'no more than {why}'}")
    first, last = (log.figures[host, f"{kind}-{count}"]["latency", 8, LATENCY.best] for count in (counts[0], counts[-1]))
    both = [last[key]["candidate"] / first[key]["candidate"] for key in first.keys() & last.keys()
            if "candidate" in first[key] and "candidate" in last[key]]
    return statistics.median(both) if both else None


def print_pairs_of(title, names, rows):
    print(f"\n{title}")
    print(f"  {'':>10}" + "".join(f" {name:>12}" for name in names))
    for side, values in rows.items():
        print(f"  {side:>10}" + "".join(f" {number(statistics.median(column)):>12}" for column in zip(*values)))


def above(metric, rows, side, limit, least=0, most=1 << 40):
    """Where the ratio is above a limit; None if nothing was measured."""
    found = [(size, ratio(metric, rows, size, side)) for size in sizes_of(metric, rows) if least <= size <= most]
    found = [(size, pair[0]) for size, pair in found if pair]
    return [f"{size} B ({value:.3f})" for size, value in found if value > limit] if found else None


def goals(log, host, flat):
    """(text, where it is missed or None) of each."""
    node, net = log.figures.get((host, "node"), {}), log.figures.get((host, "veth-1500"), {})
    if node:
        yield "8 B at most twice what two cores take to hand over a line", above(LATENCY, node, "flag", 2)
        for side in sides_of(node):
            if side not in ("flag", "copy"):
                yield f"latency not above that of {side}", above(LATENCY, node, side, 1)
        for side in sides_of(node):
            if side not in ("flag", "copy"):
                yield f"message rate at least that of {side}", above(RATE, node, side, 1)
        yield "from 64 KiB on at least 0.9 of process_vm_readv", above(BANDWIDTH, node, "copy", 1 / 0.9)
    for kind, grown in flat.items():
        if grown is not None:
            yield f"{kind}: 100000 cost at most 1.1 of one", [f"{grown:.2f}"] if grown > 1.1 else []
    if net:
        yield "between nodes 64 B at most 1.3 of bare UDP", above(LATENCY, net, "udp", 1.3, 64, 64)
        for side in sides_of(net):
            if side != "udp":
                yield f"between nodes bandwidth of 1 MiB and more at least that of {side}", above(BANDWIDTH, net, side, 1, 1 << 20)
    if log.memory[host]["gni"]:
        most = max(inserted for inserted, _ in log.memory[host]["gni"])
        yield "at most 16 KiB for a peer that nothing was sent to", [f"{most}"] if most > 16384 else []
    if log.idle[host]["gni"]:
        most = max(max(pair) for pair in log.idle[host]["gni"])
        yield "asleep, less than 0.1 % of a processor", [f"{most:.0f} µs a second"] if most > 1000 else []


def print_gni(log):
    for line in log.header:
        print(line)
    print(f"load average before a run: up to {log.load}, of which the runs themselves make up to 2")
    print("Ratios are medians over the rounds, of best samples: below 1 gni is better. A question mark: the rounds disagree.")
    hosts = list(dict.fromkeys([host for host, _ in log.figures] + list(log.memory) + list(log.idle)))
    for host in hosts:
        for place, rows in list(log.figures.items()):
            if place[0] == host and not place[1].startswith(MATCHING):
                print_speed(place, rows)
        flat = {kind: print_matching(log, host, kind) for kind in MATCHING}
        if log.memory[host]:
            print_pairs_of(f"{host}: bytes that a peer takes, inserted and then sent a message to", ("inserted", "sent"),
                           log.memory[host])
        if log.idle[host]:
            print_pairs_of(f"{host}: processor time asleep with FI_PROGRESS_AUTO, microseconds a second",
                           ("alone", "connected"), log.idle[host])
        print(f"\n{host}: goals")
        for text, missed in goals(log, host, flat):
            if missed is not None:
                print(f"  {'met' if not missed else 'MISSED':<7} {text}" + (f": {', '.join(missed)}" if missed else ""))
