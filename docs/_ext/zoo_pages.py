"""Pages of the zoo as Markdown: what an entry is, its weights on the shared example, cost, constraints, and use."""

import collections
import functools
import inspect
import os
from typing import Any

import docstrings
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import operations
import zoo_example as example
from zoo_code import construct
from zoo_entries import normalized
from zoo_entry import KINDS, ROOT, Entry
from zoo_figures import thumbnail
from zoo_formulas import formula_of

from attn_jax.attention.hard.baselines import BASELINES
from attn_jax.attention.hard.readings import READINGS
from attn_jax.outputs import OutputSetting
from attn_jax.parts import fields_of

PREPARE = """import jax

query = jax.random.normal(jax.random.key(1), (12, 4))
keys = values = jax.random.normal(jax.random.key(2), (12, 4))
"""


def page(entry: Entry, picture: bool = False) -> str:
    """Returns the page of an entry."""
    kind = KINDS[entry.kind][0]
    file = os.path.relpath(entry.file, ROOT / "docs" / "zoo" / entry.kind)
    parts = [f"# {entry.name}\n", f"[{kind}](index.md) · [{entry.file.name}]({file})\n"]
    parts += [formula_of(entry.kind, entry.name), entry.text]
    for i, part in enumerate(entry.described):
        text = docstrings.text_of(part)
        name = getattr(part, "__name__", "").rsplit(".", 1)[-1]
        own = i == 0 or isinstance(part, type)  # a function that helps has other arguments
        parts += [f"`{name}`:\n" if i and text else "", docstrings.markdown(text, sections=own)]
    if entry.reason:
        parts.append(f"No paper: {docstrings.escape(entry.reason)}\n")
    if picture:
        parts += ["## On the shared example\n", f"![{entry.name}]({entry.name}.svg)\n"]
        parts.append(CAPTIONS.get(entry.kind, CAPTION) + "\n")
    parts += ["## Cost and constraints\n", *(f"- {fact}" for fact in FACTS[entry.kind](entry))]
    parts += ["\n## Use\n", use(entry)]
    return "\n".join(part for part in parts if part) + "\n"


CAPTION = (
    "Left, in green, the scores of the scaled dot product of twelve queries (rows) and keys (columns); right, the "
    "weights W, red above zero and blue below. [The example](../index.md#the-shared-example) is the same on all pages."
)
CAPTIONS = {
    "scores": "Left, in green, these scores of twelve queries (rows) and keys (columns); right, the weights W after "
    "softmax (kernel_sum, for a kernel of finite reach). Parameters are drawn at random. "
    "[The example](../index.md#the-shared-example) is the same on all pages.",
    "readings": "Left, the weights (bars), and the mean weight that each key had in 500 readings (dots): for an "
    "unbiased sampler they are equal. Right, the first ten readings, rows of weights.",
    "memories": "Left, in green, the dot products of queries (rows) and keys (columns); right, the weights W with "
    "context = W values that the memory never makes, red above zero and blue below.",
}


def use(entry: Entry) -> str:
    """How it is chosen in a config, and in Python."""
    option = entry.option if "=" in entry.option or not entry.option else f"{KINDS[entry.kind][2]}={entry.option}"
    lines = [f"In a config: `--config.{option}` ([options](../../options.md)).\n"] if option else []
    if entry.code:
        lines.append(f"```python\n{entry.code}\n```\n")
    return "\n".join(lines) if lines else "See the file above.\n"


def score_facts(entry: Entry) -> list[str]:
    """Cost and constraints of a score."""
    score, width = construct(entry.value), 64
    query = example.QUERY if not score.own_width else jnp.zeros((example.SIZE, score.features))
    variables = jax.eval_shape(lambda: score.init(example.RNG, query, example.KEYS, method=_scores))
    wide = _wider(score, width)
    shapes = [jax.ShapeDtypeStruct((width, n), jnp.float32) for n in (wide_query(wide, width), width)]
    made = jax.eval_shape(lambda q, k: wide.init(example.RNG, q, k, method=_scores), *shapes)
    found = operations.count(lambda v, q, k: wide.apply(v, q, k, method=_scores), made, *shapes)
    facts = [
        f"{_plural(example.number_of(variables), 'parameter')} on the example (width {example.WIDTH})",
        f"{found.number / width**2:.0f} operations for each query and key, 64 of each, of width 64, options as below",
        _fused(score),
    ]
    if score.own_width:
        facts.append("queries are as wide as its hidden layer: they are learned, not projected")
    elif not _takes_widths(score):
        facts.append("queries and keys have the same width")
    if not score.by_key:
        facts.append("the score depends on the place of a key, so block by block is not possible")
    if score.compact:
        facts.append("keys out of reach have the score -inf: needs `normalize=kernel_sum`, and cannot be capped")
    if getattr(score, "has_gradient", True) is False:
        facts.append("no gradient with respect to its width")
    return facts


def _wider(score: nn.Module, width: int) -> nn.Module:
    fields = {"query_features": width, "max_length": width}
    return score.clone(**{name: value for name, value in fields.items() if hasattr(score, name)})


def wide_query(score: nn.Module, width: int) -> int:
    """Width of the queries of a score for keys of this width."""
    return score.features if score.own_width else width


def _scores(score: Any, query: Any, keys: Any) -> Any:
    return score(query, score.project_keys(keys))


def _takes_widths(score: Any) -> bool:
    from attn_jax.attention.scores.base import ScoreError

    wider = jnp.ones((example.SIZE, example.WIDTH + 1))
    try:
        jax.eval_shape(lambda: score.init(example.RNG, example.QUERY, wider, method=_scores))
    except ScoreError:
        return False
    return True


def _fused(score: Any) -> str:
    fused = score.fused_scale(1) is not None
    return "the fused kernel computes it, with softmax" if fused else "not computed by the fused kernel"


def _plural(number: int, word: str) -> str:
    return f"no {word}" if number == 0 else f"{number} {word}" + ("s" if number > 1 else "")


def _range(numbers: np.ndarray) -> str:
    least, most = (f"{number:.3g}" for number in (numbers.min(), numbers.max()))
    return least if least == most else f"{least} to {most}"


def normalizer_facts(entry: Entry) -> list[str]:
    """Cost and constraints of a normalizer."""
    made = construct(entry.value)
    weights, invariant, size = normalized(entry.value)
    weights = np.asarray(weights)
    facts = []
    if isinstance(made, nn.Module):
        facts.append(f"{_plural(size, 'parameter')} for each head, on the example")
    costs = [_normalizer_cost(entry.value, n) for n in (64, 1024)]
    facts += [
        "operations for each score: "
        + (costs[0] if costs[0] == costs[1] else f"with 64 keys {costs[0]}, with 1,024 keys {costs[1]}"),
        f"{int(np.sum(weights == 0))} of {weights.size} weights are zero; rows sum to {_range(weights.sum(axis=1))}",
        "a number added to all scores changes " + ("nothing" if invariant else "the weights"),
        "rows sum to one" if made.sums_to_one else "rows need not sum to one: keys cannot be sampled from them",
        "block by block: " + ("yes" if made.has_form else "no"),
    ]
    if made.infinite:
        facts.append("takes scores of -inf, those of compact kernels")
    if _needs_query(made):
        facts.append("needs the query as well as the scores")
    return facts


def _needs_query(made: Any) -> bool:
    if not isinstance(made, nn.Module):
        return False
    try:
        jax.eval_shape(lambda: made.init(example.RNG, example.SCORES))
    except ValueError:
        return True
    return False


def _normalizer_cost(kind: Any, n: int) -> str:
    made, row = construct(kind), jax.ShapeDtypeStruct((1, n), jnp.float32)
    if not isinstance(made, nn.Module):
        found = operations.count(made, row)
    else:
        query = jax.ShapeDtypeStruct((1, example.WIDTH), jnp.float32)
        variables = jax.eval_shape(lambda s, q: made.init(example.RNG, s, query=q), row, query)
        found = operations.count(lambda v, s, q: made.apply(v, s, query=q), variables, row, query)
    return f"{found.number / n:.0f}" + (" in each turn of its search" if found.open_loop else "")


def reading_facts(entry: Entry) -> list[str]:
    """Cost, properties and measured gradient of a reading."""
    reading = entry.value
    _, evaluations, exact, estimates = example.readings_of(entry.name)
    error = estimates.mean(axis=0) - exact
    noise = np.sqrt(estimates.var(axis=0).sum() / len(estimates))
    facts = [f"{_plural(evaluations, 'evaluation')} of the loss with its default options"]
    for is_so, text in (
        (not reading.random, "nothing is random"),
        (reading.is_soft, "differentiable: trained without a surrogate"),
        (reading.distinct, "never reads a key twice, so it needs as many keys as samples"),
        (
            reading.one_row,
            "reads with one row of weights, so `Attention` takes it, and what was read can enter a state",
        ),
        (not reading.one_row, "reads with several rows, so the loss is computed at each (see Use)"),
    ):
        facts += [text] if is_so else []
    facts.append("baselines that it can have: " + ", ".join(f"`{name}`" for name in reading.baselines))
    facts.append(
        f"gradient of the logits on the example, six keys and a loss that is a square, in {len(estimates):,} readings: "
        f"distance of its mean from the exact gradient {np.linalg.norm(error):.3f} (about {noise:.3f} if "
        f"unbiased; the exact gradient has norm {np.linalg.norm(exact):.3f}), "
        f"variance {estimates.var(axis=0).sum():.3g}"
    )
    if reading.is_soft:
        facts.append("it minimizes f(E[value]), not E[f(value)], so its gradient differs from that of the others")
    return facts


def baseline_facts(entry: Entry) -> list[str]:
    """Parameters of a baseline, and the readings that it leaves unbiased."""
    fields = [name for name in inspect.signature(entry.value).parameters if name not in ("parent", "name")]
    allowed = [name for name, reading in READINGS.items() if entry.name in reading.baselines]
    facts = [f"fields: {', '.join(f'`{name}`' for name in fields)}" if fields else "no fields"]
    facts.append(
        "has a value for each key" if BASELINES[entry.name].of_each_key else "one number for all keys of a step"
    )
    return [*facts, "readings with it: " + ", ".join(f"[{name}](../readings/{name}.md)" for name in allowed)]


def objective_facts(entry: Entry) -> list[str]:
    """The keys of an objective, and the readings that it can be trained with."""
    fields = fields_of(entry.value)
    facts = [f"keys below `model.objective`: {', '.join(f'`{key}`' for key in fields) or 'none'}"]
    if "reading" in fields:
        table = fields["reading"].table
        facts.append("readings: " + ", ".join(f"[{name}](../readings/{name}.md)" for name in table))
    return facts


def weights_facts(entry: Entry) -> list[str]:
    """What is seen of the weights on the example."""
    weights = np.asarray(entry.weights())
    sums = weights.sum(axis=-1)
    facts = [f"rows of W sum to {_range(sums)} on the example; least weight {weights.min():.3g}"]
    facts.append(f"{int(np.sum(np.abs(weights) < 1e-7))} of {weights.size} weights are zero")
    if entry.kind == "memories":
        facts.append(
            "needs causal keys" if entry.value.needs_causal else "takes keys without order too, such as a source"
        )
    return facts


def output_costs(entry: Entry, vocab_size: int, width: int = 64, positions: int = 32) -> tuple[float, float, int]:
    """Returns (operations of a training loss, of all log-probabilities, each for a position; number of parameters)."""
    sampled = {"num_samples": 64} if hasattr(entry.value, "num_samples") else {}
    counts = np.ceil(1e6 / np.arange(1, vocab_size + 1))
    layer = entry.value(**sampled).build(OutputSetting(vocab_size=vocab_size, counts=counts))
    hidden = jax.ShapeDtypeStruct((positions, width), jnp.float32)
    targets = jax.ShapeDtypeStruct((positions,), jnp.int32)
    loss = lambda v, h, t: layer.apply(v, h, t, rng=example.RNG, method="loss")  # noqa: E731
    init = lambda h, t: layer.init(example.RNG, h, t, rng=example.RNG, method="loss")  # noqa: E731
    variables = jax.eval_shape(init, hidden, targets)
    trained = operations.count(loss, variables, hidden, targets).number
    read = operations.count(lambda v, h: layer.apply(v, h, method="log_probs"), variables, hidden).number
    size = sum(int(np.prod(x.shape)) for x in jax.tree.leaves(variables))
    return trained / positions, read / positions, size


@functools.cache
def output_curve(name: str, kind: Any) -> dict[int, tuple[float, float, int]]:
    """Costs by the number of words."""
    entry = Entry("outputs", name, kind)
    return {size: output_costs(entry, size) for size in (256, 1024, 4096)}


def output_facts(entry: Entry) -> list[str]:
    """Cost of an output layer."""
    facts = []
    for size, (trained, read, parameters) in output_curve(entry.name, entry.value).items():
        facts.append(
            f"{size:,} words, width 64: {trained:,.0f} operations for a position in training (forward), {read:,.0f} "
            f"for all log-probabilities; {parameters:,} parameters"
        )
    if entry.value.needs_counts:
        facts.append("uses the counts of the words")
    if entry.value.searches_all:
        facts.append("cheap in training alone: a step of decoding computes all words")
    return facts


FACTS = {
    "scores": score_facts,
    "normalizers": normalizer_facts,
    "readings": reading_facts,
    "baselines": baseline_facts,
    "objectives": objective_facts,
    "mechanisms": weights_facts,
    "memories": weights_facts,
    "outputs": output_facts,
}


def index_of(kind: str, entries: list[Entry]) -> str:
    """Returns the page that lists the entries of a kind."""
    title, meaning, option = KINDS[kind]
    lines = [f"# {title}\n", meaning + (f" Option `{option}`.\n" if option else "\n"), "| name | |", "|---|---|"]
    for entry in entries:
        said = next((text for part in entry.described if (text := docstrings.text_of(part))), "")
        first = entry.text.splitlines()[0].removeprefix("- ") if entry.text else docstrings.escape(said.splitlines()[0])
        lines.append(f"| [{entry.name}]({entry.name}.md) | {first} |")
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", "", *(entry.name for entry in entries), "```", ""])


def index(entries: list[Entry]) -> str:
    """Returns the first page of the zoo."""
    number = collections.Counter(entry.kind for entry in entries)
    lines = [
        "# The zoo\n",
        f"{len(entries)} pages, one for everything that can be chosen: what it computes, its paper and file, its "
        "weights W on [one example](#the-shared-example), its cost, what it needs, how it is used. All of it is made "
        "from the code when this site is built. A picture has a row for each query, or for each sample of a reading, "
        "and a column for each key; red is above zero, blue below.\n",
    ]
    for kind in number:
        title, meaning, _ = KINDS[kind]
        lines += [f"## [{title}]({kind}/index.md)\n", f"{meaning}\n", '```{raw} html\n<div class="gallery">']
        for entry in entries:
            if entry.kind == kind:
                source = thumbnail(entry)
                picture = f'<img src="{source}" alt="" width="96">' if source else ""
                lines.append(f'<a href="{kind}/{entry.name}.html">{picture}{entry.name}</a>')
        lines.append("</div>\n```\n")
    lines += [
        "\n## The shared example\n",
        docstrings.markdown(docstrings.text_of(example)),
        "![Scores of the shared example](example.svg)\n",
        "Costs are counted, not measured. " + docstrings.markdown(operations.__doc__),
        "```{toctree}",
        ":hidden:",
        "",
        *(f"{kind}/index" for kind in number),
        "```",
    ]
    return "\n".join(lines) + "\n"
