//! The mean of a few runs and its 95% confidence interval, by Student's t.
//!
//! A claim of a few percent needs pairs of runs over several seeds: ratios are formed for each seed
//! first, and averaged then, so that what a seed does to both runs falls out.

use serde_json::{Map, Value};

/// Two-sided 95% quantiles of Student's t for 1 to 30 degrees of freedom.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The quantile for more degrees of freedom than the table has, of the normal distribution.
const Z_95: f64 = 1.960;

/// A mean and the interval that holds the true one in 95 of 100 experiments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Mean of the samples.
    pub mean: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// The interval of `samples`; a single sample has no width.
    pub fn of(samples: &[f64]) -> Interval {
        assert!(!samples.is_empty(), "an interval needs a sample");
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        if samples.len() == 1 {
            return Interval { mean, low: mean, high: mean };
        }
        let squares = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>();
        let error = (squares / (count - 1.0) / count).sqrt();
        let quantile = T_95.get(samples.len() - 2).copied().unwrap_or(Z_95);
        Interval { mean, low: mean - quantile * error, high: mean + quantile * error }
    }
}

/// The mean, low and high of every number in objects of the same shape. What is no number, or is
/// not in all of them, is left out.
pub fn of_objects(samples: &[Value]) -> [Value; 3] {
    let mut ends = [Map::new(), Map::new(), Map::new()];
    let Some(Value::Object(first)) = samples.first() else { return ends.map(Value::Object) };
    for (name, value) in first {
        let values: Vec<Value> =
            samples.iter().filter_map(|sample| sample.get(name).cloned()).collect();
        if values.len() != samples.len() {
            continue;
        }
        let parts = if value.is_object() {
            of_objects(&values)
        } else {
            let numbers: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
            if numbers.len() != values.len() {
                continue;
            }
            let interval = Interval::of(&numbers);
            [interval.mean, interval.low, interval.high].map(|end| Value::from(rounded(end)))
        };
        for (end, part) in ends.iter_mut().zip(parts) {
            if part.as_object().is_none_or(|object| !object.is_empty()) {
                end.insert(name.clone(), part);
            }
        }
    }
    ends.map(Value::Object)
}

/// Six digits behind the point: more says nothing about a run.
pub fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_interval_is_the_textbook_one() {
        // Mean 3, standard deviation 1.5811, error 0.7071, t for 4 degrees 2.776.
        let interval = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(interval.mean, 3.0);
        assert!((interval.high - 4.9629).abs() < 1e-3, "{interval:?}");
        assert!((interval.low - 1.0371).abs() < 1e-3, "{interval:?}");
        assert_eq!(Interval::of(&[7.0]), Interval { mean: 7.0, low: 7.0, high: 7.0 });
    }

    #[test]
    fn objects_are_averaged_number_by_number() {
        let samples = [
            json!({ "tpmc": 10.0, "design": "lc", "flash": { "reads": 4 }, "speedup": 2.0 }),
            json!({ "tpmc": 20.0, "design": "lc", "flash": { "reads": 6 }, "speedup": null }),
        ];
        let [mean, low, high] = of_objects(&samples);
        assert_eq!(mean, json!({ "tpmc": 15.0, "flash": { "reads": 5.0 } }));
        assert!(low["tpmc"].as_f64() < Some(15.0));
        assert!(high["tpmc"].as_f64() > Some(15.0));
    }
}
