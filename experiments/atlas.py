"""One matrix: the weights W of every mechanism of self-attention, on one example, and what each of them costs.

    python experiments/atlas.py
    python experiments/atlas.py --each
    python experiments/atlas.py --render

The mechanisms are the entries of the package's tables (SCORES, NORMALIZERS, FITS, RECURRENT) and what may be put around
them; a key of a config of a Transformer chooses each, and a new entry appears by itself. Its equation is the first
sentence of its docstring. The rest is counted or tried out with random parameters and one head of 32 columns, not
claimed:

    kept         numbers of its cache in decoding, after n tokens
    operations   arithmetic operations of one more token in decoding, counted in the program that is traced
    sum, sign    of the rows of W
    order        whether the context of the last token changes when two earlier tokens change places: if it does not,
                 the mechanism needs positions

The example: a stack of one layer with softmax attention and without positions learns to sort eight different symbols
of twelve, so each symbol that is written is the smallest one above the last. Every mechanism then gets the queries,
keys and values of that trained layer, and its own parameters as they begin; the picture has W for one sequence. With
--each the layer is trained with each mechanism, a quarter of a minute for each on one core, and the page has the share
of symbols that are right. A mechanism that --runs has a file of is not measured again. Windows and monotonic attention
are of recurrent decoders, and not here.
"""

import argparse
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.interpreters import partial_eval

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.attention import NORMALIZERS, SCORES, selective  # noqa: E402
from attn_jax.attention.recurrent.heads import RECURRENT  # noqa: E402
from attn_jax.attention.signed import FITS, Subtract  # noqa: E402
from attn_jax.data.files import load_json, save_json  # noqa: E402
from attn_jax.errors import check_known, one_line  # noqa: E402
from attn_jax.layers.transformer import TransformerStack  # noqa: E402
from attn_jax.models.transformer.options import LanguageModelOptions  # noqa: E402
from attn_jax.parts import fields_of, read  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from attn_jax.runs.tree import resolve_tree  # noqa: E402
from attn_jax.types import Array, Float, Int, Params  # noqa: E402
from experiments import raw  # noqa: E402

WIDTH = 32
LENGTHS = (512, 1024, 2048)  # of the caches whose size and cost are counted
SUPPORT = 9.0  # width of compact kernels: each query of the example has a key at less than this distance
SYMBOLS, SORTED = 12, 8  # of an alphabet, and different ones in a sequence
STEPS, BATCH_SIZE, TEST_SIZE = 400, 64, 500
TEST_SEED = 1
BASELINE = "softmax"


class Mechanism(NamedTuple):
    """A mechanism of attention as options of a model."""

    model: dict[str, Any]  # changes of the options of a language model
    equation: str

    @property
    def key(self) -> str:
        """The keys of a config that choose it."""
        texts = {name: ",".join(map(str, x)) if isinstance(x, tuple) else x for name, x in self.model.items()}
        return " ".join(f"model.{name}={text}" for name, text in texts.items())


def around(name: str, **options: Any) -> dict[str, Any]:
    """Returns the changes that put a wrapper around score, normalizer, map and read."""
    parts = {f"attention.wrappers.parts.{name}.{key}": value for key, value in options.items()}
    return {"attention.wrappers": (name,)} | parts


def first_sentence(entry: Any) -> str:
    """Returns the first sentence of a docstring, where the equation is."""
    text = " ".join((entry.__doc__ or "").split("\n\n")[0].split())
    return re.split(r"(?<=\S)\. (?=[A-Z])", text)[0].removesuffix(".")


def mechanisms() -> dict[str, Mechanism]:
    """Returns every mechanism of self-attention, by name."""
    found = {}
    for name, kind in SCORES.items():
        compact = {"attention.normalize": "kernel_sum", "attention.score.width": (SUPPORT,)} if kind.compact else {}
        found[name] = Mechanism({"attention.score": name} | compact, first_sentence(kind))
    for name, kind in NORMALIZERS.items():
        found[name] = Mechanism({"attention.normalize": name}, first_sentence(kind))
    for name, kind in FITS.items():
        if kind is not None:
            found[name] = Mechanism(around(name), first_sentence(kind))
    found["difference"] = Mechanism(around("difference"), first_sentence(Subtract))
    found["selective"] = Mechanism(around("selective"), " ".join(selective.__doc__.split("\n\n")[1].split()))
    fading = "scores - |c_i - c_j|, c the cumulated log of forget gates"
    found["forgetting"] = Mechanism({"positions": "forgetting"}, fading)
    found["top_keys"] = Mechanism(around("top_keys", count=3), "normalize over the 3 keys of largest score")
    blocks = around("top_keys", count=2, keys_per_block=3)
    found["blocks"] = Mechanism(blocks, "the same with 2 blocks of 3 neighbouring keys")
    again = "query <- normalize(score(query, keys)) keys, three times"
    found["hopfield"] = Mechanism(around("hopfield", iterations=3), again)
    for name, kind in RECURRENT.items():
        found[f"memory_{name}"] = Mechanism({"attention": name}, kind.equation)
    return found


def build(mechanism: Mechanism) -> TransformerStack:
    """Builds a causal stack of one layer and one head."""
    changes = {"num_layers": 1, "num_heads": 1, "feed_forward_size": 2 * WIDTH, "positions": "none"}
    if "attention" not in mechanism.model:  # no memory of fixed size
        score = mechanism.model.get("attention.score", "scaled_dot")
        sizes = {"features": WIDTH, "max_length": 2 * LENGTHS[-1]}
        own = {key: size for key, size in sizes.items() if key in fields_of(SCORES[score])}
        changes |= {"attention.score": score} | {f"attention.score.{key}": size for key, size in own.items()}
    tree, _ = resolve_tree(LanguageModelOptions, changes=changes | mechanism.model)
    options = read(LanguageModelOptions, tree)
    return options.build_stack(features=WIDTH, dropout=0.0, dtype=jnp.float32, attention=options.attention, causal=True)


# What it costs.

MOVES = {"reshape", "transpose", "squeeze", "expand_dims", "slice", "concatenate", "pad", "gather", "select_n", "iota"}
MOVES |= {"broadcast_in_dim", "convert_element_type", "stop_gradient", "copy", "rev", "split", "dynamic_slice"}
OF_INPUTS = ("reduce_", "cum", "arg", "sort")  # prefixes of primitives that look at every number they are given


def operations(jaxpr: Any) -> int:
    """Counts the arithmetic operations of a program; moving and comparing numbers is none.

    A loop counts as often as it runs, or once where that depends on the data.
    """
    return sum(_operations(equation) for equation in jaxpr.eqns)


def _operations(equation: Any) -> int:
    name, params = equation.primitive.name, equation.params
    sizes = [int(np.prod(variable.aval.shape)) for variable in equation.outvars]
    if name == "dot_general":
        left = equation.invars[0].aval.shape
        return 2 * sizes[0] * int(np.prod([left[axis] for axis in params["dimension_numbers"][0][0]]))
    if name == "custom_linear_solve":
        return operations(params["jaxprs"].solve.jaxpr)
    inner = [
        getattr(value, "jaxpr", value) for value in params.values() if hasattr(getattr(value, "jaxpr", value), "eqns")
    ]
    if inner:
        return params.get("length", 1) * sum(operations(jaxpr) for jaxpr in inner)
    if name in ("cholesky", "triangular_solve"):
        return sizes[0] * equation.invars[0].aval.shape[-1]
    if name in MOVES or all(variable.aval.dtype == bool for variable in equation.outvars):
        return 0
    if name.startswith(OF_INPUTS):
        return sum(int(np.prod(variable.aval.shape)) for variable in equation.invars)
    return sum(sizes)


def heads_of(mechanism: Mechanism) -> nn.Module:
    """Makes the module of all heads of a layer, outside of any other module."""
    return build(mechanism).make_layer().make_attention().clone(parent=None)


def random_params(heads: nn.Module, x: Float[Array, "b n d"], seed: int = 0) -> Params:
    """Returns normal random numbers for all parameters: what begins at zero would do nothing."""
    init = lambda x: heads.init(jax.random.key(0), **_inputs(x), method="extend")  # noqa: E731
    shapes = jax.eval_shape(init, x).get("params", {})
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(0, 0.3, leaf.shape), leaf.dtype), shapes)


def attend(heads: nn.Module, params: Params, x: Float[Array, "b n d"], key_mask: Array | None = None):
    """Returns the contexts and the weights of causal self-attention."""
    given = _inputs(x) if key_mask is None else _inputs(x) | {"key_mask": key_mask}
    attended = heads.apply({"params": params}, **given, method="extend")[1]
    return attended.context, attended.weights


def _inputs(x: Array) -> dict[str, Array]:
    positions = jnp.broadcast_to(jnp.arange(x.shape[1]), x.shape[:2])
    return {"x": x, "key_mask": jnp.ones(x.shape[:2], bool), "positions": positions}


def decoding(mechanism: Mechanism, length: int) -> tuple[int, int]:
    """Counts (numbers that are kept, operations of one more token) in decoding with room for `length` tokens."""
    heads, x = heads_of(mechanism), jax.ShapeDtypeStruct((1, 1, WIDTH), jnp.float32)
    params = random_params(heads, jnp.zeros((1, 2, WIDTH)))
    trees = []

    def empty(params: Params) -> list[Array]:
        leaves, tree = jax.tree.flatten(heads.apply({"params": params}, 1, length, method="start"))
        trees.append(tree)
        return leaves

    def step(params: Params, leaves: list[Array], x: Array) -> tuple[list[Array], Array]:
        given = _inputs(x) | {"positions": jnp.full((1, 1), length - 1), "cache": trees[0].unflatten(leaves)}
        memory, attended = heads.apply({"params": params}, **given, method="extend")
        return jax.tree.leaves(memory), attended.context

    cache = jax.eval_shape(empty, params)
    program = jax.make_jaxpr(step)(params, cache, x).jaxpr
    program, _ = partial_eval.dce_jaxpr(program, [True] * len(program.outvars))  # weights that nobody looks at
    kept = sum(leaf.size for leaf in cache if jnp.issubdtype(leaf.dtype, jnp.floating))
    return kept, operations(program)


class Facts(NamedTuple):
    """What is counted and tried out of a mechanism; (a, b, c) is a + b n + c n^2 for n tokens."""

    kept: tuple[float, float, float]
    operations: tuple[float, float, float]
    sums_to_one: bool
    negative: bool  # some weight is
    ordered: bool  # the order of earlier tokens counts


def facts(mechanism: Mechanism) -> Facts:
    """Counts and tries out a mechanism."""
    kept, operations = zip(*(decoding(mechanism, n) for n in LENGTHS), strict=True)
    heads, x = heads_of(mechanism), np.random.default_rng(1).normal(size=(1, 2 * SORTED, WIDTH)).astype(np.float32)
    run = jax.jit(lambda params, x: attend(heads, params, x))
    params, other = random_params(heads, x), x.copy()
    other[:, [-4, -2]] = x[:, [-2, -4]]  # near the query, where each mechanism looks
    (context, weights), (swapped, _) = (jax.device_get(run(params, one)) for one in (x, other))
    change = np.abs(context[0, -1] - swapped[0, -1]).max() / np.abs(context[0, -1]).max()
    sums_to_one = bool(np.allclose(weights.sum(axis=-1), 1, atol=1e-4))
    return Facts(growth(kept), growth(operations), sums_to_one, bool(weights.min() < -1e-6), bool(change > 1e-3))


def growth(counts: Sequence[int]) -> tuple[float, float, float]:
    """Returns the (a, b, c) of a + b n + c n^2 that has these counts at LENGTHS; c = 0 if they grow as n or n log n."""
    (constant, slope, square), last = np.polynomial.polynomial.polyfit(LENGTHS, counts, 2), LENGTHS[-1]
    if abs(square) * last**2 < 0.05 * counts[-1]:
        slope = (counts[-1] - counts[0]) / (last - LENGTHS[0])
        constant, square = counts[-1] - slope * last, 0.0
    return tuple(round(float(value), 2) for value in (constant, slope, square))


# What it looks at.


class Sorter(nn.Module, kw_only=True):
    """Logits of the next symbol, after each of the tokens."""

    stack: TransformerStack

    @nn.compact
    def __call__(self, tokens: Int[Array, "b n"]) -> tuple[Float[Array, "b n v"], Float[Array, "b h n n"]]:
        states, _, reads = self.stack.run(nn.Embed(SYMBOLS + 1, WIDTH)(tokens), jnp.ones(tokens.shape, bool))
        return nn.Dense(SYMBOLS)(states), reads[-1].own.weights


class Example(NamedTuple):
    """A trained layer, and what it reads."""

    accuracy: float  # percent of new symbols that are right
    weights: Float[np.ndarray, "n n"]  # for the first of the new sequences
    inputs: Float[np.ndarray, "1 n d"]  # of the attention
    params: Params  # of the attention


def sequences(rng: Array, count: int) -> tuple[Int[Array, "b n"], Int[Array, "b s"]]:
    """Samples (different symbols, a separator, all but the last of them sorted) and (them sorted)."""
    orders = jax.vmap(lambda rng: jax.random.permutation(rng, SYMBOLS)[:SORTED])(jax.random.split(rng, count))
    answers = jnp.sort(orders, axis=-1)
    return jnp.concatenate([orders, jnp.full((count, 1), SYMBOLS), answers[:, :-1]], axis=-1), answers


def learn(mechanism: Mechanism, steps: int = STEPS) -> Example:
    """Trains a sorter."""
    model = Sorter(stack=build(mechanism))
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(5e-3, steps)))
    init_rng, train_rng = jax.random.split(jax.random.key(0))

    def loss(params: Params, rng: Array) -> Array:
        tokens, answers = sequences(rng, BATCH_SIZE)
        logits = model.apply({"params": params}, tokens)[0][:, SORTED:]
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, answers))

    def step(carry: Any, rng: Array) -> tuple[Any, None]:
        params, state = carry
        updates, state = tx.update(jax.grad(loss)(params, rng), state, params)
        return (optax.apply_updates(params, updates), state), None

    @jax.jit
    def run() -> Example:
        tokens, answers = sequences(jax.random.key(TEST_SEED), TEST_SIZE)
        params = model.init(init_rng, tokens[:1])["params"]
        (params, _), _ = jax.lax.scan(step, (params, tx.init(params)), jax.random.split(train_rng, steps))
        read = []

        def look(call: Any, args: tuple, kwargs: dict, context: Any) -> Any:
            read.extend([args[0]] if context.method_name == "extend" else [])
            return call(*args, **kwargs)

        with nn.intercept_methods(look):
            logits, weights = model.apply({"params": params}, tokens)
        right = 100 * jnp.mean(jnp.argmax(logits[:, SORTED:], axis=-1) == answers)
        return Example(right, weights[0, 0], read[0][:1], params["stack"]["layers_0"]["self_attention"])

    found = jax.device_get(run())
    return found._replace(accuracy=float(found.accuracy))


def weights_of(mechanism: Mechanism, example: Example) -> Float[np.ndarray, "n n"]:
    """Computes W of a mechanism for the trained queries and keys; its other parameters are as they begin."""
    heads = heads_of(mechanism)

    @jax.jit
    def run(x: Array, trained: Params) -> Array:
        begun = heads.init(jax.random.key(0), **_inputs(x), method="extend").get("params", {})
        return attend(heads, begun | {name: trained[name] for name in ("query", "key", "value", "out")}, x)[1]

    return jax.device_get(run(example.inputs, example.params))[0, 0]


def settings(mechanism: Mechanism, steps: int) -> dict[str, Any]:
    """Returns all that the numbers of a mechanism depend on, besides the code."""
    sizes = {"width": WIDTH, "lengths": LENGTHS, "symbols": SYMBOLS, "sorted": SORTED, "batch_size": BATCH_SIZE}
    return raw.plain({**mechanism._asdict(), "steps": steps, "test_size": TEST_SIZE, "seed": TEST_SEED, **sizes})


def measure(names: Sequence[str], runs: pathlib.Path, each: bool = False, steps: int = STEPS) -> dict[str, Any]:
    """Measures mechanisms; each is kept in `runs` as soon as it is, so that a measurement that was stopped goes on."""
    known, found, example = mechanisms(), {}, None
    if not each:
        example = learn(known[BASELINE], steps)
        print(f"{BASELINE}: {example.accuracy:.1f} % of the symbols are right", file=sys.stderr, flush=True)
    for name in names:
        mechanism = known[name]
        path, key = runs / f"{name}{'_trained' * each}.json", settings(mechanism, steps)
        kept = load_json(path) if path.exists() else {}
        if kept.get("of") != key:
            own = learn(mechanism, steps) if each else None
            weights = own.weights if own else weights_of(mechanism, example)
            kept = {"of": key, "accuracy": own and own.accuracy, "weights": raw.rounded(weights, 4).tolist()}
            kept |= facts(mechanism)._asdict()
            save_json(path, kept)
        found[name] = {"key": mechanism.key, "equation": mechanism.equation, **kept}
        print(name, kept["kept"], kept["operations"], file=sys.stderr, flush=True)
    tokens = sequences(jax.random.key(TEST_SEED), TEST_SIZE)[0][0]
    sizes = {"tokens": np.asarray(tokens), "steps": steps, "batch_size": BATCH_SIZE, "width": WIDTH}
    return {"mechanisms": found, "accuracy": example and example.accuracy, **sizes}


# What is shown.


def _growth(powers: Sequence[float]) -> str:
    units = ("", " n", " n²")
    parts = [f"{value:,.0f}{unit}" for value, unit in zip(powers, units, strict=False) if round(value)]
    return " + ".join(parts).replace("+ -", "- ") or "0"


def _row(name: str, entry: dict[str, Any]) -> list[str]:
    equation = entry["equation"].replace("|", "\\|")
    sums, signs = "1" if entry["sums_to_one"] else "any", "both" if entry["negative"] else "+"
    order, sizes = "yes" if entry["ordered"] else "no", [_growth(entry["kept"]), _growth(entry["operations"])]
    right = [] if entry["accuracy"] is None else [f"{entry['accuracy']:.0f}"]
    return [name, f"`{entry['key']}`", equation, sums, signs, order, *sizes, *right]


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    found, each = record["results"], record["results"]["accuracy"] is None
    head = ["mechanism", "option", "equation", "sum of W", "signs", "order?", "kept", "operations"]
    head += ["sorted right, %"] if each else []
    rows = [_row(name, entry) for name, entry in found["mechanisms"].items()]
    trained = (
        "a layer that is trained with each mechanism, one seed: it says whether W has learned the task, and is no "
        "comparison"
        if each
        else f"the queries and keys of one trained layer, with softmax, for all; {found['accuracy']:.1f} % sorted right"
    )
    return f"""# Every mechanism: what it computes, keeps and looks at

{raw.circumstances(record)}
- one head of {found["width"]} columns; n tokens; `experiments/atlas.py` says how each column is found
- order: "no" means that the mechanism needs positions to see the order of the keys
- the picture: {trained} ({found["steps"]} steps of {found["batch_size"]} sequences)

![W of every mechanism on one sequence](atlas.png)

{raw.table(head, rows, left=6)}
"""


def draw(record: dict[str, Any]) -> Any:
    """Plots W of every mechanism for one sequence: a row for each query, blue above 0 and red below."""
    from matplotlib.figure import Figure

    found = record["results"]
    columns = 7
    rows = -(-len(found["mechanisms"]) // columns)
    labels = ["·" if token == SYMBOLS else str(token) for token in found["tokens"]]
    figure = Figure(figsize=(2.1 * columns, 2.3 * rows), layout="constrained")
    for number, (name, entry) in enumerate(found["mechanisms"].items(), 1):
        axes = figure.add_subplot(rows, columns, number)
        weights = np.array(entry["weights"])
        limit = np.abs(weights).max() or 1.0
        axes.imshow(weights, cmap="RdBu", vmin=-limit, vmax=limit, interpolation="nearest")
        axes.axhline(SORTED - 0.5, color="black", linewidth=0.4)
        axes.axvline(SORTED - 0.5, color="black", linewidth=0.4)
        axes.set_xticks(range(len(labels)), labels, fontsize=4)
        axes.set_yticks(range(len(labels)), labels, fontsize=4)
        right = "" if entry["accuracy"] is None else f", {entry['accuracy']:.0f} %"
        axes.set_title(name + right, fontsize=7)
    return figure


PAGES = (raw.Page("atlas", page, {"atlas.png": draw}),)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="names of mechanisms; none: all")
    parser.add_argument("--each", action="store_true", help="train the layer with each mechanism")
    parser.add_argument("--runs", type=user_path, default=ROOT / "runs" / "atlas", help="of each mechanism")
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory of the results")
    parser.add_argument("--render", action="store_true", help="write the page of an earlier measurement")
    args = parser.parse_args(argv)
    for name in args.only:
        check_known(name, mechanisms(), "mechanism")
    path = args.out / "atlas.json"
    command = raw.command("atlas", *["--each"] * args.each, *(["--only", *args.only] if args.only else []))
    if not args.render:
        begun = raw.begin(path)
        raw.write(path, measure(args.only or list(mechanisms()), args.runs, args.each), command=command, begun=begun)
    PAGES[0].save(raw.read(path), args.out)


if __name__ == "__main__":
    with one_line("atlas.py"):
        main()
