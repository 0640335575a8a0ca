"""Gates and episodes: one pass of a dynamic memory network over its facts, given the question and its memory state.

    gates   = normalize(score([question; memory], facts))      the attention of attn_jax.attention
    context = episode(prepare(facts), attended, mask)          a sum of facts, or a GRU over them that the gates drive

The gate network is a score and the gates are attention weights. GATE_SCORES and GATES hold the score and the normalizer
that exist only for these networks.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import Attended, Score
from attn_jax.attention.masks import checked_masks
from attn_jax.attention.normalizers import Normalizer
from attn_jax.layers.rnn import CELLS, Cell, Recurrence, scan_cell
from attn_jax.parts import option
from attn_jax.types import Array, Bool, Float, Int


class GateNetwork(Score, kw_only=True):
    """v . tanh(W z + b) + c, where z compares a fact f with the question q and the memory m; the query is [q; m].

    z = [f * q, |f - q|, f * m, |f - m|], * elementwise: Xiong 2016 (arXiv 1603.01417), equations 8 and 9. With
    `all_terms`, z also has f, q, m, f'Bq and f'Bm: Kumar 2016 (arXiv 1506.07285), section 2.3.

    W is split by term, so that the products without m, which are equal in every pass, are computed once.
    """

    features: int = option(256, "width of the hidden layer", at_least=1)
    all_terms: bool = False

    @nn.compact
    def __call__(
        self, query: Float[Array, "... q dq"], projected_keys: Float[Array, "... k d"]
    ) -> Float[Array, "... q k"]:
        fact = projected_keys[..., None, :, :]
        question, memory = jnp.split(query[..., :, None, :], 2, axis=-1)
        hidden = 0.0
        bilinear = nn.Dense(fact.shape[-1], use_bias=False, name="bilinear") if self.all_terms else None
        for name, other in (("question", question), ("memory", memory)):
            parts = [fact * other, jnp.abs(fact - other)]
            if self.all_terms:
                parts.append(jnp.sum(fact * bilinear(other), axis=-1, keepdims=True))
                hidden += nn.Dense(self.features, use_bias=False, name=f"{name}_alone")(other)
            layer = nn.Dense(self.features, use_bias=name == "memory", name=name)
            hidden += layer(jnp.concatenate(parts, axis=-1))
        if self.all_terms:
            hidden += nn.Dense(self.features, use_bias=False, name="fact_alone")(fact)
        return nn.Dense(1, name="vector")(jnp.tanh(hidden))[..., 0]


@checked_masks
def independent_sigmoid(
    scores: Float[Array, "... k"], mask: Bool[Array, "... k"] | None = None
) -> Float[Array, "... k"]:
    """weights_i = sigmoid(scores_i), one gate for each key, independent of the other keys. Rows need not sum to one.

    Otherwise a normalizer like those of attn_jax.attention.normalizers.elementwise: exactly 0 where the mask is False.
    """
    if mask is None:
        return nn.sigmoid(scores)
    mask = jnp.broadcast_to(mask, scores.shape)
    return jnp.where(mask, nn.sigmoid(jnp.where(mask, scores, 0.0)), 0.0)


@checked_masks
def softmax_cross_entropy(
    scores: Float[Array, "b n"], slot: Int[Array, "b"], mask: Bool[Array, "b n"]
) -> Float[Array, "b"]:
    """Returns -log softmax(scores)[slot], the loss of gates that sum to one; 0 where slot is -1."""
    log_gates = jax.nn.log_softmax(jnp.where(mask, scores, 0.0), axis=-1, where=mask)
    return -jnp.sum(jnp.where(_chosen(slot, mask), log_gates, 0.0), axis=-1)


@checked_masks
def sigmoid_cross_entropy(
    scores: Float[Array, "b n"], slot: Int[Array, "b"], mask: Bool[Array, "b n"]
) -> Float[Array, "b"]:
    """Returns -log sigmoid(scores)[slot] - sum of log(1 - sigmoid(scores)[j]) over j != slot; 0 where slot is -1."""
    scores = jnp.where(mask, scores, 0.0)
    log_gates = jnp.where(_chosen(slot, mask), nn.log_sigmoid(scores), nn.log_sigmoid(-scores))
    return -jnp.sum(jnp.where(mask & (slot >= 0)[:, None], log_gates, 0.0), axis=-1)


def _chosen(slot: Int[Array, "b"], mask: Bool[Array, "b n"]) -> Bool[Array, "b n"]:
    return (jnp.arange(mask.shape[-1])[None] == slot[:, None]) & mask


# The scores and normalizers that these networks have in addition to SCORES and NORMALIZERS of attn_jax.attention.
GATE_SCORES = {"gate_network": GateNetwork}
LOGISTIC = Normalizer(independent_sigmoid, sums_to_one=False)
GATES = {"logistic": LOGISTIC}


def gate_loss_of(normalize: Callable) -> Callable:
    """Returns the loss that trains gates on the slot of a supporting fact.

    It is the sigmoid cross entropy for independent gates, and the softmax cross entropy of the scores for every other
    normalizer, including sparsemax.
    """
    return sigmoid_cross_entropy if normalize == LOGISTIC else softmax_cross_entropy


class SoftEpisode(nn.Module, kw_only=True):
    """context = sum_i g_i f_i, as in soft attention. Xiong 2016, section 3.3."""

    def prepare(self, facts: Float[Array, "b n d"]) -> Float[Array, "b n d"]:
        return facts

    @checked_masks
    def __call__(
        self, prepared: Float[Array, "b n d"], attended: Attended, mask: Bool[Array, "b n"]
    ) -> Float[Array, "b d"]:
        return attended.context[:, 0]


def _gated_gru(extra, state, projected, recurrent):
    """h' = g GRU(f, h) + (1 - g) h."""
    gate = projected[..., -1:]
    (new,) = CELLS["gru"].update(extra, state, projected[..., :-1], recurrent)
    return (gate * new + (1 - gate) * state[0],)


def _attention_gru(extra, state, projected, recurrent):
    """r = sigmoid(.);  n = tanh(W_n f + b_n + r (U_n h + c_n));  h' = g n + (1 - g) h."""
    x_r, x_n = jnp.split(projected[..., :-1], 2, axis=-1)
    h_r, h_n = jnp.split(recurrent, 2, axis=-1)
    n = jnp.tanh(x_n + nn.sigmoid(x_r + h_r) * (h_n + extra["candidate_bias"][None]))
    gate = projected[..., -1:]
    return (gate * n + (1 - gate) * state[0],)


# Cells whose projected input has the gate as an additional column.
EPISODE_CELLS = {
    # Kumar 2016, section 2.3: a gate of zero leaves the state unchanged.
    "gated_gru": Cell(num_gates=3, num_states=1, update=_gated_gru, extra={"candidate_bias": 1}),
    # Xiong 2016, equation 11: the gate is the update gate.
    "attention_gru": Cell(num_gates=2, num_states=1, update=_attention_gru, extra={"candidate_bias": 1}),
}


class GatedEpisode(Recurrence, kw_only=True):
    """context = the last state of a GRU over the facts, whose updates are weighted by the gates.

    `cell` is one of EPISODE_CELLS.
    """

    def prepare(self, facts: Float[Array, "b n d"]) -> Float[Array, "n b gd"]:
        """Computes W f + b, which is the same in every pass."""
        return jnp.swapaxes(self.project(facts), 0, 1)

    @checked_masks
    def __call__(
        self, prepared: Float[Array, "n b gd"], attended: Attended, mask: Bool[Array, "b n"]
    ) -> Float[Array, "b d"]:
        size = prepared.shape[1]
        projected = jnp.concatenate([prepared, attended.weights[:, 0].T[..., None]], axis=-1)
        ones = jnp.ones((size, self.features), self.dtype)  # no dropout of the state
        (last,), _ = scan_cell(self.cell, self._params(), self.initial_state(size), projected, mask.T, ones)
        return last
