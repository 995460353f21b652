"""A kubectl that knows what `examples/kubernetes/load` asks: its pods are sandboxes of this host.

Each runs the Job's own command with the Job's environment and mounts, as its user, on a root that
is read-only, in a network namespace. Where that namespace is missing the pod fails.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

STATE = Path(os.environ["PODS_STATE"])
NAMESPACES = os.environ["PODS_NAMESPACES"].split(",")


def variables(container: Any, index: int, data: dict[str, str]) -> dict[str, str]:
    """The environment that the control plane gives a container of an Indexed Job."""
    found = {"JOB_COMPLETION_INDEX": str(index)}
    for one in container["env"]:
        source = one.get("valueFrom", {}).get("configMapKeyRef")
        found[one["name"]] = one["value"] if source is None else data[source["key"]]
    return found


def expanded(word: str, given: dict[str, str]) -> str:
    """A word of a command with ``$(NAME)`` replaced, as the kubelet does it."""
    return re.sub(r"\$\((\w+)\)", lambda name: given[name[1]], word)


def start_pods(job: Any) -> None:
    data = json.loads((STATE / "data.json").read_text())
    spec = job["spec"]["template"]["spec"]
    (container,), (volume,), (mount,) = (
        spec["containers"], spec["volumes"], spec["containers"][0]["volumeMounts"],
    )  # fmt: skip
    for item in volume["configMap"]["items"]:
        (STATE / "mounted").mkdir(exist_ok=True)
        (STATE / "mounted" / item["path"]).write_text(data[item["key"]])
    for index in range(job["spec"]["completions"]):
        given = variables(container, index, data)
        words = [expanded(one, given) for one in (*container["command"], *container["args"])]
        pod = STATE / f"{job['metadata']['name']}-{index}-abcde"
        user = str(spec["securityContext"]["runAsUser"])
        inside = [
            "ip", "netns", "exec", NAMESPACES[index],
            "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
            "--tmpfs", "/mnt", "--ro-bind", str(STATE / "mounted"), "/mnt",
            "--unshare-user", "--uid", user, "--gid", user,
            *(word.replace(mount["mountPath"] + "/", "/mnt/") for word in words),
        ]  # fmt: skip
        script = '"$@" > "$0.log" 2>&1; echo $? > "$0.status"'
        subprocess.Popen(["sh", "-c", script, str(pod), *inside], start_new_session=True)


def say(text: str) -> None:
    sys.stdout.write(text)


def main(words: list[str]) -> None:
    text = " ".join(words)
    if text.startswith("create configmap"):
        data = dict(one.removeprefix("--from-literal=").split("=", 1)
                    for one in words if one.startswith("--from-literal="))  # fmt: skip
        (name, path) = next(
            one.removeprefix("--from-file=").split("=", 1) for one in words if "from-file" in one
        )
        say(json.dumps({**data, name: Path(path).read_text()}))
    elif text.startswith("apply"):
        (STATE / "data.json").write_text(sys.stdin.read())
    elif text.startswith("create -f"):
        start_pods(yaml.safe_load(Path(words[2]).read_text()))
    elif text.startswith("get job"):
        statuses = [one.read_text().strip() for one in STATE.glob("*.status")]
        if len([one for one in statuses if one]) == len(NAMESPACES):
            say("Complete" if {*statuses} == {"0"} else "FailureTarget Failed")
    elif text.startswith("get pods"):
        say("\n".join(f"pod/{one.stem}" for one in sorted(STATE.glob("*.status"))))
    elif text.startswith("logs"):
        say((STATE / f"{words[1].removeprefix('pod/')}.log").read_text())
    else:
        assert text.startswith("delete job"), text


if __name__ == "__main__":
    main(sys.argv[1:])
