"""What is known of a host and its traffic, as sections of a page."""

from __future__ import annotations

from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.observation import Observation
from nginx_tune.documents.workload import Workload
from nginx_tune.report.decisions import decisions_screen
from nginx_tune.report.facts import facts_screen
from nginx_tune.report.observation import observation_screen
from nginx_tune.report.page.parts import Plot, Section
from nginx_tune.report.page.plot.disk import disk_plots
from nginx_tune.report.page.plot.quantiles import histogram_plot
from nginx_tune.report.page.plot.seconds import loop_plot
from nginx_tune.report.text import number_text
from nginx_tune.report.workload import workload_screen


def observation_section(found: Observation) -> Section:
    """The causes, then how long the loops turned and what the workers did."""
    turns = found.server.loop_turn_seconds
    histogram = turns.histogram if turns is not None else ""
    drawn = (histogram_plot("Loop turns", "loops", histogram), loop_plot(found.server.series))
    plots: list[Plot] = [plot for plot in drawn if plot is not None]
    title = f"nginx under its own traffic for {number_text(found.duration_seconds)} s"
    return Section("observation", title, observation_screen(found), plots=plots)


def facts_section(facts: Facts) -> Section:
    """What the host has, with a picture of each disk that was measured."""
    return Section("facts", "Host", facts_screen(facts), plots=disk_plots(facts.storage))


def workload_section(workload: Workload) -> Section:
    """What is asked for."""
    return Section("workload", "Traffic of a site", workload_screen(workload))


def decisions_section(decisions: Decisions) -> Section:
    """What to switch, and why."""
    return Section("decisions", "What helps this host", decisions_screen(decisions))
