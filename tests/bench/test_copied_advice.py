"""Copied advice: its configurations, and the page that is made of its verdicts."""

import re
import shutil
import subprocess
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import copied_advice
import msgspec
import pytest
from advising.book import directives, files, read
from advising.page import CONTROL, page, summary
from free_ports import free_port
from rows import each_row

from nginx_tune.documents.verdict import BetterWhen, Environment, MetricVerdict, Outcome, Verdict

ROOT = Path(__file__).resolve().parents[2]


FOLDER = ROOT / copied_advice.FOLDER
BOOK = read(FOLDER)
CELLS = copied_advice.cells_of(BOOK)


def metric(name: str, ratio: float, outcome: Outcome) -> MetricVerdict:
    return MetricVerdict(
        name=name,
        baseline=1,
        candidate=ratio,
        ratio=ratio,
        low=ratio * 0.9,
        high=ratio * 1.1,
        outcome=outcome,
        better_when="lower",
    )


def verdict(outcome: Outcome, *beside: MetricVerdict, decides: Outcome | None = None) -> Verdict:
    primary = metric("hot.mean", 0.5, decides or outcome)
    return Verdict(
        outcome=outcome,
        primary_metric="hot.mean",
        metrics=[primary, *beside],
        environment=Environment(nginx_version="1.22.1", kernel_release="6.18"),
    )


@each_row(
    ("low", "high", "better_when", "said"),
    [
        (0.85, 1.2, "lower", "not settled, less than a quarter either way: "),
        (0.85, 1.4, "lower", "not settled, no gain of a quarter: "),
        (0.6, 1.2, "lower", "not settled: "),
        (0.6, 1.2, "higher", "not settled, no gain of a quarter: "),
        (0.85, 1.4, "higher", "not settled: "),
    ],
)
def test_what_is_not_settled_may_rule_a_great_gain_out(
    low: float, high: float, better_when: BetterWhen, said: str
) -> None:
    open_ = verdict("inconclusive")
    primary = msgspec.structs.replace(
        open_.metrics[0], ratio=1.0, low=low, high=high, better_when=better_when
    )
    cell = replace(CELLS[-1], verdict=msgspec.structs.replace(open_, metrics=[primary]))
    assert summary(cell).startswith(said)
    ruled_out = "In 1 of these a gain of a quarter, or a greater one, is ruled out."
    assert (ruled_out in page(BOOK, [*CELLS[:-1], cell])) is ("no gain" in said or "less" in said)


def test_the_configurations_beside_it_are_what_it_says() -> None:
    there = {path.name: path.read_text() for path in FOLDER.glob("*.conf")}
    assert there == files(BOOK)


def test_a_pair_differs_by_the_advice_alone() -> None:
    for advice in BOOK.advice:
        with_, without = (
            set(files(BOOK)[f"{advice.name}.{variant}.conf"].splitlines()[1:])
            for variant in ("with", "without")
        )
        more = {line.strip() for line in with_ - without}
        said = {
            f"{line};"
            for text in (advice.with_.main, advice.with_.events, advice.with_.http)
            for line in directives(text)
        }
        if advice.with_.listen:
            said.add(f"listen 80 {advice.with_.listen};")
        assert more <= said, advice.name
        assert bool(more) == (advice.name != CONTROL), advice.name


def test_each_advice_names_texts_and_each_text_is_named() -> None:
    named = {name for advice in BOOK.advice for name in advice.sources}
    assert named == set(BOOK.sources)
    assert [one.name for one in BOOK.advice if not one.sources] == [CONTROL]


@pytest.mark.needs("root", "nginx")
@each_row("name", sorted(files(BOOK)))
def test_nginx_takes_it(tmp_path: Path, name: str) -> None:
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    assert program is not None
    # Port 80 may be taken on this host, and -t binds.
    address = f"127.0.0.1:{free_port()}"
    text = files(BOOK)[name].replace("listen 80", f"listen {address}")
    (tmp_path / "nginx.conf").write_text(text)
    done = subprocess.run(
        [program, "-t", "-p", f"{tmp_path}/", "-c", f"{tmp_path}/nginx.conf"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_page_counts_cells_without_the_control() -> None:
    when = datetime(2026, 11, 24, tzinfo=timezone.utc)
    outcomes: list[Outcome] = ["better", "no_difference", "worse", "inconclusive"]
    cells = [
        copied_advice.Cell(
            cell.advice, cell.lab, cell.command,
            verdict(outcomes[number % 4] if cell.advice.name != CONTROL else "worse"), when,
        )
        for number, cell in enumerate(CELLS)
    ]  # fmt: skip
    text = page(BOOK, cells)
    counted = re.search(
        r"Of (\d+) cells (\d+) better, (\d+) without a difference, (\d+) worse, (\d+) not", text
    )
    assert counted is not None
    total, *parts = map(int, counted.groups())
    assert total == sum(parts) == len(BOOK.labs) * (len(BOOK.advice) - 1)
    assert "Measured on 2026-11-24" in text
    assert "nginx 1.22.1, kernel 6.18" in text
    for advice in BOOK.advice:
        assert f"### {advice.name}\n" in text
        assert f"| [{advice.name}](#{advice.name}) | " in text
