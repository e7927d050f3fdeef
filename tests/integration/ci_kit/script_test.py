"""deploy/ci/keval-ci with a keval that says what a test wants: hostile words, refusals, interrupts, bad inputs."""

import json
import os
import pathlib
import re
import signal
import sys
import unittest
import xml.etree.ElementTree

import runner
from workspace import WorkspaceTest

HERE = pathlib.Path(__file__).parent
SCRIPT = HERE.parents[2] / "deploy/ci/keval-ci"
TOKEN = "a-token-that-nobody-must-see"
NAME = "jobs/" + "0a" * 16
REPORT = """## keval: `IMPROVED`

`a ::error:: name` · `jobs/0a`

### Result

| series | gain |
| --- | --- |
| `4x4` | +1.00 % |

<details><summary>Statistics</summary>

folded

</details>

### Notes

- `a note`
"""
HOSTILE = (
    b"::error::first\n  ::set-output name=verdict::IMPROVED\n\t::add-mask::a\n"
    b"round 1 ##[add-mask]b ###[error]c ##vso[task.setvariable]d ##teamcity[e]\n"
    b"\x1b[2J\x1b]0;title\x07 \r::warning::behind a return\n"
    b"section_start:0:name\r\x1b[0Kheader\n"
    b"\x00nul \x08back \x7fdel\n"
    b"bytes \x81\x88\xc3\xff\xed\xa0\x80 that are no UTF-8\n\xc3\xa9 that is\n"
    b"::error::no newline at the end"
)


class ScriptCase(WorkspaceTest):
    """A workspace with a spec, and a fake keval on PATH."""

    def setUp(self):
        super().setUp()
        self.fake = self.root / "fake"
        (self.fake / "report").mkdir(parents=True)
        (self.fake / "report/report.md").write_text(REPORT)
        (self.fake / "report/junit.xml").write_text("<testsuites/>")
        program = self.fake / "keval"
        # The interpreter of this test, whatever PATH says.
        program.write_text((HERE / "fake_keval.py").read_text().replace("/usr/bin/env python3", sys.executable, 1))
        program.chmod(0o755)
        (self.workspace / "op.yaml").write_text("candidate: {variant: new_one}\n")
        self.out = self.workspace / "keval-report"

    def run_script(self, shell=("sh",), stop=None, **variables):
        env = {"PATH": f"{self.fake}:{os.environ['PATH']}", "HOME": str(self.root), "KEVAL_CI_SPEC": "op.yaml"}
        env.update(variables)
        result = runner.run([*shell, str(SCRIPT)], self.workspace, env, stop)
        self.assertNotIn(TOKEN, result.log)
        return result

    def run_on_github(self, **variables):
        files = {name: self.root / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for path in files.values():
            path.write_bytes(b"")
        result = self.run_script(
            GITHUB_ACTIONS="true",
            GITHUB_SERVER_URL="https://github.com",
            GITHUB_REPOSITORY="owner/name",
            GITHUB_RUN_ID="5",
            **{name: str(path) for name, path in files.items()},
            **variables,
        )
        return result, runner.environment_file(files["GITHUB_OUTPUT"]), files["GITHUB_STEP_SUMMARY"].read_text("utf-8")

    def says(self, command, words, code=0):
        (self.fake / f"{command}.words").write_bytes(words)
        (self.fake / f"{command}.code").write_text(str(code))

    def calls(self):
        path = self.fake / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class ScriptTest(ScriptCase):
    def test_a_job_that_meets_its_gate(self):
        for shell in (["sh"], ["bash"]):
            with self.subTest(shell=shell):
                self.says("watch", b"round 0 in 1.0 s\n")
                result = self.run_script(shell, KEVAL_CI_REQUIRE="no-regression")
                self.assertEqual(result.code, 0, result.log)
                self.assertIn("| round 0 in 1.0 s\n", result.log)
                self.assertIn("IMPROVED: required no-regression, met (exit code 0)", result.log)
                comment = (self.out / "comment.md").read_text("utf-8")
                self.assertTrue(comment.startswith("<!-- keval-ci -->\n## keval: `IMPROVED`\n"), comment)
                self.assertIn("`a note`", comment)
                self.assertNotIn("folded", comment)
                self.assertIn("**Gate**: IMPROVED: required no-regression, met (exit code 0).", comment)
                self.assertEqual((self.out / "junit.xml").read_text(), "<testsuites/>")
        watch = next(call["arguments"] for call in self.calls() if "watch" in call["arguments"])
        self.assertEqual(watch, ["watch", "--require", "no-regression", NAME])

    def test_exit_codes_are_the_gates(self):
        for code in (1, 3, 4, 5, 6, 7):
            with self.subTest(code=code):
                self.says("watch", b"", code)
                self.assertEqual(self.run_script().code, code)
                self.assertIn(f"not met (exit code {code})", (self.out / "comment.md").read_text())

    def test_outputs_summary_and_annotation_on_github(self):
        (self.fake / "job.json").write_text(
            json.dumps({"state": "DONE", "verdict": "INCONCLUSIVE", "reason": "CONTROL_FAILED"})
        )
        self.says("watch", b"", 3)
        result, outputs, summary = self.run_on_github()
        self.assertEqual(result.code, 3)
        expected = {"job": NAME, "verdict": "INCONCLUSIVE", "reason": "CONTROL_FAILED", "exit-code": "3"}
        self.assertEqual(outputs, {**expected, "comment": "keval-report/comment.md"})
        gate = "INCONCLUSIVE (CONTROL_FAILED): required improved, not met (exit code 3)"
        self.assertEqual(runner.workflow_commands(result.log), [("error", gate)])
        self.assertIn("folded", summary)
        self.assertIn("[Log and artefacts](https://github.com/owner/name/actions/runs/5)", summary)

    def test_hostile_words_are_shown_and_do_nothing(self):
        self.says("watch", HOSTILE)
        result, outputs, _ = self.run_on_github()
        self.assertEqual(result.code, 0)
        self.assertEqual(outputs["verdict"], "IMPROVED")
        self.assertEqual([name for name, _ in runner.workflow_commands(result.log)], ["notice"])
        # Also by a runner for which nothing stops commands: "::ID::" is no command of its.
        self.assertEqual([name for name, _ in runner.workflow_commands(result.log, True)], ["notice"])
        for text in ("first", "add-mask", "teamcity", "header", "a return", "are no UTF-8", "é that is", "no newline"):
            self.assertIn(text, result.log)
        self.assertNotRegex(result.log, r"[\x00-\x09\x0b-\x1f\x7f]|##")
        for line in result.log.splitlines():
            self.assertTrue(line.startswith(("| ", "::")), line)
        self.assertIn("é that is", (self.out / "log.txt").read_text("utf-8"))

    def test_words_of_the_server_that_are_no_words(self):
        hostile = {"state": "DONE", "verdict": "IMPROVED\n::error::", "reason": "`x` <img>"}
        (self.fake / "job.json").write_text(json.dumps(hostile))
        result, outputs, summary = self.run_on_github()
        self.assertEqual((outputs["verdict"], outputs["reason"]), ("", ""))
        self.assertNotIn("<img>", summary + result.log)

    def test_a_refusal_leaves_results_too(self):
        self.says("submit", b"keval: INVALID_ARGUMENT: op.yaml:1: `x` @team <img src=x> ::error::y\n", 2)
        result, outputs, summary = self.run_on_github()
        self.assertEqual(result.code, 2)
        self.assertEqual((outputs["job"], outputs["exit-code"]), ("", "2"))
        self.assertEqual([name for name, _ in runner.workflow_commands(result.log)], ["error"])
        for text in (summary, (self.out / "comment.md").read_text()):
            # Code, by its indentation.
            self.assertIn("\n\n    keval: INVALID_ARGUMENT: op.yaml:1: `x` @team <img src=x> ::error::y\n", text)
        suite = xml.etree.ElementTree.parse(self.out / "junit.xml").getroot()[0]
        self.assertEqual(suite.get("errors"), "1")
        self.assertEqual(suite[0][0].get("message"), "no report, exit code 2")
        self.assertFalse([call for call in self.calls() if "watch" in call["arguments"]])

    def test_a_report_that_does_not_arrive(self):
        self.says("report", b"keval: UNAVAILABLE: gone\n", 6)
        self.assertEqual(self.run_script().code, 6)
        self.says("watch", b"", 1)
        result = self.run_script()  # A gate that isn't met keeps its own code.
        self.assertEqual(result.code, 1)
        self.assertIn("UNAVAILABLE: gone", (self.out / "comment.md").read_text())

    def test_nothing_of_an_earlier_run_is_taken_for_this_ones(self):
        self.assertEqual(self.run_script().code, 0)
        (self.out / "spec.yaml").write_text("old")
        self.says("submit", b"refused\n", 6)
        self.assertEqual(self.run_script().code, 6)
        self.assertEqual({path.name for path in self.out.iterdir()}, {"comment.md", "junit.xml", "log.txt"})
        self.assertIn("no report", (self.out / "junit.xml").read_text())

    def test_the_token_is_in_a_closed_file_and_nowhere_else(self):
        for shell in (["sh"], ["sh", "-x"], ["bash", "-x"]):
            with self.subTest(shell=shell):
                (self.fake / "calls").unlink(missing_ok=True)
                self.assertEqual(self.run_script(shell, KEVAL_CI_TOKEN=TOKEN).code, 0)
                calls = self.calls()
                self.assertGreaterEqual(len(calls), 4)
                for call in calls:
                    self.assertEqual((call["token"], call["token_mode"]), (TOKEN + "\n", "0o600"))
                    self.assertNotIn(TOKEN, call["environment"])
                    self.assertNotIn(TOKEN, " ".join(call["arguments"]))
                path = re.search("KEVAL_TOKEN_FILE=(.*)", calls[0]["environment"])[1]
                self.assertFalse(os.path.exists(os.path.dirname(path)))
        for path in self.out.iterdir():
            self.assertNotIn(TOKEN, path.read_text())
        result = self.run_script(KEVAL_CI_TOKEN=TOKEN, KEVAL_TOKEN_FILE="/nowhere")
        self.assertEqual(result.code, 2)

    def test_an_interrupt_cancels_the_job(self):
        # GitHub's runner asks the script alone to end, GitLab's all processes of the job.
        alone = [(signal.SIGINT, os.kill), (signal.SIGTERM, os.kill), (signal.SIGHUP, os.kill)]
        for number, kill in [*alone, (signal.SIGINT, os.killpg), (signal.SIGTERM, os.killpg)]:
            with self.subTest(number=number, kill=kill):
                (self.fake / "calls").unlink(missing_ok=True)
                (self.fake / "hangs").touch()
                self.says("watch", b"round 0\n")
                (self.fake / "job.json").write_text(json.dumps({"state": "CANCELLED", "verdict": "", "reason": ""}))

                def stop(process, line, number=number, kill=kill):
                    if b"round 0" in line:
                        kill(process.pid, number)

                result = self.run_script(stop=stop)
                self.assertEqual(result.code, 7, result.log)
                self.assertIn(["cancel", NAME], [call["arguments"] for call in self.calls()])
                self.assertIn("CANCELLED: required improved, not met (exit code 7)", result.log)
                self.assertTrue((self.out / "comment.md").exists())

    def test_bad_inputs_are_refused_by_name(self):
        (self.workspace / "link.yaml").symlink_to("op.yaml")
        cases = {
            "KEVAL_CI_SPEC is not set": {"KEVAL_CI_SPEC": ""},
            "no plain file: nowhere.yaml": {"KEVAL_CI_SPEC": "nowhere.yaml"},
            "no plain file: link.yaml": {"KEVAL_CI_SPEC": "link.yaml"},
            "no plain file: .": {"KEVAL_CI_SPEC": "."},
            "printable ASCII": {"KEVAL_CI_SPEC": "op.yaml\n::error::x"},
            "KEVAL_CI_REQUIRE is none of": {"KEVAL_CI_REQUIRE": "any\n::error::x"},
            "no program /nowhere/keval": {"KEVAL_CI_KEVAL": "/nowhere/keval"},
            "KEVAL_CI_OUT is no folder name": {"KEVAL_CI_OUT": "-rf"},
            "KEVAL_CI_OUT can't be a folder: op.yaml": {"KEVAL_CI_OUT": "op.yaml"},
        }
        for words, variables in cases.items():
            with self.subTest(words=words):
                result, _, _ = self.run_on_github(**variables)
                self.assertEqual(result.code, 2, result.log)
                self.assertIn(words, result.log)
                self.assertEqual([name for name, _ in runner.workflow_commands(result.log)], ["error"])
        self.assertEqual(self.calls(), [])

    def test_a_folder_that_points_elsewhere_is_not_written_to(self):
        elsewhere = self.root / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "junit.xml").write_text("theirs")
        self.out.symlink_to(elsewhere)
        self.assertEqual(self.run_script().code, 2)
        self.assertEqual([path.name for path in elsewhere.iterdir()], ["junit.xml"])
        self.assertEqual((elsewhere / "junit.xml").read_text(), "theirs")

    def test_sizes_that_github_takes(self):
        rows = "".join(f"| `series {i} {'é' * 400}` | +1.00 % |\n" for i in range(2000))
        (self.fake / "report/report.md").write_text(REPORT.replace("| `4x4` | +1.00 % |\n", rows), "utf-8")
        _, _, summary = self.run_on_github()
        comment = (self.out / "comment.md").read_bytes()
        self.assertLess(len(comment), 60000)
        text = comment.decode("utf-8")
        self.assertIn("(cut)\n\n**Gate**: IMPROVED", text)
        self.assertTrue(all(line.count("`") % 2 == 0 for line in text.splitlines()))
        self.assertLess(len(summary.encode()), 1 << 20)


class BaseRefTest(ScriptCase):
    """Everything but the candidate from the target branch."""

    TARGET = "display_name: gate\nbase: {variant: old_one}\ncandidate:\n  variant: old_one\nmargins: {primary: 0.01}\n"

    def setUp(self):
        super().setUp()
        self.write(self.TARGET)
        self.target = self.commit("op.yaml")

    def write(self, text):
        (self.workspace / "op.yaml").write_text(text)

    def spec_run(self):
        return (self.out / "spec.yaml").read_text()

    def test_only_the_candidate_is_the_changes(self):
        kept = "display_name: gate\nbase: {variant: old_one}\nmargins: {primary: 0.01}\n"
        for candidate in (
            "candidate: {variant: new_one}\n",
            "candidate: { variant: new_one } # not variant: this\n",
            "candidate:\n  # a comment\n  variant: new_one  # variant: other\n",
        ):
            with self.subTest(candidate=candidate):
                self.write(f"base: {{variant: slow}}\n{candidate}margins: {{primary: 0.5}}\n")
                result = self.run_script(KEVAL_CI_BASE_REF="main")
                self.assertEqual(result.code, 0, result.log)
                self.assertEqual(self.spec_run(), kept + "candidate: {variant: new_one}\n")
                self.assertIn(f"candidate new_one; base and everything else of commit {self.target}", result.log)
                self.assertIn("what else ./op.yaml changes counts once it is merged", result.log)
                self.assertIn("Candidate `new_one` of this change; base", (self.out / "comment.md").read_text())
        submit = next(call["arguments"] for call in self.calls() if "submit" in call["arguments"])
        self.assertEqual(submit[-1], "./keval-report/spec.yaml")
        self.write(self.TARGET.replace("variant: old_one\nmargins", "variant: new_one\nmargins"))
        self.assertNotIn("once it is merged", self.run_script(KEVAL_CI_BASE_REF=self.target).log)

    def test_a_candidate_that_is_not_plain_is_refused(self):
        for candidate in (
            "",
            "candidate: &a {variant: new_one}\n",
            "candidate: {variant: 'new_one'}\n",
            "candidate: {variant: a, variant: b}\n",
            "candidate: {variant: a}\ncandidate: {variant: b}\n",
            "candidate:\n  variant: a\n  variant: b\n",
            "candidate: {variant: $(touch x)}\n",
            "candidate: {variant: a}; touch x\n",
        ):
            with self.subTest(candidate=candidate):
                self.write(candidate)
                result = self.run_script(KEVAL_CI_BASE_REF="main")
                self.assertEqual(result.code, 2, result.log)
                self.assertIn("must name its candidate", result.log)
        self.assertFalse((self.workspace / "x").exists())
        self.assertEqual(self.calls(), [])

    def test_a_target_without_the_spec(self):
        (self.workspace / "new.yaml").write_text("candidate: {variant: a}\n")
        cases = {
            "has no ./new.yaml": {"KEVAL_CI_SPEC": "new.yaml"},
            "must be a path below": {"KEVAL_CI_SPEC": str(self.workspace / "op.yaml")},
            "is no commit here: nowhere": {"KEVAL_CI_BASE_REF": "nowhere"},
            "is no commit here: --help": {"KEVAL_CI_BASE_REF": "--help"},
        }
        for words, variables in cases.items():
            with self.subTest(words=words):
                result = self.run_script(**{"KEVAL_CI_BASE_REF": "main", **variables})
                self.assertEqual(result.code, 2, result.log)
                self.assertIn(words, result.log)
        (self.workspace / "op.json").write_text("{}")
        result = self.run_script(KEVAL_CI_BASE_REF="main", KEVAL_CI_SPEC="op.json")
        self.assertIn("must be a .yaml file", result.log)


if __name__ == "__main__":
    unittest.main()
