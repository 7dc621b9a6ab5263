//! The pool over devices and a journal made for it: in the virtual world, and once with threads.

mod age;
mod append;
mod bench_world;
mod benefit;
mod fasc;
mod faults;
mod inclusion;
mod log_model;
mod metadata;
mod observe;
mod owed;
mod power_cuts;
mod ram_device;
mod random_work;
mod real_threads;
mod restarts;
mod states;
