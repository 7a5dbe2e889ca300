"""The placement that a run's file asks for."""

from pathlib import Path

from ostinato.loop.placement.base import PlacementError, ServicePlacement
from ostinato.loop.placement.config import PlacementConfig
from ostinato.loop.placement.local import LocalPlacement


def open_placement(config: PlacementConfig, directory: Path, *, local_store: bool) -> ServicePlacement:
    """Return where the services of the run in `directory` live; `local_store` says that one machine alone
    can open its store.

    Raises PlacementError when Ray is not installed, or no cluster answers.
    """
    if config.kind == "local":
        return LocalPlacement()
    try:
        from ostinato.loop.placement.ray import RayPlacement
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise PlacementError(
            "[placement] kind is ray, which is not installed: pip install 'ostinato[ray]'"
        ) from error
    return RayPlacement(config, directory, local_store=local_store)
