"""The hashed embedding: words of prose find the identifiers made of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ostinato.search.chunks import Chunk
from ostinato.search.embed import HashedEmbedding, words


def scores(query: str, *texts: str, paths: tuple[str, ...] = ()) -> list[float]:
    embedding = HashedEmbedding()
    pieces = [Chunk(first=1, last=1, name="", text=text) for text in texts]
    return embedding.scorer(embedding.encode(pieces), paths or ("",) * len(texts))(query).tolist()


def test_identifiers_are_split_into_words():
    assert words("parseHTTPHeader") == words("parse http header") == words("PARSE_HTTP_HEADERS")


def test_prose_finds_the_identifier():
    right, wrong = scores("where do we parse the header?", "def parse_header(line)", "def total(coins)")
    assert right > 0 == wrong


def test_rare_words_weigh_more_than_common_ones():
    common, rare = scores("till coins", "till", "coins", *["till"] * 1)[:2]
    assert rare > common


def test_names_of_files_count():
    first, second = scores("calc", "x", "x", paths=("shop/calc.py", "shop/other.py"))
    assert first > second == 0


def test_an_empty_tree_is_no_error():
    assert HashedEmbedding().scorer([], [])("anything").shape == (0,)
    assert scores("?!", "text") == [0.0]


@given(st.lists(st.text(max_size=50), max_size=5), st.text(max_size=50))
def test_scores_are_finite_and_repeatable(texts, query):
    found = scores(query, *texts)
    assert np.isfinite(found).all() and min(found, default=0) >= 0
    assert found == scores(query, *texts)
