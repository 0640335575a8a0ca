"""The program starts in the same way as a file and as a module, and sets the cache of jax before jax is imported."""

import gzip
import os
import pathlib
import subprocess
import sys

import pytest

from attn_jax.cli import allocator
from attn_jax.data.indexing import lines
from attn_jax.data.text import read_lines
from attn_jax.errors import UserError
from attn_jax.runs.inputs import Files, lines_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMS = ([str(ROOT / "launch.py")], ["-m", "attn_jax.cli"])


def started(form, *argv, **options):
    return subprocess.run([sys.executable, *form, *argv], capture_output=True, text=True, **options)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=["file", "module"])
def test_a_slip_is_one_line(form):
    result = started(form, f"--config={ROOT}/configs/quickstart.py", "--config.modl.cell=x", cwd=ROOT)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("launch.py: unknown config key modl; did you mean model?")
    assert result.stderr.count("\n") == 1 and result.stderr[-1] == "\n"


@pytest.mark.slow
def test_both_forms_give_the_same_help(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}  # as a sweep sets it: the package need not be installed
    first, second = (started(form, "--help", cwd=tmp_path, env=environment) for form in FORMS)
    assert first.stdout == second.stdout and "--workdir" in first.stdout and (first.returncode, first.stderr) == (0, "")


@pytest.mark.parametrize(
    ("pages", "libc", "given", "again"),
    [
        ("always [madvise] never", ("glibc", "2.36"), {}, f"{allocator.HUGE_PAGES}:{allocator.KEPT}"),
        ("[always] madvise never", ("glibc", "2.36"), {}, allocator.KEPT),
        ("always madvise [never]", ("glibc", "2.36"), {}, allocator.KEPT),
        ("always [madvise] never", ("glibc", "2.31"), {}, allocator.KEPT),
        ("always [madvise] never", ("glibc", "2.17"), {}, None),
        ("always [madvise] never", ("", ""), {}, None),
        ("always [madvise] never", ("glibc", "2.36"), {"GLIBC_TUNABLES": ""}, None),
        ("always [madvise] never", ("glibc", "2.36"), {"LD_PRELOAD": "libjemalloc.so.2"}, None),
    ],
)
def test_it_starts_again_with_a_heap_that_keeps_its_memory(pages, libc, given, again, tmp_path, monkeypatch):
    (tmp_path / "enabled").write_text(pages)
    calls = []
    for name in ("GLIBC_TUNABLES", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(allocator, "KERNEL", tmp_path / "enabled")
    monkeypatch.setattr(allocator.platform, "libc_ver", lambda: libc)
    monkeypatch.setattr(allocator.os, "execv", lambda *arguments: calls.append(arguments))
    allocator.keep_memory()
    assert len(calls) == (again is not None)
    if again:
        (program, arguments) = calls[0]
        assert program == arguments[0] == sys.executable and arguments[1:] == sys.orig_argv[1:]
        assert os.environ["GLIBC_TUNABLES"] == again


@pytest.mark.slow
@pytest.mark.skipif(not allocator.tunables(), reason="not glibc")
def test_arrays_that_come_and_go_cost_no_page_faults():
    """Each step of a training asks for the same memory anew."""
    code = (
        "import resource, numpy as np\n"
        "faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "step = lambda: np.ones(64 * 2**20, np.uint8)\n"
        "step(); before = faults()\n"
        "for _ in range(10): step()\n"
        "print(faults() - before)"
    )
    environment = {name: value for name, value in os.environ.items() if name != allocator.TUNABLES}
    plain = int(started(["-c", code], cwd=ROOT, env=environment).stdout)
    kept = int(started(["-c", code], cwd=ROOT, env=environment | {allocator.TUNABLES: allocator.KEPT}).stdout)
    assert kept <= 10 < plain


@pytest.mark.slow
def test_the_cache_is_set_before_jax_is_imported():
    code = "from attn_jax.cli import main; import jax; print(jax.config.jax_compilation_cache_dir)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    result = started(["-c", code], cwd=ROOT, env=environment)
    assert result.stdout.strip().endswith("attn_jax"), result.stderr


@pytest.mark.slow
def test_commands_need_no_package_of_an_extra():
    extras = ("safetensors", "flatbuffers")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({extras})); import attn_jax.cli.commands, attn_jax.sweeps.sweep"
    )
    result = started(["-c", code], cwd=ROOT)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_a_closed_stream_is_no_traceback(tmp_path, closed):
    command = f"{sys.executable} -m attn_jax.cli --mode=predict --workdir={tmp_path} {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1 and done.stderr.startswith("launch.py: ") and done.stderr.count("\n") == 1


def test_closed_standard_input_is_told(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UserError, match=r"standard input is closed; give --source=FILE"):
        lines_of(Files())


@pytest.mark.parametrize(
    "data",
    [gzip.compress(b"a\n", mtime=0), "a\nb\n".encode("utf-16"), "a\n".encode("utf-16-le"), b"a\n\xe4\n"],
    ids=["gzip", "UTF-16", "UTF-16 without a mark", "Latin-1"],
)
def test_a_file_that_is_not_utf8_has_one_message_wherever_it_is_read(tmp_path, data):
    path = tmp_path / "text"
    path.write_bytes(data)
    messages = []
    for read in (read_lines, lambda path: list(lines_of(Files(source=str(path)))), lambda path: list(indexed(path))):
        with pytest.raises(UserError) as error:
            read(path)
        messages.append(str(error.value))
    assert len(set(messages)) == 1


def indexed(path):
    with open(path, "rb") as file:
        yield from lines(file, path, 0)
