//! How a policy is compared with its naive model: random requests, refusals, evictions and
//! removals, all chance from one seed; and a small trace that ships, whose figures the model gives.

use super::{Forgetting, Key, Look, Replace, ReplacementPolicy, Setup, find};
use std::collections::BTreeSet;
use terrace_page::PageId;

/// A policy as its paper tells it, on vectors, with no thought of speed.
pub trait Model {
    /// `key` is asked for; whether it is cached.
    fn hit(&mut self, key: u32) -> bool;
    fn is_full(&self) -> bool;
    /// `key` was missed: what the policy learns before anything leaves for it.
    fn miss(&mut self, _key: u32) {}
    /// Takes out what leaves, for `key` or for no key.
    fn victim(&mut self, key: Option<u32>, may_leave: &dyn Fn(u32) -> bool) -> Option<u32>;
    /// `key` is cached; there is room. Ghosts beyond their number go.
    fn enter(&mut self, key: u32);
    /// `key` is known, and goes.
    fn remove(&mut self, key: u32);
    /// All keys that it remembers, cached or not, in any order.
    fn known(&self) -> Vec<u32>;
}

const ROUNDS: u64 = 400;
const STEPS: usize = 600;
const CAPACITY_MAX: u32 = 14;

/// A trace in the format of the ARC paper: the first number of a line is the page.
const TRACE: &str = include_str!("../../../replay/tests/data/mixed.lis");
/// Lines of policy, capacity and misses; all chance from seed 1.
const FIGURES: &str = include_str!("../../../replay/tests/data/mixed.figures.csv");

/// Compares the policy called `name` with the model made for a capacity and a seed.
pub fn compare<M: Model>(name: &str, model: impl Fn(usize, u64) -> M) {
    against_figures(name, &model);
    let row = find(name).expect("a policy of the list");
    for seed in 0..ROUNDS {
        let mut prng = fastrand::Rng::with_seed(seed);
        let capacity = prng.u32(1..=CAPACITY_MAX);
        let keys_count = prng.u32(capacity..=4 * capacity + 2);
        let setup = Setup { capacity, keys_count, forgetting: Forgetting::Told, seed };
        let mut pair = Pair {
            policy: ReplacementPolicy::new(row.kind, setup),
            model: model(capacity as usize, seed),
            known: BTreeSet::new(),
        };
        // Half of the rounds refuse nothing and remove nothing: the paper's own setting.
        let refusing = seed % 2 == 1;
        for step in 0..STEPS {
            let key = prng.u32(..keys_count).min(prng.u32(..keys_count));
            let refused = prng.u32(..).wrapping_mul(u32::from(refusing)) & prng.u32(..);
            let refused = if prng.u8(..16) == 0 && refusing { u32::MAX } else { refused };
            let may_leave = |key: u32| refused & (1 << (key % 32)) == 0;
            let place = format!("{name}, seed {seed}, step {step}, capacity {capacity}");
            match prng.u8(..16) {
                0 if refusing => pair.remove(key),
                1 if refusing => pair.evict(&may_leave, &place),
                _ => pair.request(key, &may_leave, &place),
            }
            pair.check(&place);
            let keys_max = row.keys_count(capacity) as usize;
            assert!(pair.known.len() <= keys_max, "R4: {place}");
        }
    }
}

/// The model misses as often as the list of figures says, for every line of the policy.
fn against_figures<M: Model>(name: &str, model: &impl Fn(usize, u64) -> M) {
    let lines = FIGURES.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let mut compared = 0;
    for line in lines.filter(|line| line[0] == name) {
        let capacity = line[1].parse().expect("a capacity");
        let mut model = model(capacity, 1);
        let mut misses = 0;
        // Pages by the order of their appearance, as a replay numbers them.
        let mut pages: Vec<&str> = Vec::new();
        for request in TRACE.lines() {
            let page = request.split(' ').next().expect("a page");
            let key = pages.iter().position(|other| *other == page).unwrap_or(pages.len());
            if key == pages.len() {
                pages.push(page);
            }
            let key = key as u32;
            if model.hit(key) {
                continue;
            }
            misses += 1;
            model.miss(key);
            if model.is_full() {
                model.victim(Some(key), &|_| true).expect("all may leave");
            }
            model.enter(key);
        }
        assert_eq!(misses.to_string(), line[2], "{name}, capacity {capacity}");
        compared += 1;
    }
    assert!(compared >= 2, "{name} has figures for two capacities");
}

struct Pair<M> {
    policy: ReplacementPolicy,
    model: M,
    /// What the owner must keep a number for: inserted, neither forgotten nor removed.
    known: BTreeSet<u32>,
}

impl<M: Model> Pair<M> {
    fn request(&mut self, key: u32, may_leave: &dyn Fn(u32) -> bool, place: &str) {
        assert_eq!(self.policy.is_cached(Key(key)), self.policy.hit(Key(key)), "{place}");
        let was_hit = self.model.hit(key);
        assert_eq!(self.policy.is_cached(Key(key)), was_hit, "key {key}: {place}");
        if was_hit {
            return;
        }
        let page = PageId(u64::from(key));
        let got = self.policy.insert(Key(key), page, |key| may_leave(key.0));
        self.model.miss(key);
        let mut expected = None;
        if self.model.is_full() {
            expected = self.model.victim(Some(key), may_leave);
            if expected.is_none() {
                assert!(got.is_err(), "{place}: {got:?}");
                return;
            }
        }
        self.model.enter(key);
        assert_eq!(got, Ok(expected.map(Key)), "insertion of {key}: {place}");
        self.known.insert(key);
    }

    fn evict(&mut self, may_leave: &dyn Fn(u32) -> bool, place: &str) {
        let got = self.policy.evict(|key| may_leave(key.0));
        let expected = self.model.victim(None, may_leave);
        assert_eq!(got, expected.map(Key), "{place}");
    }

    fn remove(&mut self, key: u32) {
        if self.known.remove(&key) {
            self.policy.remove(Key(key));
            self.model.remove(key);
        }
    }

    fn check(&mut self, place: &str) {
        for key in self.policy.forgotten().drain(..) {
            assert!(self.known.remove(&key.0), "R3: {key:?} was forgotten twice: {place}");
        }
        let known: BTreeSet<u32> = self.model.known().into_iter().collect();
        assert_eq!(self.known, known, "R3: {place}");
    }
}
