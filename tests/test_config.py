"""Settings load, merge, dump and complain."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.config import NO_SETTING, ConfigError, dump, dump_tables, load, read, secret, settings_of
from ostinato.types import Source

TEXT = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: text != "none")
FINITE = st.floats(allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    steps: int = 10
    rate: float = 0.5
    folder: Path = Path("runs")
    betas: tuple[float, float] = (0.9, 0.95)
    layers: tuple[int, ...] = ()
    limit: int | None = 3
    source: Source = Source.LIVE
    mode: Literal["fast", "slow", "none"] = "fast"
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError(f"steps must not be negative, got {self.steps}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    train: Train = Train()
    name: str | None = None
    quiet: bool = False


CONFIGS = st.builds(
    Run,
    name=st.none() | TEXT,
    quiet=st.booleans(),
    train=st.builds(
        Train,
        steps=st.integers(0, 2**62),
        rate=FINITE,
        folder=TEXT.filter(lambda text: "\0" not in text).map(Path),
        betas=st.tuples(FINITE, FINITE),
        layers=st.lists(st.integers(-5, 5)).map(tuple),
        limit=st.none() | st.integers(-5, 5),
        source=st.sampled_from(Source),
        mode=st.sampled_from(["fast", "slow", "none"]),
        weights=st.dictionaries(TEXT, FINITE),
    ),
)


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load(Run, None, overrides)
    return str(refused.value)


@given(CONFIGS)
def test_what_is_dumped_loads_back_equal(tmp_path_factory: pytest.TempPathFactory, config: Run) -> None:
    path = tmp_path_factory.getbasetemp() / "run.toml"
    path.write_text(dump(config))
    assert load(Run, path) == config


def test_without_anything_the_defaults_hold() -> None:
    assert load(Run) == Run()


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("quiet = true\n[train]\nsteps = 7\nrate = 1\n")
    config = load(Run, tmp_path / "run.toml", ["train.steps=8", "train.steps = 9"])
    assert config == Run(quiet=True, train=Train(steps=9, rate=1.0))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("name=ada", Run(name="ada")),
        ("name=3", Run(name="3")),
        ('name="none of it"', Run(name="none of it")),
        ("name=none", Run()),
        ("train.limit=none", Run(train=Train(limit=None))),
        ("train.source=bench", Run(train=Train(source=Source.BENCH))),
        ("train.mode=slow", Run(train=Train(mode="slow"))),
        ("train.layers=[1, 2]", Run(train=Train(layers=(1, 2)))),
        ("train.folder=a/b", Run(train=Train(folder=Path("a/b")))),
        ("train.weights={a = 1}", Run(train=Train(weights={"a": 1.0}))),
        ("train.rate=1e-5", Run(train=Train(rate=1e-5))),
    ],
)
def test_an_override_takes_the_type_of_its_field(override: str, expected: Run) -> None:
    assert load(Run, None, [override]) == expected


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.stesp=1", "unknown key 'train.stesp', did you mean 'train.steps'?"),
        ("zzzz=1", "unknown key 'zzzz', known are train, name, quiet"),
        ("train=1", "train is a table of steps"),
        ("train.steps.more=1", "train.steps: expected int, got a table"),
        ("train.steps=1.5", "train.steps: expected int, got 1.5"),
        ("train.steps=true", "train.steps: expected int, got True"),
        ("quiet=1", "quiet: expected bool, got 1"),
        ("train.betas=[1]", "train.betas: expected 2 values, got 1"),
        ("train.mode=sloow", "train.mode: expected one of 'fast', 'slow', 'none', got 'sloow'"),
        ("train.source=alive", "train.source: expected one of 'live'"),
        ("train.steps=-1", "train: steps must not be negative, got -1"),
        ("train.steps", "write it as key=value"),
    ],
)
def test_a_bad_override_is_named(override: str, message: str) -> None:
    assert override in refusal(override)
    assert message in refusal(override)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[train]\nstesp = 1", "unknown key 'train.stesp', did you mean 'train.steps'?"),
        ("[train]\nsteps = '1'", "train.steps: expected int, got '1'"),
        ("train = 1 =", "not TOML"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"run\.toml") as refused:
        load(Run, path)
    assert message in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent.toml: cannot be read: No such file"):
        load(Run, tmp_path / "absent.toml")


def test_what_toml_cannot_say_is_refused() -> None:
    with pytest.raises(ConfigError, match="name: the text 'none' would be read back as None"):
        dump(Run(name="none"))


def test_a_key_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A_KEY", raising=False)
    assert secret(None, "A_KEY") == ""
    monkeypatch.setenv("A_KEY", "from-outside")
    assert secret(None, "A_KEY") == "from-outside"
    (tmp_path / "key").write_text(" sk-1 \nanother line\n")
    assert secret(tmp_path / "key", "A_KEY") == "sk-1"


@pytest.mark.parametrize("content", ["", "\n", "  \nsk-1", None, b"\xff\xfe"])
def test_a_key_file_without_a_key_is_refused_without_repeating_it(
    tmp_path: Path, content: str | bytes | None
) -> None:
    file = tmp_path / "sk-perhaps-a-key"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match="A_KEY") as told:
        secret(file, "A_KEY")
    assert file.name not in str(told.value)


def test_a_key_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^the key file nofile cannot be read \(No such file or directory\): "
    ):
        secret(Path("nofile"), "A_KEY")
    (tmp_path / "key").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"/key cannot be read \(it is not text\): .* A_KEY"):
        secret(tmp_path / "key", "A_KEY")
    (tmp_path / "key").write_text("\n")
    with pytest.raises(ConfigError, match="/key is empty"):
        secret(tmp_path / "key", "A_KEY")


@pytest.mark.parametrize("key", ["9f3c2a" * 6, "aGVsbG8/d29ybGQ", "ost_x"])
def test_a_key_in_the_place_of_its_file_is_not_repeated(key: str) -> None:
    with pytest.raises(ConfigError, match="the key file cannot be read") as told:
        secret(Path(key), "A_KEY")
    assert key not in str(told.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    hosts: tuple[str, ...] = field(default=(), metadata={"flag": "--host"})
    key: str = field(default="", metadata=NO_SETTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(Base):
    """The settings of a process in this test."""

    store: str
    """where the record is,
    100 % of it"""
    train: Train = field(default_factory=lambda: Train(steps=7))
    quiet: bool = False
    python: str | None = None


def settings(*arguments: str) -> Process:
    return settings_of(Process, arguments, "python -m process", None)


def test_flags_are_the_fields_of_the_settings_and_of_those_nested_in_them() -> None:
    assert settings("--store", "a.db") == Process(store="a.db")
    flags = ("--host", "a", "--host", "b", "--quiet", "--python", "other", "--steps", "3", "--mode", "none")
    wanted = Process(
        store="7", hosts=("a", "b"), quiet=True, python="other", train=Train(steps=3, mode="none")
    )
    assert settings("--store", "7", *flags) == wanted


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "the command line: store must be given"),
        (("--store", "x", "--steps", "-1"), "train: steps must not be negative, got -1"),
        (("--store", "x", "--steps", "many"), "train.steps: expected int"),
        (("--store", "x", "--key", "k"), "unrecognized arguments: --key"),
        (("--config", "x.toml", "--store", "x"), "--config goes with --table alone"),
    ],
)
def test_a_wrong_command_line_is_refused_with_status_2(
    flags: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        settings(*flags)
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_the_help_of_a_flag_is_the_text_under_its_field(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings("--help")
    assert "where the record is, 100 % of it" in capsys.readouterr().out


def test_a_process_reads_its_own_table_and_no_secret_is_written(tmp_path: Path) -> None:
    one = Process(store="a.db", hosts=("a",), train=Train(limit=None), key="of the environment")
    text = dump_tables({"engine-1": one, "engine-2": replace(one, store="b.db")})
    (path := tmp_path / "processes.toml").write_text(text)
    assert "environment" not in text
    for name, store in (("engine-1", "a.db"), ("engine-2", "b.db")):
        assert settings("--config", str(path), "--table", name) == replace(one, key="", store=store)
    with pytest.raises(ConfigError, match=r"processes.toml: there is no table \[engine-3\]"):
        load(Process, path, table="engine-3")
    path.write_text(text.replace('store = "a.db"', 'store = "a.db"\nkey = "k"'))
    with pytest.raises(ConfigError, match="unknown key 'key'"):
        load(Process, path, table="engine-1")


def test_a_table_changes_single_values_of_a_default(tmp_path: Path) -> None:
    (path := tmp_path / "c.toml").write_text('store = "a"\n[train]\nrate = 0.25\n')
    assert load(Process, path).train == Train(steps=7, rate=0.25)


def test_json_is_read_with_null_and_lists_of_tables() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Outer:
        runs: tuple[Train, ...] = ()
        best: Train | None = None

    values = json.loads(json.dumps(asdict(Outer(runs=(Train(steps=1), Train()))), default=str))
    assert read(Outer, values, "stages/x.json") == Outer(runs=(Train(steps=1), Train()))
    with pytest.raises(ConfigError, match=r"stages/x.json: runs: .*unknown key 'step'"):
        read(Outer, {"runs": [{"step": 1}]}, "stages/x.json")
