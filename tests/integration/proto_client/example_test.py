"""The example of docs/client.md runs as it stands there."""

import contextlib
import io
import math
import pathlib
import re
import unittest

from kevald import KevaldTest

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "client.md"


class ExampleTest(KevaldTest):
    def test_example_of_the_documentation(self):
        blocks = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
        self.assertEqual(len(blocks), 1)
        self.assertEqual(blocks[0].count('"127.0.0.1:7400"'), 1)
        code = blocks[0].replace('"127.0.0.1:7400"', repr(self.server.control))
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, str(DOCUMENT), "exec"), {})
        numbers = [float(text) for text in re.findall(r"-?[0-9.]+(?:e-?[0-9]+)?", output.getvalue())]
        other = 1 / (1 + math.e)  # Softmax of the word that isn't the target: logits are 1 and 2.
        for got, want in zip(numbers, [math.log(1 - other), -other, other], strict=True):
            self.assertAlmostEqual(got, want, delta=1e-6)


if __name__ == "__main__":
    unittest.main()
