"""The column of in-context regression: a Transformer learns to predict y at x from a few pairs (x, y) in its context.

What the pairs say best is known exactly (attn_jax/tasks/synthetic/in_context.py): a mean context is Nadaraya-Watson
regression, a local line local linear regression (Zuo 2025, arXiv 2510.01450), and Mesa ridge regression (von Oswald
2025, arXiv 2506.05233).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.layers.transformer import TransformerStack
from attn_jax.models.metrics import Mean
from attn_jax.tasks.synthetic.in_context import InContextOptions, Regressions
from attn_jax.types import Array, Batch, Bool, Float, Metrics, Params, PRNGKeyArray
from experiments.matrix.columns import SEEDS, STEPS, WIDTH, Opened, language_model


class Regressor(nn.Module, kw_only=True):
    """A causal stack over the tokens [x; y; 0] of the pairs and [query; 0; 1]; the last state is the prediction."""

    stack: TransformerStack

    def __call__(self, *batch: Array) -> Float[Array, " b"]:
        return self.run(*batch)[0]

    @nn.compact
    def run(
        self, x: Float[Array, "b n d"], y: Float[Array, "b n"], given: Bool[Array, "b n"], query: Float[Array, "b d"]
    ) -> tuple[Float[Array, " b"], list[Float[Array, "b h k k"]]]:
        """Returns (predictions, weights of each layer)."""
        pairs = jnp.concatenate([x, y[..., None], jnp.zeros_like(y)[..., None]], axis=-1)
        last = jnp.pad(query, ((0, 0), (0, 2))).at[:, -1].set(1)[:, None]
        embedded = nn.Dense(self.stack.features)(jnp.concatenate([pairs, last], axis=1))
        mask = jnp.pad(given, ((0, 0), (0, 1)), constant_values=True)
        states, _, reads = self.stack.run(embedded, mask)
        return nn.Dense(1)(states[:, -1])[:, 0], [read.own.weights for read in reads]


def build(row: Mapping[str, Any]) -> Regressor:
    """Builds the model of a row, without positions: the order of the pairs has no meaning."""
    options = language_model({"positions": "none"} | row)
    stack = options.build_stack(
        features=WIDTH, dropout=0.0, dtype=jnp.float32, attention=options.attention, causal=True
    )
    return Regressor(stack=stack)


def arrays(examples: Regressions) -> tuple[np.ndarray, ...]:
    """Returns the arguments of a Regressor."""
    given = np.arange(examples.inputs.shape[-2]) < examples.counts[..., None]
    x, y, query = (part.astype(np.float32) for part in (examples.inputs, examples.outputs, examples.query))
    return x, y, given, query


class Regression:
    """Linear regression in context, see attn_jax/tasks/synthetic/in_context.py.

    The score is 100 (1 - E (p - m)^2 / E m^2), where p is the prediction and m the posterior mean, the best
    prediction: 100 for the posterior mean, 0 for the prediction 0.
    """

    def __init__(self, task: InContextOptions, batch_size: int = 64, test_size: int = 2000):
        self.task, self.batch_size, self.test_size = task, batch_size, test_size
        self.tests = {"trained": task.num_pairs, "twice": 2 * task.num_pairs}
        self.seeds, self.steps, self.score_name, self.reads_files = SEEDS, STEPS, "explained", False

    def open(self, row: Mapping[str, Any], data_dir: str = "", **changes: Any) -> Opened:
        model, batch_size = build(row), changes.get("batch_size", self.batch_size)

        def loss_fn(params: Params, batch: Batch, rng: PRNGKeyArray, step: Any = 0) -> tuple[Float[Array, ""], Metrics]:
            wrong = jnp.square(model.apply({"params": params}, *batch["given"]) - batch["answer"])
            return jnp.sum(wrong), {"loss": Mean.of(wrong)}

        def batches(seeds: Sequence[int]) -> Callable[[int], Batch]:
            def at(step: int) -> Batch:
                rows = [self.task.sample(batch_size, np.random.default_rng((0, seed, step))) for seed in seeds]
                examples = Regressions(*(np.stack(parts) for parts in zip(*rows, strict=True)))
                return {"given": arrays(examples), "answer": examples.answer.astype(np.float32)}

            return at

        def score(params: Sequence[Params], test: str) -> Mapping[str, list[float]]:
            rng = np.random.default_rng((1, list(("valid", *self.tests)).index(test)))
            examples = self.task.sample(self.test_size, rng, self.tests.get(test, self.task.num_pairs))
            best, predict = self.task.bayes(examples).mean, jax.jit(model.apply)
            found = [np.asarray(predict({"params": one}, *arrays(examples))) for one in params]
            return {self.score_name: [float(100 * (1 - np.mean((p - best) ** 2) / np.mean(best**2))) for p in found]}

        def weights(params: Params) -> Mapping[str, Any]:
            examples = self.task.sample(1, np.random.default_rng((2, 0)), self.task.num_pairs)
            _, maps = model.apply({"params": params}, *arrays(examples), method="run")
            pairs = [f"{y:+.1f}" for y in examples.outputs[0]]
            return {"tokens": [*pairs, "?"], "maps": np.asarray(jnp.stack(maps)[:, 0].mean(1))}

        example = jax.tree.map(lambda x: jnp.asarray(x[0]), batches((0,))(0))
        return Opened(lambda rng: model.init(rng, *example["given"])["params"], loss_fn, batches, score, weights)
