"""Documents as tokens: the files of a tree one after another, some of them with a hole to fill.

::

    repository   REPO name FILE path text FILE path text … END
    file         FILE path text END
    with a hole  PREFIX before SUFFIX after MIDDLE middle

The marks are the tokenizer's own, by family. Where it has none for names, a path stands in a comment of its
own line; without marks for holes, or without an end, a corpus that needs them is refused.
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ostinato.data.config import CorpusError

HOLES = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, Qwen3
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder2, SmolLM2
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM-4
)
"""The marks of prefix, suffix and middle, family by family."""
NAMES = (("<|repo_name|>", "<|file_sep|>"), ("<repo_name>", "<file_sep>"), ("<reponame>", "<file_sep>"))
"""The marks before the name of a repository and before each file's path."""
ENDS = ("<|endoftext|>", "<｜end▁of▁sentence｜>", "<|end_of_text|>", "</s>", "<eos>")


class Encoder(Protocol):
    """The parts of a tokenizer that text for training needs."""

    def encode_untrusted(self, text: str) -> list[int]:
        """Return the ids of a text without any control token."""

    def id_of(self, text: str) -> int | None:
        """Return the id of a special token; None for any other text."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""

    @property
    def control_ids(self) -> frozenset[int]:
        """The ids of the control tokens."""

    @property
    def digest(self) -> str:
        """The digest of the vocabulary."""

    @property
    def id_count(self) -> int:
        """One more than the highest id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The special tokens of a tokenizer that documents are written with; an empty tuple where it has none.

    >>> Marks(end=0).holes
    ()
    """

    end: int
    names: tuple[int, ...] = ()
    holes: tuple[int, ...] = ()

    @classmethod
    def of(cls, encoder: Encoder, *, holes: bool) -> "Marks":
        """Return the marks of a tokenizer. Raises CorpusError where one that is needed is missing."""
        ends = [id for text in ENDS if (id := encoder.id_of(text)) is not None]
        if not ends:
            raise CorpusError(
                f"the tokenizer has none of {', '.join(ENDS)}, with which a document ends: take that "
                "of a model that was pretrained on documents"
            )
        found = _found(encoder, HOLES)
        if holes and not found:
            raise CorpusError(
                "fill_in_the_middle is above 0 and the tokenizer has no tokens for it (such as "
                f"{', '.join(HOLES[0])}): set it to 0, or take a tokenizer that has them"
            )
        return cls(end=ends[0], names=_found(encoder, NAMES), holes=found)


def document(
    encoder: Encoder, marks: Marks, name: str, files: Sequence[tuple[str, str]], *, share: float, seed: int
) -> list[int]:
    """Return the tokens of some files, paths with texts, as one document of the tree `name`.

    A `share` of the files gets a hole, whose place follows from the text and the seed alone.
    """
    ids = [marks.names[0], *encoder.encode_untrusted(name)] if marks.names and len(files) > 1 else []
    for path, text in files:
        if marks.names:
            ids += [marks.names[1], *encoder.encode_untrusted(f"{path}\n")]
        else:
            ids += encoder.encode_untrusted(f"# {path}\n")
        ids += _text(encoder, marks, text, share, seed)
    return [*ids, marks.end]


def _text(encoder: Encoder, marks: Marks, text: str, share: float, seed: int) -> list[int]:
    if share:
        rng = random.Random(hashlib.sha256(f"{seed}\0{text}".encode()).digest())
        if rng.random() < share:
            first, second = sorted(rng.randrange(len(text) + 1) for _ in range(2))
            parts = text[:first], text[second:], text[first:second]
            pairs = zip(marks.holes, parts, strict=True)
            return [id for mark, part in pairs for id in (mark, *encoder.encode_untrusted(part))]
    return encoder.encode_untrusted(text)


def _found(encoder: Encoder, families: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
    """Return the ids of the first family whose marks the tokenizer has."""
    for texts in families:
        ids = [id for text in texts if (id := encoder.id_of(text)) is not None]
        if len(ids) == len(texts):
            return tuple(ids)
    return ()
