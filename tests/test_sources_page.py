"""docs/sources.md: every section has a command or a reason, and what a command names is there and can be set."""

import importlib.util
import pathlib
import re
import shlex

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import fill

from attn_jax.cli.modes import MODES
from attn_jax.data.sizes import TextSizes
from attn_jax.data.sources import DATASETS
from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.options import change, resolve
from attn_jax.runs.overrides import overridden_keys, override
from experiments.matrix.__main__ import cell_of, table_of

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "sources.md"
TEXT = PAGE.read_text(encoding="utf-8")
HEADER = "| section | book | file | config | command, or why there is none | figure |"
TEXTS = 5


def rows():
    """The rows of the tables of sections: (section, book, file, config, command, figure)."""
    found = []
    for table in TEXT.split(HEADER)[1:]:
        for line in table.split("\n\n")[0].strip().splitlines()[1:]:
            found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return found


ROWS = rows()
COMMAND = re.compile(r"`([^`]*python [^`]*)`")
ALL = sorted({command.replace("\\|", "|") for row in ROWS for command in COMMAND.findall(row[4])})


def test_there_are_five_texts_and_every_row_is_complete():
    assert TEXT.count(HEADER) == TEXTS and len(ROWS) > 50
    for row in ROWS:
        assert len(row) == 6, row
        section, book, file, _, command, _ = row
        assert COMMAND.search(command) or command.startswith("no command: "), section
        assert book or file or "see below" in command, section


def test_links_of_a_column_are_of_its_kind():
    for section, book, file, config, _, _ in ROWS:
        assert all(link.startswith("book/") for link in links(book)), section
        assert all((PAGE.parent / link).exists() for link in links(file)), section
        for name, link in re.findall(r"\[(\w+)\]\(([^)]+)\)", config):
            assert link == f"../configs/{name}.py" and (PAGE.parent / link).is_file(), section


def links(cell):
    return re.findall(r"\]\(([^)#]+)[^)]*\)", cell)


def test_a_row_that_trains_a_config_names_it():
    for section, _, _, config, command, _ in ROWS:
        for name in re.findall(r"--config=configs/(\w+)\.py", command):
            assert f"[{name}]" in config, f"{section}: {name}"


@pytest.mark.slow
@pytest.mark.parametrize("command", ALL)
def test_a_command_can_be_given(command):
    """Its program, config, options, mode and data are there. Nothing is run."""
    words = shlex.split(command.split(" | ")[-1])
    assert words[0] == "python"
    for folder in re.findall(r"data_dir=(\S+)", command):
        assert re.fullmatch(r"data/\w+", folder), folder
    if words[1:3] == ["-m", "experiments.matrix"]:
        given = dict(word.partition("=")[::2] for word in words[3:])
        assert set(given) <= {"--table", "--data_dir", "--cell"}
        row, column = cell_of(table_of(given["--table"]), given["--cell"])
        assert ("--data_dir" in given) == table_of(given["--table"]).columns[column].reads_files, row
    elif words[1] == "-m":
        assert importlib.util.find_spec(words[2]) and words[3] in DATASETS
    elif words[1] == "launch.py":
        given = dict(word.partition("=")[::2] for word in words[2:] if not word.startswith("--config."))
        overrides = [word for word in words[2:] if word.startswith("--config.")]
        assert set(given) <= {"--config", "--mode", "--workdir", "--sweep", "--options"}
        assert given.get("--mode", "eval") in MODES
        if "--sweep" in given:
            assert (ROOT / given["--sweep"]).is_file() and overridden_keys(overrides) in ([], ["data_dir"])
        else:
            config = given.get("--config") or f"configs/{pathlib.Path(given['--workdir']).name}.py"
            resolve(override(load_config_file(str(ROOT / config)), overrides)).build_model()
    else:
        program = (ROOT / words[1]).read_text(encoding="utf-8")
        for word in words[2:]:
            if word.startswith("--"):
                assert f'"{word.partition("=")[0]}"' in program, word


def test_the_notebook_counts_another_model_than_it_shows():
    """Its printed number of parameters, from the sizes that it names; that of the modules in its cells; and ours."""

    def lstm(inputs, size):  # PyTorch's has two biases
        return 4 * size * (inputs + size + 2)

    embeddings, both_ways = 2 * 8000 * 512, lstm(512, 512) + 2 * lstm(1024, 512)
    output = 512 * 8000 + 8000
    assert embeddings + 2 * both_ways + (1024 * 512 + 512) + 3 * lstm(512, 512) + output == 35_926_336
    shown = embeddings + 3 * lstm(512, 512) + (512 * 512 + 512) + output
    config = load_config_file(str(ROOT / "configs" / "iwslt2017_soft.py"))
    model = resolve(config).build_model(TextSizes(8000, 8000))
    words = jax.ShapeDtypeStruct((1, 4), jnp.int32)
    batch = dict.fromkeys(("source", "target_in", "target_out"), words)
    count = sum(x.size for x in jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0), batch)))
    uncalled, second_biases, readout = lstm(512, 512), 2 * 4 * 512, 1024 * 512 + 512
    assert count == shown - uncalled - second_biases + readout
    (row,) = [line for line in TEXT.splitlines() if line.startswith("| notebook | 35,926,336 parameters")]
    for number in (count, shown, uncalled, second_biases, readout):
        assert f"{number:,}" in row
    config_file = (ROOT / "configs" / "iwslt2017_soft.py").read_text(encoding="utf-8")
    assert f"{count:,} parameters" in config_file


@pytest.mark.slow
def test_the_model_of_the_notebook_starts_and_drops_as_its_cells_do():
    """h = fc(dropout(h)) and c = 0 in the decoder, dropout before the output layer, and in no other place."""
    config = load_config_file(str(ROOT / "configs" / "iwslt2017_soft.py"))
    sizes = ("hidden_size", "embedding_size", "decoder.readout_size")
    config = change(config, {f"model.{size}": 6 for size in sizes})
    model = resolve(config).build_model(TextSizes(9, 9))
    module = model.module
    assert module.dropout == 0.2 and set(module.dropout_places) == {"summary", "readout"}
    batch = {name: jnp.array([[4, 5, 3]]) for name in ("source", "target_in", "target_out")}
    params = fill(jax.eval_shape(model.init, jax.random.key(0), batch))

    def first(module, source):
        encoded = module.encode(source, train=True)
        _, state = module.decoder.start(encoded)
        return encoded.states[:, -1], encoded.last[0][0], *state.layers[0]

    rngs = {"dropout": jax.random.key(1)}
    last, dropped, h, c = module.apply({"params": params}, batch["source"], method=first, rngs=rngs)
    kept = np.asarray(dropped != 0)
    np.testing.assert_allclose(dropped[kept], last[kept] / 0.8, rtol=1e-4)
    fc = params["decoder"]["stack"]["bridges_0"]
    np.testing.assert_allclose(h, dropped @ fc["kernel"] + fc["bias"], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(c, 0)
    assert 0 < kept.sum() < kept.size
