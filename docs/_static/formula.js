"use strict";
// context = read(normalize(score(query, keys)), values) for numbers, with the names of attn_jax.
// formula_figure.js draws it; tests/test_formula_page.py compares its weights with those of the package.

window.attnFormula = (() => {
  // y = 2 sin x + x + noise: the points of chapter 9 of the book, rounded.
  const keys = [
    0.3703, 0.5325, 0.5393, 0.6398, 0.7429, 0.7806, 0.8263, 1.0219, 1.0546, 1.136, 1.2847, 1.3139, 1.3577, 1.3919,
    1.5046, 1.6285, 1.674, 1.742, 1.8366, 1.9078, 1.9733, 2.208, 2.5722, 2.6356, 2.8848, 2.9147, 2.9339, 2.9779,
    3.0973, 3.2448, 3.2844, 3.6643, 3.6846, 3.8083, 4.4179, 4.5205, 4.6907, 4.7946, 4.8445, 4.8781,
  ];
  const values = [
    -0.8492, 1.6528, 1.5188, 2.1399, 1.7907, 1.1069, 1.5111, 2.1236, 4.5865, 3.2738, 2.6286, 3.6284, 4.457, 4.0859,
    2.068, 3.6547, 5.265, 2.8248, 2.8889, 4.056, 3.0855, 5.7708, 4.0866, 3.0948, 3.7533, 3.3271, 3.3485, 4.3738,
    2.9522, 4.7268, 3.9424, 3.5875, 2.3293, 0.6675, 3.1424, 4.0275, 5.1329, 4.1321, 0.5095, 1.3823,
  ];
  const queries = Array.from({ length: 50 }, (_, i) => i / 10);
  const truth = (x) => 2 * Math.sin(x) + x;

  const sum = (numbers) => numbers.reduce((total, x) => total + x, 0);
  const dot = (a, b) => sum(a.map((x, i) => x * b[i]));
  const scaled = (numbers, factor) => numbers.map((x) => x * factor);

  const centre = sum(keys) / keys.length;
  const deviation = Math.sqrt(sum(keys.map((key) => (key - centre) ** 2)) / keys.length);
  const standardized = (x) => (x - centre) / deviation;

  // A kernel k(u) of u = (query - key) / width has the score log k(u): -Infinity is a key out of reach.
  const SCORES = {
    constant: { text: "constant", of: () => 0 },
    dot: { text: "dot product", of: (query, key) => standardized(query) * standardized(key), temperature: true },
    gaussian: { text: "Gaussian", of: kernel((u) => -0.5 * u * u), width: true, temperature: true, name: "Gaussian" },
    boxcar: { text: "boxcar", of: kernel((u) => (u * u <= 1 ? 0 : -Infinity)), width: true, compact: true, name: "Boxcar" },
    triangular: { text: "triangular", of: kernel((u) => logOf(1 - Math.abs(u))), width: true, compact: true, name: "Triangular" },
    epanechnikov: { text: "Epanechnikov", of: kernel((u) => logOf(1 - u * u)), width: true, compact: true, name: "Epanechnikov" },
  };

  function kernel(log) {
    return (query, key, width) => log((query - key) / width);
  }

  function logOf(x) {
    return x > 0 ? Math.log(x) : -Infinity;
  }

  const NORMALIZERS = {
    uniform: { text: "uniform", of: (scores) => scores.map(() => 1 / scores.length), infinite: true },
    kernel_sum: { text: "kernel sum", of: (scores) => softmax(scores), infinite: true },
    softmax: { text: "softmax", of: (scores) => softmax(scores) },
    softmax_one: { text: "softmax1", of: (scores) => softmax([...scores, 0]).slice(0, -1), partial: true },
    entmax15: { text: "entmax 1.5", of: (scores) => entmax(scores, 1.5) },
    sparsemax: { text: "sparsemax", of: (scores) => entmax(scores, 2) },
    hardmax: { text: "hardmax", of: (scores) => scores.map((_, i) => Number(i === scores.indexOf(Math.max(...scores)))) },
  };

  function softmax(scores) {
    const most = Math.max(...scores);
    if (most === -Infinity) return scores.map(() => 0);  // no key in reach
    const raised = scores.map((score) => Math.exp(score - most));
    return scaled(raised, 1 / sum(raised));
  }

  /** max(z - tau, 0)^(1 / (alpha - 1)) with z = (alpha - 1) scores, and the tau for which they sum to one. */
  function entmax(scores, alpha) {
    const most = Math.max(...scores);
    const z = scores.map((score) => (alpha - 1) * (score - most));
    const above = (tau) => z.map((x) => Math.max(x - tau, 0) ** (1 / (alpha - 1)));
    let [low, high] = [-1, 0];
    for (let i = 0; i < 60; i++) {
      const middle = (low + high) / 2;
      if (sum(above(middle)) > 1) low = middle;
      else high = middle;
    }
    const weights = above(low);
    return scaled(weights, 1 / sum(weights));
  }

  const RIDGE = 0.01;  // share of the variance of the keys, so that a query far from all keys has a line
  const READINGS = {
    expectation: { text: "mean" },
    line: { text: "local line" },
    sample: { text: "sample" },
  };

  /** w_i (1 + (key_i - m) (query - m) / (variance + ridge)): a line fitted under w, read at the query. */
  function localLine(weights, query) {
    const total = sum(weights);
    const share = total === 0 ? weights : scaled(weights, 1 / total);
    const mean = dot(share, keys);
    const rest = dot(share, keys.map((key) => key - mean));  // of rounding: it would count where one key has nearly all weight
    const apart = keys.map((key) => key - mean - rest);
    const variance = dot(share, apart.map((x) => x * x));
    const rounding = (Number.EPSILON * mean) ** 2;
    const slope = (query - mean) / (variance > 1e3 * rounding ? (1 + RIDGE) * variance : 1);
    return weights.map((weight, i) => weight * (1 + slope * apart[i]));
  }

  /** W, a row for each query; those of a sample are the probabilities of the keys. */
  function weights(choice) {
    const { score, normalize, read, width = 1, temperature = 1 } = choice;
    return queries.map((query) => {
      const scores = keys.map((key) => SCORES[score].of(query, key, width) / temperature);
      const row = NORMALIZERS[normalize].of(scores);
      return read === "line" ? localLine(row, query) : row;
    });
  }

  /** The index of the key that a number between 0 and 1 samples; -1 without keys. */
  function sample(row, uniform) {
    let left = uniform * sum(row);
    let last = -1;
    for (let i = 0; i < row.length; i++) {
      if (row[i] === 0) continue;
      last = i;
      left -= row[i];
      if (left < 0) break;
    }
    return last;
  }

  /** exp of the entropy of |w| / sum |w|: the number of keys that equal weights would be on. */
  function effectiveKeys(row) {
    const sizes = row.map(Math.abs).filter((size) => size > 0);
    const total = sum(sizes);
    return total === 0 ? 0 : Math.exp(-sum(sizes.map((size) => (size / total) * Math.log(size / total))));
  }

  const distance = (contexts) => sum(contexts.map((context, i) => (context - truth(queries[i])) ** 2)) / contexts.length;

  /** Says why the package would refuse a choice; empty if it does not. */
  function refusal({ score, normalize, read }) {
    if (SCORES[score].compact && !NORMALIZERS[normalize].infinite) return "a score of -inf, out of reach, needs kernel sum";
    if (read === "sample" && NORMALIZERS[normalize].partial) return "keys are sampled from weights that sum to one";
    return "";
  }

  /** The same in Python, for columns query, x and y. */
  function code({ score, normalize, read, width = 1, temperature = 1 }) {
    const chosen = normalize === "uniform" ? "constant" : score;
    const { name } = SCORES[chosen];
    const factor = chosen === "gaussian" && temperature !== 1 ? ` * ${temperature} ** 0.5` : "";
    const cooled = chosen === "dot" && temperature !== 1 ? ` / ${temperature}` : "";
    const made = name ? `${name}(width=(${width}${factor},))` : `"${chosen}"`;
    const given = `score=${made}, normalize="${normalize === "uniform" ? "softmax" : normalize}"`;
    const lines = chosen === "dot" ? ["z = lambda a: (a - x.mean()) / x.std()"] : [];
    const points = chosen === "dot" ? `z(query)${cooled}, z(x), y` : "query, x, y";
    if (read === "line") {
      lines.push(`attention = attn_jax.attention(${given}, fit=LocalLine(ridge=${RIDGE}))`);
      lines.push(`attention.apply({}, ${points})`);
    } else {
      const sampled = read === "sample" ? ', read="reinforce", rng=jax.random.key(0)' : "";
      lines.push(`attn_jax.attend(${points}, ${given}${sampled})`);
    }
    return lines.join("\n");
  }

  /** What makes the line of code run: imports and points, those of chapter 9, not rounded. */
  function program(choice) {
    const { name } = SCORES[choice.normalize === "uniform" ? "constant" : choice.score];
    const parts = name ? [`from attn_jax.attention.scores import ${name}`] : [];
    if (choice.read === "line") parts.push("from attn_jax.attention.signed import LocalLine");
    const lines = ["import jax", "import jax.numpy as jnp", "", "import attn_jax", ...parts, ""];
    lines.push("rng = jax.random.key(3)", "query = jnp.arange(0, 5, 0.1)[:, None]");
    lines.push("x = jnp.sort(5 * jax.random.uniform(rng, (40,)))[:, None]");
    lines.push("y = 2 * jnp.sin(x) + x + jax.random.normal(jax.random.fold_in(rng, 1), x.shape)");
    return [...lines, code(choice)].join("\n");
  }

  return {
    ...{ keys, values, queries, truth, SCORES, NORMALIZERS, READINGS },
    ...{ weights, sample, effectiveKeys, distance, refusal, code, program, sum, dot },
  };
})();
