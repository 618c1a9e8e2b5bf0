"""Which job is next."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from telegrammer.store.queue import Queued
from telegrammer_dispatcher.lanes import Lanes


def filled(*jobs: tuple[int, int]) -> Lanes:
    """Return lanes with these jobs: id, lane."""
    lanes = Lanes()
    lanes.add(Queued(*job) for job in jobs)
    return lanes


def one_each(count: int) -> Lanes:
    return filled(*((lane, lane) for lane in range(1, count + 1)))


def take_all(lanes: Lanes, now: float = 100) -> list[tuple[int, int]]:
    taken: list[tuple[int, int]] = []
    while (job := lanes.take(now)) is not None:
        taken.append(job)
    return taken


def test_a_lane_gives_one_job_at_a_time_the_oldest_first() -> None:
    lanes = filled((1, 7), (2, 7), (3, 8), (4, 7))
    assert take_all(lanes) == [(1, 7), (3, 8)]
    assert not lanes.has_due(100)

    lanes.done(7)
    assert take_all(lanes) == [(2, 7)]
    lanes.done(7)
    assert take_all(lanes) == [(4, 7)]


def test_a_lane_that_is_done_with_all_its_jobs_may_get_new_ones() -> None:
    lanes = filled((1, 7))
    assert take_all(lanes) == [(1, 7)]
    lanes.done(7)
    assert take_all(lanes) == []

    lanes.add([Queued(2, 7), Queued(3, 7)])

    assert take_all(lanes) == [(2, 7)]


def test_a_lane_that_has_just_finished_goes_behind_the_others() -> None:
    lanes = filled((1, 1), (2, 2), (3, 3), (4, 1))
    assert lanes.take(100) == (1, 1)

    lanes.done(1)

    assert take_all(lanes) == [(2, 2), (3, 3), (4, 1)]


def test_lanes_come_in_sweeps_by_id_whatever_the_order_in_which_they_finish() -> None:
    lanes = filled(*((job, (job - 1) % 6 + 1) for job in range(1, 13)))
    assert [lanes.take(100) for _ in range(4)] == [(1, 1), (2, 2), (3, 3), (4, 4)]

    for lane in (3, 1, 4, 2):
        lanes.done(lane)

    assert take_all(lanes) == [(5, 5), (6, 6), (7, 1), (8, 2), (9, 3), (10, 4)]


@given(st.data(), st.integers(2, 8))
def test_no_ready_lane_waits_for_more_than_two_sweeps(data: st.DataObject, slots: int) -> None:
    """Whatever the order in which others finish and are at once ready again."""
    lanes = filled(*((job, job % 10) for job in range(1, 1000)))
    running: list[int] = []
    ready_since = dict.fromkeys(range(10), 0)
    for takes in range(60):
        if len(running) == slots:
            finished = running.pop(data.draw(st.integers(0, slots - 1)))
            lanes.done(finished)
            ready_since[finished] = takes
        taken = lanes.take(100)
        assert taken is not None
        running.append(taken.subscription_id)
        del ready_since[taken.subscription_id]

        assert all(takes - since < 20 for since in ready_since.values())


def test_a_delayed_lane_comes_with_its_job_when_the_wall_clock_shows_its_time() -> None:
    lanes = filled((1, 1), (2, 2), (3, 1), (4, 2))
    take_all(lanes)
    lanes.delay(1, 160)
    lanes.delay(2, 130)
    assert lanes.next_due() == 130
    assert lanes.take(129.9) is None

    assert take_all(lanes, now=130) == [(2, 2)]
    assert lanes.next_due() == 160
    assert take_all(lanes, now=200) == [(1, 1)]
    assert lanes.next_due() is None


def test_new_jobs_wait_behind_a_delayed_one() -> None:
    lanes = filled((1, 1))
    take_all(lanes)
    lanes.delay(1, 160)

    lanes.add([Queued(2, 1)])

    assert take_all(lanes, now=159) == []
    assert take_all(lanes, now=160) == [(1, 1)]


def test_a_reload_looks_at_delayed_lanes_anew() -> None:
    lanes = filled((1, 1), (2, 2))
    take_all(lanes)
    lanes.delay(1, 160)
    lanes.done(2)

    lanes.reload([Queued(1, 1)])

    assert take_all(lanes) == [(1, 1)]
    assert lanes.next_due() is None


def test_a_reload_leaves_busy_lanes_alone() -> None:
    """One is busy with a job that still stands, the other with one that is gone."""
    lanes = filled((1, 1), (2, 2), (3, 1), (4, 2))
    assert take_all(lanes) == [(1, 1), (2, 2)]

    lanes.reload([Queued(1, 1), Queued(3, 1), Queued(4, 2)])
    assert lanes.take(100) is None
    lanes.done(1)
    lanes.done(2)

    assert take_all(lanes) == [(3, 1), (4, 2)]


def test_a_reload_forgets_what_is_gone() -> None:
    lanes = filled((1, 1), (2, 2), (3, 2))

    lanes.reload([Queued(3, 2)])

    assert take_all(lanes) == [(3, 2)]


def test_a_revived_job_comes_before_the_younger() -> None:
    lanes = filled((2, 1), (3, 1))
    lanes.reload([Queued(1, 1), Queued(2, 1), Queued(3, 1)])

    assert take_all(lanes) == [(1, 1)]


def test_a_revived_job_does_not_wait_with_a_younger_that_is_delayed() -> None:
    lanes = filled((2, 1))
    assert take_all(lanes) == [(2, 1)]
    lanes.reload([Queued(1, 1), Queued(2, 1)])

    lanes.delay(1, 160)

    assert take_all(lanes) == [(1, 1)]
    lanes.done(1)
    assert take_all(lanes) == [(2, 1)]


def test_what_a_failed_transaction_took_and_finished_stands_where_it_stood() -> None:
    """Lane 1 ended, was done and taken again; lane 2 ended and had no other job."""
    lanes = filled((1, 1), (2, 2), (3, 1), (4, 3))
    take_all(lanes)
    lanes.done(1)
    lanes.done(2)
    again = lanes.take(100)
    assert again == (3, 1)

    lanes.put_back(again)
    lanes.hold(Queued(1, 1))
    lanes.hold(Queued(2, 2))

    assert take_all(lanes) == []
    lanes.done(1)
    lanes.delay(2, 110)
    assert take_all(lanes) == [(3, 1)]
    assert take_all(lanes, now=110) == [(2, 2)]


class Whatever(RuleBasedStateMachine):
    """Whatever happens in whatever order, against the table of live jobs as the model."""

    def __init__(self) -> None:
        super().__init__()
        self.table = [Queued(job, job % 4) for job in range(1, 9)]
        self.newest = 8
        self.lanes = Lanes()
        self.lanes.add(self.table)
        self.busy: list[Queued] = []
        self.now = 0

    @rule()
    def take(self) -> None:
        if (taken := self.lanes.take(self.now)) is not None:
            lane = taken.subscription_id
            assert lane not in {job.subscription_id for job in self.busy}
            assert taken.id == min(job.id for job in self.table if job.subscription_id == lane)
            self.busy.append(taken)

    @precondition(lambda self: self.busy)
    @rule(which=st.integers(0, 3))
    def finish(self, which: int) -> None:
        job = self.busy.pop(which % len(self.busy))
        self.table.remove(job)
        self.lanes.done(job.subscription_id)

    @precondition(lambda self: self.busy)
    @rule(which=st.integers(0, 3), seconds=st.integers(1, 5))
    def delay(self, which: int, seconds: int) -> None:
        job = self.busy.pop(which % len(self.busy))
        self.lanes.delay(job.subscription_id, self.now + seconds)

    @rule(ended=st.integers(0, 4), claims=st.integers(0, 4))
    def fail_in_a_transaction(self, ended: int, claims: int) -> None:
        for job in self.busy[:ended]:
            self.lanes.done(job.subscription_id)
        claimed = [self.lanes.take(self.now) for _ in range(claims)]
        for taken in filter(None, claimed):
            self.lanes.put_back(taken)
        for job in self.busy[:ended]:
            self.lanes.hold(job)

    @rule(lane=st.integers(0, 3), skipped=st.integers(0, 2))
    def add(self, lane: int, skipped: int) -> None:
        self.newest += 1 + skipped
        self.table.append(Queued(self.newest, lane))
        self.lanes.add(self.table[-1:])

    @rule()
    def reload(self) -> None:
        self.lanes.reload(self.table)

    @rule(seconds=st.integers(1, 3))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds

    def teardown(self) -> None:
        """None is lost, none comes twice, and each lane keeps its order."""
        while self.busy:
            self.finish(0)
        left: dict[int, list[int]] = {}
        self.now += 100
        while (taken := self.lanes.take(self.now)) is not None:
            left.setdefault(taken.subscription_id, []).append(taken.id)
            self.lanes.done(taken.subscription_id)
        for lane in range(4):
            wanted = [job.id for job in self.table if job.subscription_id == lane]
            assert left.get(lane, []) == wanted


TestWhatever = Whatever.TestCase
