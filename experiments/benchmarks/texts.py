"""What docs/performance.md says beside its tables: what each of them measures, and what was tried and did not pay."""

INTRODUCTION = """# Performance

Every table is written by one run of one script. In a run all programs take turns in one process, A B C C B A, so that
the machine is the same for all; where both sides can, they start from the same parameters, and the script stops if they
do not compute the same. A cell has the median of the windows and, in brackets, the range. All of them again, with this
page:

    pip install -r requirements-oracles.txt ctranslate2
    python -m experiments.benchmarks

Whether they still hold, by the quickest row of each table: `python -m experiments.benchmarks.again`.
"""
SLOWER = """## Where others are faster

Every table of the speeds below in which the fastest program is not ours, and how much of its speed the fastest of ours
has (medians, from the files in experiments/results/speed).
"""
SECTIONS = {
    "translation_speed": (
        "Training: LSTM with attention",
        "A translation model in the sizes of the lecture notes: LSTM of 512, dot attention, 8,000 pieces a side, 17.3 "
        "million parameters, batches of 32 sentence pairs, Adam. Share of the peak: products of matrices alone, of the "
        "rate of one large product in the same process. All programs have the heap of `launch.py`, which keeps its "
        "memory; with huge pages alone PyTorch made 2,354 tokens a second in float32, and ours 1,905 (another run: "
        "the file of commit 4fcfb72).",
    ),
    "translation_profile": (
        "Where the time of a step goes",
        "The same model, one batch of the most frequent shape. Each part is compiled by itself, forward and backward, "
        "and takes turns with the whole step; compiled together they can share memory traffic.",
    ),
    "step_profile": (
        "The operations of a step",
        "Milliseconds of a step, times of all threads added, and the share of all operations; an operation that waits "
        "for a core counts on. `(backward)`: of the gradients. `outside of the model`: optimizer and search. Of a "
        "config or a run of your own: `launch.py --mode=profile`.",
    ),
    "transformer_speed": (
        "Training: Transformer",
        "3 + 3 layers of 256, 4 heads, feed forward 1,024, 8,000 pieces a side, batches of 64 pairs of similar length, "
        "Adam.",
    ),
    "gpu_checks": (
        "On a GPU: checks",
        "Attention and linear attention beside the same formula in float64. All measurements on a GPU: "
        "`python -m experiments.gpu_queue`.",
    ),
    "gpu_training": (
        "On a GPU: training",
        "A Transformer of 6 + 6 layers of 512, 8 heads, feed forward 2,048, 8,000 pieces a side, 128 pairs of 64 and "
        "64 tokens, and the LSTM of the first table with 16 tokens a side; without padding and dropout, Adam; float32 "
        "has products in TF32 on both sides. Share of the peak: 6 FLOP for each weight and target token, of the rate "
        "of one large product in bfloat16. In a CUDA graph no time passes in Python between the kernels of a step.",
    ),
    "gpu_attention": (
        "On a GPU: attention alone",
        "Causal self-attention, forward and backward, in bfloat16, 4 texts, 16 heads of width 64: milliseconds.",
    ),
    "decoding_speed": (
        "Decoding",
        "The models of the two tables above, 500 sentences, as many tokens for each as its reference has. A step is a "
        "batch; with one sentence at a time its percentiles are the latency of a sentence.",
    ),
    "long_decoding": (
        "Decoding after many tokens",
        "One more token of a decoder-only Transformer of two layers of width 64: milliseconds, and in brackets the "
        "megabytes of its caches. With keys a step reads all of them; a memory that is written has one size.",
    ),
    "memn2n_speed": (
        "Memory networks and several seeds",
        "Epochs of the end-to-end memory network (three hops, width 20, batches of 32) on stories like task 1 of bAbI, "
        "on one core.",
    ),
    "normalizers": (
        "Normalizers",
        "Forward and backward, in milliseconds; in brackets the ratio to our softmax in the same half of a round.",
    ),
    "blockwise_memory": (
        "Attention block by block",
        "Causal self-attention of one head of width 64, in blocks of 512 keys. Memory is what the compiled program "
        "needs besides arguments and results. Each cell has the context, then the context with the gradients of "
        "queries, keys and values.",
    ),
    "output_speed": (
        "Output layers",
        "A training step, in milliseconds: loss, gradients and Adam for 1,024 hidden states of width 512, 512 sampled "
        "words; `gradient`: loss and gradients alone. In brackets the temporary memory of the compiled program. Each "
        "number is of one process, and the programs take no turns: measured twice more on the same day, with 50,000 "
        "words ours, adaptive, took 51 and 52 ms, and PyTorch's 54 and 43 (`--methods adaptive 'torch adaptive' "
        "--sizes 50000`).",
    ),
    "kernel_speed": (
        "Kernel regression",
        "The width of a Gaussian Nadaraya-Watson regression by leave-one-out, 40 points, beside statsmodels' "
        "`KernelReg(lc, cv_ls)`: the same method from the same start. Then more and more points.",
    ),
    "input_speed": (
        "Input",
        "Whole batches of sentence pairs, padded and shifted, in the order of training, by one thread.",
    ),
    "large_corpus": (
        "A corpus larger than the memory",
        "Random words, encoded by `python -m attn_jax.cli.index`, which is killed on its way and goes on, then read in "
        "shuffled batches of 64. Memory is that of the process without the mapped files, whose pages the system takes "
        "back.",
    ),
    "start_speed": (
        "Start",
        "Seconds from the start of `python launch.py --config=...` to its first step.",
    ),
}
TRIED = """## What did not pay

Measured on the training of the LSTM above unless noted otherwise, on two cores (2026-11; each pair beside the other,
raw numbers not kept), and left out:

- XLA's flags on a CPU: dot products by oneDNN (a step of 163 ms in place of 130, and illegal instructions in decoding),
  `prefer_vector_width=512`, fast math: no gain.
- Products without YNNPACK (`--xla_cpu_experimental_ynn_fusion_type=`): 214 ms a step, though decoding with the LSTM
  gains 10 %.
- Multi-output fusion (`xla_cpu_use_multi_output_fusion`): Adam's pass takes 12.5 ms in place of 13.8; entmax gains
  nothing.
- Unrolling the recurrence by four: no gain in a whole step. The transposed kernel stored before the backward scan:
  142 ms a step in place of 141 (6.7 in place of 8.8 ms for the products alone). Products with the features first: 7.2
  ms for 14 steps in place of 5.7.
- The gates of the LSTM kept by the forward scan (the pullbacks of `jax.vjp`) in place of computing them again: 143 ms a
  step in place of 140, in bfloat16 101 in place of 95.
- Transposes in bfloat16 by blocks of 8 or 16 rows or of 32 columns, so that whole cache lines are read: 92, 90 and 93
  ms a step in place of 92, in ranges that overlap.
- All shapes of batches compiled by threads before the first step: five in 17.1 s in place of 17.8, as one compilation
  uses both cores already.
- Target lengths of the buckets chosen by the cost of both sides, by dynamic programming: 95.4 % of the cost is of real
  positions in place of 95.3 %.
- Dropout masks of 8 random bits an entry: as fast as with 16, and rates are multiples of 1/256. Without dropout the
  step of the LSTM takes 4 % less, that of the Transformer as much as with 16 bits.
- Gradients times one over the number of tokens, in place of the quotient: 143 ms in place of 146, in ranges that
  overlap, and the same memory.
- An update ordered behind all gradients, so that XLA need not copy six weights of the donated state: 130 ms in place of
  126, in bfloat16 94 in place of 88; without donation 128 and 91.
- The norm of the gradient as a product of vectors: no gain; without the norm the step takes 1 % less.
- Compiling for tests with one part of LLVM's work at a time, for narrower registers, or without YNNPACK: 8, 9 and 22 %
  more processor time for the same files than with the flags of tests/conftest.py.
- The fused kernel of `jax.nn.dot_product_attention`: not faster than the formula on a CPU.
- Decoding with the LSTM in batches of 100: of the 10.1 ms of a greedy step 9.4 are products of matrices, which take
  about as long as PyTorch's, so there is little left to gain. The largest logit of a row from the maxima that the
  search for the best words needs: 28 ms in place of 26 for the logits and the search of 500 beams.
- entmax with any alpha by Halley's method, with one power in a step: 4.5 times softmax in place of 5.3 for
  alpha = 1.33, at the price of the proof that bounds the number of steps. Both sums in one pass by `lax.reduce` of a
  pair: 24 times. A start from the threshold of 1.5-entmax: 6.4 times.
"""
