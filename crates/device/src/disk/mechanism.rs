//! Arm and rotation together: when the head has read or written a run of sectors.
//!
//! - M1: the platter turns for ever: its angle is time over the period, from angle 0 at time 0.
//! - M2: time never runs backwards between calls, and the arm stands where the last call left it.
//! - M3: reading on from where the last transfer ended, at the same instant, costs no rotation.
//!
//! Arm move and head switch overlap; the settling time of writes is added to any move. At the end
//! of a track the head switches (or the arm steps) and waits for the first sector, which the skew
//! puts just behind the switch.

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
}

/// When a transfer touched the medium, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
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
        Mechanism { geometry, mechanics, cylinder: 0, surface: 0 }
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

    /// Time in ns from `now` until the head is over `sector`, ready to transfer.
    #[must_use]
    pub fn positioning(&self, now: f64, op: Op, sector: u64) -> f64 {
        let place = self.geometry.locate(sector);
        let settled = now + self.move_time(op, place);
        settled + self.rotation(settled, place.angle) - now
    }

    /// Moves to `sector` and transfers `count` sectors from there, from time `now` on.
    pub fn transfer(&mut self, now: f64, op: Op, sector: u64, count: u64) -> Transfer {
        self.run(now, now, op, sector, count)
    }

    /// Moves from time `now` on, and writes `count` sectors at `sector`, whose data arrive at
    /// `data_at`.
    pub fn write_when(&mut self, now: f64, data_at: f64, sector: u64, count: u64) -> Transfer {
        self.run(now, data_at, Op::Write, sector, count)
    }

    fn run(&mut self, now: f64, data_at: f64, op: Op, sector: u64, count: u64) -> Transfer {
        assert!(count > 0, "an empty transfer");
        let (mut at, mut next, mut left) = (now, sector, count);
        let mut first = None;
        while left > 0 {
            let place = self.geometry.locate(next);
            let run = left.min(u64::from(place.sectors_left));
            let settled = data_at.max(at + self.move_time(op, place));
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
        Transfer { first: first.expect("count is not zero"), end: at }
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
}
