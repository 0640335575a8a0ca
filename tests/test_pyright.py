"""An editor finds no error in the code of these pages: pyright, where it is installed (pip install pyright)."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/how_to.md", "docs/faq.md")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed")
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_has_no_error_of_types(page, tmp_path):
    text = (ROOT / page).read_text(encoding="utf-8")
    code = tmp_path / "page.py"
    code.write_text("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), encoding="utf-8")
    command = ["pyright", "--outputjson", "--pythonpath", sys.executable, str(code)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert [one["message"] for one in found if one["severity"] == "error"] == []
