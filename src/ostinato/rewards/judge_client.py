"""The client of every judge that is a language model: one question, one JSON object as the answer.

The judge lies behind any OpenAI-compatible address. What it does not answer is never a verdict:
`NoVerdictError` says whether it is away, refused, slow, or answered rubbish, and the caller leaves the fact
out.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import aiohttp

PATIENCE_S = 30.0
OBJECT = re.compile(r"\{[^{}]*\}")


class NoVerdictError(Exception):
    """The judge gave no usable answer; the message says why."""


class JudgeClient:
    """A language model at an OpenAI-compatible address, asked at temperature 0.

    `JudgeClient(http, "http://127.0.0.1:8000/v1", "qwen3")`
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        url: str,
        model: str,
        key: str = "",
        *,
        max_tokens: int = 100,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.name = f"model/{model}"
        self._http = http
        self._url = url.rstrip("/") + "/chat/completions"
        self._model = model
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._max_tokens = max_tokens
        self._timeout = aiohttp.ClientTimeout(total=patience_s)

    async def ask(self, task: str, data: object) -> Mapping[str, Any]:
        """Return the JSON object of the answer, the last one in it, since a model may think aloud before it.

        `task` says what is to be judged, and `data` is what: it is sent as JSON, so that nothing in it can be
        taken for the task. Raises NoVerdictError.
        """
        body = {
            "model": self._model,
            "temperature": 0,
            "max_tokens": self._max_tokens,
            "messages": [
                {"role": "system", "content": task},
                {"role": "user", "content": json.dumps(data, ensure_ascii=False)},
            ],
        }
        try:
            async with self._http.post(
                self._url, json=body, headers=self._headers, timeout=self._timeout
            ) as response:
                if not response.ok:
                    raise NoVerdictError(f"the judge answered with status {response.status}")
                return _object(await response.json(content_type=None))
        except TimeoutError as error:
            raise NoVerdictError(f"the judge took more than {self._timeout.total:g} s") from error
        except aiohttp.ClientError as error:
            raise NoVerdictError(f"the judge is away: {type(error).__name__}") from error
        except ValueError as error:
            raise NoVerdictError("the judge's reply is no JSON") from error


def _object(answer: Any) -> Mapping[str, Any]:
    try:
        said = answer["choices"][0]["message"]["content"]
        found = [json.loads(text) for text in OBJECT.findall(said)[-1:]]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise NoVerdictError("the judge answered with no JSON object") from error
    if not found:
        raise NoVerdictError("the judge answered with no JSON object")
    return dict(found[0])
