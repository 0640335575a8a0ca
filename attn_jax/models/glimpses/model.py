"""Recurrent attention: one crop of the image at a time, at places chosen by a policy (Mnih 2014, arXiv 1406.6247).

    place_t ~ policy(h_{t-1});   h_t = cell(h_{t-1}, sensor(image, place_t));   p(word) from h_T

h_0 is zeros, or tanh of the mean of the embedded words of a question. A target is one word; as in a classifier, the
methods of a sequence model give eos probability one after the word.
"""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from attn_jax.attention.hard.baselines import NoBaseline
from attn_jax.attention.hard.estimators import gradient_only
from attn_jax.layers.embedding import Table
from attn_jax.layers.glimpses import GlimpseSensor, looked_at
from attn_jax.layers.pooling import mean_state
from attn_jax.layers.rnn import Cell, Recurrence, State
from attn_jax.models.glimpses.objective import PathObjective
from attn_jax.models.glimpses.policies import GaussianPlaces, GridPlaces
from attn_jax.models.module import OneTokenModule
from attn_jax.outputs.base import OutputLayer, sampling_rng
from attn_jax.types import Array, Dtype, Float, Int, Picture, PRNGKeyArray


class Path(struct.PyTreeNode):
    """One glimpse ("..." is the batch), or all glimpses at an image ("..." is batch and time)."""

    places: Float[Array, "... 2"]
    log_prob: Float[Array, "..."]
    entropy: Float[Array, "..."]
    before: Float[Array, "... h"]  # the state that chose the place; depends only on earlier places
    after: Float[Array, "... h"]  # the state that has seen the crop


class GlimpseModel(OneTokenModule, kw_only=True):
    """Takes `num_glimpses` glimpses at an image, then predicts a word."""

    picture: GlimpseSensor
    policy: GaussianPlaces | GridPlaces
    cell: Cell
    features: int
    num_glimpses: int
    output: OutputLayer
    objective: PathObjective
    baseline: nn.Module = NoBaseline()
    num_words: int = 0  # of questions; 0: there are none
    dtype: Dtype = jnp.float32
    has_path: ClassVar[bool] = True
    query_map: ClassVar[tuple[str, str]] = ("places looked at", "glimpse")  # names of `query_weights`, and of a row

    def setup(self):
        self.core = Recurrence(cell=self.cell, features=self.features, dtype=self.dtype)
        if self.num_words:
            init = nn.initializers.normal(1.0)
            self.words = Table(
                num_embeddings=self.num_words, features=self.features, embedding_init=init, dtype=self.dtype
            )

    def first(self, source: Picture) -> State:
        """Returns the state before the first glimpse."""
        state = self.core.initial_state(len(source.pixels))
        if not self.num_words:
            return state
        asked = mean_state(self.words(source.words), source.words != self.pad)
        return (jnp.tanh(asked), *state[1:])

    def follow(self, source: Picture, *, rng: PRNGKeyArray | None = None, choices: Array | None = None) -> Path:
        """Takes glimpses at sampled places, at the given `choices` [b, t, ...], or at the most probable places."""
        state, found = self.first(source), []
        for t in range(self.num_glimpses):
            before = state[0]
            own = None if rng is None else jax.random.fold_in(rng, t)
            chosen = self.policy(before, own, None if choices is None else choices[:, t])
            seen = self.picture(source.pixels, chosen.place)
            state = self.core.step(state, self.core.project(seen))
            found.append(Path(chosen.place, chosen.log_prob, chosen.entropy, before, state[0]))
        return jax.tree.map(lambda *x: jnp.stack(x, axis=1), *found)

    def losses(self, source: Picture, target_in: Int[Array, "b t"], targets: Int[Array, "b t"]):
        """Returns (training loss, negative log-likelihood), each [b, t] and zero after the word."""
        if self.objective.exact:
            choices = self.all_choices()
            n = len(choices)
            given = {"choices": jnp.tile(choices, (len(targets), 1))}
        else:
            n = self.objective.num_samples
            given = {"rng": self.make_rng("sample")}
        repeated = jax.tree.map(lambda x: jnp.repeat(x, n, axis=0), source)
        loss, nll = self.path_losses(self.follow(repeated, **given), jnp.repeat(targets[:, 0], n), n)
        return self._first(loss, targets), self._first(nll, targets)

    def path_losses(self, path: Path, words: Int[Array, "bn"], n: int) -> tuple[Float[Array, "b"], Float[Array, "b"]]:
        """Returns (training loss, negative log-likelihood) of each image, from n consecutive paths per image."""

        def split(x):  # [b n, ...] -> [b, n, ...]
            return x.reshape(-1, n, *x.shape[1:])

        last = path.after[:, -1]
        loss, nll = self.output.loss(last, words, rng=sampling_rng(self))
        _, correct = self.output.nll_and_correct(last, words)
        loss, nll, cost, log_prob, uncertain = map(split, (loss, nll, 1 - correct, path.log_prob, path.entropy))
        value = self.baseline.value(path.before)
        total = self.objective(loss, cost, log_prob, uncertain, None if value is None else split(value))
        wanted = self.objective.targets(loss, cost, uncertain).reshape(path.log_prob.shape)
        own = jnp.mean(split(self.baseline.loss(path.before, wanted)), axis=(1, 2))
        if self.objective.exact:
            p = jnp.exp(jnp.sum(log_prob, axis=-1))
            return total, jnp.sum(jax.lax.stop_gradient(p) * nll, axis=-1)
        return total + gradient_only(own), jnp.mean(nll, axis=-1)

    def all_choices(self) -> Int[Array, "n t"]:
        """Returns all paths of a policy over a grid, as indices of cells."""
        count = self.policy.grid.rows * self.policy.grid.columns
        every = jnp.meshgrid(*[jnp.arange(count)] * self.num_glimpses, indexing="ij")
        return jnp.stack(every, axis=-1).reshape(-1, self.num_glimpses)

    def evaluate(self, source: Picture, target_in: Int[Array, "b t"], targets: Int[Array, "b t"]):
        """Returns (nll [b, t], correct [b, t], share of glimpses in each cell [b, t, s]) of the most probable path."""
        path = self.follow(source)
        nll, correct = self.output.nll_and_correct(path.after[:, -1], targets[:, 0])
        weights = self._mean_weights(self._looks(source, path), targets)
        return self._first(nll, targets), self._first(correct, targets), weights

    def query_weights(self, source: Picture) -> Float[Array, "b r s"]:
        """Returns the share of each glimpse in each cell; zero for the words of a question."""
        return self._looks(source, self.follow(source))

    def trajectory(self, source: Picture) -> tuple[Float[Array, "b t 2"], Float[Array, "b t v"]]:
        """Returns (the places, log p(word) after each glimpse) of the most probable path."""
        path = self.follow(source)
        return path.places, self.output.log_probs(path.after)

    def start(self, source: Picture, length: int) -> tuple[Float[Array, "b v"], Int[Array, "b"]]:
        """Returns (log p of each word, number of steps taken: 0)."""
        path = self.follow(source)
        return self.output.log_probs(path.after[:, -1]), jnp.zeros(len(path.places), jnp.int32)

    def _looks(self, source: Picture, path: Path) -> Float[Array, "b r s"]:
        image = source.pixels.shape[1:3]
        cells = looked_at(path.places, image, self.picture.size, self.picture.grid)
        return jnp.pad(cells.reshape(*cells.shape[:2], -1), ((0, 0), (0, 0), (0, source.words.shape[1])))
