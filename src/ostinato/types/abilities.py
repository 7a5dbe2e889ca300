"""What an engine can do, which a gateway learns from it before the first request."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """The description of one engine: the model it serves and the requests it can honour.

    >>> Abilities(model="SmolLM2", sampling=frozenset({"top_p"})).lacks(("min_p", "top_p"))
    ('min_p',)
    """

    model: str = ""
    """The name of the served model; empty when the engine has none, as a script has."""
    tokenizer: str = ""
    """The digest of the tokenizer whose ids it reads and samples; empty when it is not known."""
    context: int = 0
    """The most tokens of prompt and completion together; 0 when nothing limits them."""
    sampling: frozenset[str] = frozenset()
    """The names of the fields of `Sampling` that it honours beside the temperature and the seed."""
    token_ids: bool = True
    """It returns the ids that it sampled. Without them a turn is served and recorded, and never trained."""
    logprobs: bool = True
    """It returns the log-probability of each token. Without them a turn is never trained."""
    routes: bool = False
    """It returns the experts that each token went through."""

    def lacks(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of the fields of `Sampling` in `names` that this engine cannot honour."""
        return tuple(name for name in names if name not in self.sampling)
