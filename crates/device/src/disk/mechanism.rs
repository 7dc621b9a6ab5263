//! Arm and rotation together: when the head has read or written a run of sectors.
//!
//! - M1: the platter turns for ever: its angle is time over the period, from angle 0 at time 0.
//! - M2: time never runs backwards between calls, and the arm stands where the last call left it.
//! - M3: reading on from where the last transfer ended, at the same instant, costs no rotation.
//! - M4: the seek curve is a mean: a move over more than a cylinder ends early or late by an error
//!   that is not known beforehand. Shorter moves keep to the curve, as the skew allows for them.
//!
//! Arm move and head switch overlap; the settling time of writes is added to any move. At the end
//! of a track the head switches (or the arm steps) and waits for the first sector, which the skew
//! puts just behind the switch.

use terrace_rt::Prng;

use super::geometry::{Geometry, Place};
use super::seek::SeekCurve;
use crate::Op;

/// An angle as a share of a whole turn, in `0.0..1.0`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn(f64);

/// A wait shorter of a whole turn by less than this share is rounding, and no wait (M3).
const ROUNDING: f64 = 1e-6;

impl Turn {
    /// The angle `turns` whole turns from zero.
    #[must_use]
    pub fn new(turns: f64) -> Turn {
        Turn(turns - turns.floor())
    }

    /// Share of a turn from `self` forward to `to`.
    fn until(self, to: Turn) -> f64 {
        let ahead = Turn::new(to.0 - self.0).0;
        if ahead > 1.0 - ROUNDING { 0.0 } else { ahead }
    }
}

/// The moving parts in figures. Times in ns.
#[derive(Clone, Debug)]
pub struct Mechanics {
    /// Time of a turn.
    pub period: f64,
    /// Arm time by distance.
    pub seek: SeekCurve,
    /// Distances are multiplied by this before the curve is asked, except that the next cylinder
    /// stays the next: a model with few cylinders keeps the strokes of a large disk. 1 for a model
    /// with all its cylinders.
    pub stroke_scale: f64,
    /// Switch to another surface.
    pub head_switch: f64,
    /// Added to any move before a write.
    pub write_settle: f64,
    /// Mean absolute error of the time of a move over more than a cylinder.
    pub arrival_error: f64,
    /// Whether a transfer starts at whatever sector comes by first ("zero latency").
    pub starts_anywhere: bool,
}

/// Where the head is and how it moves.
#[derive(Clone, Debug)]
pub struct Mechanism {
    geometry: Geometry,
    mechanics: Mechanics,
    cylinder: u32,
    surface: u32,
    errors: Prng,
}

/// Where the errors of moves begin: a disk repeats them from run to run.
const ERROR_SEED: u64 = 0x5eec;
/// Largest error of a move in mean absolute errors: errors are distributed triangularly.
const ERROR_REACH: f64 = 3.0;

/// When a transfer touched the medium, in ns.
#[derive(Clone, Copy, Debug)]
pub struct MediaTransfer {
    /// The first sector was complete.
    pub first: f64,
    /// The last sector was complete.
    pub end: f64,
}

impl Mechanism {
    /// A head at the outer edge.
    #[must_use]
    pub fn new(geometry: Geometry, mechanics: Mechanics) -> Mechanism {
        assert!(mechanics.period > 0.0, "a disk that does not turn");
        assert!(mechanics.stroke_scale >= 1.0, "strokes are only ever enlarged");
        let reach = mechanics.arrival_error * ERROR_REACH;
        assert!(reach >= 0.0 && reach < mechanics.period, "a move that errs by more than a turn");
        let errors = Prng::from_seed(ERROR_SEED);
        Mechanism { geometry, mechanics, cylinder: 0, surface: 0, errors }
    }

    /// Where sectors lie.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The time of a turn in ns.
    #[must_use]
    pub fn period(&self) -> f64 {
        self.mechanics.period
    }

    /// Expected time in ns from `now` until the head is over `sector`, ready to transfer: arm and
    /// rotation, plus a turn times the probability that the head comes too late for the sector,
    /// less a turn times the probability that it comes in time for the turn before. (Expected
    /// access time: Espeseth, Hall, Mosser and Smith, US patent 6,725,327, assigned to Hitachi.)
    #[must_use]
    pub fn positioning(&self, now: f64, op: Op, sector: u64) -> f64 {
        let place = self.geometry.locate(sector);
        let settled = now + self.move_time(op, place);
        let wait = self.rotation(settled, place.angle);
        let risk = if self.errs(place) {
            self.error_beyond(wait) - self.error_beyond(self.mechanics.period - wait)
        } else {
            0.0
        };
        settled + wait + risk * self.mechanics.period - now
    }

    /// Moves to `sector` and transfers `count` sectors from there, from time `now` on.
    pub fn transfer(&mut self, now: f64, op: Op, sector: u64, count: u64) -> MediaTransfer {
        self.run(now, now, op, sector, count)
    }

    /// Moves from time `now` on, and writes `count` sectors at `sector`, whose data arrive at
    /// `data_at`.
    pub fn write_when(&mut self, now: f64, data_at: f64, sector: u64, count: u64) -> MediaTransfer {
        self.run(now, data_at, Op::Write, sector, count)
    }

    fn run(&mut self, now: f64, data_at: f64, op: Op, sector: u64, count: u64) -> MediaTransfer {
        assert!(count > 0, "an empty transfer");
        let (mut at, mut next, mut left) = (now, sector, count);
        let mut first = None;
        while left > 0 {
            let place = self.geometry.locate(next);
            let run = left.min(u64::from(place.sectors_left));
            let moved = (self.move_time(op, place) + self.error(place)).max(0.0);
            let settled = data_at.max(at + moved);
            let sector_time = self.mechanics.period / f64::from(place.sectors_per_track);
            let whole = run as f64 * sector_time;
            let wait = self.rotation(settled, place.angle);
            // Already inside the run: the rest now, the part before it when it comes round again.
            let passed = self.mechanics.period - wait;
            let (started, ended) = if self.mechanics.starts_anywhere && passed < whole {
                (settled, settled + self.mechanics.period)
            } else {
                (settled + wait, settled + wait + whole)
            };
            first.get_or_insert(started + sector_time);
            at = ended;
            self.cylinder = place.cylinder;
            self.surface = place.surface;
            next += run;
            left -= run;
        }
        MediaTransfer { first: first.expect("count is not zero"), end: at }
    }

    /// Reads on from `sector`, where the head is at `now`, up to time `until` or `limit` sectors:
    /// whole sectors read, and the time at which the last of them was complete.
    pub fn read_on(&mut self, now: f64, until: f64, sector: u64, limit: u64) -> (u64, f64) {
        let (mut at, mut done) = (now, 0);
        while done < limit {
            let place = self.geometry.locate(sector + done);
            let settled = at + self.move_time(Op::Read, place);
            let start = settled + self.rotation(settled, place.angle);
            let sector_time = self.mechanics.period / f64::from(place.sectors_per_track);
            let run = (limit - done).min(u64::from(place.sectors_left));
            if start > until {
                break;
            }
            self.cylinder = place.cylinder;
            self.surface = place.surface;
            let fits = ((until - start) / sector_time + ROUNDING).floor() as u64;
            let read = run.min(fits);
            done += read;
            at = start + read as f64 * sector_time;
            if read < run {
                break;
            }
        }
        (done, at)
    }

    fn move_time(&self, op: Op, place: Place) -> f64 {
        if place.cylinder == self.cylinder && place.surface == self.surface {
            return 0.0;
        }
        let distance = f64::from(place.cylinder.abs_diff(self.cylinder));
        let scaled = if distance <= 1.0 {
            distance
        } else {
            1.0 + (distance - 1.0) * self.mechanics.stroke_scale
        };
        let switch = if place.surface == self.surface { 0.0 } else { self.mechanics.head_switch };
        let settle = if op == Op::Write { self.mechanics.write_settle } else { 0.0 };
        (self.mechanics.seek.time(scaled).max(switch) + settle).max(0.0)
    }

    fn errs(&self, place: Place) -> bool {
        self.mechanics.arrival_error > 0.0 && place.cylinder.abs_diff(self.cylinder) > 1
    }

    /// What the move to `place` takes more than the curve says, ns.
    fn error(&mut self, place: Place) -> f64 {
        if !self.errs(place) {
            return 0.0;
        }
        let reach = self.mechanics.arrival_error * ERROR_REACH;
        (self.errors.f64() + self.errors.f64() - 1.0) * reach
    }

    /// Probability that a move takes more than `by` ns longer than the curve says, or shorter.
    fn error_beyond(&self, by: f64) -> f64 {
        let inside = (1.0 - by / (self.mechanics.arrival_error * ERROR_REACH)).max(0.0);
        inside * inside / 2.0
    }

    /// Time in ns from `at` until `angle` is under the head.
    fn rotation(&self, at: f64, angle: Turn) -> f64 {
        Turn::new(at / self.mechanics.period).until(angle) * self.mechanics.period
    }
}

#[cfg(test)]
mod tests {
    use super::super::geometry::{Layout, Zone};
    use super::*;

    fn mechanism() -> Mechanism {
        let zone = Zone {
            first_cylinder: 0,
            cylinders: 100,
            sectors_per_track: 100,
            spares_per_track: 0,
            reserved: 0,
            spares: 0,
            offset: 0.0,
            track_skew: 10.0,
            cylinder_skew: 20.0,
            slips: Vec::new(),
        };
        let mechanics = Mechanics {
            period: 10_000.0,
            seek: SeekCurve::measured(vec![(1.0, 1_500.0), (99.0, 9_900.0)]),
            stroke_scale: 1.0,
            head_switch: 900.0,
            write_settle: 100.0,
            arrival_error: 0.0,
            starts_anywhere: false,
        };
        Mechanism::new(Geometry::new(2, Layout::Conventional, vec![zone]), mechanics)
    }

    #[test]
    fn reading_on_costs_no_rotation_and_reading_again_costs_a_turn() {
        let mut disk = mechanism();
        let one = disk.transfer(0.0, Op::Read, 0, 10);
        assert_eq!(one.end, 1_000.0);
        let two = disk.transfer(one.end, Op::Read, 10, 10);
        assert_eq!(two.end, 2_000.0);
        let again = disk.transfer(two.end, Op::Read, 10, 10);
        assert_eq!(again.end, 12_000.0);
    }

    #[test]
    fn skew_hides_the_head_switch() {
        let mut disk = mechanism();
        let over = disk.transfer(0.0, Op::Read, 95, 10);
        // 95 sectors of rotation, 5 read, a skew of 10 sectors, 5 read.
        assert_eq!(over.end, 9_500.0 + 500.0 + 1_000.0 + 500.0);
    }

    #[test]
    fn reading_on_stops_at_the_time_or_at_the_limit() {
        let mut disk = mechanism();
        disk.transfer(0.0, Op::Read, 0, 10);
        assert_eq!(disk.read_on(1_000.0, 1_550.0, 10, 40).0, 5);
        assert_eq!(disk.read_on(1_500.0, 9_999_999.0, 15, 40).0, 40);
    }

    #[test]
    fn starting_anywhere_takes_at_most_a_turn() {
        let mut disk = mechanism();
        disk.mechanics.starts_anywhere = true;
        let track = disk.transfer(3_000.0, Op::Read, 0, 100);
        assert_eq!(track.end, 13_000.0);
    }

    #[test]
    fn moves_err_by_the_mean_error_and_expected_positioning_is_the_mean() {
        let mut disk = mechanism();
        disk.mechanics.arrival_error = 300.0;
        let (mut error, mut taken, mut expected) = (0.0, 0.0, 0.0);
        let mut now = 0.0;
        let moves = 20_000;
        for step in 0..moves {
            let sector = (step * 7_919) % 19_000 + 500;
            let place = disk.geometry.locate(sector);
            expected += disk.positioning(now, Op::Read, sector);
            error += disk.clone().error(place).abs();
            let transfer = disk.transfer(now, Op::Read, sector, 1);
            taken += transfer.end - 100.0 - now;
            now = transfer.end;
        }
        let (error, taken) = (error / moves as f64, taken / moves as f64);
        assert!((error / 300.0 - 1.0).abs() < 0.03, "mean error {error}");
        let expected = expected / moves as f64;
        assert!((taken / expected - 1.0).abs() < 0.01, "{taken} taken, {expected} expected");
    }

    #[test]
    fn a_sector_just_in_reach_costs_half_a_turn_more() {
        let mut disk = mechanism();
        let sure = disk.positioning(0.0, Op::Read, 4_050);
        let place = disk.geometry.locate(4_050);
        let wait = disk.rotation(disk.move_time(Op::Read, place), place.angle);
        disk.mechanics.arrival_error = 300.0;
        let reached = disk.positioning(wait, Op::Read, 4_050);
        assert!((reached - (sure - wait) - 5_000.0).abs() < 1.0, "{reached} ns");
    }
}
