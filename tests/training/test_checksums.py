"""The checksum of a divided array is that of the whole, and sees every changed element."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from attn_jax.training import checksums as module
from attn_jax.training.checksums import checksums, is_divided


def total(x):
    return checksums({"x": x}, {"x"})["x"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
@pytest.mark.parametrize("spec", [("a",), (None, "a"), ("b", "a"), (None, ("a", "b"))])
@pytest.mark.parametrize("piece", [1, 40, 1 << 18])
def test_however_it_is_divided(monkeypatch, dtype, spec, piece):
    monkeypatch.setattr(module, "PIECE", piece)
    whole = np.asarray(jax.random.normal(jax.random.key(0), (8, 16, 3)) * 9).astype(jax.numpy.dtype(dtype))
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
    divided = jax.device_put(whole, NamedSharding(mesh, PartitionSpec(*spec)))
    assert is_divided(divided) and not is_divided(whole)
    assert total(divided) == total(whole)


def test_every_change_of_one_element_and_every_exchange_of_two_counts():
    whole = np.arange(12, dtype=np.uint8).reshape(3, 4)
    seen = [total(whole), total(whole.reshape(4, 3)), total(whole.astype(np.int8))]
    for place in range(12):
        for bit in range(8):
            other = whole.copy()
            other.flat[place] ^= 1 << bit
            seen.append(total(other))
        for another in range(place):
            other = whole.copy()
            other.flat[[place, another]] = whole.flat[[another, place]]
            seen.append(total(other))
    assert len(set(seen)) == 3 + 12 * 8 + 66


def test_whole_arrays_have_their_crc32_as_before():
    whole = {"x": np.arange(3.0), "y": np.zeros(())}
    assert checksums(whole, set()) == {name: module.checksum(x) for name, x in whole.items()}
