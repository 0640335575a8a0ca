"""The zoo has a page with a citation for everything that can be chosen, and says the truth about it."""

import base64
import dataclasses
import inspect
import io
import itertools
import pathlib
import re
import sys
import xml.etree.ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import PIL.Image
import pytest

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
sys.path.insert(0, str(DOCS / "_ext"))
import api  # noqa: E402
import docstrings  # noqa: E402
import operations  # noqa: E402
import zoo_entries  # noqa: E402
import zoo_entry  # noqa: E402
import zoo_figures  # noqa: E402
import zoo_formulas  # noqa: E402
import zoo_mechanisms  # noqa: E402
import zoo_pages  # noqa: E402

import attn_jax  # noqa: E402
from attn_jax.attention.build import build_attention  # noqa: E402
from attn_jax.attention.hard.baselines import BASELINES  # noqa: E402
from attn_jax.attention.hard.readings import READINGS  # noqa: E402
from attn_jax.attention.local import WINDOWS  # noqa: E402
from attn_jax.attention.normalizers import NORMALIZERS  # noqa: E402
from attn_jax.attention.recurrent.heads import RECURRENT  # noqa: E402
from attn_jax.attention.scores import SCORES  # noqa: E402
from attn_jax.attention.signed import FITS  # noqa: E402
from attn_jax.models.attention_options import WRAPPERS  # noqa: E402
from attn_jax.outputs import OUTPUTS  # noqa: E402

ENTRIES = zoo_entries.entries()
BY_NAME = {(entry.kind, entry.name): entry for entry in ENTRIES}
TABLES = {"scores": SCORES, "normalizers": NORMALIZERS, "readings": READINGS, "baselines": BASELINES}
TABLES |= {"memories": RECURRENT, "outputs": OUTPUTS}


def test_every_entry_of_every_table_has_a_page():
    for kind, table in TABLES.items():
        assert {entry.name for entry in ENTRIES if entry.kind == kind} == set(table)
    mechanisms = {entry.name for entry in ENTRIES if entry.kind == "mechanisms"}
    assert mechanisms >= set(WINDOWS) | {name for name, fit in FITS.items() if fit}
    assert len(BY_NAME) == len(ENTRIES)


def test_every_entry_has_an_equation_or_a_reason():
    """Add the equation to FORMULAS in docs/_ext/zoo_formulas.py."""
    found = {(kind, name): tex for kind, of_kind in zoo_formulas.FORMULAS.items() for name, tex in of_kind.items()}
    assert set(found) | set(zoo_formulas.WITHOUT) == set(BY_NAME)
    for key, tex in found.items():
        assert tex.count("{") == tex.count("}"), key
        assert len(re.findall(r"\\left[^a-z]", tex)) == len(re.findall(r"\\right[^a-z]", tex)), key
        assert f"$$\n{tex}\n$$" in zoo_pages.page(BY_NAME[key])


def test_every_entry_cites_a_paper_or_says_why_not():
    """Add the paper to the docstring of the entry, or the reason to NO_PAPER in docs/_ext/zoo_entry.py."""
    assert [entry.name for entry in ENTRIES if not entry.is_cited] == []
    assert set(zoo_entry.NO_PAPER) <= set(BY_NAME)


def test_every_argument_of_attention_has_a_page():
    """Add a line to MECHANISMS in docs/_ext/zoo_mechanisms.py for a new one."""
    described = {field for fields, *_ in zoo_mechanisms.MECHANISMS.values() for field in fields}
    fields = set(inspect.signature(build_attention).parameters)
    assert fields - zoo_mechanisms.PLAIN_FIELDS == described


@pytest.mark.parametrize("name", ["dot", "general", "gaussian"])
def test_the_page_of_a_score_has_all_its_parts(name):
    entry = BY_NAME["scores", name]
    page = zoo_pages.page(entry, picture=True)
    for part in (f"# {name}\n", "## On the shared example", "## Cost and constraints", "## Use", f"score={name}`"):
        assert part in page
    np.testing.assert_allclose(entry.weights().sum(axis=-1), 1, atol=1e-5)


def test_a_page_has_no_arguments_of_a_function_beside_its_own():
    page = zoo_pages.page(BY_NAME["normalizers", "sparsemax"])
    assert "`entmax`:" in page and "**Args**" not in page and "**Raises**" not in page
    assert "rows sum to 1\n" in page


@pytest.mark.parametrize(("key", "size"), [(("scores", "dot"), (12, 12)), (("readings", "top"), (6, 10))])
def test_the_gallery_has_a_pixel_for_each_weight(key, size):
    picture = base64.b64decode(zoo_figures.thumbnail(BY_NAME[key]).removeprefix("data:image/png;base64,"))
    assert PIL.Image.open(io.BytesIO(picture)).size == size
    assert zoo_figures.thumbnail(BY_NAME["outputs", "full"]) == ""


def test_the_cost_of_a_dot_product_is_exact():
    assert "- 128 operations for each query and key" in zoo_pages.page(BY_NAME["scores", "dot"])


@pytest.mark.slow
def test_properties_on_a_page_are_those_of_the_code():
    assert "kernel_sum" in "".join(zoo_pages.score_facts(BY_NAME["scores", "boxcar"]))
    rows = "".join(zoo_pages.normalizer_facts(BY_NAME["normalizers", "softpick"]))
    assert "need not sum to one" in rows and "changes the weights" in rows
    contextual = zoo_pages.normalizer_facts(BY_NAME["normalizers", "contextual_softmax"])
    assert "a number added to all scores changes the weights" in contextual  # not with the parameters at the start
    facts = "".join(zoo_pages.reading_facts(BY_NAME["readings", "reinforce"]))
    assert "1 evaluation of the loss" in facts and "`leave_one_out`" in facts


def test_counts_of_operations():
    n, x = 8, jnp.ones((8, 8))
    assert operations.count(lambda x: x @ x, x) == (2 * n**3, False)
    assert operations.count(lambda x: jnp.sum(jnp.exp(x)), x).number == 2 * n**2
    loop = lambda x: jax.lax.scan(lambda c, _: (c + x, None), x, None, 5)[0]  # noqa: E731
    assert operations.count(loop, x).number == 5 * n**2
    assert operations.count(lambda x: jax.lax.while_loop(lambda c: c.sum() < 0, lambda c: 2 * c, x), x).open_loop
    assert operations.count(lambda x: x.T.reshape(-1)[:3], x).number == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "key", [("scores", "general"), ("normalizers", "sparsemax"), ("readings", "top"), ("mechanisms", "local_m")]
)
def test_the_code_on_a_page_runs(key):
    names: dict = {}
    exec(zoo_pages.PREPARE, names)
    exec(BY_NAME[key].code, names)
    assert "attended" in names or "surrogate" in names


def test_all_code_is_python_with_short_lines():
    for entry in ENTRIES:
        compile(entry.code, entry.name, "exec")
        assert max(map(len, [*entry.code.splitlines(), ""])) <= 120, entry.name


def test_a_picture_has_a_cell_for_each_number():
    scores = np.array([[0.0, -np.inf], [1.0, 2.0]])
    image = xml.etree.ElementTree.fromstring(zoo_figures.maps(scores, np.array([[0.5, 0.5], [-1.0, 2.0]])))
    cells = [x for x in image.iter() if x.tag.endswith("rect")]
    assert len(cells) == 8 and [x.get("fill") for x in cells].count("none") == 1
    assert cells[-2].get("fill") != cells[-1].get("fill")


def test_docstrings_become_markdown():
    text = "weights_i = a * b, see `code_i` (arXiv 1409.0473).\n\n    x = f(y)\n\n"
    text += "Args:\n    scores: [..., k],\n        long.\n"
    page = docstrings.markdown(text)
    assert "weights\\_i = a \\* b" in page and "`code_i`" in page
    assert "[arXiv 1409.0473](https://arxiv.org/abs/1409.0473)" in page
    assert "```python\nx = f(y)\n```" in page and "- `scores`: \\[..., k\\], long." in page


def test_citations_are_recognized():
    for text in ("Bahdanau 2015", "Peters, Niculae & Martins 2019", "(arXiv 1409.0473)", "Douc 2005, cs/0507025"):
        assert docstrings.cites(text)
    assert not docstrings.cites("At most 2015 keys, of length 1999.")


def test_the_reference_has_every_part_of_the_tables():
    found = [value for inside in api.members().values() for _, value in inside]
    parts = [*SCORES.values(), *WRAPPERS.values(), *WINDOWS.values()]
    parts += [entry if isinstance(entry, type) else entry.function for entry in NORMALIZERS.values()]
    parts += [getattr(attn_jax.readings, name) for name in READINGS]
    assert [part for part in parts if part not in found] == []


def named(kind):
    """The names in the section "Attributes" of a class and of its bases."""
    texts = ((of.__doc__ or "").partition("Attributes:")[2] for of in inspect.getmro(kind)[:-1])
    lines = (line for text in texts for line in re.findall(r"^ +([a-z_, ]+):", text, re.MULTILINE))
    return {name for line in lines for name in line.split(", ")}


def test_every_field_is_an_option_or_named_among_the_attributes():
    for name, value in itertools.chain.from_iterable(api.members().values()):
        fields = dataclasses.fields(value) if inspect.isclass(value) and dataclasses.is_dataclass(value) else ()
        own = {field.name for field in fields if "option" not in field.metadata}
        own |= {*getattr(value, "_fields", ())} if inspect.isclass(value) else set()
        assert not own or own <= named(value) | {*api.HIDDEN}, name


def test_the_reference_has_every_public_name_once():
    found = [name for inside in api.members().values() for name, _ in inside]
    assert set(attn_jax.__all__) <= set(found) and len(found) == len(set(found))
    for inside in api.members().values():
        for name, value in inside:
            assert docstrings.text_of(value) or isinstance(value, dict | type(attn_jax.SCORES)), name
    page = api.pages()["attn_jax"]
    assert "attend(\n    query: Float[Array, '... q dq']" in page and "### `Attention.prepare`" in page
    assert "`Attention.map`" not in page and "`Attended.replace`" not in page and "Initializes a Module" not in page
