#!/usr/bin/env python3
"""In keval's place: does what the folder it lies in says, and writes down how it was called. In that folder:

- ID.words, ID.code: what the subcommand ID prints on standard error, and its exit code;
- job.json: what `get` answers;
- report/: what `report` puts into its --report_dir;
- hangs: where it is there, `watch` takes a minute;
- calls, written here: a line for each call with its arguments, its environment, and the token that it could read.
"""

import json
import os
import pathlib
import shutil
import sys
import time

NAME = "jobs/" + "0a" * 16
folder = pathlib.Path(__file__).parent
arguments = sys.argv[1:]
command = next(argument for argument in arguments if not argument.startswith("-"))

token_file = os.environ.get("KEVAL_TOKEN_FILE", "")
call = {
    "arguments": arguments,
    "token": pathlib.Path(token_file).read_text() if token_file else "",
    "token_mode": oct(os.stat(token_file).st_mode & 0o777) if token_file else "",
    "environment": "\n".join(f"{name}={value}" for name, value in os.environ.items()),
}
with open(folder / "calls", "a") as calls:
    calls.write(json.dumps(call) + "\n")

code = folder / f"{command}.code"
code = int(code.read_text()) if code.exists() else 0
words = folder / f"{command}.words"
if words.exists():
    sys.stderr.buffer.write(words.read_bytes())
    sys.stderr.flush()
if command == "submit" and code == 0:
    print(f'{NAME} QUEUED "::error::a name"')
elif command == "watch" and (folder / "hangs").exists():
    time.sleep(60)
elif command == "get":
    known = {"state": "DONE", "verdict": "IMPROVED", "reason": ""}
    if (folder / "job.json").exists():
        known = json.loads((folder / "job.json").read_text())
    print(json.dumps({"name": NAME, **known}, indent=2))
elif command == "report" and code == 0:
    shutil.copytree(folder / "report", arguments[arguments.index("--report_dir") + 1], dirs_exist_ok=True)
sys.exit(code)
