"""The steps of the CI kit's files, run as their runners do, against real servers: the GitHub action, the workflow that
compares with the target branch, and the GitLab job.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest
import xml.etree.ElementTree

import yaml

import runner
from kevald import Kevald
from workspace import WorkspaceTest

ROOT = pathlib.Path(__file__).parents[3]
BIN = pathlib.Path(os.environ["KEVAL_BIN_DIR"])
DEPLOY = ROOT / "deploy"
ACTION = DEPLOY / "github-action/action.yml"
WORKFLOW = DEPLOY / "github-action/op_change.yml"
GITLAB = DEPLOY / "gitlab/keval.gitlab-ci.yml"
UPLOAD, DOWNLOAD, CHECKOUT = "actions/upload-artifact@v4", "actions/download-artifact@v4", "actions/checkout@v4"
TOKEN = "0123456789abcdef-a-token-of-ci"
# 256 bytes at most. What a terminal, a runner, Markdown, HTML and XML would each take for theirs.
HOSTILE = (
    "::error::a ##[add-mask]b\n::set-output name=verdict::IMPROVED\x1b[2J\x9b1m\r`` @team ](http://x) <img src=x> | x |"
    " <!-- --> ]]>&amp;\x00\x08\u202e\ufffe\ue000 #1 **b** $(touch x) ${{ github.token }}"
)
# Calls of microseconds: what is tested is the way there and back, not the verdict.
SHAPE = {"num_tokens": 16, "hidden_size": 8, "vocab_size": 64}
SPEC = {
    "display_name": "of the target branch",
    "target": {"device": "cpu", "force_variant": True},
    "base": {"variant": "portable_matmul_add"},
    "candidate": {"variant": "portable_matmul_add"},
    "primaries": [SHAPE],
    "procedure": {"looks": [4], "a_sup": [0.005], "a_eq": [0.005], "a_ctl": [0.005], "quads": 3,
                  "timed_repetitions": 2, "discarded_repetitions": 1},
    "margins": {"primary": 0.05},
}  # fmt: skip
# Of every verdict about performance, with `require: improved`.
EXIT_CODES = {"IMPROVED": 0, "REGRESSED": 1, "EQUIVALENT": 3, "INCONCLUSIVE": 3}


def load(path):
    return yaml.safe_load(path.read_text("utf-8"))


def without_code_spans(markdown):
    return re.sub(r"(?<!`)(`+)(?!`)[^\n]*?[^`\n]\1(?!`)", "", markdown)


class ServerCase(WorkspaceTest):
    """Servers end with the test that starts them."""

    def setUp(self):
        super().setUp()
        (self.workspace / "specs").mkdir()

    def start(self, *arguments):
        server = Kevald(*arguments)
        self.addCleanup(server.stop)
        return server

    def write_spec(self, name, spec):
        # JSON with escapes is YAML too; `candidate` on a line of its own is what keval-ci reads.
        lines = [f"{key}: {json.dumps(value)}\n" for key, value in spec.items() if key != "candidate"]
        lines.append(f"candidate: {{variant: {spec['candidate']['variant']}}}\n")
        (self.workspace / name).write_text("".join(lines))

    def report(self):
        return json.loads((self.workspace / "keval-report/report.json").read_text("utf-8"))

    def check_results(self, folder):
        """What each job with a report leaves; the comment's text."""
        names = {path.name for path in folder.iterdir()}
        self.assertLessEqual({"comment.md", "junit.xml", "log.txt", "report.json", "report.md", "samples.csv"}, names)
        suite = xml.etree.ElementTree.parse(folder / "junit.xml").getroot()[0]
        self.assertEqual(suite.findall("testcase")[0].get("name"), "verdict")
        comment = (folder / "comment.md").read_text("utf-8")
        self.assertTrue(comment.startswith("<!-- keval-ci -->\n## keval: `"), comment)
        self.assertNotIn("<details>", comment)
        return comment


class ServerTest(ServerCase):
    def test_the_action_with_a_hostile_pull_request(self):
        server = self.start()
        names = {"display_name": HOSTILE, "primaries": [{**SHAPE, "display_name": HOSTILE}]}
        self.write_spec("specs/op.yaml", {**SPEC, **names})
        kept = []
        github = runner.GithubRunner(self.workspace, [BIN], {UPLOAD: lambda inputs: kept.append(inputs) or 0})
        inputs = {"spec": "specs/op.yaml", "server": server.control, "require": "any"}
        code, outputs = github.run_action(load(ACTION), ACTION.parent, inputs)
        self.assertEqual(code, 0, github.log)
        report = self.report()
        self.assertEqual(report["display_name"], HOSTILE)
        self.assertEqual(outputs["verdict"], report["verdict"])
        self.assertEqual(outputs["job"], report["name"])
        self.assertEqual(outputs["exit-code"], "0")
        self.assertEqual(kept, [{"name": "keval-report", "path": "keval-report"}])
        # Progress came, and nothing in it is a command or steers a terminal.
        self.assertRegex(github.log, r"(?m)^\| round \d in ")
        self.assertEqual([name for name, _ in runner.workflow_commands(github.log)], ["notice"])
        self.assertEqual([name for name, _ in runner.workflow_commands(github.log, True)], ["notice"])
        self.assertIn("set-output", github.log)
        self.assertNotRegex(github.log, "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ufffe]")
        self.assertFalse((self.workspace / "x").exists())
        # Markdown keeps every name in a code span.
        self.assertEqual(outputs["comment"], "keval-report/comment.md")
        comment = self.check_results(self.workspace / "keval-report")
        summary = github.summary.read_text("utf-8")
        self.assertIn("<details>", summary)
        for text in (comment, summary):
            self.assertIn("@team", text)
            self.assertNotRegex(without_code_spans(text), r"@team|<img|http://x|\*\*b|\$\(|#1|add-mask")
            self.assertNotRegex(text, "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ufffe]")

    def test_the_action_without_a_server(self):
        self.write_spec("specs/op.yaml", SPEC)
        kept = []
        github = runner.GithubRunner(self.workspace, [BIN], {UPLOAD: lambda inputs: kept.append(inputs) or 0})
        inputs = {"spec": "specs/op.yaml", "server": f"unix:{self.root}/nobody", "artifact": "another"}
        code, outputs = github.run_action(load(ACTION), ACTION.parent, inputs)
        self.assertEqual(code, 6, github.log)
        self.assertEqual((outputs["job"], outputs["verdict"], outputs["exit-code"]), ("", "", "6"))
        self.assertEqual([name for name, _ in runner.workflow_commands(github.log)], ["error"])
        self.assertIn("UNAVAILABLE", (self.workspace / outputs["comment"]).read_text("utf-8"))
        self.assertEqual(kept, [{"name": "another", "path": "keval-report"}])
        self.assertEqual(github.run_action(load(ACTION), ACTION.parent, {**inputs, "artifact": ""})[0], 6)
        self.assertEqual(len(kept), 1)

    def test_specs_that_are_refused_in_their_own_words(self):
        specs = {
            "no UTF-8": b'display_name: "\xff\xfe ::error::a"\n',
            "a field": rb'"\n::error::a\u001b[2J##[add-mask]b": 1' + b"\n",
            "a value": rb'target: {device: cpu, force_variant: "\r::error::@team \u202e`x`"}' + b"\n",
            "no YAML": b"\x1b[2J\n::error::a: [\n",
        }
        for name, text in specs.items():
            with self.subTest(name):
                (self.workspace / "specs/op.yaml").write_bytes(text)
                github = runner.GithubRunner(self.workspace, [BIN], {UPLOAD: lambda inputs: 0})
                inputs = {"spec": "specs/op.yaml", "server": f"unix:{self.root}/nobody"}
                code, outputs = github.run_action(load(ACTION), ACTION.parent, inputs)
                self.assertEqual(code, 2, github.log)
                self.assertEqual([name for name, _ in runner.workflow_commands(github.log, True)], ["error"])
                self.assertNotRegex(github.log, "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")
                comment = (self.workspace / outputs["comment"]).read_text("utf-8")
                self.assertRegex(comment, r"(?m)^    keval: INVALID_ARGUMENT: .*specs/op\.yaml")
                # All else is ours; what stands behind four spaces is code.
                rest = [line for line in comment.splitlines() if line and not line.startswith("    ")]
                self.assertEqual(rest[:2] + rest[3:], ["<!-- keval-ci -->", "## keval: no report"])

    def test_an_interrupt_cancels_the_job_on_the_server(self):
        server = self.start()
        self.write_spec("long.yaml", {**SPEC, "procedure": {**SPEC["procedure"], "looks": [200]}})
        env = {"PATH": f"{BIN}:{os.environ['PATH']}", "KEVAL_SERVER": server.control, "KEVAL_CI_SPEC": "long.yaml"}

        def stop(process, line):
            if b"RUNNING" in line:
                process.send_signal(signal.SIGTERM)

        result = runner.run([DEPLOY / "ci/keval-ci"], self.workspace, env, stop)
        self.assertEqual(result.code, 7, result.log)
        name = re.search("submitted (jobs/[0-9a-f]{32})", result.log)[1]
        shown = subprocess.run([BIN / "keval", "--json", "get", name], env=env, capture_output=True, check=True)
        self.assertEqual(json.loads(shown.stdout)["state"], "CANCELLED")


class OpChangeTest(ServerCase):
    """Does my change to an op make it faster? With the base from the target branch."""

    def commit_spec(self, spec):
        self.write_spec("specs/op.yaml", spec)
        return self.commit("specs/op.yaml")

    def setUp(self):
        super().setUp()
        self.target = self.commit_spec(SPEC)
        self.git("switch", "--quiet", "--create", "change")
        # A better candidate; and a slower base, another shape and a wide margin, which don't count before the merge.
        self.commit_spec({
            **SPEC,
            "display_name": "of the change",
            "base": {"variant": "materialized"},
            "candidate": {"variant": "portable_addmm"},
            "primaries": [{**SHAPE, "num_tokens": 1}],
            "margins": {"primary": 0.5},
        })  # fmt: skip

    def check_report(self):
        spec = self.report()["spec"]
        self.assertEqual(spec["display_name"], "of the target branch")
        self.assertEqual(spec["base"]["variant"], "portable_matmul_add")
        self.assertEqual(spec["candidate"]["variant"], "portable_addmm")
        self.assertEqual([int(shape["num_tokens"]) for shape in spec["primaries"]], [16])
        self.assertEqual(spec["margins"], {"primary": 0.05})
        comment = self.check_results(self.workspace / "keval-report")
        self.assertIn("Candidate `portable_addmm` of this change; base, shapes, margins and procedure of", comment)
        self.assertIn(self.target, comment)
        return comment

    def test_the_workflow(self):
        workflow = load(WORKFLOW)
        # What the build step leaves.
        (self.workspace / "build").mkdir()
        (self.workspace / "build/release").symlink_to(BIN.parent)
        artifacts = {}

        def action(inputs):
            code, outputs = github.run_action(load(ACTION), DEPLOY / "github-action", inputs)
            self.assertEqual(outputs["exit-code"], str(code))
            return code

        def upload(inputs):
            artifacts[inputs["name"]] = shutil.copytree(self.workspace / inputs["path"], self.root / "kept")
            return 0

        actions = {CHECKOUT: lambda inputs: 0, "./deploy/github-action": action, UPLOAD: upload}
        event = {"event.pull_request.base.sha": self.target, "event.pull_request.number": "7"}
        github = runner.GithubRunner(self.workspace, (), actions, **event)
        self.addCleanup(self.stop_servers, github.temp)
        job = workflow["jobs"]["compare"]
        self.assertEqual(job["steps"][0]["with"]["fetch-depth"], 0)
        code = github.run_steps(job["steps"], {}, skip=["Build what the pull request proposes"])
        self.assertIn("KEVAL_SERVER", github.env)
        self.check_report()
        self.assertEqual(code, EXIT_CODES[self.report()["verdict"]], github.log)

        # The other job: nothing of the workspace is there but the artefact.
        elsewhere = self.root / "elsewhere"
        tools = self.root / "tools"
        for folder in (elsewhere, tools):
            folder.mkdir()
        fake = '#!/bin/sh\nfor body; do :; done\ncp "$body" body\necho "$@" "$GH_TOKEN" "$GH_REPO" >called\n'
        (tools / "gh").write_text(fake)
        (tools / "gh").chmod(0o755)

        def download(inputs):
            shutil.copytree(artifacts[inputs["name"]], elsewhere / inputs["path"])
            return 0

        commenter = runner.GithubRunner(elsewhere, [tools], {DOWNLOAD: download}, **event)
        self.assertEqual(commenter.run_steps(workflow["jobs"]["comment"]["steps"], {}), 0, commenter.log)
        self.assertIn("Candidate `portable_addmm`", (elsewhere / "body").read_text("utf-8"))
        called = (elsewhere / "called").read_text().split(" ")
        self.assertEqual(called[:3], ["pr", "comment", "7"])
        self.assertEqual(called[-3:], ["keval-report/comment.md", "ghs_of_this_job", "owner/name\n"])

    def stop_servers(self, folder):
        for path in folder.glob("ready.json"):
            pid = json.loads(path.read_text())["pid"]
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + 60
            while pathlib.Path(f"/proc/{pid}/cmdline").exists() and pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)

    def test_the_gitlab_job_with_a_token(self):
        tokens = self.root / "tokens"
        tokens.write_text(f"ci:{TOKEN}\n")
        tokens.chmod(0o600)
        server = self.start("--token_file", tokens)
        variables = {
            "KEVAL_SERVER": server.control,
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": self.target,
            "CI_JOB_URL": "https://gitlab.example/g/p/-/jobs/7",
        }

        def run_job(source):
            return runner.run_gitlab_job(
                load(GITLAB), "keval:op_change", self.workspace, [BIN, DEPLOY / "ci"], variables, source
            )

        refused, _ = run_job("web")
        self.assertEqual(refused.code, 6, refused.log)
        self.assertIn("UNAUTHENTICATED", refused.log)
        variables["KEVAL_CI_TOKEN"] = TOKEN
        result, artifacts = run_job("merge_request_event")
        comment = self.check_report()
        self.assertEqual(result.code, EXIT_CODES[self.report()["verdict"]], result.log)
        self.assertIn("(https://gitlab.example/g/p/-/jobs/7)", comment)
        self.assertEqual(artifacts["when"], "always")
        folder = self.workspace / artifacts["paths"][0]
        self.assertEqual(self.workspace / artifacts["reports"]["junit"], folder / "junit.xml")
        self.assertNotIn(TOKEN, result.log)
        for path in folder.iterdir():
            self.assertNotIn(TOKEN.encode(), path.read_bytes(), path)


class FilesTest(unittest.TestCase):
    """What holds for the kit's files whatever runs them."""

    def test_no_expression_is_pasted_into_a_script(self):
        workflow = load(WORKFLOW)
        steps = load(ACTION)["runs"]["steps"] + [step for job in workflow["jobs"].values() for step in job["steps"]]
        scripts = [step["run"] for step in steps if "run" in step]
        self.assertGreaterEqual(len(scripts), 4)
        document = load(GITLAB)
        scripts += [line for job in document.values() for line in job.get("script", [])]
        for script in scripts:
            self.assertNotRegex(script, r"\$\{\{|\$\[\[")

    def test_the_page_names_what_there_is(self):
        page = (ROOT / "docs/ci.md").read_text("utf-8")
        (step,), gitlab = (yaml.safe_load(block) for block in re.findall(r"(?ms)^```yaml\n(.*?)^```$", page))
        self.assertTrue(step["uses"].split("@")[0].endswith(str(ACTION.parent.relative_to(ROOT))))
        inputs = load(ACTION)["inputs"]
        self.assertLessEqual(set(step["with"]), set(inputs))
        self.assertLessEqual({name for name in inputs if inputs[name].get("required")}, set(step["with"]))
        self.assertEqual(gitlab["include"][0]["file"], str(GITLAB.relative_to(ROOT)))
        self.assertIn(gitlab["op"]["extends"], load(GITLAB))
        variables = set(re.findall(r"KEVAL_CI_\w+", (DEPLOY / "ci/keval-ci").read_text()))
        self.assertEqual(set(re.findall(r"KEVAL_CI_\w+", page)), variables)

    def test_only_the_comment_may_be_written(self):
        workflow = load(WORKFLOW)
        self.assertEqual(workflow["permissions"], {"contents": "read"})
        self.assertNotIn("permissions", workflow["jobs"]["compare"])
        self.assertEqual(workflow["jobs"]["comment"]["permissions"], {"pull-requests": "write"})
        self.assertNotIn("pull_request_target", WORKFLOW.read_text())


if __name__ == "__main__":
    unittest.main()
