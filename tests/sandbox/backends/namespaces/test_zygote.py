"""The zygote loads little: every page that it has written is one that a fork may have to copy.

Covers sandbox/backends/namespaces/zygote.py; its orders, exams and deaths are in tests/sandbox/test_pool.py.
"""

import subprocess
import sys

LARGE = ("asyncio", "http.client", "ssl", "httpx", "starlette", "numpy", "torch")


def test_the_zygote_imports_no_large_module() -> None:
    code = (
        "import sys; from ostinato.sandbox.backends.namespaces import zygote; "
        f"print([name for name in {LARGE} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
