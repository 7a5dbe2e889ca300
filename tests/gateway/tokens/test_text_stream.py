import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model.families.toolbox import ROLES, THINKING, checkpoint

from ostinato.gateway.tokens.text_stream import TextStream
from ostinato.model.families import Renderer, load_renderer


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> list[Renderer]:
    """The renderers of checkpoints with templates of their own."""
    folder = tmp_path_factory.mktemp("forms")
    ends = {ROLES: "</s>", THINKING: "<|im_end|>"}
    return [load_renderer(checkpoint(folder / str(n), *pair)) for n, pair in enumerate(ends.items())]


pieces = st.lists(
    st.sampled_from(
        [
            "<tool_call>",
            "\n",
            "<tool",
            "_call>",
            "</tool_call>",
            '{"name": "read", "arguments": {}}',
            "é",
            "<",
            "🙂",
            "ok ",
        ]
    )
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    max_size=12,
)


@given(pieces, st.booleans())
def test_streamed_text_is_the_beginning_of_the_content(
    renderer: Renderer, parts: list[str], stop: bool
) -> None:
    ids = renderer.tokenizer.encode("".join(parts))
    stream = TextStream(renderer)
    said = "".join(stream.add((i,)) for i in ids)
    if stop:
        said += stream.add(renderer.stop_ids[:1])
        ids.append(renderer.stop_ids[0])
    assert said == stream.sent
    content = renderer.parse(ids).content
    assert content.startswith(said)


@given(
    st.lists(
        st.sampled_from(["\n", "ok", "[TOOL_CALLS]", 'read[ARGS]{"a": 1}', "<think>", "</think>"]), max_size=9
    )
)
def test_newlines_before_a_call_wait_for_it(forms: list[Renderer], parts: list[str]) -> None:
    for renderer in forms:
        ids = [*renderer.tokenizer.encode("".join(parts)), renderer.stop_ids[0]]
        stream = TextStream(renderer)
        said = "".join(stream.add((i,)) for i in ids)
        assert (renderer.parse(ids).content or "").startswith(said)


def test_text_is_released_at_once_and_calls_are_held_back(renderer: Renderer) -> None:
    stream = TextStream(renderer)
    assert stream.add(renderer.tokenizer.encode("I look")) == "I look"
    assert stream.add(renderer.tokenizer.encode("\n<tool")) == ""
    assert stream.add(renderer.tokenizer.encode("box> is")) == "\n<toolbox> is"
    assert stream.add(renderer.tokenizer.encode("\n<tool_call>\n{")) == ""
    assert stream.add(renderer.tokenizer.encode("anything")) == ""


def test_a_character_of_many_tokens_is_released_whole(renderer: Renderer) -> None:
    stream = TextStream(renderer)
    parts = [stream.add((i,)) for i in renderer.tokenizer.encode("🙂")]
    assert len(parts) > 1
    assert [part for part in parts if part] == ["🙂"]
