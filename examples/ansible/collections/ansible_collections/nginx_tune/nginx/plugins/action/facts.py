# -*- coding: utf-8 -*-
# Copyright: nginx-tune authors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs the module, or the collector where the tool is not on the managed host."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import json
import subprocess

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

PYTHONS = "for p in /usr/bin/python3 /usr/libexec/platform-python python3; do command -v $p && exit; done; exit 1"


class ActionModule(ActionBase):
    """The controller's half of nginx_tune.nginx.facts."""

    def run(self, tmp=None, task_vars=None):
        """The facts, from the tool on the host or from what the collector recorded there."""
        result = super(ActionModule, self).run(tmp, task_vars)
        wanted = self._task.args.get("collector", "auto")
        if wanted != "always":
            given = self._execute_module(
                module_name="nginx_tune.nginx.facts", task_vars=task_vars, tmp=tmp
            )
            if given.get("failed") or given.pop("is_installed", True) or wanted == "never":
                result.update(given)
                return result
        if self._task.args.get("datasets"):
            raise AnsibleActionFail(
                "the collector scans no datasets: install nginx-tune on the host "
                "(role nginx_tune.nginx.install) or leave datasets out"
            )
        capture = self._record(self._tool(["collector"]))
        facts = self._tool(["-q", "inspect", "--host", "-", "-f", "json"], capture)
        result.update(changed=False, ansible_facts={"nginx_tune": json.loads(facts)})
        return result

    def _tool(self, arguments, given=b""):
        """What nginx-tune prints on the controller."""
        name = self._task.args.get("controller_executable", "nginx-tune")
        try:
            run = subprocess.run(
                [name] + arguments,
                input=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                check=False,
            )
        except OSError as error:
            raise AnsibleActionFail(
                "%s on the controller: %s (controller_executable names another)"
                % (name, error.strerror)
            )
        if run.returncode:
            raise AnsibleActionFail(run.stderr.decode("utf-8", "replace").strip())
        return run.stdout

    def _record(self, program):
        """The capture that the collector writes on the managed host; nothing is left there."""
        python = self._low_level_execute_command(PYTHONS)
        if python["rc"]:
            raise AnsibleActionFail("no Python 3 on the host: the collector needs 3.6 or later")
        given = []
        for name in ("paths", "cache_dirs"):
            for path in self._task.args.get(name) or []:
                given += ["--path", path]
        if self._task.args.get("nginx"):
            given += ["--nginx", self._task.args["nginx"]]
        folder = self._make_tmp_path()
        try:
            script = self._connection._shell.join_path(folder, "collect.py")
            self._transfer_data(script, program)
            self._fixup_perms2((folder, script))
            words = [python["stdout"].split()[0], script] + given
            command = " ".join(self._connection._shell.quote(word) for word in words)
            run = self._low_level_execute_command(command)
        finally:
            self._remove_tmp_path(folder)
        if run["rc"]:
            raise AnsibleActionFail("the collector failed: %s" % run["stderr"].strip()[-2000:])
        return run["stdout"].encode("utf-8")
