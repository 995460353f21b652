"""Decisions as text: the answer on one screen, each decision's reasons, and a decision's page."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Collection, Iterator, Sequence
from inspect import getdoc
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nginx_tune.decide.answer import PROVES_A_FILE
from nginx_tune.documents.decisions import (
    Decision,
    DecisionId,
    Decisions,
    Evidence,
    HostSetting,
    Predicted,
    Setting,
)
from nginx_tune.documents.units import listed
from nginx_tune.report.quantities import predicted_text
from nginx_tune.report.screen import Line, Screen, ScreenBlock, Table
from nginx_tune.report.text import (
    amount_text,
    evidence_value,
    markdown_code,
    markdown_text,
    one_line,
    plain,
)

if TYPE_CHECKING:
    from nginx_tune.decide.engine import SweepStep

_QUIET = ("not_applicable", "keep")
SWITCHES: dict[DecisionId, str] = {
    "thread-pools": "thread pools",
    "per-disk-pools": "pool per disk",
    "sendfile-max-chunk": "sendfile_max_chunk",
    "reuseport": "reuseport",
}
"""The four switches at the beginning of a look at a host."""
_OF_READS = ("thread-pools", "per-disk-pools")
"""Switches that depend on the amount of data compared with memory."""
_TAKES_INPUTS = tuple(f"nginx-tune {name}" for name in ("plan", "audit", "generate", "recommend"))
_LONGEST_VERDICT = 40
PROVES_PLAN = " && nginx-tune validate --plan plan.json"
_LONGEST_VALUE = 8


def answer_screen(decisions: Decisions, next_command: str, options: Sequence[str] = ()) -> Screen:
    """The answer on one screen: four switches, other changes, certainty, the next command.

    ``next_command`` makes the change. It comes second if another command can settle the thread
    pools. ``options`` name the inputs of these decisions, for that command.
    """
    every = decisions.decisions
    changing = [d for d in every if d.settings or d.host_settings]
    switches = [d for id_ in SWITCHES for d in every if d.id == id_]
    shown = [*switches, *(d for d in changing if d not in switches)]
    open_ones = [d.id for d in every if d.verdict == "not_enough_evidence"]
    unsure = [d.id for d in changing if d.confidence == "low"]
    count = f"{len(changing) or 'None'} of {len(every)} decisions"
    changes = "changes" if len(changing) == 1 else "change"
    word = {d.id: switch_word(d, changes=d in changing) for d in shown}
    rows = [(d.id, word[d.id], _beside(word[d.id], clause(d.summary))) for d in shown]
    sure = [
        f"Not known yet: {', '.join(open_ones)}; -v shows what settles each." if open_ones else "",
        f"Low confidence: {', '.join(unsure)}." if unsure else "",
        one_line(_kind(decisions)),
        f"{len(every) - len(shown)} more stay as they are. -v shows reasons and risks.",
    ]
    last = [f"Next: {next_command}"]
    open_pools = [d for d in every if reads_unsettled(d)]
    if open_pools:
        command = open_pools[0].next_command
        settled = listed([d.id for d in open_pools if d.next_command == command])
        last = [f"Next (settle {settled}): {with_inputs(command, options)}"]
        last.append(f"Or as it is: {next_command}")
    return [
        [*_headline(decisions), Line(f"{count} {changes} something.", "answer")],
        [Table(rows, has_head=False)] if rows else [],
        [Line(line) for line in sure if line],
        [Line(one_line(line), "answer") for line in last],
    ]


def with_inputs(command: str, options: Sequence[str]) -> str:
    """The command, with options that name the inputs if the command takes those options."""
    takes = options and command.startswith(_TAKES_INPUTS)
    return f"{command} {shlex.join(options)}" if takes else command


OF_TREE = ("--map", "--accept-missing", "--prefix", "-p")
"""The options that say how a configuration is read."""


def with_tree(command: str, conf_path: str, options: Sequence[str]) -> str:
    """A ``learn`` or ``recommend`` command that reads the configuration, as ``options`` say.

    ``recommend`` gets the options with the other inputs (``with_inputs``).
    """
    for name, given in ("learn", options_named(options, OF_TREE)), ("recommend", []):
        start = f"nginx-tune {name} "
        if command.startswith(start):
            return f"{start}{shlex.join(['-c', conf_path, *given])} {command.removeprefix(start)}"
    return command


def options_named(options: Sequence[str], names: Collection[str]) -> list[str]:
    """The options of these names, each with its value."""
    return [word for pair in pairwise(options) if pair[0] in names for word in pair]


def prove_by_plan(
    decisions: Decisions, plan_command: str, conf_path: str, options: Sequence[str]
) -> Decisions:
    """The decisions; their next commands prove a plan, and read the configuration."""
    proof = plan_command + PROVES_PLAN
    return replace(
        decisions,
        decisions=[
            replace(
                d,
                next_command=proof
                if d.next_command.startswith(PROVES_A_FILE)
                else with_tree(d.next_command, conf_path, options),
            )
            for d in decisions.decisions
        ],
    )


def reads_unsettled(decision: Decision) -> bool:
    """True for a decision on pools that its next command could flip.

    With low confidence and unmeasured disks, its lines are written all the same.
    """
    rests_on_disks = decision.confidence == "low" and " --disks " in decision.next_command
    is_open = decision.verdict == "not_enough_evidence" and decision.next_command != ""
    return decision.id in _OF_READS and (is_open or rests_on_disks)


def switch_word(decision: Decision, *, changes: bool) -> str:
    """The state that a decision leads to, as a word or as its value."""
    if decision.verdict == "not_enough_evidence":
        return "measure"
    if not changes:
        is_new = decision.verdict == "enable" and not decision.summary.startswith("Already so")
        stays = "on" if is_new else "as it is"  # on by the lines of another decision
        is_number = decision.id == "sendfile-max-chunk"
        return stays if is_number or decision.verdict in {"keep", "enable"} else "stays off"
    if decision.verdict in {"enable", "disable"}:
        return "on" if decision.verdict == "enable" else "off"
    value = " ".join(decision.settings[0].args) if decision.settings else ""
    is_short = 0 < len(value) <= _LONGEST_VALUE and value not in {"on", "off"}
    return value if is_short else "set"


def _beside(word: str, text: str) -> str:
    """The text without ``word`` at its beginning, since the column beside it has that word."""
    return one_line(text.removeprefix(f"{word} "))


def clause(summary: str) -> str:
    """The first clause of a summary, without the verdict at its beginning."""
    verdict, colon, reason = summary.partition(": ")
    text = reason if colon and len(verdict) <= _LONGEST_VERDICT else summary
    first = re.split(r"[;.] | offloading would|, and ", text, maxsplit=1)[0].rstrip(".;: ")
    word = first.partition(" ")[0]
    is_name = "_" in word or word == "nginx"  # a directive, or the program
    return first if is_name else first[:1].upper() + first[1:]


def decisions_screen(decisions: Decisions) -> Screen:
    """A count, each decision that changes something with its reasons, then all others."""
    open_ones, quiet = _split(decisions)
    changing = [f"{d.id} ({_words(d.verdict)})" for d in open_ones if d.settings or d.host_settings]
    answer = f"Of {len(decisions.decisions)} decisions {len(changing) or 'none'} "
    answer += f"{'changes' if len(changing) == 1 else 'change'} something"
    said = f"{answer}: {', '.join(changing)}." if changing else f"{answer}."
    rows = [(d.id, _words(d.verdict), one_line(d.summary)) for d in quiet]
    head = ("decision", "verdict", "why")
    choice = one_line(decisions.nginx_choice)
    return [
        [*_headline(decisions), Line(said, "answer")],
        [Line(one_line(_kind(decisions))), *([Line(choice)] if choice else [])],
        *map(_block, open_ones),
        [Line("nothing to change", "heading"), Table([head, *rows])] if rows else [],
    ]


def _headline(decisions: Decisions) -> list[Line]:
    return [Line(one_line(line)) for line in (decisions.headline, decisions.binding) if line]


def _split(decisions: Decisions) -> tuple[list[Decision], list[Decision]]:
    """The decisions that change something or are undecided, and the others."""
    open_ones = [d for d in decisions.decisions if d.settings or d.verdict not in _QUIET]
    return open_ones, [d for d in decisions.decisions if d not in open_ones]


def _kind(decisions: Decisions) -> str:
    kind = decisions.kind_reason or decisions.kind_provenance
    if kind == "assumed":
        kind += "; give it with --kind or -c"
    return f"Kind of site: {decisions.kind} ({kind})"


def _block(d: Decision) -> ScreenBlock:
    rows = [(label, one_line(item)) for label, item in _labelled(d)]
    heading = Line(f"{d.id}: {_words(d.verdict)} ({d.confidence} confidence)", "heading")
    return [heading, Line(one_line(d.summary)), *([Table(rows, has_head=False)] if rows else [])]


def _labelled(d: Decision) -> list[tuple[str, str]]:
    """The settings, reasons and risks of a decision; only the first of a kind has its label."""
    parts = [
        ("write", [_setting(s) for s in d.settings]),
        ("proposed", [_setting(s) for s in d.proposed]),
        ("host", [_host_setting(setting) for setting in d.host_settings]),
        ("because", [_evidence(e) for e in d.evidence]),
        ("predicted", [_predicted(p) for p in d.predicted]),
        ("flips when", d.flips_when),
        ("risk", d.risks),
        ("next", [d.next_command] if d.next_command else []),
    ]
    return [
        ("" if number else label, item)
        for label, items in parts
        for number, item in enumerate(items)
    ]


MOST_PLACES = 6
"""Places of one setting that are shown; JSON has all."""


def _words(verdict: str) -> str:
    return verdict.replace("_", " ")


def _host_setting(one: HostSetting) -> str:
    if one.kind == "udev":
        return f"read-ahead of {one.name} {one.before or 'not known'} → {one.value} KiB"
    return f"{one.name} {one.before or 'not known'} → {one.value}: {one.reason}"


def _setting(s: Setting) -> str:
    words = " ".join([s.directive, *(arg or '""' for arg in s.args)])
    inner = "".join(f" {' '.join(line)};" for line in s.lines)
    place = f"{s.context} {s.block}".strip()
    if s.places:
        more = f" and {len(s.places) - MOST_PLACES} more" if len(s.places) > MOST_PLACES else ""
        shown = (f"{place.file}:{place.line} {place.text}" for place in s.places[:MOST_PLACES])
        place = "; ".join(map(plain, shown)) + more
    needs = f", needs {' and '.join(s.needs)}" if s.needs else ""
    return f"{words} {{{inner} }} ({place}){needs}" if s.lines else f"{words}; ({place}){needs}"


def _evidence(e: Evidence) -> str:
    return f"{e.fact}: {evidence_value(e)} ({e.provenance})"


def _predicted(p: Predicted) -> str:
    low, middle, high = (predicted_text(p.metric, v, p.unit) for v in (p.low, p.expected, p.high))
    return f"{p.metric}: {middle} [{low} – {high}]"


_ON_THIS_HOST = (
    "On this host: nginx-tune recommend -f json shows the verdict on %s\nwith its evidence; "
    "nginx-tune explain %s --facts FACTS.json shows as a table where it flips."
)


def decision_pages() -> dict[str, str]:
    """The page of every decision, by the decision's id."""
    return dict(_pages())


def render_decision_markdown(name: str) -> str:
    """The page of a decision in Markdown."""
    head, _, body = decision_pages()[name].partition("\n")
    parts = [f"# {name}", markdown_text(head.partition(": ")[2])]
    parts += [markdown_text(part) for part in textwrap.dedent(body).strip().split("\n\n")]
    return "\n\n".join(parts) + "\n"


def decision_titles() -> dict[str, str]:
    """The subject of every decision, by its id."""
    return {
        name: page.partition("\n")[0].partition(": ")[2] for name, page in decision_pages().items()
    }


def _pages() -> Iterator[tuple[str, str]]:
    from nginx_tune.decide.engine import ALL  # noqa: PLC0415  # every decision

    for decide in ALL:
        head, _, rest = (getdoc(decide) or "").partition("\n")
        name, _, title = head.replace("``", "").partition(": ")
        parts = [
            f"{name} (a decision of recommend): {title}",
            *([textwrap.indent(rest.strip("\n").replace("``", ""), "  ")] if rest.strip() else []),
            _ON_THIS_HOST % (name, name),
        ]
        yield name, "\n\n".join(parts) + "\n"


def render_sweep(name: str, steps: Sequence[SweepStep]) -> str:
    """The table: a row for each value, with marks at ``now`` and where the decision flips."""
    if not steps:
        return f"On this host: no known fact flips {name}.\n"
    rows = [
        (plain(s.fact), amount_text(s.value, s.unit), s.verdict.replace("_", " "), _mark(s))
        for s in steps
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"On this host, with other values of one fact, {name} is"]
    before = ""
    for fact, value, verdict, mark in rows:
        head = "" if fact == before else fact
        before = fact
        line = f"  {head:<{widths[0]}}  {value:>{widths[1]}}  {verdict:<{widths[2]}}  {mark}"
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def render_sweep_markdown(name: str, steps: Sequence[SweepStep]) -> str:
    """The table of :func:`render_sweep` in Markdown."""
    if not steps:
        return f"On this host no known fact flips {markdown_code(name)}.\n"
    head = f"On this host, with other values of one fact, {markdown_code(name)} is"
    lines = [head, "", "| fact | value | verdict | |", "|---|--:|---|---|"]
    for s in steps:
        marks = ", ".join(
            word for word, is_so in (("**flips**", s.flips), ("now", s.is_now)) if is_so
        )
        cells = [
            markdown_text(part)
            for part in (s.fact, amount_text(s.value, s.unit), s.verdict.replace("_", " "))
        ]
        lines.append(f"| {' | '.join(cells)} | {marks} |")
    return "\n".join(lines) + "\n"


def _mark(step: SweepStep) -> str:
    marks = [word for word, is_so in (("flips", step.flips), ("now", step.is_now)) if is_so]
    return "<- " + ", ".join(marks) if marks else ""
