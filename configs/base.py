"""Every option there is, with its default and its meaning. The other configs start from this one.

Values that are tuples can be overridden as a whole on the command line: --config.seeds="(0, 1, 2)".
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.name = "base"
    config.description = ""  # shown on the first line of a run
    config.data_dir = ""  # where the files of the task are; tasks that make their own data need none
    config.seed = 0  # of parameters, dropout and the order of the examples
    config.seeds = ()  # several seeds trained together in one vmapped program, e.g. (0, 1, 2); () means (seed,)
    config.parallel = "auto"  # "auto", "single" (one device), "pmap" or "mesh": see attn_jax/training/parallel.py
    config.dtype = "float32"  # of the computation: float32 or bfloat16; parameters are always float32

    config.task = ConfigDict()
    config.task.name = "parallel_text"  # see TASKS in attn_jax/tasks/__init__.py
    config.task.train = ("train.source", "train.target")  # line-aligned UTF-8 files below data_dir; babi: (name, "")
    config.task.valid = (
        "",
        "",
    )  # validation files; empty: hold out valid_size pairs of train
    config.task.test = ("", "")  # test files; empty: results are measured on the validation split
    config.task.valid_size = 500
    config.task.num_examples = 0  # use (of data that the package makes: make) this many training pairs; 0 means all
    config.task.language = ""  # inflection: of the files in data_dir, such as "german"; "": one that the package makes
    config.task.size = "high"  # inflection, language_id: training files "high", "medium" or "low"; babi: "1k" or "10k"
    config.task.labels = ()  # language_id: the languages to tell apart, such as ("german", "french"); (): all there are
    config.task.operation = "sort"  # sequences: "copy", "reverse" or "sort"
    config.task.num_symbols = 32  # sequences: size of the alphabet
    config.task.lengths = (1, 16)  # sequences: shortest and longest source in training and validation
    config.task.test_lengths = ()  # sequences: lengths of the test sources, such as (32, 64); (): those of training
    config.task.numbers = ()  # babi: which of the twenty tasks, several jointly, such as (1, 2, 3); (): all
    config.task.max_sentences = 0  # babi: keep only so many last statements of a story; 0: all
    config.task.block = 0  # plain_text: an example is a block of so many tokens; 0: it is a line
    # regression: columns of the CSV file task.train[0], (): all but the target; "": the last one. No file: made points.
    config.task.inputs = ()
    config.task.target = ""
    config.task.classification = False  # regression: the target is a class
    config.task.noise = 1.0  # regression: standard deviation of the noise of points that the package makes
    config.task.vocabulary = "words"  # see VOCABULARIES in attn_jax/tasks/vocabulary.py: "words", "sentencepiece", ...
    config.task.vocab_size = (8000, 8000)  # source, target: exact for sentencepiece, at most this for the others
    config.task.joint_vocabulary = False  # parallel_text: one vocabulary, of vocab_size[0], for both sides
    config.task.min_count = 2  # words and characters seen less often in training become unk
    config.task.sentencepiece = "unigram"  # "unigram" or "bpe"
    # Batch shapes: a pair goes to the first bucket that holds both its sides, eos included; longer ones are left out.
    # (16, (20, 24)): the square of 16, and source 20 with target 24. (): chosen, to hold all pairs with little padding.
    config.task.buckets = ()
    config.task.source_buckets = 2  # source lengths that buckets () chooses, for each of the target lengths it chooses
    config.task.batch_size = 128  # of all devices together
    config.task.batch_unit = "sentences"  # "sentences", or "tokens": padded target positions of a batch

    config.model = ConfigDict()
    config.model.name = "seq2seq"  # (recurrent decoder) or another of MODELS in attn_jax/models/encoder_options.py
    config.model.encoder = "rnn"  # "rnn", "conv" (kernel_size tokens seen by each layer) or "transformer"
    config.model.cell = "lstm"  # "rnn", "lstm", "gru" or "peephole_lstm"
    config.model.embedding_size = 256
    config.model.hidden_size = 256
    config.model.readout_size = 256  # of the attentional hidden state that the output layer takes, and that is fed
    config.model.num_layers = 1
    config.model.bidirectional = True  # encoder: each direction has hidden_size / 2 units
    config.model.decoder = "luong"  # "luong" (step, attend), "bahdanau" (attend, step) or "none" (no attention)
    config.model.input_feeding = True  # luong: the attentional hidden state enters the next step
    config.model.feed_summary = False  # none: the encoder's summary enters every step (Cho 2014)
    config.model.bridge = "dense"  # initial state, of the encoder's last: "dense", "hidden" (c = 0), "copy", "zeros"
    config.model.tie_embeddings = False  # the output layer is the transposed target embedding
    config.model.dropout = 0.2
    config.model.recurrent_dropout = 0.0  # variational: one mask for all steps of a sentence (Gal 2016)
    config.model.self_attention = False  # luong without input feeding: the decoder also reads its own past states
    config.model.kernel_size = 3  # conv
    config.model.num_heads = 4  # of a Transformer, whose width is hidden_size
    config.model.num_kv_heads = 0  # groups of heads that share their keys and values; 0: each head has its own
    config.model.feed_forward_size = 1024
    config.model.num_decoder_layers = 0  # transformer; 0: num_layers
    config.model.norm = "pre"  # layer norm before each part ("pre") or after each sum ("post")
    config.model.activation = "relu"  # of the feed-forward layers: "relu" or "gelu"
    config.model.positions = "sinusoidal"  # see POSITIONS in attn_jax/layers/positions.py
    config.model.max_length = 512  # learned positions
    config.model.remat = False  # compute a layer's activations again in the backward pass: less memory, more time
    config.model.share_embeddings = False  # source and target have one embedding, and one vocabulary
    config.model.continue_source = False  # language_model: a source given to decoding is the target's beginning
    config.model.pooling = "mean"  # classifier: "mean", or "structured" (num_queries learned queries, Lin 2017)
    config.model.num_queries = 8
    config.model.penalty = 0.0  # structured: share of |A A' - I|^2 in the loss
    config.model.degrees = (
        0,
    )  # kernel_regression: 0 reads the mean, 1 a straight line fitted nearby, 2 ...; all mixed
    config.model.num_widths = 1  # kernel_regression: widths that are mixed, each 2^(1/4) times the one before
    config.model.criterion = "leave_one_out"  # kernel_regression: "leave_one_out", "aicc" or "training"
    config.model.projection_size = 0  # kernel_regression: columns that a learned network makes of the inputs; 0: none
    config.model.chunk = 1024  # kernel_regression: training points read at a time
    # What is minimized (models/seq2seq/objectives.py): "soft" (one context), "hard" (expected loss over contexts),
    # "marginal" (the likelihood, contexts summed out) or "elbo" (its bound with an inference network).
    config.model.objective = "soft"
    config.model.inference_size = 0  # elbo: width of the network that sees the target
    config.model.stories = ConfigDict()  # memory networks, which answer questions about stories
    config.model.stories.memory_size = 50  # the last so many statements of a story are seen
    config.model.stories.shortest = 1  # tokens of the shortest statement, its period included; training data decides
    config.model.stories.num_hops = 3  # readings, episodes, or (memnn) supporting facts at most
    config.model.stories.encoding = "position"  # memn2n: of a statement, "position" (word order tells) or "bag"
    config.model.stories.tying = "adjacent"  # memn2n: "adjacent" or "layerwise"
    config.model.stories.nonlinear = False  # memn2n: relu after each hop; memnn: two layers of tanh
    config.model.stories.attend_empty = False  # memn2n: slots without a statement are read as zeros, else masked
    config.model.stories.noise = 0.0  # memn2n: in training, at most this share of empty memories is put in
    config.model.stories.linear_steps = 0  # memn2n: training steps before the softmax comes in
    config.model.stories.margin = 0.1  # memnn: by which the right one has to win
    config.model.stories.num_grams = 0  # memnn: three-word pieces are hashed into so many features; 0: words alone
    config.model.stories.roles = True  # memnn: the first fact, the second, ... differ in kind; else they are a list
    config.model.stories.adaptive = True  # memnn: a stop memory ends the chain of facts; else it has num_hops links
    # dmn, dmn_plus, with score "gate_network" and normalize "softmax", or "logistic": gates that need not sum to one.
    config.model.stories.episode = "gru"  # over the facts, which its gates let in, or "soft": their weighted sum
    config.model.stories.gate_weight = 0.0  # of the cross entropy of the gates of pass i against supporting fact i
    config.model.stories.gate_steps = 0  # training steps before the answer counts, so that the gates learn first
    config.model.stories.fact_dropout = 0.0  # dmn: of the words; dmn_plus: of the statements
    # Words: of a question (dmn, dmn_plus) its last so many are read; so many of a sentence have masks (the others).
    config.model.stories.sentence_size = 16
    config.model.stories.num_slots = 20  # entnet
    config.model.stories.halting = False  # universal: each position takes as many of num_hops steps as it wants
    config.model.stories.threshold = 0.99  # halting: where the weights of the steps taken add up to so much
    config.model.stories.ponder_weight = 0.01  # halting: of the mean number of steps in the loss
    config.model.attention = ConfigDict()
    config.model.attention.score = "general"  # see SCORES in attn_jax/attention/scores/products.py
    config.model.attention.normalize = (
        "softmax"  # see NORMALIZERS in attn_jax/attention/normalizers/elementwise.py, or "monotonic"
    )
    config.model.attention.alpha = 1.5  # of entmax: 1 is softmax, 2 sparsemax
    config.model.attention.fusion = 0.1  # of fusedmax: neighbours share a weight, the more the larger
    # Of the kernels in attn_jax/attention/scores/kernels.py: one number, or one for each column; (): learned.
    config.model.attention.width = ()
    config.model.attention.per_column = False  # kernels: a learned width for each column
    config.model.attention.dropout = 0.0  # of the weights
    config.model.attention.read = "expectation"  # see READINGS in attn_jax/attention/hard/readings.py
    config.model.attention.num_samples = 1  # evaluations of the loss per token, where the reading samples
    config.model.attention.temperature = 1.0  # of relaxed readings
    # Of readings that sample, attn_jax/attention/hard/baselines.py; "default": learned, where the reading can use it.
    config.model.attention.baseline = "default"
    config.model.attention.feed = "mean"  # what goes on into the decoder's state: the "mean", or what was "read"
    config.model.attention.k_max = 0  # latent contexts: keys that evaluation and decoding sum over; 0: all
    # Marginal only: a key's probability given the key before, "independent", "monotonic", or with a score for the
    # distance as well, "first_order" and "monotonic_first_order" (Wu & Cotterell 2019).
    config.model.attention.transition = "independent"
    config.model.attention.jump_size = 5  # first order: distances beyond this count as this
    config.model.attention.features = 256  # width of the additive and concat scores and of local_p
    config.model.attention.max_length = 100  # positions that the location score and per-coordinate baselines know
    config.model.attention.window = "global"  # "global", "local_m" or "local_p" (Luong 2015)
    config.model.attention.window_size = 10  # D: keys further than this from the centre are not seen

    config.train = ConfigDict()
    config.train.num_steps = 0  # optimizer steps; 0: num_epochs decides
    config.train.num_epochs = 20.0
    config.train.label_smoothing = 0.0
    config.train.microbatches = 1  # gradient accumulation: a batch is worked off in this many parts
    config.train.log_every = 50  # steps
    config.train.eval_every = 0  # steps; 0: once an epoch
    config.train.checkpoint_every = 0  # steps; 0: at every evaluation
    config.train.keep = 2  # newest checkpoints kept, besides the best one
    config.train.best_metric = "loss"  # of the validation split: "loss", "bleu", "exact_match", ...
    config.train.patience = 0  # stop after this many evaluations without a better best_metric; 0: never
    config.train.goal = 0.0  # stop where best_metric of every seed is as good as this; 0: never
    # Of several seeds, the one to predict with: "" the first, "train" that with the lowest training loss, "valid" that
    # with the best best_metric in validation.
    config.train.choose_seed = ""
    config.train.average = 0  # evaluate the mean of the parameters of the last N checkpoints; 0: the best one

    config.optimizer = ConfigDict()
    config.optimizer.name = "adam"  # "adam", "adamw" or "sgd"
    config.optimizer.learning_rate = 1e-3
    config.optimizer.schedule = "constant"  # "constant", "inverse_sqrt", "cosine" or "plateau" (halve)
    config.optimizer.warmup_steps = 0
    config.optimizer.plateau_patience = 1  # plateau: evaluations without a better loss before the rate is halved
    config.optimizer.halve_every = 0  # steps; 0: the rate is not halved
    config.optimizer.halve_after = 0  # steps before the first of these periods begins
    config.optimizer.clip_norm = 1.0  # global gradient norm; 0: no clipping
    config.optimizer.clip_each = False  # the norm of each parameter array by itself, not of all together
    config.optimizer.weight_decay = 0.0  # adamw
    config.optimizer.momentum = 0.0  # sgd
    config.optimizer.b1 = 0.9
    config.optimizer.b2 = 0.999
    config.optimizer.eps = 1e-8

    config.decode = ConfigDict()
    config.decode.method = "greedy"  # "greedy", "beam" or "sample"
    config.decode.beam_size = 5
    config.decode.length_penalty = 1.0  # alpha of ((5 + length) / 6) ** alpha (Wu 2016)
    config.decode.n_best = 1  # lines that predict prints for each sentence: of beam the best, of sample so many samples
    config.decode.temperature = 1.0
    config.decode.top_k = 0  # sample from the k most probable tokens; 0: all
    config.decode.top_p = 1.0  # sample from the smallest set with at least this probability
    config.decode.seed = 0  # sample: of the samples; 0: those that follow from config.seed
    config.decode.max_length = 100  # target tokens, also at most 2 * source + 10
    config.decode.batch_size = 100  # sentences decoded together
    config.decode.replace_unk = False  # an unk becomes the source word with the most attention
    config.decode.with_scores = False  # predict: print "score TAB text"

    config.eval = ConfigDict()
    config.eval.metrics = ("perplexity", "bleu", "chrf", "exact_match", "accuracy")
    config.eval.tokenize = "13a"  # of sacrebleu; "none": the corpus is tokenized already
    config.eval.num_pictures = 8
    return config.lock()  # a key that is not here is a slip
