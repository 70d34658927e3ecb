"""The page of bench/report, its figures and its plots, from logs that the scripts of bench/ have written.

    python3 tests/report/figures.py

What stands in logs/ was recorded by those scripts, shortened to a few sizes and rounds; what it says about speed is of no
interest here. The last line is `N passed, N failed`.
"""

import csv
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from xml.etree import ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LOGS = os.path.join(HERE, "logs")
REPORT = os.path.join(ROOT, "bench", "report")
sys.dont_write_bytecode = True
sys.path.insert(0, REPORT)

import figures
import log as reader
import page as report_page
import plots

FILES = ("debian12/pairs.log", "debian12/usnic.log", "debian12/smcuda/log", "debian12/start.log", "debian12/instructions.log",
         "debian13/pairs.log")
# What runs stand in which log, and by which key; what a side is named there.
KEYS = {"latency": "median_us", "bandwidth": "median_mb_s", "rate": "median_msg_s", "goodput": "median_mb_s"}
TRANSPORTS = {"mtl ofi": "pairs.log", "btl usnic": "usnic.log", "btl smcuda": "smcuda/log"}


class Elements(HTMLParser):
    """Every element of a page, with its attributes; and its text."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.text = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text.append(data)

    def of(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def read(*names):
    with open(os.path.join(*names), encoding="utf-8") as file:
        return file.read()


def words_of(line):
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def logged(row):
    """What the log says of a row of figures.csv, read by itself: a value for each round."""
    if row["kind"] == "start":
        lines = [words_of(line) for line in read(LOGS, row["host"], "start.log").splitlines() if line.startswith("start ")]
        return [int(line["us"]) / 1000 for line in lines if (line["ranks"], line["side"]) == (row["ranks"], row["side"])]
    if row["kind"] == "instructions":
        lines = [words_of(line) for line in read(LOGS, row["host"], "instructions.log").splitlines() if line.startswith("instr")]
        return [float(line["component"]) + float(line["tls"]) for line in lines
                if (line["case"], line["variant"]) == (row["case"], row["side"])]
    found = []
    for run in re.split(r"(?m)^(?=run )", read(LOGS, row["host"], TRANSPORTS[row["transport"]]))[1:]:
        first, *lines = run.splitlines()
        said = words_of(first)
        if said["over"] != row["over"] or row["side"] not in (said["side"], said["variant"]) or said.get("loss", "") != row["loss"].removesuffix(".0"):
            continue
        for line in lines:
            values = words_of(line)
            if row["kind"] == "stall":
                if line.startswith("computing ") and row["case"].startswith(f"{values['ms']} ms, "):
                    found.append(float(values["p90_us" if row["case"].endswith("p90") else "median_us"]))
            elif line.startswith(row["kind"].replace("goodput", "bandwidth") + " ") and values["size"] == row["bytes"]:
                found.append(float(values[KEYS[row["kind"]]]))
    return found


class Page(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copytree(LOGS, self.folder, dirs_exist_ok=True)
        self.into = os.path.join(self.folder, "report")

    def write(self, path, text):
        path = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def report(self, *words, **environment):
        return subprocess.run([sys.executable, REPORT, *words], capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment})

    def page(self, **environment):
        """Makes the page, without gnuplot unless a PATH with it is given; the plots are another test's."""
        done = self.report("page", self.folder, self.into, **{"PATH": "/nonexistent", **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        return read(self.into, "index.html")

    def rows(self, name):
        with open(os.path.join(self.into, name), newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def test_every_figure_is_the_median_of_what_the_log_says_with_its_extremes(self):
        self.page()
        rows = self.rows("figures.csv")
        for row in rows:
            values = logged(row)
            self.assertEqual(len(values), int(row["rounds"]), row)
            for name, of in (("median", statistics.median), ("lowest", min), ("highest", max)):
                self.assertAlmostEqual(float(row[name]), of(values), msg=row)
        self.assertEqual({row["kind"] for row in rows},
                         {"latency", "bandwidth", "rate", "goodput", "stall", "start", "instructions"})

    def test_no_figure_of_a_log_is_left_out(self):
        self.page()
        held = sum(int(row["rounds"]) for row in self.rows("figures.csv"))
        lines = [line for name in FILES for line in read(LOGS, name).splitlines()]
        # A line of a receiver that computes holds two figures.
        said = sum(line.startswith(("latency ", "bandwidth ", "rate ", "start ", "instructions ")) + 2 * line.startswith("computing ")
                   for line in lines)
        self.assertEqual(held, said)

    def test_the_ratios_are_of_the_same_round_and_below_one_where_hawser_is_better(self):
        self.page()
        known = {tuple(row[name] for name in ("host", "transport", "over", "kind", "bytes", "loss", "case", "ranks", "side")): row
                   for row in self.rows("figures.csv")}
        ratios = self.rows("ratios.csv")
        for row in ratios:
            key = tuple(row[name] for name in ("host", "transport", "over", "kind", "bytes", "loss", "case", "ranks"))
            ours, others = (logged(known[(*key, row[side])]) for side in ("candidate", "side"))
            lower = row["kind"] in ("latency", "stall", "start", "instructions")
            # Rounds stand in their order; a side that sat out the last ones has fewer.
            expected = [one / other if lower else other / one for one, other in zip(ours, others)]
            self.assertAlmostEqual(float(row["median"]), statistics.median(expected), msg=row)
            self.assertAlmostEqual(float(row["highest"]), max(expected), msg=row)
            if abs(float(row["median"]) - 1) >= 0.01:
                self.assertEqual(row["verdict"].rstrip("?"), "win" if float(row["median"]) < 1 else "loss")
        self.assertGreater(len(ratios), 20)

    def test_the_json_holds_what_the_csv_does(self):
        self.page()
        whole = json.loads(read(self.into, "figures.json"))
        for name in ("figures", "ratios"):
            rows = [{key: "" if value is None else str(value) for key, value in row.items()} for row in whole[name]]
            self.assertEqual(rows, self.rows(f"{name}.csv"))
        self.assertEqual(set(whole["hosts"]), {"debian12", "debian13"})
        self.assertIn("Open MPI", whole["hosts"]["debian12"]["header"][0])

    def test_every_ratio_above_one_is_marked_and_no_other(self):
        page = self.page()
        tables = page[page.index("Ratios, round by round"):]
        above = sum(float(row["median"]) > 1 for row in self.rows("ratios.csv"))
        self.assertEqual(tables.count("▲ "), above)
        self.assertGreater(above, 0)
        for median, marked in ((1.0001, True), (1.0, False), (0.9999, False)):
            row = {"median": median, "lowest": 0.5, "highest": 1.5, "rounds": 5, "verdict": "even"}
            self.assertEqual("▲ " in report_page.ratio_cell(row), marked)

    def test_a_torn_log_is_refused_with_its_line_wherever_it_is_torn(self):
        path = os.path.join(self.folder, "torn.log")
        for name in FILES:
            whole = read(LOGS, name)
            by_itself = "start" in name or "instructions" in name
            torn = 0
            # At each end of a line and beside it, and everywhere else now and then.
            ends = {match.start() + beside for match in re.finditer("\n", whole) for beside in (0, 1, 2)} | set(range(0, len(whole), 11))
            for end in sorted(end for end in ends if end < len(whole)):
                part = whole[:end]
                last = part.rsplit("\n", 2)[-2] if part.endswith("\n") and part.count("\n") > 1 else ""
                if part.endswith("\n") and (last.startswith("check ") or by_itself and not last.startswith("#")):
                    continue
                # A receiver that computes says what it has checked when it likes.
                if part.endswith("\n") and last.startswith(("computing ", "component ")) and "check " in part.rsplit("run host", 1)[-1]:
                    continue
                with open(path, "w", encoding="utf-8") as file:
                    file.write(part)
                with self.assertRaises(reader.Refused, msg=f"{name} up to {end}") as refused:
                    reader.Log(path)
                self.assertIn(path, str(refused.exception))
                torn += 1
            self.assertGreater(torn, 25, name)

    def test_a_line_that_has_lost_a_value_is_refused(self):
        path = os.path.join(self.folder, "torn.log")
        for old, new in (("median_us=", "median"), ("size=8 ", "size=8x "), ("over=net ", ""), ("round=1 ", "round= ")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(read(LOGS, "debian12/pairs.log").replace(old, new))
            with self.assertRaisesRegex(reader.Refused, r"torn\.log, line \d+: the log is torn", msg=old):
                reader.Log(path)
        for value in ("nan", "0", "-1", "inf"):
            with open(path, "w", encoding="utf-8") as file:
                file.write(re.sub(r"median_us=\S+", f"median_us={value}", read(LOGS, "debian12/pairs.log")))
            with self.assertRaisesRegex(reader.Refused, "is no measurement", msg=value):
                reader.Log(path)

    def test_wrong_payload_is_refused(self):
        self.write("debian12/pairs.log", re.sub("wrong=0", "wrong=1", read(LOGS, "debian12/pairs.log"), count=1))
        for command in ("pairs", "usnic"):
            done = self.report(command, os.path.join(self.folder, "debian12/pairs.log"))
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, r"^report: .*pairs\.log, line \d+: wrong payload in ")

    def test_a_refused_log_is_told_on_the_page_and_the_others_are_shown(self):
        self.write("debian12/usnic.log", read(LOGS, "debian12/usnic.log")[:-30])
        page = self.page()
        self.assertRegex(page, r'class="said">Refused: debian12/usnic\.log, line \d+: the log is torn: the line does not end')
        transports = {row["transport"] for row in self.rows("figures.csv") if row["kind"] == "latency"}
        self.assertEqual(transports, {"mtl ofi", "btl smcuda"})

    def test_a_part_that_failed_or_was_left_out_is_told_with_its_reason(self):
        self.write("report/parts.tsv", "mtl\tdebian12\t0\t31\t\nusnic\tdebian12\t0\t9\tnot run: everything between hosts (no <root>)\n"
                   "smcuda\tdebian13\t1\t2\tthis run failed: mpirun\nall\tdebian13\t-\t0\tno debootstrap\n")
        text = "".join(Elements(self.page()).text)
        for line in ("usnic, debian12: in part: not run: everything between hosts (no <root>)",
                     "smcuda, debian13: failed (1): this run failed: mpirun", "all, debian13: not run: no debootstrap"):
            self.assertIn(line, text)
        self.assertNotIn("mtl, debian12:", text)

    def test_a_part_that_fails_stops_no_other_and_what_an_earlier_run_has_measured_is_not_shown(self):
        tree = os.path.join(self.folder, "tree")
        shutil.copytree(LOGS, os.path.join(tree, "target", "bench"))
        shutil.copytree(REPORT, os.path.join(tree, "bench", "report"))
        shutil.copy(os.path.join(ROOT, "bench", "whole.sh"), os.path.join(tree, "bench"))
        for path, does in {
            "tests/hosts/debian13.sh": "echo 'no debootstrap here'; exit 1",
            "bench/run.sh": f"echo \"$*\"; cp {LOGS}/debian12/pairs.log target/bench/debian12/",
            "bench/usnic.sh": "echo 'no mpirun here' >&2; exit 3",
            "bench/smcuda.sh": "echo 'not run: half of it'",
            "bench/start.sh": f"cp {LOGS}/debian12/start.log target/bench/debian12/",
            "bench/instructions.sh": "exit 0",
        }.items():
            self.write(os.path.join("tree", path), f"#!/bin/sh\n{does}\n")
            os.chmod(os.path.join(tree, path), 0o755)
        done = subprocess.run(["bench/whole.sh", "--quick"], cwd=tree, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("parts that failed: 1; the page says why", done.stdout)
        self.assertIn("--host debian12 --quick", read(tree, "target/bench/report/parts/mtl-debian12.txt"))
        self.into = os.path.join(tree, "target", "bench", "report")
        text = "".join(Elements(read(self.into, "index.html")).text)
        for line in ("usnic, debian12: failed (3): no mpirun here", "smcuda, debian12: in part: not run: half of it",
                     "all, debian13: not run: no debootstrap here"):
            self.assertIn(line, text)
        self.assertEqual({(row["transport"], row["kind"] == "start") for row in self.rows("figures.csv")},
                         {("mtl ofi", False), ("btl usnic", True)})
        self.assertEqual({row["host"] for row in self.rows("figures.csv")}, {"debian12"})

    def test_parts_that_failed_make_a_page_even_when_nothing_was_measured(self):
        for name in ("debian12", "debian13"):
            shutil.rmtree(os.path.join(self.folder, name))
        self.assertEqual(self.report("page", self.folder, self.into).returncode, 1)
        self.write("report/parts.tsv", "mtl\tdebian12\t1\t31\tno mpirun\n")
        self.assertIn("Nothing was measured", self.page())

    def test_nothing_of_the_page_comes_from_elsewhere(self):
        elements = Elements(self.page())
        self.assertEqual(elements.of("script"), [])
        for _, attributes in elements.found:
            for name in ("src", "href", "srcset"):
                self.assertNotRegex(attributes.get(name, ""), r"^([a-z]+:)?//")
        self.assertNotIn("url(", read(self.into, "page.css"))
        self.assertNotIn("@import", read(self.into, "page.css"))
        for attributes in elements.of("a"):
            if not attributes["href"].startswith("#"):
                self.assertTrue(os.path.exists(os.path.join(self.into, attributes["href"])), attributes)

    def test_what_a_log_says_is_text_and_nothing_else(self):
        for name in ("pairs.log", "usnic.log"):
            self.write(f"debian12/{name}", read(LOGS, "debian12", name).replace("over=net ", "over=<b>'`rm`\" ")
                       .replace("Open MPI", "<script>alert(1)</script>"))
        page = self.page()
        self.assertEqual(Elements(page).of("script") + Elements(page).of("b"), [])
        self.assertIn("&lt;b&gt;", page)
        self.assertEqual(plots.quoted("it's\n`rm` $x\\"), "'it''s `rm` $x\\'")

    def test_without_gnuplot_the_page_says_so_and_keeps_the_figures(self):
        elements = Elements(self.page())
        self.assertEqual(elements.of("img"), [])
        self.assertIn("not drawn: gnuplot is missing: tests/setup.sh bench installs it", "".join(elements.text))
        self.assertGreater(len(self.rows("figures.csv")), 20)

    def test_a_plot_that_cannot_be_drawn_is_told_and_the_others_are_there(self):
        tool = os.path.join(self.folder, "gnuplot")
        self.write("gnuplot", "#!/bin/sh\nif /usr/bin/grep -q goodput; then echo 'line 7: no such thing' >&2; exit 1; fi\n")
        os.chmod(tool, 0o755)
        elements = Elements(self.page(PATH=self.folder))
        text = "".join(elements.text)
        self.assertRegex(text, r"goodput of \S+ KiB: not drawn: line 7: no such thing")
        self.assertEqual(text.count("not drawn"), 1)
        self.assertGreater(len(elements.of("img")), 10)

    def check_that_every_plot_is_drawn_light_and_dark_and_names_its_axes_host_versions_and_date(self):
        elements = Elements(self.page(PATH=os.environ["PATH"]))
        self.assertNotIn("not drawn", "".join(elements.text))
        images = [attributes["src"] for attributes in elements.of("img")]
        dark = [attributes["srcset"] for attributes in elements.of("source")]
        self.assertEqual(len(images), len(dark))
        self.assertGreater(len(images), 10)
        self.assertEqual(len(set(images + dark)), 2 * len(images))
        for name in images + dark:
            drawing = " ".join(ElementTree.parse(os.path.join(self.into, name)).getroot().itertext())
            host = name.split("-")[0]
            header = read(LOGS, host, "pairs.log").splitlines()
            for words in (host, *(line[2:] for line in header[:3])):
                self.assertIn(words, drawing, name)
            unit = next(unit for kind, unit in (("latency", "µs"), ("bandwidth", "MB/s"), ("goodput", "MB/s"), ("stall", "µs"),
                                                ("rate", "a second"), ("start", "ms"), ("instructions", "instructions")) if kind in name)
            self.assertIn(unit, drawing, name)

    def test_sizes_that_double_are_on_a_logarithmic_axis_and_lengths_begin_at_nothing(self):
        run = figures.Run(self.folder)
        for plot in (plot for host in run.hosts() for _, row in plots.plots_of(run, host) for plot in row):
            script = plot.script("light", "")
            sizes = plot.across == "bytes of a message"
            self.assertEqual("set logscale x 2" in script, sizes, plot.name)
            self.assertNotEqual("set logscale y 10" in script, "set yrange [0:*]" in script, plot.name)
            self.assertEqual("set yrange [0:*]" in script, any(word in plot.name for word in ("goodput", "instructions", "start")))
            drawn = [line for line in script.splitlines() if line.startswith("plot ")]
            self.assertEqual(len(drawn), 1)
            for side in drawn[0].removeprefix("plot ").split(", $"):
                # The x, the median, the lowest, the highest; and how wide, where it is a box.
                self.assertRegex(side, r"using 1:2:3:4:\(0\.12\) with boxerrorbars|using 1:2:3:4 with yerror(bars|lines)")

    def test_the_tables_of_a_log_say_what_the_page_says(self):
        self.page()
        text = self.report("pairs", os.path.join(LOGS, "debian12/pairs.log")).stdout
        rows = [row for row in self.rows("ratios.csv") if (row["host"], row["transport"], row["kind"]) == ("debian12", "mtl ofi", "latency")]
        self.assertGreater(len(rows), 0)
        for row in rows:
            self.assertRegex(text, rf"(?m)^ +{row['bytes']} .* {float(row['median']):.3f} +{float(row['lowest']):.3f} +{float(row['highest']):.3f} ")

    def test_each_side_of_a_log_stands_beside_the_candidate_in_a_table_of_its_own_in_whatever_order_they_ran(self):
        said = {}  # [side][kind, size][round]; a later run of the same round counts
        for run in re.split(r"(?m)^(?=run )", read(LOGS, "debian12/rig/log"))[1:]:
            first, *lines = run.splitlines()
            for line in lines:
                kind, values = line.split()[0], words_of(line)
                if kind in KEYS:
                    row = said.setdefault(words_of(first)["variant"], {}).setdefault((kind, values["size"]), {})
                    row[words_of(first)["round"]] = float(values[KEYS[kind]])
        self.assertEqual(set(said), {"verbs", "openib", "tcp"})
        for row in (row for side in said.values() for row in side.values()):
            self.assertEqual(set(row), {"1", "2"})
        text = self.report("pairs", os.path.join(LOGS, "debian12/rig/log")).stdout
        tables = re.split(r"(?m)^(?=debian12, )", text)[1:]
        self.assertEqual([table.splitlines()[0] for table in tables],
                         [f"debian12, siw, verbs beside {side}: 2 rounds" for side in ("openib", "tcp")])
        for table, side in zip(tables, ("openib", "tcp")):
            for (kind, size), ours in said["verbs"].items():
                theirs = said[side][kind, size]
                ratios = [ours[key] / theirs[key] if kind == "latency" else theirs[key] / ours[key] for key in ours]
                part = re.search(rf"(?s)\n  {kind}: .*?\n\n", table).group()
                self.assertRegex(part, rf"(?m)^ +{size} .* {statistics.median(ratios):.3f} +{min(ratios):.3f} +{max(ratios):.3f} ")


class Lines(unittest.TextTestResult):
    """A line for each test."""

    def startTest(self, test):
        unittest.TestResult.startTest(self, test)

    def name(self, test):
        return test.id().rsplit(".test_", 1)[-1].replace("_", " ")

    def addSuccess(self, test):
        unittest.TestResult.addSuccess(self, test)
        print(f"ok {self.name(test)}", flush=True)

    def addFailure(self, test, err):
        unittest.TestResult.addFailure(self, test, err)
        print(f"not ok {self.name(test)}", flush=True)

    def addError(self, test, err):
        unittest.TestResult.addError(self, test, err)
        print(f"not ok {self.name(test)}", flush=True)


# What draws needs gnuplot, which `make test-all` installs.
if os.environ.get("HAWSER_WHOLE"):
    Page.test_every_plot = Page.check_that_every_plot_is_drawn_light_and_dark_and_names_its_axes_host_versions_and_date

if __name__ == "__main__":
    result = unittest.TextTestRunner(stream=sys.stdout, resultclass=Lines).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(Page))
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed")
    sys.exit(bad != 0)
