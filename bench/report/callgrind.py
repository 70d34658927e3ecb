"""Instructions by callgrind: the difference between two profiles of more and fewer iterations, for one of them."""

import re
import sys
from collections import Counter


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
                sys.exit(f"report: {file.name} has no addresses")
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
    "message": "Send to a peer, and its message taken",
    "idle": "Test, and the peer sends nothing",
}


def rounded(value):
    return f"{value:.1f}".removesuffix(".0")


def short(function):
    """A function without the hash that ends a Rust name, cut to fit."""
    function = re.sub(r"::h[0-9a-f]{16}$", "", function)
    return function if len(function) <= 64 else "..." + function[-61:]


def print_instructions(arguments):
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

    print(f"\n{arguments.title}: instructions an iteration, 8-byte messages")
    print(f"  component: {arguments.component}")
    print(f"  {'':<24} {'component':>9} {'its TLS':>8} {'sum':>7} {'everything':>11}")
    for case, (functions, tls, _, objects) in measured.items():
        if not functions:
            sys.exit(f"report: nothing of {arguments.component} ran in {case}")
        inside, in_tls = sum(functions.values()), sum(tls.values())
        print(
            f"  {CASES[case]:<24} {rounded(inside):>9} {rounded(in_tls):>8}"
            f" {rounded(inside + in_tls):>7} {rounded(sum(objects.values())):>11}"
        )
        with open(arguments.log, "a", encoding="utf-8") as log:
            print(f"instructions {arguments.run} case={case} component={inside:.2f} tls={in_tls:.2f}"
                  f" all={sum(objects.values()):.2f}", file=log)

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
