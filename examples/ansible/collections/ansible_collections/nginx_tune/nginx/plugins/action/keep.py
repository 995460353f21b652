# -*- coding: utf-8 -*-
# Copyright: nginx-tune authors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Writes documents of a host into files of the controller."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import json
import os

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """All of nginx_tune.nginx.keep: nothing runs on the managed host."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        """The paths, and whether a file changed."""
        result = super(ActionModule, self).run(tmp, task_vars)
        given = self.validate_argument_spec(
            {
                "directory": {"type": "path", "required": True},
                "documents": {"type": "dict", "required": True},
            }
        )[1]
        directory, paths, changed = given["directory"], [], False
        try:
            if not self._task.check_mode:
                os.makedirs(directory, mode=0o700, exist_ok=True)
            for name, document in given["documents"].items():
                if document is None:
                    continue
                path = os.path.join(directory, name + ".json")
                paths.append(path)
                text = json.dumps(document, ensure_ascii=False).encode("utf-8") + b"\n"
                if read(path) != text:
                    changed = True
                    if not self._task.check_mode:
                        write(path, text)
        except OSError as error:
            raise AnsibleActionFail("%s: %s" % (error.filename or directory, error.strerror))
        result.update(changed=changed, paths=paths)
        return result


def read(path):
    """The bytes of a file; None when there is none."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def write(path, text):
    """Put the bytes in the file's place in one step, for its owner alone."""
    part = path + ".part"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    os.replace(part, path)
