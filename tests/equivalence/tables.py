"""What has another name since the tag `before-parts`: keys of configs and paths of parameters."""

import re

# A pattern of old paths -> the new path, applied in this order. A path that no pattern matches keeps its name.
PATHS: dict[str, str] = {}
# Configs in which a program has another text, and why; their losses, tokens and maps are equal.
OTHER_TEXT: dict[str, str] = {}


def new_path(old: str) -> str:
    """Returns the path that a parameter has now."""
    for pattern, replacement in PATHS.items():
        old = re.sub(pattern, replacement, old)
    return old
