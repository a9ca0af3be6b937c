"""The C++ cache decides as the plain Python one does: outcome, line and all state, access by access."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

import numpy as np
import pytest
from cache_support import POLICIES, add_insertions, host_cache, policy_name, reference_cache, whole_state
from hypothesis import given, settings
from hypothesis import strategies as st

from bam.cache.geometry import MAX_PAGE_ID
from bam.cache.host import HostCache
from bam.cache.page_cache import NEVER, Acquired, Outcome, PolicyKind
from bam.cache.policies import LAST_INSERTION
from bam.cache.reference import ReferenceCache


@dataclass(frozen=True)
class Step:
    """One thing a user of a cache does; `pick` says to which of the lines held."""

    action: str  # acquire | publish | fail | unpin | note_use | forget_uses
    page: int
    next_use: int
    pick: int


@dataclass
class Lockstep:
    """Drives several caches with the same steps and compares what they answer."""

    caches: list[HostCache | ReferenceCache]
    claimed: list[int] = field(default_factory=list)
    pinned: list[int] = field(default_factory=list)
    outcomes: list[Acquired] = field(default_factory=list)

    def run(self, step: Step) -> None:
        if step.action == "acquire":
            self._acquire(step)
        elif step.action == "note_use":
            self._each("note_use", step.page, step.next_use)
        elif step.action == "forget_uses":
            self._each("forget_uses", step.pick, step.next_use)
        elif step.action == "unpin" and self.pinned:
            self._each("unpin", self.pinned.pop(step.pick % len(self.pinned)))
        elif step.action in ("publish", "fail") and self.claimed:
            line_id = self.claimed.pop(step.pick % len(self.claimed))
            self._each(step.action, line_id, *([errno.EIO] if step.action == "fail" else []))
            self.pinned.append(line_id)

    def _acquire(self, step: Step) -> None:
        answers = [cache.acquire(step.page, step.next_use) for cache in self.caches]
        assert all(answer == answers[0] for answer in answers)
        acquired = answers[0]
        self.outcomes.append(acquired)
        if acquired.line_id is not None:
            held = self.claimed if acquired.outcome is Outcome.CLAIMED else self.pinned
            held.append(acquired.line_id)

    def _each(self, method: str, *arguments: int) -> None:
        for cache in self.caches:
            getattr(cache, method)(*arguments)


def pair(n_lines: int, policy: PolicyKind, seed: int) -> list[HostCache | ReferenceCache]:
    return [host_cache(n_lines, policy, seed), reference_cache(n_lines, policy, seed)]


def random_steps(n: int, n_pages: int, rng: np.random.Generator) -> list[Step]:
    """Steps of a user who mostly finishes what was begun, and sometimes holds on to it for long."""
    actions = rng.choice(
        ["acquire", "publish", "fail", "unpin", "note_use", "forget_uses"],
        p=[0.4, 0.2, 0.02, 0.3, 0.07, 0.01],
        size=n,
    )
    # few popular pages and many others
    pages = (n_pages * rng.random(n) ** 3).astype(int)
    uses = np.where(rng.random(n) < 0.1, -1, rng.integers(0, 1000, n))
    picks = rng.integers(0, 1000, n)
    return [
        Step(str(action), page, NEVER if use < 0 else use, pick)
        for action, page, use, pick in zip(
            actions, pages.tolist(), uses.tolist(), picks.tolist(), strict=True
        )
    ]


steps = st.builds(
    Step,
    action=st.sampled_from(
        ["acquire", "acquire", "publish", "fail", "unpin", "unpin", "note_use", "forget_uses"]
    ),
    page=st.one_of(st.integers(0, 12), st.integers(MAX_PAGE_ID - 3, MAX_PAGE_ID)),
    next_use=st.one_of(st.integers(0, 30), st.sampled_from([NEVER - 1, NEVER])),
    pick=st.integers(0, 40),
)


@pytest.mark.parametrize("policy", POLICIES, ids=policy_name)
@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    n_lines=st.sampled_from([1, 2, 3, 5, 33, 66]),
    seed=st.sampled_from([0, 1, 2**64 - 1]),
    taken=st.lists(steps, max_size=150),
)
def test_any_steps(policy: PolicyKind, n_lines: int, seed: int, taken: list[Step]) -> None:
    caches = pair(n_lines, policy, seed)
    lockstep = Lockstep(caches)
    for step in taken:
        lockstep.run(step)
        assert whole_state(caches[0]) == whole_state(caches[1])


@pytest.mark.parametrize("policy", POLICIES, ids=policy_name)
@pytest.mark.parametrize(("n_lines", "n_pages"), [(1, 5), (4, 12), (32, 120), (101, 400)])
def test_long_runs(policy: PolicyKind, n_lines: int, n_pages: int) -> None:
    caches = pair(n_lines, policy, seed=12345)
    lockstep = Lockstep(caches)
    for number, step in enumerate(random_steps(6000, n_pages, np.random.default_rng(n_lines))):
        lockstep.run(step)
        if number % 16 == 0:
            assert whole_state(caches[0]) == whole_state(caches[1])
    seen = {acquired.outcome for acquired in lockstep.outcomes}
    assert seen == set(Outcome), "the steps must reach every outcome"


@pytest.mark.parametrize("n_lines", [4, 32, 101])
def test_sieve_keeps_its_order_past_32_bit_insertion_numbers(n_lines: int) -> None:
    """A cache close to the last number behaves as one that is new, and numbers its sets afresh."""
    old, old_reference = pair(n_lines, PolicyKind.SIEVE, seed=0)
    new = reference_cache(n_lines, PolicyKind.SIEVE)
    lockstep = Lockstep([old, old_reference, new])
    taken = random_steps(3000, 4 * n_lines, np.random.default_rng(7))
    for step in taken[:1000]:
        lockstep.run(step)
    newest = max(whole_state(new).metas) >> 1
    for cache in (old, old_reference):
        add_insertions(cache, LAST_INSERTION - newest - 5)
    highest = 0
    for step in taken[1000:]:
        lockstep.run(step)
        state = whole_state(old)
        assert state == whole_state(old_reference)
        highest = max(highest, *(meta >> 1 for meta in state.metas))
    assert highest == LAST_INSERTION
    assert max(whole_state(old).metas) >> 1 < 2**32 - 2**30, "the sets were numbered afresh"
