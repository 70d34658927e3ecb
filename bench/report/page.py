"""The page of a run: index.html, one stylesheet, plots, and the figures as CSV and JSON, all in one folder that can be
moved. Nothing in it comes from elsewhere, and nothing in it runs.
"""

import os
import shutil
import statistics
from html import escape
from string import Template

import figures
import plots
from figures import KINDS, Run
from log import EVEN, SETTLES, Refused, number

FRAME = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'self' file:; img-src 'self' file: data:">
<title>hawser: what was measured</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="page.css">
</head>
<body>
<header>
<h1>hawser beside its peers</h1>
<p class="soft">$when</p>
<nav>$links</nav>
</header>
<main>
$body
</main>
</body>
</html>
""")

READING = f"""<p>In each round every side runs once, in turn, and what stands here are medians over the rounds. In the plots bars
reach from the lowest round to the highest. A ratio is hawser to the other side where less is better, and the other side to
hawser where more is: <strong>below 1.00 hawser is better, above it worse</strong>, and <span class="loss">▲ marked</span>.
Within {EVEN:.0%} of 1.00 it is even. A question mark: the rounds disagree on which is better, or are fewer than {SETTLES}.
Ranks poll and want a core each: with other work on the machine the figures say little.</p>"""


def cell(text, *classes):
    return f"<td{attribute(classes)}>{text}</td>"


def attribute(classes):
    return f' class="{" ".join(classes)}"' if classes else ""


def table(caption, head, rows):
    """`head` is of texts; those of `rows` are cells."""
    # A column stands as its first cell does.
    aligned = [("text",) if 'class="text' in below else () for below in rows[0]]
    heads = "".join(f'<th scope="col"{attribute(classes)}>{escape(text)}</th>' for text, classes in zip(head, aligned))
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="wide"><table>{title}<thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def ratio_cell(ratio):
    """The ratio, how far the rounds reach, and a mark where hawser is worse."""
    if not ratio:
        return cell("")
    word = ratio["verdict"]
    doubt = "?" if word.endswith("?") else ""
    above = ratio["median"] > 1
    mark = "▲ " if above else ""
    spread = f"<small>{ratio['lowest']:.2f} – {ratio['highest']:.2f}</small>" if ratio["rounds"] > 1 else ""
    return cell(f"{mark}{ratio['median']:.3f}{doubt}{spread}", *(("loss",) if above else ("win",) if word.startswith("win") else ()))


def figure_cell(figure):
    spread = f"<small>{number(figure['lowest'])} – {number(figure['highest'])}</small>" if figure["rounds"] > 1 else ""
    return cell(number(figure["median"]) + spread)


def what_of(one):
    """What tells a measurement from the others of its kind and place."""
    where = one.where
    said = [plots.size_text(where["bytes"]) if where["bytes"] and where["kind"] != "instructions" else "",
            plots.CASES.get(where["case"], where["case"] or ""),
            f"{where['loss']:g} % lost" if where["loss"] is not None else "",
            f"{where['ranks']} rank{'s' * (where['ranks'] > 1)}" if where["ranks"] else ""]
    return ", ".join(text for text in said if text)


def summary(run):
    """A line for each pair of sides: how often hawser is better, even, worse, and where worst."""
    pairs = {}
    for one in run.measurements:
        for ratio in one.ratios():
            key = (one.where["host"], one.where["transport"], plots.over_text(one), plots.label(ratio["side"]))
            pairs.setdefault(key, []).append((ratio, one))
    rows = []
    for key, found in pairs.items():
        words = [ratio["verdict"] for ratio, _ in found]
        counts = [sum(word == one for word in words) for one in ("win", "win?", "even", "loss?", "loss")]
        worst, at = max(found, key=lambda pair: pair[0]["median"])
        rows.append([cell(escape(text), "text") for text in key] + [cell(str(count)) for count in counts[:3]]
                    + [cell(str(count), *(("loss",) if count else ())) for count in counts[3:]]
                    + [cell(f"{statistics.median(ratio['median'] for ratio, _ in found):.3f}"), ratio_cell(worst),
                       cell(escape(f"{at.where['kind']}, {what_of(at)}"), "text")])
    return table("How often hawser is better, even, worse; of sizes, losses, cases",
                 ["host", "transport", "over", "beside", "better", "better?", "even", "worse?", "worse", "median ratio", "worst", "there"],
                 rows)


def parts(run):
    """What ran, and what did not and why."""
    rows = [[cell(escape(part.name), "text"), cell(escape(part.host), "text"),
             cell(part.word, "text", *(() if part.fine else ("loss",))), cell(part.seconds),
             cell(escape(part.said), "text", "long")] for part in run.parts]
    return table("", ["part", "host", "how it went", "seconds", "what it said"], rows)


def ratios_table(run, host, kind):
    """A column for each pair of sides, a row for each thing that was measured."""
    measured = run.of(host=host, kind=kind)
    columns = dict.fromkeys((one.where["transport"], plots.over_text(one), ratio["side"]) for one in measured for ratio in one.ratios())
    rows = {}
    for one in measured:
        key = (one.where["bytes"] or 0, one.where["ranks"] or 0, one.where["loss"] or 0, one.where["case"] or "", what_of(one))
        for ratio in one.ratios():
            rows.setdefault(key, {})[one.where["transport"], plots.over_text(one), ratio["side"]] = ratio
    if not columns:
        return ""
    head = [kind] + [f"{transport}, {over}: {plots.label(side)}" for transport, over, side in columns]
    # Cases stay in the order of the log.
    ordered = rows.items() if kind == "instructions" else sorted(rows.items())
    return table(f"{KINDS[kind].title}: ratios", head,
                 [[cell(escape(key[-1]), "text")] + [ratio_cell(row.get(column)) for column in columns] for key, row in ordered])


def figures_table(run, host, kind):
    """The figures themselves, where they are few."""
    measured = run.of(host=host, kind=kind)
    rows = [[cell(escape(f"{one.where['transport']}, {plots.over_text(one)}"), "text"), cell(escape(what_of(one)), "text"),
             cell(escape(plots.label(side)), "text"), figure_cell(one.figure(side))] for one in measured for side in one.sides()]
    unit = KINDS[kind].unit
    return table(KINDS[kind].title, ["transport", "of", "side", unit], rows) if rows else ""


def picture(plot, wrong):
    if plot.name in wrong:
        return f'<p class="said">{escape(plot.title)}: not drawn: {escape(wrong[plot.name])}</p>'
    spoken = f"{plot.title}; {plot.up} over {plot.across}; the figures are in figures.csv"
    return (f'<figure><picture><source media="screen and (prefers-color-scheme: dark)" srcset="{plot.file("dark")}">'
            f'<img src="{plot.file("light")}" width="{plots.SIZE[0]}" height="{plots.SIZE[1]}" alt="{escape(spoken)}"></picture></figure>')


def write(folder, into, gnuplot="gnuplot"):
    """Writes the page of what lies in a folder; says where it is."""
    run = Run(folder)
    if not (run.measurements or run.parts or run.refused):
        raise Refused(f"{folder}: there are no logs: run bench/whole.sh first")
    os.makedirs(into, exist_ok=True)
    figures.write(run, into)
    shutil.copyfile(os.path.join(os.path.dirname(__file__), "page.css"), os.path.join(into, "page.css"))
    drawn = {host: plots.plots_of(run, host) for host in run.hosts()}
    every = [plot for sections in drawn.values() for _, row in sections for plot in row]
    wrong = plots.draw(every, into, gnuplot)

    body = [f'<p class="said">Refused: {escape(text)}</p>' for text in run.refused]
    body += [f'<p class="said">{escape(part.name)}, {escape(part.host)}: {part.word}: {escape(part.said)}</p>'
             for part in run.parts if not part.fine]
    body += ['<h2 id="summary">In short</h2>', READING]
    body.append(summary(run) if run.measurements else "<p>Nothing was measured.</p>")
    for host, sections in drawn.items():
        body.append(f'<h2 id="{escape(host)}">{escape(host)}</h2>')
        body.append(f'<p class="soft">{"<br>".join(escape(line) for line in run.headers[host])}<br>load average before a run: up to'
                    f" {run.loads[host]:g}, of which the runs themselves make up to 2</p>")
        for heading, row in sections:
            body.append(f"<h3>{escape(heading)}</h3>")
            body.append('<div class="plots">' + "\n".join(picture(plot, wrong) for plot in row) + "</div>")
        body.append("<h3>Ratios, round by round</h3>")
        body.append('<div class="tables">' + "\n".join(ratios_table(run, host, kind) for kind in KINDS) + "</div>")
        body.append("<h3>Figures</h3>")
        shown = ("rate", "goodput", "stall", "start", "instructions")
        body.append('<div class="tables">' + "\n".join(figures_table(run, host, kind) for kind in shown) + "</div>")
    if run.parts:
        body += ['<h2 id="parts">What ran</h2>', parts(run)]

    when = next((header[-1] for header in run.headers.values() if header), "")
    links = [f'<a href="#{escape(host)}">{escape(host)}</a>' for host in drawn]
    if run.parts:
        links.append('<a href="#parts">what ran</a>')
    links += [f'<a href="{name}">{name}</a>' for name in ("figures.csv", "ratios.csv", "figures.json")]
    page = FRAME.substitute(when=escape(when), links="\n".join(links), body="\n".join(body))
    with open(os.path.join(into, "index.html"), "w", encoding="utf-8") as file:
        file.write(page)
    for name, text in wrong.items():
        print(f"report: {name}: not drawn: {text}")
    print(f"{os.path.join(into, 'index.html')}: {len(run.measurements)} measurements, {len(every) - len(wrong)} plots")
