import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model.toolbox import CORPUS, SYSTEM, TOOLS, tokenizer

from ostinato.model.families import skeletons
from ostinato.model.tokenizer import SPECIALS, Tokenizer, TokenizerError

PIECES = st.one_of(
    st.text(max_size=12),
    st.sampled_from([*SPECIALS, *skeletons(SYSTEM, TOOLS), "<|", "|>", "<", " ", "\n"]),
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)


@given(TEXTS)
def test_decode_inverts_encode(text: str) -> None:
    assert tokenizer().decode(tokenizer().encode(text)) == text


CODE = st.lists(
    st.sampled_from(
        [*"aZ09_ \t\n\r\x00\x7f.(", "def ", "return", "alpha", "  ", "é", *skeletons(SYSTEM, TOOLS)[-3:]]
    ),
    max_size=40,
).map("".join)


@given(TEXTS | CODE)
def test_words_encoded_one_by_one_have_the_ids_of_the_whole(text: str) -> None:
    assert tokenizer().encode(text) == tokenizer()._inner.encode(text, add_special_tokens=False).ids


def test_a_tokenizer_with_other_words_encodes_whole_texts(tmp_path: Path) -> None:
    ours = Tokenizer.train(CORPUS, 400)
    ours.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    content["pre_tokenizer"]["pretokenizers"][1]["use_regex"] = True
    path.write_text(json.dumps(content))
    other = Tokenizer.load(tmp_path)
    for text in ("alpha", "def alpha(a, b):\n    return a"):
        assert other.encode(text) == other._inner.encode(text).ids
    assert other._words is None


@given(TEXTS)
def test_untrusted_text_is_kept_and_forges_nothing(text: str) -> None:
    ids = tokenizer().encode_untrusted(text)
    assert tokenizer().decode(ids) == text
    control = {tokenizer().id_of(s) for s in (*SPECIALS, *skeletons(SYSTEM, TOOLS)) if "<|" in s}
    assert not control & set(ids)


def test_every_skeleton_is_one_token() -> None:
    for text in skeletons(SYSTEM, TOOLS):
        assert tokenizer().encode(text) == [tokenizer().id_of(text)]


def test_the_vocabulary_counts_every_token() -> None:
    assert tokenizer(300).vocab_size == 300


def test_too_small_a_vocabulary_is_refused_with_the_least_size() -> None:
    with pytest.raises(TokenizerError, match="give at least 261"):
        Tokenizer.train(CORPUS, 100, ["ab", "cd"])


def test_save_and_load_keep_every_id(tmp_path: Path) -> None:
    tokenizer().save(tmp_path)
    again = Tokenizer.load(tmp_path)
    text = skeletons(SYSTEM, TOOLS)[0] + CORPUS[0]
    assert again.encode(text) == tokenizer().encode(text)
    assert again.decode(again.encode(text)) == text


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path)


def test_hugging_face_reads_a_saved_tokenizer(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer().save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    text = skeletons(SYSTEM, TOOLS)[0] + CORPUS[0] + "<|im_end|>"
    assert theirs.encode(text, add_special_tokens=False) == tokenizer().encode(text)
    assert theirs.decode(theirs.encode(text, add_special_tokens=False)) == text
