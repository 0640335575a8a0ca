"""Measuring and using a trained model: losses, translations, scores and alignments of sentence pairs.

Everything is batched by length, compiled once per batch shape, and put back in the order it came in.
"""

import math
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attn_jax.errors import UserError, lookup
from attn_jax.evaluation import plots
from attn_jax.evaluation.decode import METHODS, replace_unk, sample
from attn_jax.evaluation.metrics import corpus_bleu, corpus_chrf, edit_distance, exact_match, perplexity, summarize
from attn_jax.evaluation.options import DecodeOptions
from attn_jax.tasks.batching import Batches, EncodedPairs, encode_pairs, eval_batches
from attn_jax.tasks.buckets import choose_buckets, make_buckets
from attn_jax.tasks.files import save_json
from attn_jax.tasks.task import Pairs, Task
from attn_jax.tasks.text import read_parallel
from attn_jax.tasks.vocabulary import BOS, EOS, PAD, SPECIAL, UNK, Vocabulary
from attn_jax.training.progress import notice
from attn_jax.types import Array, Float, Metrics, Params, PRNGKeyArray

FURTHER = 2**32 - 1  # no sentence has this number: folded in, it leads to the rngs of further samples
LONG = 1000  # source tokens of a line beyond which a notice says what that costs
LARGEST_SHARE = 0.2  # of unk among the tokens of training, beyond which a notice says so


class Hypothesis(NamedTuple):
    """One translation of one sentence."""

    text: str
    log_prob: float  # of its tokens, eos included
    score: float  # log_prob / length penalty


class Evaluator:
    """A model with its vocabularies: what to ask of it once it has parameters.

    A run asks `example`, `batches`, `measure`, `predict`, `draw`, `overview`, `read` and `report`, which an evaluator
    of other things than sentences (attn_jax/evaluation/points.py) has as well.
    """

    unit = "sentences"  # what a split has
    loss_unit = "nats per token"  # of training and validation; "" if they differ
    _title = ""  # of the pictures
    example: ClassVar = {name: np.zeros((1, 1), np.int32) for name in ("source", "target_in", "target_out")}

    def __init__(
        self,
        model: Any,
        source_vocabulary: Vocabulary,
        target_vocabulary: Vocabulary,
        decode: DecodeOptions,
        buckets: Sequence = (),
        seed: int = 0,
    ):
        self.model, self.options, self.buckets = model, decode, buckets
        self.source_vocabulary, self.target_vocabulary = source_vocabulary, target_vocabulary
        if getattr(model.module, "reads_target", False):
            self._title = "weight on what was given; the rest is on the target so far"
        self._long_reported = False
        self._rng = jax.random.key(seed)
        self._rng_further = jax.random.fold_in(self._rng, FURTHER)
        self._losses = jax.jit(model.eval_fn)
        self._score = jax.jit(model.score)
        self._attend = jax.jit(model.attention_weights)
        self._query_weights = jax.jit(
            lambda params, source: model.module.apply({"params": params}, source, method="query_weights")
        )
        self._decode = jax.jit(self._decode_batch)

    def encode(self, pairs: Pairs) -> EncodedPairs:
        """Both sides as ids."""
        return encode_pairs(pairs, self.source_vocabulary, self.target_vocabulary)

    def batches(self, pairs: Pairs, task: ConfigDict, seeds: tuple[int, ...], devices: int) -> Batches:
        """Training batches as config.task says, with a notice where much of the text is unk.

        Raises:
            UserError: see attn_jax.tasks.batching.Batches; or the model takes targets of one token, and one is not.
        """
        encoded = self.encode(pairs)
        self._check_targets(encoded, pairs, f"task {task.name}")
        self._report_unknown(encoded)
        lengths = encoded.source.lengths, encoded.target.lengths
        buckets = task.buckets or choose_buckets(*lengths, num_source=task.source_buckets)
        return Batches(encoded, buckets, task.batch_size, task.batch_unit, seeds=seeds, row_multiple=devices)

    def measure(self, params_of_seeds: Sequence[Params], pairs: Pairs, names: Sequence[str], tokenize: str):
        """`evaluate` of this evaluator."""
        return evaluate(self, params_of_seeds, pairs, names, tokenize)

    def read(self, source: str, target: str) -> Pairs:
        """The sentence pairs of two files, with a report of what training has not seen."""
        if bool(source) != bool(target):
            raise UserError("--mode=eval takes --source=FILE and --target=FILE together, or neither")
        pairs = self.parse(Pairs(*read_parallel(source, target)))
        self._check_targets(self.encode(pairs), pairs, target)
        self.report(pairs.source)
        return pairs

    def _check_targets(self, encoded: EncodedPairs, pairs: Pairs, where: str) -> None:
        """UserError where the model is a classifier and a target is no label."""
        wrong = np.flatnonzero(encoded.target.lengths != 2)  # a token and eos
        if getattr(self.model.module, "one_token", False) and len(wrong):
            raise UserError(
                f"{where}: the target {pairs.target[wrong[0]]!r} has {encoded.target.lengths[wrong[0]] - 1} tokens; "
                "model.name classifier needs labels, targets of one token each"
            )

    def _report_unknown(self, encoded: EncodedPairs) -> None:
        """A notice for a side of which more than LARGEST_SHARE of the training tokens are unk."""
        for side in ("source", "target"):
            tokens = getattr(encoded, side).tokens
            count = int(np.sum(tokens == UNK))
            share = count / max(1, np.sum(tokens != EOS))
            if share > LARGEST_SHARE:
                notice(
                    f"{'vocabulary':<14}{side}: {100 * share:.0f} % of the training tokens are unk; see "
                    "task.vocab_size and task.min_count"
                )

    def parse(self, pairs: Pairs) -> Pairs:
        """Pairs that someone wrote, as those of the task are."""
        return pairs

    def report(self, texts: list[str]) -> None:
        """A notice if there are source tokens that training has not seen; they are read as unk."""
        vocabulary = self.source_vocabulary
        tokens = [
            pair for text in texts for pair in zip(vocabulary.tokenize(text), vocabulary.encode(text), strict=True)
        ]
        unknown = list(dict.fromkeys(token for token, number in tokens if number == UNK))
        if unknown:
            count = sum(number == UNK for _, number in tokens)
            shown = " ".join(unknown[:3]) + (" ..." if len(unknown) > 3 else "")
            notice(f"{'unknown':<14}{count:,} of {len(tokens):,} source tokens were never seen in training: {shown}")

    def _report_long(self, texts: Sequence[str], before: int) -> None:
        """A notice for the first line, after so many `before`, that is longer than LONG and than any bucket."""
        if self._long_reported:
            return
        limit = max([LONG, *(source for source, _ in (make_buckets(self.buckets) if self.buckets else ()))])
        for number, text in enumerate(texts, before + 1):
            if (length := len(self.source_vocabulary.encode(text))) > limit:
                self._long_reported = True
                notice(
                    f"{'long':<14}line {number} has {length:,} source tokens: compiling takes long, and memory grows "
                    "with the length, of self-attention with its square"
                )
                return

    def losses(self, params: Params, pairs: EncodedPairs) -> Metrics:
        """The model's eval_fn over all pairs: {"loss": Mean, "accuracy": Mean} per real target token."""
        merged: Metrics = {}
        for _, batch in eval_batches(pairs, self.options.batch_size, self.buckets):
            metrics = jax.device_get(self._losses(params, batch))
            merged = {k: merged[k].merge(m) if merged else m for k, m in metrics.items()}
        return merged

    def log_probs(self, params: Params, pairs: Pairs) -> Float[np.ndarray, "n"]:
        """log p(target | source) of each pair, in nats, eos included."""
        encoded = self.encode(pairs)
        scores = np.zeros(len(pairs))
        for indices, batch in eval_batches(encoded, self.options.batch_size, self.buckets):
            scores[indices] = np.asarray(self._score(params, batch))[: len(indices)]
        return scores

    def weights(self, params: Params, pairs: Pairs) -> list[Float[np.ndarray, "t s"]]:
        """The attention weights of each pair: a row per target token, a column per source token, eos last in both."""
        encoded = self.encode(pairs)
        result: list = [None] * len(encoded)
        for indices, batch in eval_batches(encoded, self.options.batch_size, self.buckets):
            weights = np.asarray(self._attend(params, batch))
            for row, index in enumerate(indices):
                t, s = encoded.target.lengths[index], encoded.source.lengths[index]
                result[index] = weights[row, :t, :s]
        return result

    def query_weights(self, params: Params, pairs: Pairs) -> list[Float[np.ndarray, "r s"]]:
        """Of a classifier the attention weights on each source: a row per query, a column per token, eos last."""
        encoded = self.encode(pairs)
        result: list = [None] * len(encoded)
        for indices, batch in eval_batches(encoded, self.options.batch_size, self.buckets):
            weights = np.asarray(self._query_weights(params, batch["source"]))
            for row, index in enumerate(indices):
                result[index] = weights[row, :, : encoded.source.lengths[index]]
        return result

    def predict(self, params: Params, lines: Iterable[str], at_once: int) -> Iterator[tuple[list[str], list[str]]]:
        """For so many lines of input at once: (the sources read from them, the lines to print).

        Of each source there are always n_best lines, also if it is empty or has fewer translations.
        """
        count = 0
        for texts in chunks(lines, at_once):
            self._report_long(texts, count)
            printed = []
            for hypotheses in self.translate(params, texts, first=count):
                missing = [Hypothesis("", -math.inf, -math.inf)] * (self.options.n_best - len(hypotheses))
                for hypothesis in [*hypotheses, *missing]:
                    score = f"{hypothesis.score:.4f}\t" if self.options.with_scores else ""
                    printed.append(score + hypothesis.text)
            count += len(texts)
            yield texts, printed

    def sources(self, lines: Iterable[str]) -> list[str]:
        """What there is to draw in lines of input: those that are not empty."""
        return [line for line in lines if line.strip()]

    def draw(self, params: Params, pairs: Pairs, paths: Sequence[pathlib.Path]) -> None:
        """A picture for each source, and beside it the same as numbers, see `save_weights`.

        It shows the attention weights of the source's translation, whatever its target is; of a classifier with several
        queries a row for each query.
        """
        module = self.model.module
        several = getattr(module, "one_token", False) and module.pooling.num_queries > 1
        outputs = [hypotheses[0].text for hypotheses in self.translate(params, pairs.source)]
        translated = Pairs(pairs.source, outputs)
        found = self.query_weights(params, translated) if several else self.weights(params, translated)
        for text, output, weights, path in zip(pairs.source, outputs, found, paths, strict=True):
            source = [*self.source_vocabulary.tokenize(text), "<eos>"]
            target = [*self.target_vocabulary.tokenize(output), "<eos>"]
            # A classifier reads nothing for the eos.
            rows = len(target) if weights[-1].any() else len(target) - 1
            title = self._title
            if several:
                target, rows, title = [f"query {i}" for i in range(1, len(weights) + 1)], len(weights), output
            plots.alignment(weights[:rows], source, target[:rows], path, title)
            save_weights(path, weights[:rows], source=source, target=target[:rows])

    def overview(
        self, params: Params, task: Task, pairs: Pairs, workdir: pathlib.Path, count: int
    ) -> list[pathlib.Path]:
        """Draws the task's examples and the first of the pairs, `count` together; where the pictures are."""
        examples = Pairs(list(task.examples), [""] * len(task.examples))
        shown = (
            pairs.select(range(min(count, len(pairs))))
            if pairs.evidence
            else Pairs([*examples.source, *pairs.source][:count], [*examples.target, *pairs.target][:count])
        )
        paths = [workdir / "attention" / f"{i:03d}.png" for i in range(len(shown))]
        self.draw(params, shown, paths)
        return paths

    def translate(self, params: Params, texts: Sequence[str], first: int = 0) -> list[list[Hypothesis]]:
        """The n_best translations of each text, best first. Independent of the other texts and their order.

        An empty text has the empty translation. A sampled translation depends on its number: `first` for the first
        text, when `texts` are part of a longer list, and so on. Of n_best samples, which are independent and in the
        order they were drawn, the first is that of n_best=1.
        """
        results = [[Hypothesis("", 0.0, 0.0)] if not text.strip() else [] for text in texts]
        places = [i for i, text in enumerate(texts) if text.strip()]
        if not places:
            return results
        encoded = self.encode(Pairs([texts[i] for i in places], [""] * len(places)))
        for indices, batch in eval_batches(encoded, self.options.batch_size):
            rows = np.arange(len(batch["source"]))
            limits = np.zeros(len(rows), np.int32)
            limits[: len(indices)] = np.minimum(2 * encoded.source.lengths[indices] + 10, self.options.max_length)
            numbers = np.zeros(len(rows), np.uint32)
            numbers[: len(indices)] = [first + places[i] for i in indices]
            decoded = jax.device_get(self._decode(params, batch["source"], limits, numbers))
            for row, index in enumerate(indices):
                results[places[index]] = self._hypotheses(params, texts[places[index]], decoded, row)
        return results

    def _hypotheses(self, params: Params, text: str, decoded: Any, row: int) -> list[Hypothesis]:
        found = []
        for beam in range(self.options.n_best):
            if not np.isfinite(decoded.log_prob[row, beam]):
                continue  # fewer sentences than beams exist
            ids = [int(i) for i in decoded.tokens[row, beam, : decoded.length[row, beam]] if i not in (EOS, PAD, BOS)]
            words = self._replaced(params, text, ids) if self.options.replace_unk and UNK in ids else None
            decode = self.target_vocabulary.decode(ids) if words is None else self.target_vocabulary.join(words)
            found.append(Hypothesis(decode, float(decoded.log_prob[row, beam]), float(decoded.score[row, beam])))
        return found

    def _replaced(self, params: Params, text: str, ids: list[int]) -> list[str]:
        source = np.array([[*self.source_vocabulary.encode(text), EOS]], np.int32)
        length = -(-source.shape[1] // 16) * 16
        source = np.pad(source, ((0, 0), (0, length - source.shape[1])))
        target_in = np.full((1, -(-(len(ids) + 1) // 16) * 16), PAD, np.int32)
        target_in[0, : len(ids) + 1] = [BOS, *ids]
        batch = {"source": source, "target_in": target_in, "target_out": target_in}
        weights = np.asarray(self._attend(params, batch))[0]
        tokens = self.target_vocabulary.tokens(ids)
        return replace_unk(tokens, weights, self.source_vocabulary.tokenize(text), SPECIAL[UNK])

    def _decode_batch(self, params: Params, source: Array, limits: Array, numbers: Array):
        options = self.options
        memory, state = self.model.start(params, source)
        step = partial(self.model.step, params)
        common = dict(max_length=options.max_length, limits=limits, bos=BOS, eos=EOS, pad=PAD)
        if options.method == "beam":
            common |= dict(beam_size=options.beam_size, length_penalty=options.length_penalty)
            return METHODS["beam"](step, memory, state, **common)
        if options.method == "sample":
            common |= dict(temperature=options.temperature, top_k=options.top_k, top_p=options.top_p)
            rngs = [jax.vmap(jax.random.fold_in, (None, 0))(self._rng_of(j), numbers) for j in range(options.n_best)]
            if options.n_best > 1:
                several = jax.vmap(lambda rngs: sample(step, memory, state, rngs=rngs, **common), out_axes=1)
                return several(jnp.stack(rngs))
            common |= dict(rngs=rngs[0])
        return jax.tree.map(lambda x: x[:, None], METHODS[options.method](step, memory, state, **common))

    def _rng_of(self, number: int) -> PRNGKeyArray:
        """Where the rngs of the sample `number` of each sentence come from."""
        if not number and not self.options.seed:
            return self._rng
        return jax.random.fold_in(jax.random.fold_in(self._rng_further, self.options.seed), number)


def save_weights(picture: pathlib.Path, weights: Float[np.ndarray, "..."], **about: Any) -> None:
    """Attention weights as numbers, with what their rows and columns are, in the JSON file beside a picture."""
    save_json(picture.with_suffix(".json"), {**about, "weights": np.asarray(weights, np.float64).tolist()})


def chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of `size` lines, the last one of what is left; also before an error in what comes then."""
    some: list[str] = []
    try:
        for line in lines:
            some.append(line)
            if len(some) == size:
                yield some
                some = []
    except UserError:
        if some:
            yield some
        raise
    if some:
        yield some


TEXT_METRICS = {  # name -> (hypotheses, references, tokenize) -> (value, signature)
    "bleu": corpus_bleu,
    "chrf": lambda hypotheses, references, tokenize: corpus_chrf(hypotheses, references),
    "exact_match": lambda hypotheses, references, tokenize: (100 * exact_match(hypotheses, references), "percent"),
    "edit_distance": lambda hypotheses, references, tokenize: (edit_distance(hypotheses, references), "characters"),
}
TOKEN_METRICS = {  # name -> metrics of eval_fn -> value
    "loss": lambda metrics: metrics["loss"].compute(),
    "perplexity": lambda metrics: perplexity(metrics["loss"]),
    "accuracy": lambda metrics: 100 * metrics["accuracy"].compute(),
    "attention_entropy": lambda metrics: metrics["attention_entropy"].compute(),
}


def check_metrics(names: Sequence[str], tokenize: str) -> None:
    """UserError for a name that is neither in TEXT_METRICS nor in TOKEN_METRICS, or a tokenizer BLEU cannot use."""
    for name in names:
        lookup(TEXT_METRICS | TOKEN_METRICS, name, "metric")
    if "bleu" in names:
        corpus_bleu(["text"], ["text"], tokenize)


def evaluate(
    evaluator: Evaluator, params_of_seeds: Sequence[Params], pairs: Pairs, names: Sequence[str], tokenize: str
) -> tuple[dict[str, dict], dict[str, str]]:
    """({metric: {"mean", "std", "seeds"}}, {metric: signature}) of the named metrics and the loss on these pairs.

    Loss in nats per target token (eos included), accuracy and exact_match in percent, BLEU and chrF 0 to 100,
    edit_distance in characters.
    """
    check_metrics(names, tokenize)
    names = list(dict.fromkeys(["loss", *names]))
    token_names = [name for name in names if name in TOKEN_METRICS]
    text_names = [name for name in names if name in TEXT_METRICS]
    encoded = evaluator.encode(pairs)
    values: dict[str, list[float]] = {name: [] for name in [*token_names, *text_names]}
    signatures = {}
    for params in params_of_seeds:
        metrics = evaluator.losses(params, encoded)
        for name in token_names:
            values[name].append(float(TOKEN_METRICS[name](metrics)))
        if text_names:
            hypotheses = [found[0].text for found in evaluator.translate(params, pairs.source)]
            for name in text_names:
                value, signatures[name] = TEXT_METRICS[name](hypotheses, pairs.target, tokenize)
                values[name].append(value)
    return {name: summarize(list_) for name, list_ in values.items()}, signatures
