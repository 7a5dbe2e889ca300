"""Nouns survive their conversion to rows to the bit."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.builders import INTS, SAMPLES, SESSIONS, SIGNALS, TURNS, group

from ostinato.store.sql.row_conversion import (
    group_of,
    group_row,
    pack_floats,
    pack_ints,
    pack_runs,
    sample_of,
    sample_row,
    session_of,
    session_row,
    signal_of,
    signal_row,
    turn_of,
    turn_row,
    unpack_runs,
)
from ostinato.types import Checkpoint, Sample, Session, Signal, Turn


@given(TURNS)
def test_turns_come_back(turn: Turn) -> None:
    assert turn_of(turn_row(turn)) == turn


@given(SIGNALS)
def test_signals_come_back(signal: Signal) -> None:
    assert signal_of(signal_row(signal)) == signal


@given(SESSIONS)
def test_sessions_come_back(session: Session) -> None:
    assert session_of(session_row(session)) == session


@given(SAMPLES)
def test_samples_come_back(sample: Sample) -> None:
    assert sample_of(sample_row("g1", 0, sample)) == sample


def test_groups_come_back() -> None:
    live = replace(group("g1"), kind="fix", trees=(("s1",), ("s2",)), person="9d1c", weight=0.1)
    for each in (group("g1"), live):
        assert group_of(group_row(each), each.samples) == each


@given(st.lists(INTS))
def test_runs_come_back(values: list[int]) -> None:
    assert unpack_runs(pack_runs(values)) == tuple(values)


def test_the_layout_is_little_endian_on_every_machine() -> None:
    assert pack_ints((1, -2)) == b"\x01\0\0\0\xfe\xff\xff\xff"
    assert pack_floats((1.0,)) == b"\0\0\x80\x3f"
    assert pack_runs((7, 7, 7)) == b"\x07\0\0\0\x03\0\0\0"


def test_a_version_is_an_anchor_or_a_delta() -> None:
    with pytest.raises(ValueError, match="version 1: kind must be"):
        Checkpoint(version=1, parent=None, digest="9f", kind="full", bytes=1, created_at=0.0, batch=())
