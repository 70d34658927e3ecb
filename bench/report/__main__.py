"""What the scripts of bench/ have measured, as tables and as a page.

    python3 bench/report pairs LOG
    python3 bench/report usnic LOG
    python3 bench/report gni LOG
    python3 bench/report start LOG
    python3 bench/report instructions --title T --component OBJECT[:FIRST-LAST] --cases C.. --iterations A B
                                      --prefix PATH --log LOG --run WORDS
    python3 bench/report page FOLDER INTO

`pairs` reads the log of rounds in which each side ran once, the candidate and what it is compared with. The ratio of a
round is candidate over other for latency and other over candidate for bandwidth and rate, so that below 1 the candidate
is the better one; reported is the median over the rounds. `usnic` adds what usnic.sh measures besides, and says which
goals are met, and `gni` does so of the provider; `start` is how long jobs take that do nothing.

`instructions` reads callgrind's PATH.CASE.COUNT, reports the difference between the two counts, for one iteration, and
adds it to LOG, with WORDS before it.

`page` reads all logs below FOLDER and writes index.html, its plots, and the figures as CSV and JSON.
"""

import argparse
import sys

import callgrind
import gni
import page
import tables
from log import Log, Refused


def main():
    parser = argparse.ArgumentParser(prog="report", description="Tables and a page of what was measured.")
    commands = parser.add_subparsers(required=True)
    for name, read, show in (("pairs", Log, tables.print_pairs), ("usnic", Log, tables.print_usnic),
                             ("gni", gni.GniLog, gni.print_gni), ("start", Log, tables.print_starts)):
        command = commands.add_parser(name)
        command.add_argument("log")
        command.set_defaults(report=lambda arguments, read=read, show=show: show(read(arguments.log)))

    instructions = commands.add_parser("instructions")
    instructions.add_argument("--title", required=True)
    instructions.add_argument("--component", required=True)
    instructions.add_argument("--cases", nargs="+", choices=list(callgrind.CASES), required=True)
    instructions.add_argument("--iterations", nargs=2, type=int, required=True)
    instructions.add_argument("--prefix", required=True)
    instructions.add_argument("--log", required=True)
    instructions.add_argument("--run", required=True)
    instructions.set_defaults(report=callgrind.print_instructions)

    whole = commands.add_parser("page")
    whole.add_argument("folder")
    whole.add_argument("into")
    whole.set_defaults(report=lambda arguments: page.write(arguments.folder, arguments.into))

    arguments = parser.parse_args()
    try:
        arguments.report(arguments)
    except Refused as refusal:
        sys.exit(f"report: {refusal}")


if __name__ == "__main__":
    main()
