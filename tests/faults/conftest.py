"""A server of commands, and a run that is never stopped."""

import pytest
from launch_server import Server
from runs_killed import command


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="session")
def whole(server, tmp_path_factory):
    """A run that is never stopped."""
    workdir = tmp_path_factory.mktemp("runs") / "whole"
    result = server.run(*command(workdir))
    assert result.code == 0, result.err
    return workdir
