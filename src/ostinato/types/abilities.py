"""What an engine can do, which a gateway learns from it before the first request."""

from dataclasses import dataclass

from ostinato.types.turn import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """The description of one engine: the model it serves and the requests it can honour.

    >>> Abilities(sampling=frozenset({"top_p"})).lacks(Sampling(top_p=0.9, min_p=0.1))
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
    structures: frozenset[str] = frozenset()
    """The kinds of `Structure` that it can hold a completion to."""
    token_ids: bool = True
    """It returns the ids that it sampled. Without them a turn is served and recorded, and never trained."""
    logprobs: bool = True
    """It returns the log-probability of each token. Without them a turn is never trained."""
    tempered: bool = True
    """Its log-probabilities are of the distribution drawn from, whatever the settings. Without it they are
    those of temperature 1, and a turn sampled at another temperature is never trained."""
    routes: bool = False
    """It returns the experts that each token went through."""

    def lacks(self, sampling: Sampling) -> tuple[str, ...]:
        """Return the names of the settings that this engine cannot honour."""
        kind = () if sampling.structure is None else (sampling.structure.kind.value,)
        return (
            *(name for name in sampling.bent if name not in self.sampling),
            *(name for name in kind if name not in self.structures),
        )
