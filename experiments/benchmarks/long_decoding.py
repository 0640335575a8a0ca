"""Time and memory of decoding one more token after 1,024 to 65,536 tokens: keys beside memories of fixed size.

    python -m experiments.benchmarks.long_decoding

The decoder-only Transformer of configs/recall.py (two layers of width 64), random parameters, one text, one compiled
step that reads a token and chooses the next one. With keys and values the caches have room for all tokens, and a step
reads all of them; a memory that is written has one size. The number of tokens before changes neither, so no text is
read: the caches are filled with random numbers. Programs of the same length take turns (turns.py). Writes
experiments/results/speed/long_decoding.json.
"""

import argparse
import os
from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp

from attn_jax.cli.allocator import keep_memory
from attn_jax.data.sizes import TextSizes
from attn_jax.models.transformer.language_model import DecodeState
from attn_jax.runs.options import change, resolve
from configs import recall
from experiments.benchmarks.turns import Program, summary, take_turns, write

LENGTHS = (1024, 4096, 16_384, 65_536)
MEMORIES = ("keys", "linear", "retention", "delta", "gated_delta", "mesa")
KEPT = {"keys": "map"}  # what is no memory of fixed size -> its name in a config
VOCAB_SIZE = 64


def make_step(memory: str, length: int) -> tuple[Callable, DecodeState, int]:
    """Returns a compiled function (state, token) -> (state, next token), its first state, and the bytes of the caches.

    The function writes into the caches that it is given, as the loop of a decoder does.
    """
    config = change(recall.get_config(), {"model.attention": KEPT.get(memory, memory)})
    model = resolve(config).build_model(TextSizes(VOCAB_SIZE, VOCAB_SIZE))
    source = jnp.full((1, 1), 4, jnp.int32)
    params = jax.jit(model.init)(jax.random.key(0), {"source": source, "target_in": source, "target_out": source})
    read, state = model.start(params, source, length)
    leaves, tree = jax.tree.flatten(state.caches)
    random = (
        jax.random.normal(jax.random.key(i), x.shape, x.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x
        for i, x in enumerate(leaves)
    )
    state = state.replace(caches=tree.unflatten(random))

    @partial(jax.jit, donate_argnums=0)
    def step(state, token):
        last = state.replace(position=jnp.full_like(state.position, length - 1))  # there is always room for it
        state, _, words = model.step_top_k(params, read, last, token, 1)
        return state, words[:, 0]

    return step, state, sum(x.nbytes for x in leaves)


def tokens_of(step: Callable, state: DecodeState) -> Iterator[float]:
    """Yields 1 for each token."""
    token = jnp.full((1,), 4, jnp.int32)
    while True:
        state, token = step(state, token)
        jax.block_until_ready(token)
        yield 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a window")
    parser.add_argument("--rounds", type=int, default=2, help="each has two windows of every program")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    groups = []
    for length in LENGTHS:
        programs = []
        for memory in MEMORIES:
            step, state, size = make_step(memory, length)
            programs.append(Program(memory, tokens_of(step, state), {"cache_bytes": size}))
        take_turns(programs, args.rounds, args.seconds)
        groups.append({"title": f"{length:,}", "rows": summary(programs, "keys")})
    write("long_decoding", {"unit": "tokens", "groups": groups}, ("jaxlib",), load)


if __name__ == "__main__":
    keep_memory()
    main()
