"""Switches for planted faults, and the pytest plugin that turns them on.

tools/plant-faults copies this file into a copy of the product and puts a switch at the place of
each fault. The plugin runs a test once without a fault, which records the places that the test
reaches, in all processes that it starts. It then runs the test once for each fault there that no
test has found. Each of these runs is a fork: nothing is kept from one to the next.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ON, REACHED, ANSWERS = HERE / "planted-on", HERE / "planted-reached", HERE / "planted-answers.json"
SECONDS = 300
"""The time that a test may take."""
_seen: set[int] = set()
_on = int(ON.read_text()) if ON.exists() else 0


def is_on(number: int) -> bool:
    """True if this fault is on; the place is recorded, if the tree can be written to."""
    if number not in _seen:
        _seen.add(number)
        with contextlib.suppress(OSError), REACHED.open("a") as file:
            file.write(f"{number}\n")
    return number == _on


def _run(item: Any, number: int) -> str:
    """What a fork of this process makes of a test: passed, failed, skipped or late."""
    ON.write_text(str(number))
    REACHED.write_text("")
    child = os.fork()
    if not child:
        os.setsid()
        os._exit(_outcome(item, number))
    end = time.monotonic() + SECONDS
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "late"
        time.sleep(0.005)
    return {0: "passed", 2: "skipped"}.get(os.waitstatus_to_exitcode(ended[1]), "failed")


def _outcome(item: Any, number: int) -> int:
    global _on  # noqa: PLW0603  # of this fork
    _on = number
    _seen.clear()
    from _pytest.runner import runtestprotocol  # noqa: PLC0415  # the product has no pytest

    try:
        reports = runtestprotocol(item, log=False, nextitem=None)
    except BaseException:  # noqa: BLE001  # nothing of a fork goes on in the tests of its parent
        return 1
    outcomes = {report.outcome for report in reports}
    return 1 if "failed" in outcomes else 2 if "skipped" in outcomes else 0


def name_of(item: Any) -> str:
    """The name of a test, without the parameters of a case."""
    name: str = item.nodeid.partition("[")[0]
    return name


def pytest_runtestloop(session: Any) -> bool:
    """Run the tests in the order that the list of faults asks for, until each fault is found."""
    import hypothesis  # noqa: PLC0415  # the product has none

    session.config._tmp_path_factory.getbasetemp()  # one for all forks  # noqa: SLF001
    fail_at_once = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile("planted", hypothesis.settings(), phases=fail_at_once)
    hypothesis.settings.load_profile("planted")
    answers = json.loads(ANSWERS.read_text())
    left = {int(number) for number in answers}
    last = {int(number): answer["found_by"] for number, answer in answers.items()}
    for item in sorted(session.items, key=lambda item: name_of(item) not in last.values()):
        if not left:
            break
        outcome = _run(item, 0)
        reached = {int(line) for line in REACHED.read_text().split()}
        # What a sandbox runs may have no record.
        reached |= {number for number, name in last.items() if name == name_of(item)}
        reached &= left
        if reached and outcome != "passed":
            print(f"{item.nodeid}: {outcome} without a fault", flush=True)
            continue
        for number in sorted(reached):
            answer = answers[str(number)]
            answer["tried"] += 1
            outcome = _run(item, number)
            if outcome == "failed" and _run(item, 0) == "passed":  # not by chance
                answer |= {"found_by": name_of(item), "is_found": True}
                left.discard(number)
            print(f"{number}: {outcome}: {item.nodeid}", flush=True)
        ANSWERS.write_text(json.dumps(answers))
    return True
