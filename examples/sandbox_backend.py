"""A sandbox backend: the shipped one for this machine, with each sandbox counted, as a quota would.

[sandbox]
backend = "counted"
"""

import ostinato as o


class Counted:
    """Passes everything on, and counts the sandboxes that it makes."""

    name = "counted"

    def __init__(self, inner: o.Backend) -> None:
        self._inner, self.made = inner, 0
        self.capabilities, self.examine, self.aclose = inner.capabilities, inner.examine, inner.aclose

    async def create(self, spec: o.Spec) -> o.Sandbox:
        self.made += 1
        return await self._inner.create(spec)


@o.sandbox_backend("counted", advice="`ostinato doctor` says what this machine can run")
async def counted(config: o.SandboxConfig) -> o.Backend:
    return Counted(await o.choose_backend("auto"))
