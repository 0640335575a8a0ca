"""What a newcomer reads: short, with links that lead somewhere, code that runs, and options that are there."""

import ast
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.attention import NORMALIZERS
from attn_jax.attention.scores import products
from attn_jax.cli.reference import parts_of, reference
from attn_jax.errors import UserError
from attn_jax.parts import NAME, PARTS, PATTERN, Choice, Option, Repeat, fields_of
from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.options import RunOptions, resolve
from attn_jax.runs.overrides import override
from attn_jax.runs.tree import flatten

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
OPTIONS = ROOT / "docs" / "options.md"  # written where the site is built
PAGES = [README, *sorted({*(ROOT / "docs").glob("*.md")} - {OPTIONS})]
LONGEST = 6000  # characters of the README
EXPERIMENTS = sorted((ROOT / "experiments").rglob("*.py"))
OTHERS = [ROOT / "CONTRIBUTING.md", ROOT / "experiments" / "results" / "README.md"]
WITH_COMMANDS = [*PAGES, *sorted((ROOT / "docs" / "book").glob("*.md")), *OTHERS, *EXPERIMENTS]
FENCE = re.compile(r"^```.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"\bpython (-m experiments[\w.]*|(?:launch\.py --sweep=)?experiments/[\w/]+\.py)([^|#;]*)")
OWN = re.compile(r"^(?:from|import) (?:attn_jax|configs|experiments)\b", re.MULTILINE)


def blocks(path, language):
    """The fenced blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def headings(path):
    """The anchors of a page, as they are made from its headings."""
    found = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in found}


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8")) <= LONGEST


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not re.match(r"https?://", target):
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in headings(there), f"{page.name}: {target} has no such heading"


def test_every_page_is_in_the_index_or_the_readme():
    texts = README.read_text(encoding="utf-8") + (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert page.name in texts or page.name == "start.md", page.name  # which is the README on the site


def test_the_blocks_for_ci_are_there():
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for name, page in (("tests", README), ("quickstart", README), ("site", ROOT / "CONTRIBUTING.md")):
        text = page.read_text(encoding="utf-8")
        assert len(re.findall(rf"^<!-- ci: {name} -->\n```bash\n", text, re.MULTILINE)) == 1
        assert f"block {name} {page.name}" in run


@pytest.mark.slow
def test_the_library_example_runs():
    (example,) = blocks(README, "python")
    done = subprocess.run([sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(5, 8)")


def test_the_score_of_the_documentation_works():
    """Also where a key is zeros, as padding may be: the gradient is finite."""
    names = vars(products).copy()
    exec(blocks(ROOT / "docs" / "adding.md", "python")[0], names)
    score = names["Cosine"]()

    def total(keys):
        return jnp.sum(score.apply({}, jnp.eye(3), score.apply({}, keys, method="project_keys")))

    keys = jnp.array([[3.0, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(total(keys), 1)
    assert np.all(np.isfinite(jax.grad(total)(keys)))


def test_the_normalizer_of_the_documentation_has_its_option(tmp_path, monkeypatch):
    path, key = tmp_path / "power.py", "model.attention.normalize.power"
    path.write_text(blocks(ROOT / "docs" / "adding.md", "python")[1], encoding="utf-8")
    monkeypatch.setitem(NORMALIZERS, "power", None)  # so that it is taken out again
    config = load_config_file(str(path))
    assert flatten(config)[key] == 3.0
    model = resolve(override(config, [f"--config.{key}=4"])).model
    made = model.attention.normalize.build()
    assert type(made) is NORMALIZERS["power"] and made.power == 4.0
    np.testing.assert_allclose(made(jnp.arange(3.0)), jax.nn.softmax(4 * jnp.arange(3.0)), rtol=1e-6)
    with pytest.raises(UserError, match=f"{key} is -1.0; expected at least 0"):
        override(config, [f"--config.{key}=-1"])


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_other_examples_are_python(page):
    for example in blocks(page, "python"):
        assert ast.parse(re.sub(r"^    (?=\w+: )", "", example), page.name).body


def test_the_page_of_options_has_each_part_once():
    titles = re.findall(r"^## (.*)$", reference(), re.MULTILINE)
    assert titles[0] == "Run" and len(set(titles)) == len(titles) > 100
    assert set(re.findall(r"\]\(#([\w-]+)\)", reference())) <= {title.lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_in_commands_exist(page):
    text = page.read_text(encoding="utf-8")
    own = re.findall(r'^(?:#     |[A-Z]+\[)"(\w+)"(?:: |\] = )', text, re.MULTILINE)  # added to a table
    own_options = re.findall(r"^    (\w+): \w+ = option\(", text, re.MULTILINE)
    for key, value in re.findall(r"--config\.([a-z_]+(?:\.[a-z_0-9]+)*)(?:=([a-z]\w*))?", text):
        path, value = key.split("."), "" if value in own else value
        path = path[:-1] if path[-1] in own_options else path
        assert can_be_set(RunOptions, path, value) or key == "key", f"{page.name}: {key}={value}"


def can_be_set(kind, path, value):
    """Whether a part has this key, with some choices in its slots, and this name where the key is that of a slot."""
    name, *below = path
    field = fields_of(kind).get(name)
    if field is None or isinstance(field, Option):
        return field is not None and not below
    if below == [] or below == [NAME if isinstance(field, Choice) else PATTERN]:
        return isinstance(field, Choice | Repeat) and (not value or value in field.table)
    if isinstance(field, Repeat):
        return below[0] == PARTS and below[1] in field.table and can_be_set(field.table[below[1]], below[2:], value)
    return any(can_be_set(part, below, value) for _, part in parts_of(field))


def commands(path):
    """What a page, or the docstring of a script, shows as code: lines, and spans that may go on in the next line."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"\\\n\s*", " ", (ast.get_docstring(ast.parse(text)) or "") if path.suffix == ".py" else text)
    fenced, text = "".join(FENCE.findall(text)), FENCE.sub("", text)
    spans = re.findall(r"`((?:(?!\n\n)[^`])+)`", text)
    return [
        *fenced.splitlines(),
        *re.findall(r"^ {4,}(.+)$", text, re.MULTILINE),
        *(" ".join(s.split()) for s in spans),
    ]


def test_every_run_of_own_data_has_a_work_directory_of_its_own():
    """A second run in the directory of another is refused."""
    found = [line for line in commands(ROOT / "docs" / "own_data.md") if "launch.py --config=" in line]
    names = [folder for line in found for folder in re.findall(r"--workdir=(\S+)", line)]
    assert len(names) > 3 and len(set(names)) == len(names)


def called_by(path, code=None, seen=frozenset()):
    """The code of a script, and of the functions of other experiments that it calls, which may read its options."""
    tree, imported = ast.parse(path.read_text(encoding="utf-8")), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "experiments":
            for name in node.names:
                imported[name.asname or name.name] = ROOT.joinpath(*node.module.split(".")), name.name
    code = code or tree
    yield code
    for node in ast.walk(code):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in imported:
            folder, function = imported[node.func.id]
            file = folder.with_suffix(".py")
        elif isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", None) in imported:
            (folder, name), function = imported[node.func.value.id], node.func.attr
            file = folder / f"{name}.py"
        else:
            continue
        if file.exists() and (file, function) not in seen:
            for inner in ast.parse(file.read_text(encoding="utf-8")).body:
                if getattr(inner, "name", None) == function:
                    yield from called_by(file, inner, seen | {(file, function)})


def options(path):
    """The options that a script reads; --config. stands for those of a config, which it hands on."""
    found = set()
    for code in called_by(path):
        for node in ast.walk(code):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr == "add_argument":
                    found |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
                elif node.func.attr == "parse_known_args":
                    found.add("--config.")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_experiments_can_be_given(page):
    """The script is there, is called as it can be, and reads the options. Nothing is run."""
    for program, arguments in (match.groups() for line in commands(page) for match in CALL.finditer(line)):
        if program.startswith("-m "):
            path = ROOT.joinpath(*program[3:].split("."))
            path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        else:
            path = ROOT / program.removeprefix("launch.py --sweep=")
        assert path.is_file(), program
        source = path.read_text(encoding="utf-8")
        if program.startswith("launch.py"):
            assert "\ndef sweep(" in source, f"{program}: it has no sweep"
            continue
        assert '\nif __name__ == "__main__":\n' in source, f"{program}: nothing runs"
        if not program.startswith("-m ") and OWN.search(source):  # only then is the repository on the path
            assert "sys.path.insert(0, str(ROOT))" in source, f"{program}: expected python -m"
        for option in re.findall(r"(?<!\S)--[a-z_-]+\.?", arguments):
            assert option in options(path), f"{program} has no {option}"


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["attn_jax", "configs", "experiments"])
def test_lines_of_a_command_end_in_one_backslash(folder):
    """In a docstring as Python reads it: in a raw one two backslashes stay two, in another one a single one is lost."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        shown = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert not re.search(r"\\\\$", shown, re.MULTILINE), path
        assert not re.search(r"^ *python .*\S {4,}--", shown, re.MULTILINE), path  # a line end was swallowed
