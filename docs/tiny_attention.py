"""Translates numbers from digits to English words, and shows where the decoder looked: attention in one file.

    python docs/tiny_attention.py

"4071" becomes "four thousand seventy one". The model is the one of chapter 3 of the book: an LSTM reads the digits, a
second one writes the words, and before each word it attends to the states of the first (Luong 2015, arXiv 1508.04025).
Training takes less than a minute on a CPU. The numbers of the test are never trained on.
"""

import argparse

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

import attn_jax
from attn_jax.layers.rnn import CELLS, RNN, Recurrence

# Data: all numbers below a million can be made, so there is no file to read.

SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
)
SMALL = f"{SMALL} eighteen nineteen".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
PAD, BOS, EOS = 0, 1, 2
WORDS = ["<pad>", "<bos>", "<eos>", *SMALL, *TENS, "hundred", "thousand"]
DIGITS, LENGTH = 6, 10  # the longest input, and the longest output with its end


def spell(number: int) -> list[str]:
    """Returns the words of a number from 0 to 999,999: 4071 is four thousand seventy one."""
    if number < 20:
        return [SMALL[number]]
    if number < 100:
        return [TENS[number // 10 - 2], *(spell(number % 10) if number % 10 else [])]
    unit, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    return [*spell(number // unit), name, *(spell(number % unit) if number % unit else [])]


def encode(numbers) -> tuple[np.ndarray, np.ndarray]:
    """Returns (digits [n, 6], 0 for padding and 1 to 10 for 0 to 9; words [n, 10], with EOS behind the last)."""
    source, target = np.zeros((len(numbers), DIGITS), int), np.full((len(numbers), LENGTH), PAD)
    for i, number in enumerate(numbers):
        digits, words = str(number), [*map(WORDS.index, spell(int(number))), EOS]
        source[i, : len(digits)] = [int(digit) + 1 for digit in digits]
        target[i, : len(words)] = words
    return source, target


def draw(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draws numbers with one to six digits, each length as often as the others."""
    return (rng.random(size) * 10.0 ** rng.integers(1, DIGITS + 1, size)).astype(int)


# The model: states of the source are keys and values, states of the target queries.


class Translator(nn.Module):
    """LSTM encoder and decoder with attention; returns (logits [b, t, words], weights [b, t, digits])."""

    features: int = 64

    @nn.compact
    def __call__(self, source, target_in):
        real = source != PAD
        read = RNN(cell=CELLS["lstm"], features=self.features, bidirectional=True)
        (last,), memory = read(nn.Embed(11, 32)(source), real)
        write = Recurrence(cell=CELLS["lstm"], features=self.features)
        _, states = write(nn.Embed(len(WORDS), 32)(target_in), jnp.ones(target_in.shape, bool), state=last)
        attended = attn_jax.attention(score=attn_jax.Additive(features=32))(states, memory, key_mask=real)
        hidden = jnp.tanh(nn.Dense(self.features)(jnp.concatenate([attended.context, states], axis=-1)))
        return nn.Dense(len(WORDS))(hidden), attended.weights


def shifted(target):
    """Returns what the decoder reads: the word before, and BOS at the start."""
    return jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)


def train(model: Translator, numbers: np.ndarray, steps: int, batch_size: int = 64):
    """Trains by Adam on batches of these numbers, in one compiled loop; returns the parameters."""
    source, target = map(jnp.asarray, encode(numbers))
    params = model.init(jax.random.key(0), source[:1], target[:1])
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(4e-3, steps)))

    def loss(params, chosen):
        logits, _ = model.apply(params, source[chosen], shifted(target[chosen]))
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, target[chosen])
        return jnp.mean(losses, where=target[chosen] != PAD)

    def step(carry, rng):
        params, state = carry
        gradient = jax.grad(loss)(params, jax.random.randint(rng, (batch_size,), 0, len(source)))
        updates, state = tx.update(gradient, state)
        return (optax.apply_updates(params, updates), state), None

    rngs = jax.random.split(jax.random.key(1), steps)
    return jax.jit(lambda params: jax.lax.scan(step, (params, tx.init(params)), rngs)[0][0])(params)


@jax.jit
def translate(params, source):
    """Writes the best word, step by step; returns (words [b, 10], weights [b, 10, digits])."""
    written = jnp.full((len(source), LENGTH), PAD)
    for i in range(LENGTH):  # all words are computed anew at each step: simple, and quick enough for ten
        logits, weights = Translator().apply(params, source, shifted(written))
        written = written.at[:, i].set(logits[:, i].argmax(-1))
    return written, weights


def exact_match(params, numbers) -> float:
    """Returns the share of numbers in % of which every word is right, up to the end."""
    source, target = encode(numbers)
    written = translate(params, source)[0]
    return 100 * float(jnp.all((written == target) | (target == PAD), axis=1).mean())


def show(params, number: int) -> str:
    """Draws the weights of a number: a row for each word, a column for each digit, the darker the larger."""
    source, _ = encode([number])
    written, weights = (np.asarray(x[0]) for x in translate(params, source))
    lines = [" " * 12 + "  ".join(str(number))]
    for word, row in zip(written, weights, strict=True):
        if word == EOS:
            break
        lines.append(
            f"{WORDS[word]:>10}  " + " ".join(2 * " ░▒▓█"[round(4 * float(w))] for w in row[: len(str(number))])
        )
    return "\n".join(lines)


def main(steps: int = 800) -> float:
    """Trains, and prints the exact match and one map of weights; returns the exact match."""
    rng = np.random.default_rng(0)
    unseen = np.unique(draw(rng, 1000))
    unseen = unseen[unseen >= 1000]  # there are too few shorter ones to keep some apart
    params = train(Translator(), np.setdiff1d(draw(rng, 20_000), unseen), steps)
    right = exact_match(params, unseen)
    print(f"{right:.1f} % of {len(unseen)} numbers never seen are right\n\n{show(params, 40719)}")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800, help="batches of 64 numbers")
    main(parser.parse_args().steps)
