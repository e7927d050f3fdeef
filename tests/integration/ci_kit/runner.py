"""What runs CI steps, as far as the kit's files need it: GitHub's runner (expressions, environment files, workflow
commands in the log) and GitLab's. Anything in a file that isn't known here is an error, so that nothing goes untested.
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import tempfile

EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
STEP_KEYS = {"id", "name", "shell", "env", "run", "if", "uses", "with"}
# Those of GitHub's runner that do something.
COMMANDS = {
    "add-mask", "add-matcher", "add-path", "debug", "echo", "endgroup", "error", "group", "internal-set-repo-path",
    "notice", "remove-matcher", "save-state", "set-env", "set-output", "stop-commands", "warning",
}  # fmt: skip


def command_of(line):
    """The command that GitHub's runner finds in a line of a log, as (name, data), or None: "::" begins one at the start
    of a line, "##[" anywhere in it.
    """
    text = line.lstrip()
    if text.startswith("::") and "::" in text[2:]:
        head, data = text[2:].split("::", 1)
        if head.split(" ")[0] in COMMANDS:
            return head.split(" ")[0], data
    _, old, rest = line.partition("##[")
    if old and "]" in rest:
        head, data = rest.split("]", 1)
        if head.split(" ")[0] in COMMANDS:
            return head.split(" ")[0], data
    return None


def workflow_commands(log, without_stop=False):
    """What GitHub's runner would do for this log: (name, data) in order. `without_stop`: as if it didn't know how to
    stop reading commands.
    """
    commands, stop = [], None
    for line in log.split("\n"):
        if stop is not None:
            if line.strip() == f"::{stop}::":
                stop = None
            continue
        found = command_of(line)
        if found is None:
            continue
        if found[0] != "stop-commands":
            commands.append(found)
        elif not without_stop:
            stop = found[1]
    if stop is not None:
        commands.append(("stop-commands", "never ended"))
    return commands


def environment_file(path):
    """GITHUB_OUTPUT or GITHUB_ENV as a dictionary; its form for values of several lines is not used by the kit."""
    pairs = [line.split("=", 1) for line in path.read_text("utf-8").splitlines()]
    return {name: value for name, value in pairs}


@dataclasses.dataclass
class StepResult:
    code: int
    log: str  # Both streams, as the runner sees them.


class GithubRunner:
    """One job on one machine. `tools` stand in front of PATH. `actions` runs a step that uses somebody else's action:
    name to a function of its inputs.
    """

    def __init__(self, workspace, tools=(), actions=None, **github):
        self.workspace = pathlib.Path(workspace)
        self.actions = actions or {}
        self.github = {"repository": "owner/name", "token": "ghs_of_this_job", **github}
        self.env = {}
        self.temp = pathlib.Path(tempfile.mkdtemp(dir=self.workspace.parent))
        self.summary = self.temp / "summary"
        self.path = os.pathsep.join([*map(str, tools), os.environ["PATH"]])
        self.log = ""

    def expand(self, value, contexts):
        """A string of the file with its expressions replaced."""

        def look_up(match):
            context, _, rest = match[1].partition(".")
            found = contexts[context]
            return str(found.get(rest, "") if context == "steps" else found[rest])

        return EXPRESSION.sub(look_up, str(value))

    def wanted(self, condition, contexts, failed):
        if condition is None:
            return not failed
        expression = EXPRESSION.fullmatch(condition)
        match expression[1] if expression else condition:
            case "always() && inputs.artifact != ''":
                return contexts["inputs"]["artifact"] != ""
            case "!cancelled()":
                return True
        raise ValueError(f"unknown condition: {condition}")

    def run_script(self, step, contexts, outputs, action_path):
        """Runs `run:` as the runner does: the text as it stands, in a file."""
        with tempfile.NamedTemporaryFile("w", dir=self.temp, suffix=".sh", delete=False) as script:
            script.write(step["run"])
        shells = {None: ["bash", "-e"], "sh": ["sh", "-e"]}
        github_env = self.temp / "env"
        for path in (outputs, github_env, self.summary):
            path.touch()
        env = {
            "PATH": self.path,
            "HOME": str(self.temp),
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(outputs),
            "GITHUB_ENV": str(github_env),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_REPOSITORY": self.github["repository"],
            "GITHUB_RUN_ID": "12345",
            "GITHUB_WORKSPACE": str(self.workspace),
            "RUNNER_TEMP": str(self.temp),
            **self.env,
            **{name: self.expand(value, contexts) for name, value in step.get("env", {}).items()},
        }
        if action_path is not None:
            env["GITHUB_ACTION_PATH"] = str(action_path)
        result = run([*shells[step.get("shell")], script.name], self.workspace, env)
        self.log += result.log
        self.env.update(environment_file(github_env))
        return result

    def run_steps(self, steps, contexts, action_path=None, skip=()):
        """Runs steps until the end; the code of the first that failed, or 0. Those named in `skip` are left out."""
        contexts = {"github": self.github, "steps": {}, **contexts}
        code = 0
        for number, step in enumerate(steps):
            assert set(step) <= STEP_KEYS, step
            contexts["env"] = self.env
            if step.get("name") in skip or not self.wanted(step.get("if"), contexts, code != 0):
                continue
            if "run" in step:
                outputs = self.temp / f"outputs{len(list(self.temp.iterdir()))}"
                result = self.run_script(step, contexts, outputs, action_path)
                for name, value in environment_file(outputs).items():
                    contexts["steps"][f"{step.get('id', number)}.outputs.{name}"] = value
                code = code or result.code
            else:
                inputs = {name: self.expand(value, contexts) for name, value in step.get("with", {}).items()}
                ended = self.actions[step["uses"]](inputs)
                code = code or ended
        self.contexts = contexts
        return code

    def run_action(self, action, path, inputs):
        """A composite action, parsed, that lies at `path`: (exit code, outputs)."""
        assert set(inputs) <= set(action["inputs"]), inputs
        given = {name: inputs.get(name, declared.get("default")) for name, declared in action["inputs"].items()}
        missing = [name for name, value in given.items() if value is None]
        assert not missing, missing
        code = self.run_steps(action["runs"]["steps"], {"inputs": given}, action_path=path)
        return code, {name: self.expand(o["value"], self.contexts) for name, o in action["outputs"].items()}


def run(command, workspace, env, stop=None):
    """Runs a command in a process group of its own, both streams in one log. `stop` is called with the process and
    each of its lines, and may send it a signal.
    """
    with subprocess.Popen(
        command,
        cwd=workspace,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if stop is not None:
                stop(process, line)
        code = process.wait()
    return StepResult(code, b"".join(lines).decode("utf-8"))  # A log that isn't UTF-8 fails the test.


def run_gitlab_job(document, name, workspace, tools, variables, source="merge_request_event"):
    """A job of a GitLab file as its runner does it: variables in the environment, the script's lines in one shell."""
    job = {**document[document[name]["extends"]], **document[name]}
    assert set(job) <= {"stage", "variables", "script", "artifacts", "rules", "extends"}, job
    predefined = {"CI": "true", "GITLAB_CI": "true", "CI_PIPELINE_SOURCE": source, **variables}
    env = {**job["variables"]}
    for rule in job.get("rules", []):
        left, wanted = re.fullmatch(r'\$(\w+) == "(\w+)"', rule["if"]).groups()
        if predefined[left] == wanted:
            env.update(rule["variables"])
    expanded = {key: re.sub(r"\$(\w+)", lambda match: predefined[match[1]], str(value)) for key, value in env.items()}
    path = os.pathsep.join([*map(str, tools), os.environ["PATH"]])
    script = "\n".join(["set -e", *job["script"]])
    result = run(["sh", "-c", script], workspace, {"PATH": path, "HOME": str(workspace), **predefined, **expanded})
    return result, job["artifacts"]
