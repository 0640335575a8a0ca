"""attn_jax: every attention mechanism behind one formula, read(normalize(score(query, keys)), values)."""
