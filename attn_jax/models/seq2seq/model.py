"""The sequence-to-sequence model: any encoder, and a recurrent decoder (decoders.py)."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import Memory
from attn_jax.attention.dropout import Dropout
from attn_jax.attention.hard.estimators import gradient_only
from attn_jax.attention.hard.readings import weighted_sum
from attn_jax.layers.embedding import Table
from attn_jax.models.module import ENCODER, Maps, SequenceModule, of_layers
from attn_jax.models.seq2seq.decoder_base import Decoder, DecodeState, StepOutputs
from attn_jax.models.seq2seq.objectives import Readout, SoftObjective, TokenLosses
from attn_jax.models.seq2seq.penalties import Penalties
from attn_jax.models.seq2seq.recurrent_stack import EncoderStates
from attn_jax.models.tags import MergeTags, Tags, split_tags
from attn_jax.outputs.base import OutputLayer, sampling_rng
from attn_jax.types import Array, Bool, Dtype, Float, Int, PyTree, Source


def backwards(source: Int[Array, "b s"], *, pad: int) -> Int[Array, "b s"]:
    """Reverses the tokens of each source except the last one, eos: a b c eos becomes c b a eos.

    The first source words are then close to the first target words (Sutskever 2014, arXiv 1409.3215, section 3.3).

    >>> backwards(jnp.array([[5, 6, 7, 3, 0, 0]]), pad=0).tolist()
    [[7, 6, 5, 3, 0, 0]]
    """
    place = jnp.arange(source.shape[1])
    last = jnp.sum(source != pad, axis=1, keepdims=True) - 1
    return jnp.take_along_axis(source, jnp.where(place < last, last - 1 - place, place), axis=1)


# Places of dropout besides between layers: embedded tokens, states that attention reads, input of the output layer,
# final states of the encoder.
DROPOUT_PLACES = ("embeddings", "states", "readout", "summary")


class Seq2SeqModule(SequenceModule, kw_only=True):
    """p(target | source): embeddings, encoder, recurrent decoder, output layer, and the objective of training.

    The state of decoding is (DecodeState of the decoder, state of the objective).
    """

    source_vocab_size: int
    target_vocab_size: int
    embedding_size: int
    encoder: nn.Module  # RNN, Convolution or TransformerStack, see layers/
    decoder: Decoder
    output: OutputLayer
    objective: SoftObjective = SoftObjective()  # see objectives.py
    penalties: Penalties | None = None  # penalties of the attention weights, in training
    picture: nn.Module | None = None  # embeds sources that are images, see layers/pictures.py
    reads_tags: bool = False  # split "text eos tags" into text and tags, see models/tags.py
    reverses: bool = False  # read the source backwards
    dropout: float = 0.0
    dropout_places: tuple[str, ...] = DROPOUT_PLACES[:3]
    pad: int = 0
    eos: int = 3
    dtype: Dtype = jnp.float32

    def setup(self):
        init = nn.initializers.normal(0.1)
        self.source_embedding = Table(
            num_embeddings=self.source_vocab_size, features=self.embedding_size, embedding_init=init, dtype=self.dtype
        )
        self.target_embedding = Table(
            num_embeddings=self.target_vocab_size, features=self.embedding_size, embedding_init=init, dtype=self.dtype
        )
        self.merge_tags = MergeTags(features=self.embedding_size, dtype=self.dtype)
        self.drop = Dropout(rate=self.dropout)
        self.drop_alike = Dropout(rate=self.dropout, broadcast_dims=(-2,))  # the same mask for all contexts of a step

    def drop_at(self, place: str, inputs: Array, train: bool) -> Array:
        """Applies dropout to `inputs` in training, if `place` is in `dropout_places`."""
        return self.drop(inputs, deterministic=not train or place not in self.dropout_places)

    def encode(self, source: Source, *, train: bool = False) -> EncoderStates:
        """Computes the states of the source."""
        embedded, mask, tags = self._embedded(source, train)
        last, states = self.encoder(embedded, mask, train=train)
        if not isinstance(last, tuple):  # one vector [b, d] serves as every state of one layer
            last = ((last,) * self.decoder.num_states,)
        states = states if states is embedded else self.drop_at("states", states, train)  # dropped above
        last = jax.tree.map(lambda state: self.drop_at("summary", state, train), last)
        return EncoderStates(states=states, mask=mask, last=last, tags=tags)

    def _embedded(
        self, source: Source, train: bool = False
    ) -> tuple[Float[Array, "b s e"], Bool[Array, "b s"], PyTree]:
        """Returns (embedded source, mask without tags, tags)."""
        source = backwards(source, pad=self.pad) if self.reverses else source
        if self.picture is None:
            embedded, mask = self.source_embedding(source), source != self.pad
        else:
            embedded, mask = self.picture(source)
        embedded = self.drop_at("embeddings", embedded, train)
        if not self.reads_tags:
            return embedded, mask, None
        mask, is_tag = split_tags(source, eos=self.eos, pad=self.pad)
        tags = Tags(embedded, is_tag)
        return embedded, mask, self.merge_tags(tags) if self.decoder.tag_attention is None else tags

    def maps(self, source: Source, target_in: Int[Array, "b t"], targets: Int[Array, "b t"]) -> Maps:
        embedded, mask, _ = self._embedded(source)
        encoder = self.encoder.maps(embedded, mask)
        _, steps = self.unroll(source, target_in)
        return ({ENCODER: of_layers(encoder)} if encoder else {}) | steps.maps

    def embed(self, tokens: Int[Array, "b ..."], tags: PyTree, *, train: bool = False) -> Float[Array, "b ... e"]:
        """Computes the input of the decoder: embedded target tokens, concatenated with the vector of tags if any."""
        embedded = self.drop_at("embeddings", self.target_embedding(tokens), train)
        if not self.reads_tags or self.decoder.tag_attention is not None:
            return embedded
        tags = tags[:, None] if tokens.ndim > 1 else tags
        return jnp.concatenate([embedded, jnp.broadcast_to(tags, embedded.shape)], axis=-1)

    def unroll(
        self, source: Source, target_in: Int[Array, "b t"], *, train: bool = False, step: Int[Array, ""] | int = 0
    ) -> tuple[PyTree, StepOutputs]:
        """Returns the teacher-forced pass: (memory, outputs of all steps).

        In training each row is repeated `num_trajectories` times, for the trajectories of the objective.
        """
        encoded = self.encode(source, train=train)
        embedded = self.embed(target_in, encoded.tags, train=train)
        if train and self.objective.num_trajectories > 1:
            repeat = partial(jnp.repeat, repeats=self.objective.num_trajectories, axis=0)
            encoded, embedded = jax.tree.map(repeat, (encoded, embedded))
        memory, state = self.decoder.start(encoded)
        share = self.objective.mean_share(step)
        if train and share is not None:
            coins = jax.random.bernoulli(self.make_rng("sample"), share, embedded.shape[:1])
            state = state.replace(reads_mean=coins)
        steps = self.decoder.unroll(memory, state, embedded, train=train)
        copied = self.objective.copied(source)
        return memory, steps.replace(
            readout=self.drop_at("readout", steps.readout, train),
            copied=None if copied is None else copied[:, None],
        )

    def real(self, targets: Int[Array, "b t"]) -> Bool[Array, "b t"]:
        """True at the target positions that count."""
        return targets != self.pad

    @property
    def is_latent(self) -> bool:
        """Tells whether attention is hard: one key is read at a time, sampled from the weights."""
        random = self.decoder.attention is not None and self.decoder.attention.read.needs_rng
        return random or self.objective.is_latent

    @property
    def takes_step(self) -> bool:
        """True if the training loss depends on the number of updates so far."""
        return self.objective.soft_steps > 0 or self.objective.cooling is not None

    def losses(
        self,
        source: Source,
        target_in: Int[Array, "b t"],
        targets: Int[Array, "b t"],
        step: Int[Array, ""] | int = 0,
    ) -> TokenLosses:
        """Computes the training loss of each target token, and its negative log-likelihood."""
        memory, steps = self.unroll(source, target_in, train=True, step=step)
        real, readout = targets != self.pad, self.make_readout()._replace(step=step)
        losses = self.objective.losses(readout, memory, steps, targets=targets, real=real)
        share = self.objective.soft_share(step)
        if share is not None:
            soft, _ = readout.losses(steps.readout, targets)
            losses = losses._replace(loss=share * soft + (1 - share) * losses.loss)
        if self.penalties is None:
            return losses
        n = self.objective.num_trajectories
        terms = self.penalties(steps.weights, real=jnp.repeat(real, n, axis=0), key_mask=memory.key_mask)
        return losses._replace(loss=losses.loss + gradient_only(jnp.mean(terms.reshape(-1, n, real.shape[1]), axis=1)))

    def evaluate(self, source: Source, target_in: Int[Array, "b t"], targets: Int[Array, "b t"]):
        """Returns (nll [b, t], correct [b, t], weights [b, t, s])."""
        memory, steps = self.unroll(source, target_in)
        return self.objective.evaluate(self.make_readout(), memory, steps, targets=targets, real=targets != self.pad)

    def start(self, source: Source, length: int) -> tuple[PyTree, tuple[DecodeState, PyTree]]:
        memory, state = self.decoder.start(self.encode(source), length)
        state = state.replace(copied=self.objective.copied(source))
        return memory, (state, self.objective.start(self.make_readout(), memory))

    @property
    def grows(self) -> bool:
        return self.decoder.grows

    def grow(self, state: tuple[DecodeState, PyTree], length: int) -> tuple[DecodeState, PyTree]:
        return self.decoder.grow(state[0], length), state[1]

    def step(self, memory: PyTree, state: tuple[DecodeState, PyTree], token: Int[Array, "b"]):
        decoder_state, objective_state = state
        decoder_state, steps = self._advance(memory, decoder_state, token)
        objective_state, log_probs = self.objective.step(self.make_readout(), memory, objective_state, token, steps)
        return (decoder_state, objective_state), log_probs

    def step_top_k(self, memory: PyTree, state: tuple[DecodeState, PyTree], token: Int[Array, "b"], k: int):
        """Returns (decode state after `token`, (log-probabilities, tokens) of the k most probable next tokens)."""
        decoder_state, objective_state = state
        decoder_state, steps = self._advance(memory, decoder_state, token)
        k = min(k, self.target_vocab_size)
        readout = self.make_readout()
        objective_state, best = self.objective.step_top_k(readout, memory, objective_state, token, steps, k)
        return (decoder_state, objective_state), best

    def _advance(self, memory: PyTree, state: DecodeState, token: Int[Array, "b"]) -> tuple[DecodeState, StepOutputs]:
        state, steps = self.decoder.step(memory, state, self.embed(token, state.tags))
        return state, steps.replace(copied=state.copied)

    def make_readout(self) -> Readout:
        """Returns the functions of this model that an objective calls."""
        return Readout(
            losses=self.readout_losses,
            log_probs=self.log_probs,
            nll_and_correct=self.nll_and_correct,
            top_k=self.top_k,
            row_losses=self.row_losses,
            row_log_probs=self.row_log_probs,
            embed=self.target_embedding,
            scores=self.decoder.scores,
            vocab_size=self.output.vocab_size,
        )

    def readout_losses(self, readout: Float[Array, "... d"], targets: Int[Array, "..."]):
        """Returns (training loss, negative log-likelihood) of each target."""
        return self.output.loss(readout, targets, embedding=self.target_embedding.rows, rng=sampling_rng(self))

    def log_probs(self, readout: Float[Array, "... d"]) -> Float[Array, "... v"]:
        """log p(word) of each word of the target vocabulary."""
        return self.output.log_probs(readout, embedding=self.target_embedding.rows)

    def nll_and_correct(self, readout: Float[Array, "... d"], targets: Int[Array, "..."]):
        """Returns (negative log-likelihood, 1 if no word is more probable, else 0) of each target."""
        return self.output.nll_and_correct(readout, targets, embedding=self.target_embedding.rows)

    def top_k(self, readout: Float[Array, "... d"], k: int):
        """Returns (log-probabilities, words) of the k most probable words."""
        return self.output.top_k(readout, k, embedding=self.target_embedding.rows)

    def row_losses(
        self, memory: Memory, steps: StepOutputs, rows: Float[Array, "b t n s"] | None, targets: Int[Array, "b t"]
    ) -> tuple[Float[Array, "b t n"], Float[Array, "b t n"]]:
        """Returns (training loss, negative log-likelihood) of each target, for each row of weights; see Readout."""
        readout = self._row_readout(memory, steps, rows)
        readout = self.drop_alike(readout, deterministic="readout" not in self.dropout_places)
        return self.readout_losses(readout, jnp.broadcast_to(targets[..., None], readout.shape[:-1]))

    def row_log_probs(
        self, memory: Memory, steps: StepOutputs, rows: Float[Array, "... n s"] | None
    ) -> Float[Array, "... n v"]:
        """log p(word) for each row of weights; see Readout."""
        return self.log_probs(self._row_readout(memory, steps, rows))

    def _row_readout(self, memory: Memory, steps: StepOutputs, rows: Float[Array, "... n s"] | None):
        values = memory.values if steps.hidden.ndim == 2 else memory.values[:, None]
        context = values if rows is None else weighted_sum(rows, values)
        return self.decoder.readout(steps.hidden[..., None, :], context, steps.embedded[..., None, :])
