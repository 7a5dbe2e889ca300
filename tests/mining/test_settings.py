from ostinato.mining.settings import pytest_arguments, with_source_path

OURS = b'[tool.pytest.ini_options]\nasyncio_mode = "auto"\nfilterwarnings = [\n    "error",\n]\n'


def test_a_repository_that_asks_for_a_plugin_gets_it() -> None:
    assert pytest_arguments({"pyproject.toml": OURS})[:2] == ("-p", "pytest_asyncio.plugin")
    assert pytest_arguments({"setup.cfg": b"[tool:pytest]\nasyncio_mode = auto\n"}) == (
        "-p",
        "pytest_asyncio.plugin",
    )
    assert pytest_arguments({"pyproject.toml": b"[tool.ruff]\n", "a.py": b"asyncio_mode = 1\n"}) == ()


def test_settings_of_absent_plugins_are_no_error_where_warnings_are() -> None:
    assert "ignore::pytest.PytestConfigWarning" in pytest_arguments({"pyproject.toml": OURS})
    ini = b"[pytest]\nfilterwarnings =\n    error\n    ignore:x\n"
    assert pytest_arguments({"pytest.ini": ini}) == ("-W", "ignore::pytest.PytestConfigWarning")
    quiet = b"[pytest]\nfilterwarnings =\n    ignore:an error\nlog_level = error\n"
    assert pytest_arguments({"pytest.ini": quiet.replace(b"an error", b"x")}) == ()


def test_a_package_below_src_is_found() -> None:
    files = {"src/a/__init__.py": b"", "pyproject.toml": OURS}
    assert b'pythonpath = ["src"]' in with_source_path(files)["pyproject.toml"]
