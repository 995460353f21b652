"""The rules by id, and a rule's page, made of its fields: why, examples, fix, sources, proof."""

import textwrap
from collections.abc import Iterable
from functools import lru_cache

from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import Example, Rule, severity_in
from nginx_tune.audit.suppression import NOTICES
from nginx_tune.audit.upgrade import CHANGED
from nginx_tune.conf.known_directives import is_known
from nginx_tune.report.text import percent_text

EVERY: tuple[Rule, ...] = (*ALL, *NOTICES, CHANGED)
"""The rules of the catalogue, of suppression comments, and of upgrades."""


@lru_cache(maxsize=1)
def rules_by_id() -> dict[str, Rule]:
    """Every rule, by its id."""
    return {rule.id: rule for rule in EVERY}


WIDTH = 80

_SEVERITIES = {
    "error": "error: requests are lost or broken, or nginx does not start",
    "warning": "warning: likely harm",
    "advice": "advice: tune it only with the named fact or a measurement",
    "info": "information",
}


def render_markdown_page(rule: Rule) -> str:
    """The page as Markdown."""
    parts = [
        f"# {rule.id}",
        f"{_sentence(rule.title)}",
        _table(rule),
        "## Why",
        rule.why,
        *([] if not rule.about else [_paragraphs(rule.about)]),
        "## Fires on",
        _code(rule.bad),
        "## Silent on",
        _code(rule.good),
        "## Fix",
        rule.fix,
        *(
            []
            if rule.fixes is None
            else ["`nginx-tune audit --fix-diff` prints the edits that do this."]
        ),
        *([] if not rule.seen else ["## Seen on a real nginx", _paragraphs(rule.seen)]),
        *([] if not rule.conflict else ["## Who asks for the opposite", rule.conflict]),
        "## Sources",
        "\n".join(f"- {_link(source)}" for source in rule.sources),
    ]
    return "\n\n".join(parts) + "\n"


def render_text_page(rule: Rule) -> str:
    """The page for a terminal."""
    sections = [
        f"{rule.id}: {rule.title}",
        "\n".join(f"  {name:10}{value}" for name, value in _facts(rule)),
        _section("Why", rule.why),
        *([] if not rule.about else [_wrapped(rule.about)]),
        _example("Fires on", rule.bad),
        _example("Silent on", rule.good),
        _section("Fix", rule.fix),
        *(
            []
            if rule.fixes is None
            else [_wrapped("nginx-tune audit --fix-diff prints the edits that do this.")]
        ),
        *([] if not rule.seen else [_section("Seen on a real nginx", rule.seen)]),
        *([] if not rule.conflict else [_section("Who asks for the opposite", rule.conflict)]),
        "Sources\n" + "\n".join(f"  - {source}" for source in rule.sources),
    ]
    return "\n\n".join(sections) + "\n"


def render_index(rules: Iterable[Rule]) -> str:
    """The list of all rules with their proof status, as Markdown."""
    listed = list(rules)
    weighty = [rule for rule in listed if rule.severity in {"error", "warning"}]
    proven = sum(rule.proof == "proven" for rule in weighty)
    rows = "".join(
        f"| [{rule.id}]({rule.id}.md) | {rule.severity} | {_cell(rule.title)} | "
        f"{window_text(rule)} | {proof_text(rule)} |\n"
        for rule in listed
    )
    return (
        "# The rules of nginx-tune audit\n\n"
        f"{len(listed)} rules; of the {len(weighty)} errors and warnings {proven} are proven: a "
        "test shows the claimed effect on a real nginx of the versions named.\n\n"
        "| rule | severity | finds | nginx versions | proof |\n|---|---|---|---|---|\n"
        f"{rows}"
    )


def render_text_list(rules: Iterable[Rule]) -> str:
    """The list of all rules for a terminal: one line each."""
    listed = list(rules)
    width = max(len(rule.id) for rule in listed)
    return "".join(
        f"{rule.id:{width}}  {rule.severity:7}  {rule.proof:11}  {rule.title}\n" for rule in listed
    )


def proof_text(rule: Rule) -> str:
    """``proven`` with the versions, or ``source-only``."""
    if rule.proof == "proven" and rule.proven_on:
        return f"proven on {', '.join(rule.proven_on)}"
    return rule.proof


def window_text(rule: Rule) -> str:
    """The nginx versions to which a rule applies, in words."""
    if rule.since and rule.until:
        return f"{rule.since} up to, not including, {rule.until}"
    if rule.since:
        return f"from {rule.since}"
    if rule.until:
        return f"before {rule.until}"
    return "all"


def _facts(rule: Rule) -> list[tuple[str, str]]:
    facts = [
        ("severity", _SEVERITIES[rule.severity]),
        ("nginx", window_text(rule)),
        ("proof", proof_text(rule)),
        ("profiles", ", ".join(_profile(rule, name) for name in ("default", "strict", "cis")
                               if name in rule.profiles)),
    ]  # fmt: skip
    if rule.bad.facts is not None:
        facts.append(("host", "needs facts of the host (--facts)"))
    return facts


def _profile(rule: Rule, name: str) -> str:
    raised = name == "strict" and severity_in("strict", rule.severity) != rule.severity
    return f"{name} (as a warning)" if raised else name


def _table(rule: Rule) -> str:
    rows = "\n".join(f"| {name} | {_cell(value)} |" for name, value in _facts(rule))
    return f"| | |\n|---|---|\n{rows}"


def _code(example: Example) -> str:
    note = _host(example)
    fence = f"```nginx\n{_dedented(example.conf)}\n```"
    return f"{note}\n\n{fence}" if note else fence


def _example(title: str, example: Example) -> str:
    note = _host(example)
    head = f"{title} ({note.rstrip(':')})" if note else title
    return head + "\n" + textwrap.indent(_dedented(example.conf), "    ")


def _host(example: Example) -> str:
    """The facts of the example's host that matter, as many as fit on a line."""
    facts = example.facts
    if facts is None:
        return ""
    said = []
    if facts.nginx.version:
        said.append(f"nginx {facts.nginx.version}")
    if facts.memory.page_cache_limit_bytes:
        said.append(f"{facts.memory.page_cache_limit_bytes >> 30} GiB for the page cache")
    said += [
        f"{dataset.path} of {(dataset.bytes or 0) >> 30} GiB, "
        f"{percent_text(dataset.residency.ratio or 0.0, 2)} of it resident"
        for dataset in facts.datasets
    ]
    said += [
        f"{path.path} on {', '.join(path.leaf_disks)}" for path in facts.storage.paths
        if path.leaf_disks
    ]  # fmt: skip
    return "; ".join(said) + ":" if said else ""


def _dedented(conf: str) -> str:
    return textwrap.dedent(conf).strip("\n").rstrip()


def _section(title: str, text: str) -> str:
    return f"{title}\n{_wrapped(text)}"


def _wrapped(text: str) -> str:
    return "\n\n".join(
        textwrap.fill(
            " ".join(paragraph.split()), WIDTH, initial_indent="  ", subsequent_indent="  ",
            break_on_hyphens=False, break_long_words=False,
        )
        for paragraph in text.split("\n\n")
    )  # fmt: skip


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _sentence(text: str) -> str:
    """A title as a sentence; a directive at its beginning keeps its spelling."""
    is_directive = is_known(text.partition(" ")[0])
    return f"{text}." if is_directive else f"{text[:1].upper()}{text[1:]}."


def _link(source: str) -> str:
    return f"<{source}>" if source.startswith("https://") and " " not in source else source


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
