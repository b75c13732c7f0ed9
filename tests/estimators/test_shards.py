"""An iteration that is credited in shards has the bits of the whole."""

import pickle

import numpy as np
import pytest

from ascribe import StepTable, recipe
from ascribe.estimators.shards import credit_shard, join_shards, split_shards
from tests.archives.test_archives import steps


@pytest.mark.parametrize("name", ["bipace_q", "sbc"])
def test_shards_give_the_bits_of_the_whole(name: str):
    columns = steps(20, width=8)
    vectors = np.array(columns.pop("fingerprint"), dtype=np.float16)
    del columns["note"]
    table = StepTable.from_columns(columns)
    estimator = recipe(name)
    whole = estimator(table, fingerprints=vectors)
    parts = split_shards(table, table.group.codes % 3, estimator)
    shards = [
        pickle.loads(pickle.dumps(credit_shard(part, estimator, vectors[rows])))
        for rows, part in parts
    ]
    joined = join_shards([rows for rows, _ in parts], shards)
    assert (joined.advantage == whole.advantage).all()
    assert (joined.reason == whole.reason).all()
    assert joined.metrics == whole.metrics
    for term in whole.terms:
        assert (joined.terms[term].values == whole.terms[term].values).all()
        _, first = np.unique(joined.terms[term].labels, return_index=True)
        assert first.size == np.unique(whole.terms[term].labels).size


def test_a_group_in_two_shards_is_refused():
    columns = steps(4)
    del columns["note"]
    table = StepTable.from_columns(columns)
    with pytest.raises(ValueError, match="'task 0' is in several shards, and 3 more are"):
        split_shards(table, np.arange(len(table)) % 2, recipe("gigpo"))
    with pytest.raises(ValueError, match="several groups"):
        split_shards(table, table.group.codes, recipe("reinforce_pp"))
