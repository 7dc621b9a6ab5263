//! How long the arm takes over a distance: a measured curve, or one through three figures.
//!
//! Between measured distances the curve is linear, as DiskSim does it ("extracted" seeks). A data
//! sheet states three figures: track to track, average, full stroke. Through them goes the usual
//! shape, `a + b * sqrt(d)` below a third of the stroke and a straight line above (Ruemmler and
//! Wilkes 1994; the average seek of uniformly random requests is close to that over a third).

/// Seek time by distance in cylinders.
#[derive(Clone, Debug)]
pub struct SeekCurve {
    /// Distance in cylinders and time in ns, both ascending in distance.
    points: Vec<(f64, f64)>,
}

/// Points on the curved part of a curve made from three figures.
const CURVED_POINTS: u32 = 64;

impl SeekCurve {
    /// A curve through measured `(distance in cylinders, time in ns)`.
    ///
    /// # Panics
    ///
    /// If there is no point, or distances do not ascend.
    #[must_use]
    pub fn measured(points: Vec<(f64, f64)>) -> SeekCurve {
        assert!(!points.is_empty(), "a seek curve without points");
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0), "distances must ascend");
        SeekCurve { points }
    }

    /// A curve for `cylinders` cylinders through track-to-track, average and full-stroke times, ns.
    ///
    /// # Panics
    ///
    /// If the times do not ascend, or the disk has less than four cylinders.
    #[must_use]
    pub fn from_figures(cylinders: u32, single: f64, average: f64, full: f64) -> SeekCurve {
        assert!(cylinders >= 4, "a seek curve needs a few cylinders");
        assert!(0.0 < single && single < average && average < full, "seek times must ascend");
        let stroke = f64::from(cylinders - 1);
        let third = stroke / 3.0;
        let slope = (average - single) / (third.sqrt() - 1.0).max(f64::MIN_POSITIVE);
        let mut points: Vec<(f64, f64)> = Vec::new();
        for step in 0..=CURVED_POINTS {
            // Dense where the square root bends.
            let share = f64::from(step) / f64::from(CURVED_POINTS);
            let distance = (1.0 + (third - 1.0) * share * share * share).max(1.0);
            if points.last().is_none_or(|&(last, _)| last < distance) {
                points.push((distance, single + slope * (distance.sqrt() - 1.0)));
            }
        }
        points.push((stroke, full));
        SeekCurve { points }
    }

    /// Time in ns to move over `distance` cylinders; zero for zero.
    #[must_use]
    pub fn time(&self, distance: f64) -> f64 {
        if distance <= 0.0 {
            return 0.0;
        }
        let after = self.points.partition_point(|&(at, _)| at < distance);
        if after == 0 {
            return self.points[0].1;
        }
        let Some(&(right, slow)) = self.points.get(after) else {
            return self.points[self.points.len() - 1].1;
        };
        let (left, fast) = self.points[after - 1];
        fast + (slow - fast) * (distance - left) / (right - left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_meets_its_three_figures() {
        let curve = SeekCurve::from_figures(90_001, 0.8e6, 8.5e6, 17.0e6);
        assert!((curve.time(1.0) - 0.8e6).abs() < 1.0);
        assert!((curve.time(30_000.0) - 8.5e6).abs() < 1.0);
        assert!((curve.time(90_000.0) - 17.0e6).abs() < 1.0);
        assert_eq!(curve.time(0.0), 0.0);
    }

    #[test]
    fn the_average_over_random_pairs_is_near_the_figure() {
        let curve = SeekCurve::from_figures(3_001, 0.8e6, 8.5e6, 17.0e6);
        let (mut sum, mut pairs) = (0.0, 0u64);
        for from in (0..3_000).step_by(7) {
            for to in (0..3_000).step_by(11) {
                sum += curve.time(f64::from(i32::abs(from - to)));
                pairs += 1;
            }
        }
        let mean = sum / pairs as f64;
        assert!((mean / 8.5e6 - 1.0).abs() < 0.05, "mean seek {mean} ns");
    }

    #[test]
    fn measured_points_are_joined_by_lines() {
        let curve = SeekCurve::measured(vec![(1.0, 100.0), (3.0, 300.0), (10.0, 370.0)]);
        assert_eq!(curve.time(2.0), 200.0);
        assert_eq!(curve.time(0.5), 100.0);
        assert_eq!(curve.time(50.0), 370.0);
    }
}
