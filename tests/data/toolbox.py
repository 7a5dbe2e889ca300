"""Small trees, and a tokenizer with marks: what the tests of this room build corpora from."""

import io
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from ostinato.model.tokenizer import Tokenizer as Ours

MIT = "MIT License\n\nPermission is hereby granted, free of charge, to any person obtaining a copy\n"
MARKS = (
    "<|endoftext|>",
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|fim_middle|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<|im_start|>",
    "<|im_end|>",
)


def program(number: int) -> str:
    """Return a file that is like no other one."""
    words = [f"word{number}x{place}" for place in range(30)]
    return "".join(f"def {word}(value):\n    return value + {len(word)}\n" for word in words)


def repository(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Make a git repository with one commit."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)
    return folder


def archive(path: Path, files: Mapping[str, str]) -> Path:
    """Make a source archive of the kind that the path's suffix says."""
    if path.suffix in (".zip", ".whl"):
        with zipfile.ZipFile(path, "w") as zipped:
            for name, text in files.items():
                zipped.writestr(name, text)
        return path
    with tarfile.open(path, "w:gz") as tarred:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tarred.addfile(info, io.BytesIO(text.encode()))
    return path


@cache
def encoder(marks: tuple[str, ...] = MARKS) -> Ours:
    """Return a tokenizer of bytes, in the form of byte-level BPE, with special tokens."""
    alphabet = {char: id for id, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE(alphabet, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)  # type: ignore[assignment]
    inner.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    inner.add_special_tokens([AddedToken(text, special=True) for text in marks])
    return Ours(inner)


def load(_: Path) -> Any:
    return encoder()


def no_tasks(_: Path) -> tuple[str, ...]:
    return ()
