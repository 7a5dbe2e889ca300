"""The tokenizer: byte-level BPE in which the literal text of the harness costs one token.

A *skeleton* is a literal string that the harness writes again and again (a tool-call opening, a message
boundary, the whole system preamble). It is an added, non-special token: the text is byte for byte what any
other tokenizer of the family reads, with fewer tokens. `decode` is the exact inverse of `encode`, byte by
byte.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from ostinato.model.template import CHAT_TEMPLATE

IM_START, IM_END, END_OF_TEXT = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
SPECIALS = (END_OF_TEXT, IM_START, IM_END)
BYTES = 256
WORDS = r"\p{L}+|\p{N}+|[^\p{L}\p{N}]+"
"""The words that merges do not cross. Unlike in larger vocabularies, a word does not include the space before
it: a name is the same token in `def f(x)`, `return x` and `test_f`, so a small model recognises it by its id
alone."""
ASCII_WORDS = re.compile(r"[A-Za-z]+|[0-9]+|[^A-Za-z0-9]+")
"""The same words in text that is all ASCII."""
TAG = re.compile(r"</?[^\s<>]+>|\[/?[A-Z_]+\]")
"""An added token that is a tag, such as `<think>` or `[INST]`: control text even where it is not special."""
MOST_WORDS, LONGEST_WORD = 100_000, 64
UNKNOWN = "\ufffd".encode()
"""The text of an id beyond the vocabulary, which exists because models may pad their embedding."""


class TokenizerError(Exception):
    """A tokenizer that cannot be trained or read as asked."""


def _byte_of_char() -> dict[str, int]:
    """Return the byte-level alphabet: printable Latin-1 is itself, other bytes are U+0100 onwards."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    table = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(BYTES) if byte not in printable]
    return table | {chr(BYTES + i): byte for i, byte in enumerate(others)}


BYTE_OF_CHAR = _byte_of_char()
BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class _Words(dict[str, list[int]]):
    """A cache of the ids of words. No merge crosses a word, so its ids are the same in every place."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        super().__init__()
        self._inner = inner

    def __missing__(self, word: str) -> list[int]:
        ids: list[int] = self._inner.encode(word, add_special_tokens=False).ids
        if len(self) >= MOST_WORDS:
            self.clear()
        if len(word) <= LONGEST_WORD:
            self[word] = ids
        return ids


class Tokenizer:
    """The conversion of text to ids and back. Make one with `train` or `load`."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        self._inner = inner
        self._words = _Words(inner) if _merges_within_words(inner) else None

    @classmethod
    def train(cls, corpus: Iterable[str], vocab_size: int, skeletons: Sequence[str] = ()) -> Self:
        """Learn merges from `corpus`; at most `vocab_size` ids in all, skeletons and special tokens included.

        Raises TokenizerError when there is no room for the 256 bytes beside them.
        """
        skeletons = list(dict.fromkeys(skeletons))
        room = vocab_size - len(skeletons)
        if room < BYTES + len(SPECIALS):
            least = BYTES + len(SPECIALS) + len(skeletons)
            raise TokenizerError(
                f"vocab_size {vocab_size} is too small for {BYTES} bytes, {len(SPECIALS)} special tokens and "
                f"{len(skeletons)} skeletons: give at least {least}"
            )
        inner = tokenizers.Tokenizer(models.BPE())
        inner.pre_tokenizer = _words_as_bytes()
        inner.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=room,
            special_tokens=list(SPECIALS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        inner.train_from_iterator(_without([*skeletons, *SPECIALS], corpus), trainer)
        inner.add_tokens([AddedToken(text, normalized=False, special=False) for text in skeletons])
        return cls(inner)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read `directory/tokenizer.json`. Raises TokenizerError, which names the file."""
        path = Path(directory) / "tokenizer.json"
        try:
            return cls(tokenizers.Tokenizer.from_str(_without_added_space(path.read_text())))
        except Exception as error:  # the library raises bare Exception
            raise TokenizerError(f"{path}: cannot be read as a tokenizer: {error}") from error

    def save(self, directory: Path) -> None:
        """Write `tokenizer.json` and `tokenizer_config.json`, which Hugging Face reads too."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        self._inner.save(str(directory / "tokenizer.json"))
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": IM_END,
            "pad_token": END_OF_TEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        }
        (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")

    @cached_property
    def digest(self) -> str:
        """The digest of the vocabulary: two tokenizers share it if every id means the same text in both."""
        vocabulary = sorted(self._inner.get_vocab(with_added_tokens=True).items())
        return hashlib.blake2b(json.dumps(vocabulary).encode(), digest_size=16).hexdigest()

    @cached_property
    def id_count(self) -> int:
        """One more than the highest id."""
        return 1 + max(self._inner.get_vocab(with_added_tokens=True).values(), default=-1)

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`; special tokens and skeletons in it are recognised."""
        words = self._words
        if words is None or not text.isascii() or any(literal in text for literal in self._added):
            return list(self._inner.encode(text, add_special_tokens=False).ids)
        # One word at a time, because a search for all words of a long text would hold the interpreter lock.
        return [id_ for word in ASCII_WORDS.finditer(text) for id_ in words[word[0]]]

    def encode_untrusted(self, text: str) -> list[int]:
        """Return ids that decode to `text` without any control token, so that nobody can forge a turn."""
        starts = [found.start() + 1 for found in self._control_pattern.finditer(text)]
        if not starts:
            return self.encode(text)
        # Each piece lacks the first character of a control text, or all but the first.
        cuts = [0, *starts, len(text)]
        ids = [i for at, end in itertools.pairwise(cuts) for i in self.encode(text[at:end])]
        if not self.control_ids.isdisjoint(ids):
            raise TokenizerError("the tokenizer makes a control token of a text that does not hold it")
        return ids

    def holds_control(self, text: str) -> bool:
        """Return whether a control text is in `text`."""
        return self._control_pattern.search(text) is not None

    def first_control(self, text: str) -> str | None:
        """Return the first control text in `text`; of two that begin there, the longer."""
        found = self._control_pattern.search(text)
        return found[1] if found else None

    @cached_property
    def control_texts(self) -> tuple[str, ...]:
        """The texts that only a template may turn into their token: special ones, and tags."""
        special = [
            token.content for token in self._inner.get_added_tokens_decoder().values() if token.special
        ]
        return tuple(
            text
            for text in self._added
            if text in special or TAG.fullmatch(text) or any(one in text for one in special)
        )

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """The ids of the control texts."""
        return frozenset(self._added[text] for text in self.control_texts)

    @cached_property
    def _control_pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.control_texts, key=len, reverse=True)
        texts = "|".join(re.escape(text) for text in longest_first)
        return re.compile(f"(?=({texts}))" if texts else r"(?!)")

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`; a cut multi-byte character and an id without text become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """Return the exact bytes of `ids`."""
        table = self._bytes
        return b"".join([table[i] if i < len(table) else UNKNOWN for i in ids])

    def id_of(self, text: str) -> int | None:
        """Return the single id of a special token or skeleton; None for any other text."""
        return self._added.get(text)

    @property
    def vocab_size(self) -> int:
        return int(self._inner.get_vocab_size(with_added_tokens=True))

    @cached_property
    def _added(self) -> dict[str, int]:
        return {token.content: i for i, token in self._inner.get_added_tokens_decoder().items()}

    @cached_property
    def _bytes(self) -> list[bytes]:
        added = {i: text.encode() for text, i in self._added.items()}
        vocabulary = self._inner.get_vocab(with_added_tokens=True)
        read = _bytes_of_level if _is_byte_level(self._inner) else _bytes_of_piece
        table = [UNKNOWN] * (max(vocabulary.values(), default=-1) + 1)
        for text, i in vocabulary.items():
            table[i] = added[i] if i in added else read(text)
        return table


def _is_byte_level(inner: tokenizers.Tokenizer) -> bool:
    return "ByteLevel" in json.dumps([str(inner.decoder), str(inner.pre_tokenizer)])


def _bytes_of_level(token: str) -> bytes:
    try:
        return bytes(BYTE_OF_CHAR[char] for char in token)
    except KeyError:  # a token that was put into the vocabulary by hand
        return token.encode()


def _bytes_of_piece(token: str) -> bytes:
    """Return the bytes of a SentencePiece token: `<0xE2>` is a byte, `▁` a space."""
    if BYTE_PIECE.fullmatch(token):
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode()


def _without_added_space(text: str) -> str:
    """Return a tokenizer.json that encodes a text as it is: no space before it, nothing cut or padded.

    Prompts are encoded piece by piece, and a space before each piece would be a text that nobody wrote.
    """
    data = json.loads(text)
    data["truncation"] = data["padding"] = None
    for part in _parts(data.get("pre_tokenizer"), "pretokenizers"):
        if part["type"] == "Metaspace":
            part["prepend_scheme"] = "never"
        if part["type"] == "ByteLevel":
            part["add_prefix_space"] = False
    if isinstance(data.get("normalizer"), dict) and data["normalizer"].get("type") == "Prepend":
        data["normalizer"] = None
    elif data.get("normalizer"):
        kept = [one for one in data["normalizer"].get("normalizers", ()) if one["type"] != "Prepend"]
        if "normalizers" in data["normalizer"]:
            data["normalizer"]["normalizers"] = kept
    return json.dumps(data)


def _parts(part: dict[str, Any] | None, inside: str) -> list[dict[str, Any]]:
    """Return the parts of a normalizer or pre-tokenizer, which may be a sequence of them."""
    if part is None:
        return []
    return list(part[inside]) if part["type"] == "Sequence" else [part]


def _words_as_bytes() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _merges_within_words(inner: tokenizers.Tokenizer) -> bool:
    """Return whether its words are those of `train`, so that they can be encoded one by one."""
    model, cuts = inner.model, inner.pre_tokenizer
    if not isinstance(model, models.BPE) or model.dropout or model.ignore_merges or cuts is None:
        return False
    others = (inner.normalizer, inner.post_processor, inner.truncation, inner.padding)
    return others == (None,) * len(others) and cuts.__getstate__() == _words_as_bytes().__getstate__()


def _without(literals: Sequence[str], corpus: Iterable[str]) -> Iterator[str]:
    """Yield the pieces of `corpus` between the literals, which are one token and need no merges."""
    longest_first = sorted(literals, key=len, reverse=True)
    pattern = re.compile("|".join(re.escape(text) for text in longest_first))
    for text in corpus:
        yield from filter(None, pattern.split(text))
