"""Which nginx is meant: the packaged one."""

from packaged_nginx import packaged_for

_of_validate, _of_scenarios = packaged_for("VALIDATE"), packaged_for("SCENARIO_RUN")
