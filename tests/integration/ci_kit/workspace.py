"""A checkout as a runner has it."""

import os
import pathlib
import subprocess
import tempfile
import unittest


class WorkspaceTest(unittest.TestCase):
    """`workspace`, an empty folder in `root`, which goes with the test."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="keval_ci_")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.workspace = self.root / "workspace"
        self.workspace.mkdir()

    def git(self, *arguments):
        """What git prints, run in the workspace without anybody's settings."""
        names = {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        env = {"PATH": os.environ["PATH"], "HOME": str(self.root), **names}
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=self.workspace, env=env, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, path):
        """Commits a file of the workspace, in a repository on the branch main; the commit."""
        if not (self.workspace / ".git").exists():
            self.git("init", "--quiet", "--initial-branch", "main")
        self.git("add", path)
        self.git("commit", "--quiet", "--message", "a spec")
        return self.git("rev-parse", "HEAD")
