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


def take_all(lanes: Lanes, now: float = 100) -> list[tuple[int, int]]:
    """Take what is due: lane, id."""
    taken: list[tuple[int, int]] = []
    while (found := lanes.take(now)) is not None:
        taken.append(found)
    return taken


def test_a_lane_gives_one_job_at_a_time_the_oldest_first() -> None:
    lanes = filled((1, 7), (2, 7), (3, 8), (4, 7))
    assert take_all(lanes) == [(7, 1), (8, 3)]
    assert not lanes.has_due(100)

    lanes.done(7)
    assert take_all(lanes) == [(7, 2)]
    lanes.done(7)
    assert take_all(lanes) == [(7, 4)]


def test_a_lane_that_is_done_with_all_its_jobs_may_get_new_ones() -> None:
    lanes = filled((1, 7))
    assert take_all(lanes) == [(7, 1)]
    lanes.done(7)
    assert take_all(lanes) == []

    lanes.add([Queued(2, 7), Queued(3, 7)])

    assert take_all(lanes) == [(7, 2)]


def test_a_lane_that_has_just_finished_goes_behind_the_others() -> None:
    lanes = filled((1, 1), (2, 2), (3, 3), (4, 1))
    assert lanes.take(100) == (1, 1)

    lanes.done(1)

    assert take_all(lanes) == [(2, 2), (3, 3), (1, 4)]


def test_lanes_come_in_sweeps_by_id_whatever_the_order_in_which_they_finish() -> None:
    lanes = filled(*((job, (job - 1) % 6 + 1) for job in range(1, 13)))
    assert [lanes.take(100) for _ in range(4)] == [(1, 1), (2, 2), (3, 3), (4, 4)]

    for lane in (3, 1, 4, 2):
        lanes.done(lane)

    assert take_all(lanes) == [(5, 5), (6, 6), (1, 7), (2, 8), (3, 9), (4, 10)]


def test_lanes_that_are_made_anew_go_on_with_the_sweep() -> None:
    """Made anew after each of its claims they would else serve the first for ever."""
    served = []
    swept = 0
    for _ in range(6):
        lanes = Lanes(swept)
        lanes.add(Queued(lane, lane) for lane in (1, 2, 3))
        served.append(lanes.take(100))
        swept = lanes.swept

    assert served == [(1, 1), (2, 2), (3, 3)] * 2


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
        running.append(taken[0])
        del ready_since[taken[0]]

        assert all(takes - since < 20 for since in ready_since.values())


def test_a_delayed_lane_comes_with_its_job_when_the_wall_clock_shows_its_time() -> None:
    lanes = filled((1, 1), (2, 2), (3, 1), (4, 2))
    take_all(lanes)
    lanes.delay(1, 1, due_at=160)
    lanes.delay(2, 2, due_at=130)
    assert lanes.next_due() == 130
    assert lanes.take(129.9) is None

    assert take_all(lanes, now=130) == [(2, 2)]
    assert lanes.next_due() == 160
    assert take_all(lanes, now=200) == [(1, 1)]
    assert lanes.next_due() is None


def test_new_jobs_wait_behind_a_delayed_one() -> None:
    lanes = filled((1, 1))
    take_all(lanes)
    lanes.delay(1, 1, due_at=160)

    lanes.add([Queued(2, 1)])

    assert take_all(lanes, now=159) == []
    assert take_all(lanes, now=160) == [(1, 1)]


def test_a_lane_is_busy_with_the_job_in_flight_and_an_older_one_that_was_revived_is_next() -> None:
    lanes = Lanes()
    lanes.add([Queued(1, 7), Queued(2, 7), Queued(3, 7), Queued(4, 8)], busy={7: 2})
    assert take_all(lanes) == [(8, 4)]

    lanes.done(7)

    assert take_all(lanes) == [(7, 1)]


def test_a_revived_job_does_not_wait_with_a_younger_that_is_delayed() -> None:
    lanes = Lanes()
    lanes.add([Queued(1, 7), Queued(2, 7)], busy={7: 2})

    lanes.delay(7, 2, due_at=160)

    assert take_all(lanes) == [(7, 1)]
    lanes.done(7)
    assert take_all(lanes) == [(7, 2)]


def test_an_outcome_may_come_for_a_lane_that_is_gone() -> None:
    lanes = filled((1, 1))

    lanes.done(2)

    assert take_all(lanes) == [(1, 1)]


class Whatever(RuleBasedStateMachine):
    """Whatever happens in whatever order, against the table of live jobs as the model."""

    def __init__(self) -> None:
        super().__init__()
        self.table = {job: job % 4 for job in range(1, 9)}
        self.newest = 8
        self.busy: list[tuple[int, int]] = []
        self.now = 0
        self.make_anew()

    @rule()
    def make_anew(self) -> None:
        self.lanes = Lanes(swept=2)
        jobs = (Queued(job, lane) for job, lane in self.table.items())
        self.lanes.add(jobs, busy=dict(self.busy))

    @rule()
    def take(self) -> None:
        if (taken := self.lanes.take(self.now)) is not None:
            lane, job = taken
            assert lane not in {lane for lane, _ in self.busy}
            assert job == min(job for job, of in self.table.items() if of == lane)
            self.busy.append(taken)

    @precondition(lambda self: self.busy)
    @rule(which=st.integers(0, 3))
    def finish(self, which: int) -> None:
        lane, job = self.busy.pop(which % len(self.busy))
        del self.table[job]
        self.lanes.done(lane)

    @precondition(lambda self: self.busy)
    @rule(which=st.integers(0, 3), seconds=st.integers(1, 5))
    def delay(self, which: int, seconds: int) -> None:
        lane, job = self.busy.pop(which % len(self.busy))
        self.lanes.delay(lane, job, self.now + seconds)

    @rule(lane=st.integers(0, 3), skipped=st.integers(0, 2))
    def add(self, lane: int, skipped: int) -> None:
        self.newest += 1 + skipped
        self.table[self.newest] = lane
        self.lanes.add([Queued(self.newest, lane)])

    @rule(seconds=st.integers(1, 3))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds

    def teardown(self) -> None:
        """None is lost, none comes twice, and each lane keeps its order."""
        while self.busy:
            self.finish(0)
        left: dict[int, list[int]] = {}
        while (taken := self.lanes.take(self.now + 100)) is not None:
            left.setdefault(taken[0], []).append(taken[1])
            self.lanes.done(taken[0])
        for lane in range(4):
            wanted = [job for job, of in sorted(self.table.items()) if of == lane]
            assert left.get(lane, []) == wanted


TestWhatever = Whatever.TestCase
