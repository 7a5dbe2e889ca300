"""Forked sessions have the expected gradient of plain ones."""

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from ostinato.train.objective.tree import tree_advantages


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


class Toy:
    """A policy of one choice for the trunk and one for the branch, small enough to try everything.

    The last choice of the trunk ends the session before the fork. Everything is exact: expectations are sums
    over all outcomes, not samples.
    """

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.trunk = softmax(rng.normal(size=3))
        self.branch = [softmax(rng.normal(size=3)) for _ in range(2)]
        self.reward, self.early = rng.normal(size=(2, 3)), rng.normal()

    def trees(self, branches: int) -> list[tuple[float, int, tuple[int, ...]]]:
        """Every tree that can happen: its probability, the trunk's choice, those of its branches."""
        found = [(float(self.trunk[2]), 2, ())]
        for a, leaves in product(range(2), product(range(3), repeat=branches)):
            found.append((float(self.trunk[a] * np.prod(self.branch[a][list(leaves)])), a, leaves))
        return found

    def rewards(self, a: int, leaves: tuple[int, ...]) -> list[float]:
        return [float(self.reward[a, b]) for b in leaves] if leaves else [float(self.early)]

    def score(self, a: int, b: int | None = None) -> NDArray[np.float64]:
        """Gradient of the log-probability of one choice by all nine logits."""
        gradient = np.zeros((3, 3))
        if b is None:
            gradient[0] = np.eye(3)[a] - self.trunk
        else:
            gradient[1 + a] = np.eye(3)[b] - self.branch[a]
        return gradient

    def gradient(self) -> NDArray[np.float64]:
        """The gradient of the expected reward, written out."""
        total = self.trunk[2] * self.early * self.score(2)
        for a, b in product(range(2), range(3)):
            probability = self.trunk[a] * self.branch[a][b]
            total = total + probability * self.reward[a, b] * (self.score(a) + self.score(a, b))
        return np.asarray(total)

    def expected(self, roots: int, branches: int) -> NDArray[np.float64]:
        """The expectation of what a step computes from one group."""
        total = np.zeros((3, 3))
        for group in product(self.trees(branches), repeat=roots):
            of_trunks, of_branches = tree_advantages([self.rewards(a, leaves) for _, a, leaves in group])
            step = np.zeros((3, 3))
            for (_, a, leaves), of_trunk, each in zip(group, of_trunks, of_branches, strict=True):
                step += of_trunk * self.score(a)
                step += sum(
                    (w * self.score(a, b) for w, b in zip(each, leaves, strict=False)), np.zeros((3, 3))
                )
            total += np.prod([probability for probability, _, _ in group]) * step / roots
        return total


@pytest.mark.parametrize(("roots", "branches"), [(2, 1), (3, 1), (2, 2), (3, 2), (2, 4)])
def test_a_tree_has_the_gradient_of_plain_sampling(roots: int, branches: int) -> None:
    """Trunks and branches alike, whatever share of the sessions ends before the fork."""
    toy = Toy(roots)
    np.testing.assert_allclose(toy.expected(roots, branches), toy.gradient(), atol=1e-12)


def test_a_branch_whose_siblings_are_void_is_compared_with_the_other_trees() -> None:
    trunks, branches = tree_advantages([[1.0], [0.0, 0.5], [0.25]])
    assert trunks == pytest.approx([0.75, -0.375, -0.375])
    assert branches[0] == pytest.approx([0.75])
    assert branches[1] == pytest.approx([-0.25, 0.25])
