"""The fixtures and settings of the library's tests hold here, too."""

from tests.conftest import good_file, pytest_runtest_call, ray_cluster

__all__ = ["good_file", "pytest_runtest_call", "ray_cluster"]
