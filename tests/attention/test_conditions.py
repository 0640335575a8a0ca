"""Every entry of the tables within shard_map, on a mesh of Explicit axes, with 64 bits and in bfloat16."""

import pytest
from conditions import CONDITIONS, ENTRIES, RUN


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_value_and_gradient_of_an_entry(condition, name):
    CONDITIONS[condition](ENTRIES[name], run=name in RUN)
