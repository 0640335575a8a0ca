"""Objects of the zoo's example, and the code that a page shows for them."""

from typing import Any

from zoo_example import SIZE, WIDTH

from attn_jax.attention.names import required_options
from attn_jax.parts import fields_of

MAKE = "import jax\n\nimport attn_jax\n"
CALL = "variables = attention.init(jax.random.key(0), query, keys, values)\n"
CALL += "attended = attention.apply(variables, query, keys, values)"
SMALL = {"query_features": WIDTH, "features": 8, "max_length": SIZE, "num_features": 64, "size": 2}


def options_for(kind: type) -> dict[str, Any]:
    """Chooses values for the required fields of a class, and for its sizes, for the example: small ones."""
    needed = required_options(kind)
    if missing := [name for name in needed if name not in SMALL]:
        raise ValueError(f"{kind.__name__} needs {', '.join(missing)}: give small values in docs/_ext/zoo_code.py")
    return {name: value for name, value in SMALL.items() if name in {*needed, *fields_of(kind)}}


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
