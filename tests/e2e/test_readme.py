"""What the README prints works as it stands."""

import json
import os
import re
import subprocess

from support.instance import ROLES, Instance
from support.processes import PATIENCE, REPOSITORY
from support.sandbox import Sandbox

ANN = 5000000001  # the chat of the examples is that of the sandbox's first person


def examples() -> list[tuple[str, str]]:
    """Return each shell line of the README with the JSON that it is said to answer."""
    text = (REPOSITORY / "README.md").read_text()
    blocks = re.findall(r"^```(sh|json)\n(.*?)^```", text, re.M | re.S)
    found = []
    for (kind, block), (next_kind, next_block) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "sh":
            found.append((block, next_block if next_kind == "json" else ""))
    return found


def test_the_curl_lines_answer_as_they_are_said_to(instance: Instance, sandbox: Sandbox) -> None:
    """Each curl line, in order, succeeds; its answer has the members that the README shows."""
    key = instance.add_key()
    sandbox.say(ANN, "Hello")
    for role in ROLES:
        instance.start(role)
    lines = examples()
    assert [re.findall(r"8080(/\S*)", line)[0] for line, _ in lines] == [
        "/send", "/subscribe", "/subscriptions", "/subscriptions/1", "/health",
    ]  # fmt: skip

    for line, said in lines:
        command = line.replace("127.0.0.1:8080", f"127.0.0.1:{instance.port}")
        done = subprocess.run(
            ["sh", "-c", command],
            env={"PATH": os.environ["PATH"], "KEY": key},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        if not said:
            assert done.stdout == ""
            continue
        answer, shown = json.loads(done.stdout), json.loads(said)
        assert answer["ok"] is True
        assert shown.keys() == answer.keys()
        assert_has_members(answer, shown)


def assert_has_members(answer: object, shown: object) -> None:
    """Everything that is shown is there; values may differ, but not their types."""
    if isinstance(shown, dict):
        assert isinstance(answer, dict)
        for name, value in shown.items():
            assert name in answer, f"no {name}"
            if answer[name] is not None:
                assert_has_members(answer[name], value)
    elif isinstance(shown, list):
        assert isinstance(answer, list)
        assert len(answer) == len(shown)
        for one, other in zip(answer, shown, strict=True):
            assert_has_members(one, other)
    else:
        assert type(answer) is type(shown)
