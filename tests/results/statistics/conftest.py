"""Settings of the tests of statistics."""

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def _garbage_is_frozen() -> None:
    """Leave what other tests loaded to no collection: statsmodels collects all garbage at every correction."""
    gc.freeze()
