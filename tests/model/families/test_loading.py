"""Covers model/families/loading.py: which renderer a checkpoint gets, and which is refused."""

from pathlib import Path

import pytest
from tests.model.families.toolbox import CHATML, checkpoint

from ostinato.model.families import HermesRenderer, RenderError, load_renderer
from ostinato.model.template import CHAT_TEMPLATE
from ostinato.model.tokenizer import TokenizerError


def test_our_own_template_has_its_own_renderer(tmp_path: Path) -> None:
    assert isinstance(load_renderer(checkpoint(tmp_path, CHAT_TEMPLATE)), HermesRenderer)


def test_the_template_may_lie_in_its_own_file(tmp_path: Path) -> None:
    (checkpoint(tmp_path, None) / "chat_template.jinja").write_text(CHATML)
    assert load_renderer(tmp_path).stop_ids


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (None, "has no chat template"),
        ("{% for", "is no Jinja"),
        (
            "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}",
            "no control token ends",
        ),
        ("{{ raise_exception('never') }}", "never"),
        ("hello", "does not write what an assistant said"),
        ("{{ ''.__class__.__mro__ }}", "refused|cannot write"),
        (
            "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}<|im_end|>"
            "{% endif %}{% endfor %}",
            "does not write a person's message whole",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, template: str | None, reason: str
) -> None:
    with pytest.raises(RenderError, match=reason) as caught:
        load_renderer(checkpoint(tmp_path, template))
    assert str(tmp_path) in str(caught.value)


def test_a_directory_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=str(tmp_path)):
        load_renderer(tmp_path)
