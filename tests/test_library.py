"""The package as a library: its public names, attention as a function and as a module, and trained models."""

import dataclasses
import inspect
import pathlib
import subprocess
import sys
import tomllib

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, fill
from flax import nnx
from flax.nnx import bridge
from stub import PATH, text
from tiny_run import tiny_config

import attn_jax
from attn_jax.attention.hard.baselines import BASELINES
from attn_jax.attention.hard.monotonic import MonotonicSelection
from attn_jax.attention.names import required_options
from attn_jax.attention.scores import Boxcar
from attn_jax.attention.scores.kernels import KERNELS
from attn_jax.data.data_files import data_checksums, save_kept
from attn_jax.data.facts import Kept
from attn_jax.data.vocabulary import Characters
from attn_jax.errors import UserError
from attn_jax.runs import training
from attn_jax.runs.build import build_setup
from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.options import change, resolve
from attn_jax.runs.workdir import plain, save_config

ROOT = pathlib.Path(__file__).resolve().parents[1]
BATCH, QUERIES, KEYS, WIDTH = 2, 3, 5, 4
RNG = np.random.default_rng(0)
QUERY = jnp.asarray(RNG.normal(size=(BATCH, QUERIES, WIDTH)), jnp.float32)
MEMORY = jnp.asarray(RNG.normal(size=(BATCH, KEYS, WIDTH)), jnp.float32)
VALUES = jnp.asarray(RNG.normal(size=(BATCH, KEYS, 6)), jnp.float32)
MASK = jnp.asarray(np.arange(KEYS) < np.array([5, 2])[:, None])  # of keys
WITHOUT_OPTIONS = [name for name, kind in attn_jax.SCORES.items() if not (required_options(kind) or kind.own_width)]


def test_type_checkers_find_every_public_name():
    """In attn_jax/__init__.pyi, since names are imported at their first use; python tests/stub.py writes it."""
    assert PATH.read_text(encoding="utf-8") == text()


def test_the_library_needs_jax_flax_jaxtyping_and_numpy_alone():
    """And the error for a package that only training needs says how to install it."""
    blocked = "ml_collections matplotlib sacrebleu sentencepiece PIL tensorboardX pooch tqdm".split()
    code = f"""import sys
sys.modules.update(dict.fromkeys({blocked}))
import attn_jax, flax.linen
for name in attn_jax.__all__:
    try:
        getattr(attn_jax, name)
    except ImportError as error:
        print(name, error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert told.keys() == {"get_config", "train", "load", "import_parameters"}
    assert all("pip install 'attn_jax[train]'" in words for words in told.values())


def fields(attended):
    return attended.context, attended.weights, attended.log_prob


def small_sizes(kind, max_length):
    """Sizes for a score of this class, where it has any."""
    sizes = {"features": WIDTH, "query_features": WIDTH, "max_length": max_length}
    found = {name: size for name, size in sizes.items() if name in kind.__dataclass_fields__}
    assert set(required_options(kind)) <= set(found)
    return found


def attend(*args, **options):
    return fields(attn_jax.attend(*args, **options))


# The public names


def test_importing_the_package_does_not_import_jax():
    program = "import sys, attn_jax, attn_jax.errors; assert 'jax' not in sys.modules; print(*dir(attn_jax))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == sorted([*attn_jax.__all__, *attn_jax._PACKAGES, "__version__"])


def test_the_public_names_are_about_forty_and_each_says_what_it_is():
    assert 35 <= len(attn_jax.__all__) <= 55
    for name in attn_jax.__all__:
        value = getattr(attn_jax, name)
        assert name.isupper() == isinstance(value, dict)
        if not isinstance(value, dict):
            assert inspect.isclass(value) or inspect.isfunction(value), name
            assert inspect.getdoc(value) and value.__doc__, name
    assert dir(attn_jax) == sorted([*attn_jax.__all__, *attn_jax._PACKAGES, "__version__"])
    assert all(inspect.ismodule(getattr(attn_jax, name)) for name in attn_jax._PACKAGES)
    with pytest.raises(AttributeError, match="has no attribute 'atend'"):
        _ = attn_jax.atend


def test_one_version():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == attn_jax.__version__


# attend


def test_attend_is_the_formula():
    context, got, _ = compiled(lambda *args: attend(*args, key_mask=MASK))(QUERY, MEMORY, VALUES)
    scores = np.einsum("bqd,bkd->bqk", QUERY, MEMORY) / 2
    weights = np.exp(scores) * MASK[:, None]
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(got, weights, atol=1e-6)
    np.testing.assert_allclose(context, weights @ VALUES, atol=1e-6)


def test_attend_under_vmap_and_grad_is_the_same_as_in_a_batch():
    together = compiled(attend)(QUERY, MEMORY, VALUES)
    alone = compiled(jax.vmap(attend))(QUERY, MEMORY, VALUES)
    for got, expected in zip(alone, together, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-6)

    def loss(query, call):
        return jnp.sum(jnp.sin(call(query, MEMORY, VALUES)[0]))

    got = compiled(jax.grad(lambda query: loss(query, jax.vmap(attend))))(QUERY)
    expected = compiled(jax.grad(lambda query: loss(query, attend)))(QUERY)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert np.all(np.any(expected != 0, axis=-1))


@pytest.mark.slow
@pytest.mark.parametrize("name", attn_jax.NORMALIZERS)
def test_attend_takes_normalizers_by_name_and_as_objects(name):
    entry = attn_jax.NORMALIZERS[name]
    entry = entry() if isinstance(entry, type) else entry
    call = lambda normalize: compiled(lambda q: attn_jax.attend(q, MEMORY, normalize=normalize).weights)(QUERY)  # noqa: E731
    if isinstance(entry, nn.Module) and "params" in jax.eval_shape(
        lambda: entry.init(jax.random.key(0), QUERY, query=QUERY)
    ):
        for normalize in (name, entry):
            with pytest.raises(ValueError, match=rf"{type(entry).__name__} has parameters, .*attention\(score="):
                call(normalize)
    else:
        np.testing.assert_array_equal(call(name), call(entry))


@pytest.mark.slow
@pytest.mark.parametrize("name", attn_jax.SCORES)
def test_attend_takes_scores_without_parameters_and_says_what_to_do_with_others(name):
    kind = attn_jax.SCORES[name]
    fixed = {"width": (2.0,)} if name in KERNELS and name != "constant" else {}
    normalize = "kernel_sum" if name in KERNELS else "softmax"
    free = ("dot", "scaled_dot", "norm", "constant", "random_features")
    if name in free or fixed:
        weights = attn_jax.attend(QUERY, MEMORY, score=kind(**fixed), normalize=normalize).weights
        assert weights.shape == (BATCH, QUERIES, KEYS)
    if name not in free:
        for score in (name, kind(**small_sizes(kind, KEYS))):
            with pytest.raises(ValueError, match=rf"has parameters, .*attention\(score={kind.__name__}\(") as error:
                attn_jax.attend(QUERY, MEMORY, score=score, normalize=normalize)
            assert "\n" not in str(error.value)


def test_attend_inside_a_module_leaves_its_parameters_alone():
    class Pool(nn.Module):
        @nn.compact
        def __call__(self, x):
            query = self.param("query", nn.initializers.normal(0.1), (1, x.shape[-1]))
            return attn_jax.attend(query, x, score=attn_jax.ScaledDot(), normalize="entmax").context

    assert set(jax.eval_shape(lambda: Pool().init(jax.random.key(0), MEMORY))["params"]) == {"query"}


def test_a_sampled_key_has_no_gradient_and_its_surrogate_has():
    def context(query, read):
        attended = attn_jax.attend(query, MEMORY, read=read, rng=jax.random.key(0))
        return jnp.sum(jnp.sin(attended.context))

    def surrogate(query):
        weights = attn_jax.attend(query, MEMORY).weights
        sample = attn_jax.reinforce(num_samples=4, leave_one_out=True)(jax.random.key(0), attn_jax.log_of(weights))
        return jnp.sum(attn_jax.combine(sample, jnp.sin(sample.rows @ MEMORY[:, None]).sum(-1)))

    gradient = lambda f: np.any(compiled(jax.grad(f))(QUERY) != 0)  # noqa: E731
    assert not gradient(lambda query: context(query, attn_jax.reinforce()))
    assert gradient(lambda query: context(query, attn_jax.gumbel_softmax(temperature=0.5)))
    assert gradient(surrogate)


# Attention and MultiHead as modules


@pytest.mark.parametrize("name", WITHOUT_OPTIONS)
def test_names_are_the_objects(name):
    normalize = "kernel_sum" if name in KERNELS else "softmax"
    by_name = attn_jax.attention(score=name, normalize=normalize, read="top")
    assert by_name == attn_jax.attention(
        score=attn_jax.SCORES[name](), normalize=attn_jax.NORMALIZERS[normalize], read=attn_jax.READINGS["top"]
    )
    params = jax.eval_shape(lambda: by_name.init(jax.random.key(0), QUERY, MEMORY)).get("params", {})
    assert set(params) <= {"map"} and set(params.get("map", {})) <= {"score"}


@pytest.mark.parametrize(
    "module",
    [
        attn_jax.attention(score=attn_jax.Additive(features=3)),
        attn_jax.attention(score=attn_jax.General(query_features=WIDTH), normalize="learned_entmax"),
        attn_jax.MultiHead(
            attention=attn_jax.attention(score="scaled_dot"), num_heads=2, features=WIDTH, num_kv_heads=1
        ),
    ],
    ids=["additive", "general", "multi-head"],
)
def test_keys_and_values_are_a_memory(module):
    def in_two_steps(module, query, keys, values, mask):
        return fields(module(query, module.prepare(keys, values, key_mask=mask)))

    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), QUERY, MEMORY, VALUES, key_mask=MASK))
    params = fill(shapes)
    expected = jax.eval_shape(lambda: module.init(jax.random.key(0), QUERY, MEMORY, VALUES, MASK, method=in_two_steps))
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, expected)
    one = compiled(lambda *args: fields(module.apply(params, *args, key_mask=MASK)))(QUERY, MEMORY, VALUES)
    two = compiled(lambda *args: module.apply(params, *args, method=in_two_steps))(QUERY, MEMORY, VALUES, MASK)
    for got, want in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)


def test_half_of_the_parameters_say_how_to_make_the_others():
    attention = attn_jax.attention(score=attn_jax.Additive(features=3))
    half = attention.init(jax.random.key(0), MEMORY, method="prepare")
    with pytest.raises(ValueError, match=r"Additive score lacks parameters .* initialize with init\(rng, query, keys"):
        attention.apply(half, QUERY, MEMORY)


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        attn_jax.attention(score=attn_jax.Additive(features=3), normalize=attn_jax.entmax15),
        attn_jax.MultiHead(attention=attn_jax.attention(score=attn_jax.ScaledDot()), num_heads=2, features=WIDTH),
    ],
    ids=["attention", "multi-head"],
)
def test_modules_work_in_nnx(module):
    wrapped = bridge.ToNNX(module, rngs=nnx.Rngs(0))
    bridge.lazy_init(wrapped, QUERY, MEMORY, VALUES)
    params = nnx.state(wrapped, nnx.Param)

    def loss(model, query):
        return jnp.sum(jnp.square(model(query, MEMORY, VALUES).context))

    value, gradient = nnx.jit(nnx.value_and_grad(loss))(wrapped, QUERY)
    assert np.isfinite(value) and value > 0
    assert jax.tree.structure(jax.tree.leaves(gradient)) == jax.tree.structure(jax.tree.leaves(params))
    assert any(np.any(leaf != 0) for leaf in jax.tree.leaves(gradient))


MISTAKES = {
    "unknown score 'scaled_dto'; did you mean scaled_dot": lambda: attn_jax.attention(score="scaled_dto"),
    "unknown normalize 'sofmax'; did you mean softmax": lambda: attn_jax.attend(QUERY, MEMORY, normalize="sofmax"),
    "unknown read 'gumbel'; did you mean gumbel_rao or gumbel_softmax": lambda: attn_jax.attend(
        QUERY, MEMORY, read="gumbel"
    ),
    "unknown read 'reinforced'; did you mean reinforce": lambda: attn_jax.attend(QUERY, MEMORY, read="reinforced"),
    r"score 'general' needs options; give an object instead, General\(query_features=...\)": lambda: attn_jax.attention(
        score="general"
    ),
    "defined where a score is -inf, unlike those of softmax": lambda: attn_jax.attention(score=Boxcar(width=(1.0,))),
    "monotonic already computes the weights; do not combine it with sparsemax": lambda: attn_jax.attention(
        score="dot", monotonic=MonotonicSelection(), normalize="sparsemax"
    ),
    "dropout is 1.0; expected at least 0": lambda: attn_jax.attention(score="dot", dropout=1.0),
    "needs the positions of the queries": lambda: attn_jax.attention(score="dot", window=attn_jax.LocalM(size=2)).apply(
        {}, QUERY, MEMORY
    ),
    "needs the weights of the step before": lambda: attn_jax.attention(
        score="dot", monotonic=MonotonicSelection()
    ).init(jax.random.key(0), QUERY, MEMORY),
    "a Memory has its values and its key_mask already": lambda: attn_jax.attention(score="dot").apply(
        {}, QUERY, attn_jax.Memory(MEMORY, MEMORY, MASK), VALUES
    ),
    r"mask of shape .*; a mask of keys alone is key_mask=\.\.\.": lambda: attn_jax.attend(QUERY, MEMORY, mask=MASK),
    "num_samples is 9, but there are 5 keys": lambda: attn_jax.sum_and_sample(num_samples=9)(
        jax.random.key(0), jnp.zeros(5)
    ),
    "Attention reads one row of weights, but read=reinforce samples 4": lambda: attn_jax.attend(
        QUERY, MEMORY, read=attn_jax.reinforce(num_samples=4), rng=jax.random.key(0)
    ),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_one_line_about_the_arguments(message):
    with pytest.raises((ValueError, TypeError), match=message) as error:
        MISTAKES[message]()
    assert not isinstance(error.value, UserError)
    assert "\n" not in str(error.value) and "model." not in str(error.value)


KINDS = {
    "score=attn_jax.General": "score is the class General; give an object, General(query_features=...)",
    "score=None": "score is None; expected a Score, or a name: dot, ",
    "score='dot', normalize=1.0": "normalize is 1.0; expected a function, a module, or a name",
    "score='dot', read=0": "read is 0; expected a Reading, such as expectation(), or a name",
}


@pytest.mark.slow
def test_a_wrong_kind_of_object_is_one_line():
    """In a process of its own, since in this one every annotation is checked before."""
    program = """if True:
        import attn_jax
        for text in {!r}:
            try:
                eval("attn_jax.attention(" + text + ")")
            except TypeError as error:
                print(error)
    """
    command = [sys.executable, "-c", program.format(list(KINDS))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for line, expected in zip(done.stdout.splitlines(), KINDS.values(), strict=True):
        assert line.startswith(expected)


# Properties of the entries of the tables


@pytest.mark.slow
def test_weights_sum_to_one_where_they_say_so():
    scores = jnp.asarray(RNG.normal(size=(40, KEYS)), jnp.float32)
    for name, entry in attn_jax.NORMALIZERS.items():
        entry = entry() if isinstance(entry, type) else entry
        call = entry.init_with_output if isinstance(entry, nn.Module) else None
        weights = call(jax.random.key(0), scores, query=QUERY[0, :1])[0] if call else entry(scores)
        promised = attn_jax.attention(score="dot", normalize=entry).sums_to_one
        assert np.allclose(np.sum(weights, axis=-1), 1, atol=1e-5) == promised, name
        empty = entry(jnp.full((1, KEYS), -jnp.inf)) if entry.infinite else np.zeros(1)
        np.testing.assert_array_equal(empty, 0)
    assert not attn_jax.attention(score="dot", window=attn_jax.LocalM(size=2)).sums_to_one
    assert not attn_jax.attention(score="dot", monotonic=MonotonicSelection()).sums_to_one
    assert not attn_jax.attention(score="boxcar", normalize="kernel_sum").sums_to_one


@pytest.mark.parametrize("name", attn_jax.SCORES)
def test_a_fused_scale_is_the_factor_of_the_product(name):
    kind = attn_jax.SCORES[name]
    score = kind(**small_sizes(kind, WIDTH + 1))
    scale = score.fused_scale(WIDTH)
    assert (scale is not None) == (name in ("dot", "scaled_dot", "qk_norm"))
    if scale is not None:
        score = score.bind(score.init(jax.random.key(0), QUERY, MEMORY))
        query, keys = score.project_query(QUERY), score.project_keys(MEMORY)
        expected = scale * np.einsum("bqd,bkd->bqk", query, keys)
        np.testing.assert_allclose(score(QUERY, keys), expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", attn_jax.READINGS)
def test_readings_are_what_their_properties_say(name):
    reading = attn_jax.READINGS[name]
    log_weights = jax.nn.log_softmax(jnp.asarray(RNG.normal(size=(3, KEYS)), jnp.float32))
    rows = reading(jax.random.key(0), log_weights).rows
    assert rows.shape[-2] == 1 or not reading.one_row
    assert reading.is_soft == (rows.shape[-2] == 1 and np.allclose(rows[:, 0], np.exp(log_weights)))
    assert reading.exact_rows == (rows.shape == (3, KEYS, KEYS) and np.allclose(rows, np.eye(KEYS)))
    assert reading.random != np.array_equal(reading(jax.random.key(1), log_weights).rows, rows)
    assert set(reading.baselines) <= set(BASELINES)
    with pytest.raises(ValueError, match=f"the reading {name} has no option num_sample; "):
        reading.configure(num_sample=3)
    if "num_samples" in reading.options:
        several = reading.configure(num_samples=3)
        count = several(jax.random.key(0), log_weights).rows.shape[-2]
        assert several.one_row == (count == 1) and several.num_keys == (3 if reading.distinct else 1)
        assert several.independent == (count == 3 and name == "reinforce")


# Trained models


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A work directory of random parameters, as a finished training leaves it."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    config = tiny_config()
    save_config(folder, config)
    vocabularies = tuple(Characters.train(lines, vocab_size=30) for lines in (["abcd"], ["wxyz"]))
    save_kept(folder, Kept(*vocabularies))
    model = build_setup(resolve(config), Kept(*vocabularies))
    example = jax.tree.map(jnp.asarray, model.example)
    params = fill(jax.eval_shape(lambda: model.model.init(jax.random.key(0), example)))
    with training.open_checkpoints(resolve(config), folder) as checkpoints:
        extra = {"finished": True, "data": data_checksums(folder)}
        state = {"params": params, "step": np.int32(3)}
        checkpoints.save(3, state, config=plain(config), extra=extra, metrics={"loss": 1.0})
    return folder


@pytest.mark.slow
def test_load_gives_a_model_with_its_parameters_that_predicts(workdir):
    loaded = attn_jax.load(str(workdir))
    assert loaded.config.model.hidden_size == 8
    page = loaded._repr_html_()
    assert str(workdir) in page and "<td>model.hidden_size</td><td>8</td>" in page and "metric" in page
    lines = loaded.predict(["abc", "", "dcba"])
    assert len(lines) == 3 and lines[1] == "" and all(isinstance(line, str) for line in lines)
    batch = {name: jnp.array([[5, 6, 2]]) for name in ("source", "target_in", "target_out")}
    score = loaded.model.score(loaded.params, batch)
    assert score.shape == (1,) and score < 0


@pytest.mark.slow
def test_attention_gives_each_output_with_the_weights_of_every_place(workdir):
    loaded = attn_jax.load(workdir)
    first, second = loaded.attention(["abc", "", "dcba"])
    assert [first.output, second.output] == loaded.predict(["abc", "dcba"])
    (found,) = second.maps
    assert found.columns == ("d", "c", "b", "a", "<eos>") and found.weights.shape == (len(found.rows), 5)
    assert np.allclose(found.weights.sum(-1), 1, atol=1e-5) and loaded.attention([]) == []
    with pytest.raises(UserError, match="a list of lines"):
        loaded.attention("abc")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("kernel_regression", {}, "for a regression use --mode=report"),
        ("quickstart", {"model.decoder": "none"}, "model.decoder none has no attention"),
    ],
)
def test_a_model_without_such_weights_says_so(workdir, name, changes, message):
    loaded = attn_jax.load(workdir)
    options = resolve(change(load_config_file(name), changes))
    loaded = dataclasses.replace(loaded, snapshot=loaded.snapshot._replace(options=options))
    with pytest.raises(UserError, match=message):
        loaded.attention(["1 May 2026"])


@pytest.mark.slow
def test_load_says_in_one_line_what_is_wrong(workdir, tmp_path):
    with pytest.raises(UserError, match="there is no such work directory"):
        attn_jax.load(tmp_path / "nothing")
    with pytest.raises(UserError, match=r"config\.json") as error:
        attn_jax.load(tmp_path)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="a list of lines"):
        attn_jax.load(workdir).predict("abc")
