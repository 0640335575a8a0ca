"""Objects of the zoo's example, and the code that a page shows for them."""

from typing import Any

from zoo_example import SIZE, WIDTH

from attn_jax.attention.names import required_options
from attn_jax.models.attention_options import AttentionOptions
from attn_jax.options import options_of

MAKE = "import jax\n\nimport attn_jax\n"
CALL = "variables = attention.init(jax.random.key(0), query, keys, values)\n"
CALL += "attended = attention.apply(variables, query, keys, values)"


def options_for(kind: type) -> dict[str, Any]:
    """Chooses values for the required fields of a class, for the example: small ones."""
    small = {"query_features": WIDTH, "features": 8, "max_length": SIZE, "num_features": 64, "size": 2, "softcap": 2.0}
    defaults = {key: option.default for key, option in options_of(AttentionOptions).items()}
    needed = required_options(kind)
    if missing := [name for name in needed if name not in defaults | small]:
        raise ValueError(f"{kind.__name__} needs {', '.join(missing)}: give small values in docs/_ext/zoo_code.py")
    return {name: (defaults | small)[name] for name in needed}


def construct(kind: Any) -> Any:
    """Makes an object of a class with options for the example; a function is itself."""
    if not isinstance(kind, type):
        return kind
    fixed = {"width": (1.5,)} if getattr(kind, "compact", False) else {}
    return kind(**options_for(kind), **fixed)


def written(kind: Any) -> str:
    """Writes down `construct`."""
    made = options_for(kind) | ({"width": (1.5,)} if getattr(kind, "compact", False) else {})
    return f"{kind.__name__}({', '.join(f'{name}={value!r}' for name, value in made.items())})"


def imports(*parts: Any) -> str:
    return "".join(f"from {part.__module__} import {part.__name__}\n" for part in parts)
