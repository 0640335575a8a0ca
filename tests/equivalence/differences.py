"""What differs between two records of a config."""

from typing import Any

import numpy as np

TOLERANCE = 1e-6  # of losses, relative to the largest


def differences(before: dict[str, Any], now: dict[str, Any], numbers: bool) -> tuple[list[str], list[str]]:
    """Returns (what is wrong, programs that have another text).

    Without `numbers`, losses, weights and outputs are not compared.
    """
    wrong = []
    for name in ("outputs", "maps") if numbers else ("maps",):
        if before[name] != now[name]:
            wrong.append(f"{name}: {first_difference(before[name], now[name])}")
    for name in ("losses", "weights") if numbers else ():
        old, new = np.array(before[name]), np.array(now[name])
        if old.shape != new.shape:
            wrong.append(f"{name}: {len(old)} before, {len(new)} now")
        elif old.size and not np.allclose(new, old, rtol=0, atol=TOLERANCE * max(1.0, np.max(np.abs(old)))):
            wrong.append(f"{name} differ by {np.max(np.abs(new - old)):.1e}")
    return wrong, [name for name in ("train", "decode") if before[name] != now[name]]


def first_difference(old: Any, new: Any) -> str:
    """Words the first entry that is not the same."""
    if isinstance(old, dict):
        old, new = sorted(old.items()), sorted(new.items())
    for one, other in zip(old, new, strict=False):
        if one != other:
            return f"{one} before, {other} now"
    return f"{len(old)} entries before, {len(new)} now"
