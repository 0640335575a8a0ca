"""Faults put into the package on purpose, each of which the test named beside it has to notice.

    python tests/mutations.py                    all of them
    python tests/mutations.py tie_break halting  these

Each is made in a copy of the repository, in a temporary folder, where its test is then run. It is "killed" where the
test fails, and "survived" where it passes or does not run; "not found" is a text that is no longer in its file, or
there more than once. First all tests have to pass without a fault. The exit status is 1 if anything is not as it should
be. For a change to the tests or to what they cover; pytest does not run it.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(".git", ".jax_cache", ".venv*", "__pycache__", ".*_cache", "data", "runs")
FAILED = 1  # pytest's exit status where tests ran and some failed


class Mutation(NamedTuple):
    """One fault."""

    file: str  # below attn_jax
    before: str  # a text that occurs once
    after: str
    test: str  # below tests, as pytest takes it


MUTATIONS = {
    # Tasks.
    "same_pairs_every_epoch": Mutation(
        "tasks/batching.py",
        "rng = np.random.default_rng((seed, number))",
        "rng = np.random.default_rng(seed)",
        "tasks/test_batching.py::test_every_epoch_deals_its_pairs_anew",
    ),
    "same_buckets_every_epoch": Mutation(
        "tasks/batching.py",
        "np.random.default_rng((ORDER, number)).permutation(steps)",
        "np.random.default_rng(ORDER).permutation(steps)",
        "tasks/test_batching.py::test_every_epoch_has_its_own_order_of_buckets_and_all_seeds_have_the_same",
    ),
    "bucket_side": Mutation(
        "tasks/batching.py",
        "fits = [(source <= s) & (target <= t) for s, t in buckets]",
        "fits = [(source <= s) & (target < t) for s, t in buckets]",
        "tasks/test_batching.py::test_first_bucket_in_order_of_area_that_holds_both_sides",
    ),
    "rows_of_tokens": Mutation(
        "tasks/batching.py",
        "return max(1, batch_size // target_length // row_multiple) * row_multiple",
        "return max(row_multiple, batch_size // target_length)",
        "tasks/test_batching.py::test_size_in_tokens_is_of_padded_target_positions",
    ),
    "tie_break": Mutation(
        "tasks/vocabulary.py",
        "key=lambda t: (-counts[t], t))",
        "key=lambda t: -counts[t])",
        "tasks/test_vocabulary.py::test_most_frequent_first_and_ties_alphabetical",
    ),
    "min_count": Mutation(
        "tasks/vocabulary.py",
        "if counts[token] >= min_count)",
        "if counts[token] > min_count)",
        "tasks/test_vocabulary.py::test_vocab_size_and_min_count",
    ),
    # Training.
    "clipped_with_running_means": Mutation(
        "optimizers.py",
        "lambda path, u: jnp.zeros_like(u) if is_running(path) else u, updates)",
        "lambda path, u: u, updates)",
        "models/test_alignments.py::test_running_means_move_at_their_own_rate_whatever_the_optimizer",
    ),
    "nan_is_a_best": Mutation(
        "optimizers.py",
        "better |= np.isnan(self.best) & ~np.isnan(value)",
        "better |= np.isnan(self.best)",
        "test_optimizers.py::test_since_best_counts_on_where_there_never_was_a_number",
    ),
    "spent_at_once": Mutation(
        "optimizers.py",
        "(self.count > 0) & (self.count % patience == 0)",
        "self.count >= patience",
        "test_optimizers.py::test_since_best_counts_and_is_spent_every_patience",
    ),
    "decay_of_biases": Mutation(
        "optimizers.py",
        "optax.add_decayed_weights(weight_decay, mask=lambda params: jax.tree.map(lambda x: x.ndim >= 2, params))",
        "optax.add_decayed_weights(weight_decay)",
        "test_optimizers.py::test_optimizer_is_its_closed_form",
    ),
    "rows_leave_their_device": Mutation(
        "training.py",
        "return x.reshape(rows // parts, parts, *x.shape[1:]).swapaxes(0, 1)",
        "return x.reshape(parts, rows // parts, *x.shape[1:])",
        "test_training.py::test_each_device_keeps_its_rows_in_every_microbatch",
    ),
    "time_of_one_process": Mutation(
        "experiment.py",
        'self.seconds, self.finished = extra["seconds"], extra["finished"]',
        'self.seconds, self.finished = 0.0, extra["finished"]',
        "test_experiment.py::test_time_of_all_processes_is_added_up",
    ),
    "failed_with_a_result": Mutation(
        "sweep.py",
        'if code or not (where / "result.json").exists():',
        'if not (where / "result.json").exists():',
        "test_sweep.py::test_a_run_that_ends_with_an_error_has_failed_even_with_a_result",
    ),
    "first_override_counts": Mutation(
        "arguments.py",
        'i for i, (name, _) in enumerate(map(_split, arguments)) if name.startswith("config.")}',
        'i for i, (name, _) in reversed([*enumerate(map(_split, arguments))]) if name.startswith("config.")}',
        "test_arguments.py::test_of_a_key_given_twice_the_last_counts",
    ),
    "std_of_a_population": Mutation(
        "metrics.py", "std = float(array.std(ddof=1))", "std = float(array.std())", "test_metrics.py::test_summarize"
    ),
    "nothing_is_zero": Mutation(
        "metrics.py",
        "xp.where(nonzero, self.count, 1), xp.nan)",
        "xp.where(nonzero, self.count, 1), 0.0)",
        "test_metrics.py::test_nothing_counted_is_nan",
    ),
    # Models.
    "linear_bridge": Mutation(
        "models/stack.py",
        "h = jnp.tanh(dense(encoded.last[min(index, len(encoded.last) - 1)][0]))",
        "h = dense(encoded.last[min(index, len(encoded.last) - 1)][-1])",
        "models/test_seq2seq.py::test_bridges",
    ),
    "distance_turned_round": Mutation(
        "models/positions.py",
        "distance = jnp.arange(num_keys) - positions[..., None]",
        "distance = positions[..., None] - jnp.arange(num_keys)",
        "models/test_transformer.py::test_relative_bias_is_looked_up_by_how_far_the_key_stands_from_the_query",
    ),
    "empty_memories_too_old": Mutation(
        "models/memn2n.py",
        "older = ages[:, :, None] >= place[:, None, :]",
        "older = ages[:, :, None] > place[:, None, :]",
        "models/test_memn2n.py::test_empty_memories_stand_at_every_place_as_often",
    ),
    "no_dropout_between_layers": Mutation(
        "models/rnn.py",
        "outputs = nn.Dropout(self.dropout)(outputs, deterministic=not train)",
        "outputs = nn.Dropout(self.dropout)(outputs, deterministic=True)",
        "models/test_rnn.py::test_dropout_stands_between_the_layers",
    ),
    "no_dropout_of_embeddings": Mutation(
        "models/transformer.py",
        "x = self.drop(self.positions.embed(embedded, positions), deterministic=not train)",
        "x = self.positions.embed(embedded, positions)",
        "models/test_transformer.py::test_what_dropout_takes_out",
    ),
    "no_dropout_in_the_feed_forward": Mutation(
        "models/transformer.py",
        "hidden = self.drop(self.activation(self.inner(inner)), deterministic=not train)",
        "hidden = self.activation(self.inner(inner))",
        "models/test_transformer.py::test_what_dropout_takes_out",
    ),
    "no_dropout_of_self_attention": Mutation(
        "models/transformer.py",
        "x = self._add(self.self_norm, x, attended.context, train)",
        "x = self._add(self.self_norm, x, attended.context, False)",
        "models/test_transformer.py::test_what_dropout_takes_out",
    ),
    "no_dropout_of_source_attention": Mutation(
        "models/transformer.py",
        "x = self._add(self.source_norm, x, attended.context, train)",
        "x = self._add(self.source_norm, x, attended.context, False)",
        "models/test_transformer.py::test_what_dropout_takes_out",
    ),
    "no_dropout_of_the_feed_forward": Mutation(
        "models/transformer.py",
        "return self._add(self.feed_forward_norm, x, self.outer(hidden), train), memory, attended",
        "return self._add(self.feed_forward_norm, x, self.outer(hidden), False), memory, attended",
        "models/test_transformer.py::test_what_dropout_takes_out",
    ),
    "halted_moves_on": Mutation(
        "models/universal.py",
        "x = jnp.where(halting.running[..., None], changed, carry[0])",
        "x = changed",
        "models/test_universal.py::test_adaptive_states_are_those_of_a_loop_in_which_a_halted_position_stays",
    ),
    "rate_of_running_means": Mutation(
        "models/baselines.py",
        "return 0.5 * jnp.square(self.mean - f)",
        "return jnp.square(self.mean - f)",
        "models/test_baselines.py::test_a_running_mean_is_drawn_to_the_loss",
    ),
    "quotient_of_coordinates": Mutation(
        "models/baselines.py",
        "b = self.numerator / jnp.maximum(self.denominator, 1e-8)",
        "b = self.numerator * jnp.maximum(self.denominator, 1e-8)",
        "models/test_baselines.py::test_baselines_of_coordinates_are_quotients_of_running_means",
    ),
    "critic_without_masses": Mutation(
        "models/baselines.py",
        "return jnp.sum(mass * jnp.square(chosen - sampled.losses), axis=-1)",
        "return jnp.sum(jnp.square(chosen - sampled.losses), axis=-1)",
        "models/test_baselines.py::test_a_critic_is_its_formula_and_learns_the_losses_that_were_seen",
    ),
    # Attention.
    "critic_adds_nothing_back": Mutation(
        "attention/estimators.py",
        "return gradient_only(jnp.sum(weights * g, axis=-1)) - jnp.sum(",
        "return -jnp.sum(",
        "attention/test_estimators.py::test_a_critic_that_knows_the_losses_leaves_the_weights_no_noise",
    ),
    "no_baseline": Mutation(
        "attention/estimators.py",
        "advantage = advantage - jax.lax.stop_gradient(baseline)[..., None]",
        "advantage = advantage + 0 * jax.lax.stop_gradient(baseline)[..., None]",
        "attention/test_estimators.py::test_one_loss_for_all_is_the_value_and_as_baseline_leaves_no_gradient",
    ),
    "dropped_weights_lose_mass": Mutation(
        "attention/core.py",
        "rows = jnp.where(keep, rows / (1 - self.dropout), 0)",
        "rows = jnp.where(keep, rows, 0)",
        "attention/test_multi_head.py::test_dropped_weights_keep_their_mean",
    ),
    "half_steps_of_newton": Mutation(
        "attention/entmax.py",
        "newton = jnp.clip(d - excess / slope, low, d)",
        "newton = jnp.clip(d - 0.5 * excess / slope, low, d)",
        "attention/test_entmax.py::test_newton_takes_no_more_steps_than_proven",
    ),
}


def run_tests(root: pathlib.Path, tests: list[str]) -> tuple[int, str]:
    """(pytest's exit status, what it printed) in this copy of the repository."""
    environment = {"JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache")} | os.environ
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *(f"tests/{t}" for t in tests)]
    output = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    done = subprocess.run(command, cwd=root, env=environment, **output)
    return done.returncode, done.stdout


def result_of(root: pathlib.Path, mutation: Mutation) -> str:
    """Put the fault into the copy, run its test, take it out again."""
    path = root / "attn_jax" / mutation.file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text.count(mutation.before) != 1:
        return "not found"
    path.write_text(text.replace(mutation.before, mutation.after), encoding="utf-8")
    status, _ = run_tests(root, [mutation.test])
    path.write_text(text, encoding="utf-8")
    return "killed" if status == FAILED else "survived"


def main(names: list[str]) -> int:
    """The exit status of the program."""
    unknown = [name for name in names if name not in MUTATIONS]
    if unknown:
        print(f"mutations.py: unknown {', '.join(unknown)}; known: {', '.join(MUTATIONS)}", file=sys.stderr)
        return 2
    chosen = {name: MUTATIONS[name] for name in names or MUTATIONS}
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "repository"
        shutil.copytree(ROOT, root, ignore=LEFT_OUT)
        status, printed = run_tests(root, sorted({mutation.test for mutation in chosen.values()}))
        if status:
            print(printed, "mutations.py: these tests have to pass without a fault", sep="\n", file=sys.stderr)
            return 1
        results = {}
        for name, mutation in chosen.items():
            results[name] = result_of(root, mutation)
            print(f"{results[name]:<10}{name:<32}{mutation.file}  {mutation.test}", flush=True)
    counts = {kind: list(results.values()).count(kind) for kind in ("killed", "survived", "not found")}
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()), f"of {len(results)}")
    return int(counts["killed"] < len(results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
