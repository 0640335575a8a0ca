"""An installed package needs nothing outside itself: it has the configs, and no tests or experiments."""

import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with what the wheel holds."""
    pytest.importorskip("setuptools", minversion="70.1")  # which builds wheels by itself
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(source)], check=True)
    for name in ("attn_jax", "configs", "pyproject.toml", "setup.py", "README.md", "requirements.txt"):
        subprocess.run(["rm", "-r", str(source / name)], check=True)
        subprocess.run(["cp", "-r", str(ROOT / name), str(source)], check=True)  # as it is, committed or not
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*command, str(source)], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def run(installed, code, *arguments):
    """Runs code in a process that finds the installed package and nothing of the clone."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(installed)!r})\n{code}", *arguments],
        cwd=installed.parent,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_it_has_the_package_and_its_configs_alone(installed):
    assert {path.name for path in installed.iterdir() if path.suffix != ".dist-info"} == {"attn_jax"}
    configs = {path.name for path in (ROOT / "configs").glob("*.py")}
    assert {path.name for path in (installed / "attn_jax" / "configs").glob("*.py")} == configs
    here = {path.relative_to(ROOT) for path in (ROOT / "attn_jax").rglob("*.py")}
    there = {path.relative_to(installed) for path in (installed / "attn_jax").rglob("*.py")}
    assert here == {path for path in there if path.parts[1] != "configs"}
    assert {"py.typed", "__init__.pyi"} <= {path.name for path in (installed / "attn_jax").iterdir()}
    scripts = next(installed.glob("*.dist-info")) / "entry_points.txt"
    assert "attn-jax = attn_jax.cli.__main__:main" in scripts.read_text()


@pytest.mark.slow
def test_an_archive_of_the_source_has_what_a_wheel_is_made_of(tmp_path):
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "source")], check=True)
    for name in ("MANIFEST.in", "setup.py", "pyproject.toml", "SECURITY.md"):
        subprocess.run(["cp", str(ROOT / name), str(tmp_path / "source")], check=True)
    command = [sys.executable, "setup.py", "--quiet", "sdist"]
    subprocess.run(command, cwd=tmp_path / "source", check=True, capture_output=True)
    (archive,) = (tmp_path / "source" / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"requirements.txt", "setup.py", "configs/quickstart.py", "attn_jax/py.typed"} <= names
    tested = subprocess.run(
        ["git", "ls-files", "tests", "experiments", "docs"], cwd=ROOT, capture_output=True, text=True
    )
    assert set(tested.stdout.split("\n")) - {""} <= names  # so that its tests run


@pytest.mark.slow
def test_the_description_links_to_the_repository(installed):
    metadata = (next(installed.glob("*.dist-info")) / "METADATA").read_text()
    (address,) = re.findall(r"^Project-URL: Repository, (.+)$", metadata, re.MULTILINE)
    links = re.findall(r"\]\(([^)]+)\)", metadata)
    assert len(links) > 10 and all(link.startswith(("https://", "#")) for link in links)
    assert f"]({address}/raw/main/experiments/results/alignment.png)" in metadata


@pytest.mark.slow
def test_it_requires_what_the_library_needs_and_names_the_rest_as_extras(installed):
    metadata = (next(installed.glob("*.dist-info")) / "METADATA").read_text()
    required = [line.split(": ")[1] for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    library = {re.match(r"[\w-]+", line)[0] for line in required if "extra ==" not in line}
    assert library == {"jax", "flax", "jaxtyping", "numpy"}
    assert {re.search(r'extra == "(\w+)"', line)[1] for line in required if "extra ==" in line} == {
        "train",
        "export",
        "wandb",
    }


@pytest.mark.slow
def test_a_report_finds_its_template_scripts_and_style(installed):
    code = "from attn_jax.inspection.report.page import render; print(render({'kind': 'run', 'title': 'here'}))"
    done = run(installed, code)
    assert done.returncode == 0, done.stderr
    assert '{"kind":"run","title":"here"}' in done.stdout


@pytest.mark.slow
def test_a_config_of_the_package_is_found_by_its_name(installed):
    done = run(installed, "from attn_jax.cli.main import run; run()", "--config=quickstart_transformer", "--options")
    assert done.returncode == 0, done.stderr
    assert "model.name = 'transformer'" in done.stdout
    done = run(installed, "from attn_jax.cli.main import run; run()", "--config=quickstard", "--options")
    assert (done.returncode, done.stdout) == (1, "") and "did you mean quickstart" in done.stderr
