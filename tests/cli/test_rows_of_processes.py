"""A process reads the rows of its own devices, where these are neighbours in the mesh."""

from attn_jax.cli.build import share_of_rows


def test_a_process_reads_the_rows_of_its_devices():
    assert [share_of_rows([0, 0, 1, 1, 2, 2], process) for process in range(3)] == [(0, 3), (1, 3), (2, 3)]
    assert share_of_rows([1, 0], 0) == (1, 2)  # in the order of the mesh
    assert share_of_rows([0] * 8, 0) == (0, 1)


def test_a_process_reads_all_rows_where_its_devices_are_apart_or_more_than_others():
    assert share_of_rows([0, 1, 0, 1], 1) == (0, 1)
    assert share_of_rows([0, 0, 0, 1], 1) == (0, 1)
