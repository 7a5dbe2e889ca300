"""A trainer is taken to hang when a batch was there all the while and no version came."""

from ostinato.loop.stages.practise import Stalled


def test_a_trainer_with_a_batch_and_without_a_version_is_noticed_once_per_limit() -> None:
    now = [0.0]
    stalled = Stalled(batch=3, limit_s=10.0, clock=lambda: now[0])

    def at(second: float, version: int, groups: int) -> bool:
        now[0] = second
        return stalled.notice(version, groups)

    assert not at(1.0, 0, 3)
    assert not at(10.9, 0, 5)
    assert at(11.1, 0, 5)
    assert not at(12.0, 0, 5) and at(21.2, 0, 5)
    assert not at(31.0, 1, 5), "a version came"
    assert not at(40.0, 1, 2), "it waits for sampling"
    assert not at(49.0, 1, 3) and at(51.0, 1, 3)
