"""Runs keep linear algebra to their own threads, and leave the process as they found it."""

import pytest
from test_sampling import Y, groups
from threadpoolctl import threadpool_info

import autoreparam as ar
from autoreparam.errors import AutoreparamError
from autoreparam.run.blas import one_thread


def counts():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


ONE = [1] * len(counts())


def test_the_last_of_several_blocks_restores_what_the_first_found():
    before, first, second = counts(), one_thread(), one_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert counts() == ONE
    second.__exit__(None, None, None)
    assert counts() == before


def test_a_run_restores_the_threads_even_if_it_fails():
    before, seen = counts(), []

    def model(y):
        seen.append(counts())
        groups(y)

    ar.sample(model, (Y,), draws=20, warmup=20, chains=2, progress=False)
    assert ONE in seen
    assert counts() == before
    with pytest.raises(AutoreparamError):
        ar.sample(model, (Y[:-1], 1), draws=20, warmup=20, progress=False)
    assert counts() == before
