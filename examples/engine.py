"""An engine: the embedded one, which takes fewer requests at a time at night.

[engine]
backend = "quiet"
"""

import time

import ostinato as o
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.model.checkpoint import load


@o.engine_backend("quiet")
async def quiet(config: o.EngineServerConfig) -> EmbeddedEngine:
    """Return an engine with a quarter of the slots between 22 and 6 o'clock."""
    decoder, tokenizer, meta = load(config.checkpoint)
    night = not 6 <= time.localtime().tm_hour < 22
    return EmbeddedEngine(
        decoder,
        version=meta.version,
        slots=max(1, config.slots // 4) if night else config.slots,
        max_len=config.max_len,
        model=config.checkpoint.name,
        tokenizer=tokenizer.digest,
    )
