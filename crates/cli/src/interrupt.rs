//! Ctrl-C, for what can end early and show what it has.
//!
//! - I1: the first Ctrl-C asks; the second ends the process at once, as does the first where
//!   nothing watches.

use crate::failure::Failure;
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock};

/// Exit status of what Ctrl-C ends.
const STATUS: i32 = 130;

/// Whether it was asked for; nothing before something watches.
static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Says that something watches for Ctrl-C.
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Begins to watch, until the process ends.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn watch() -> Result<Interrupt, Failure> {
        if let Some(asked) = ASKED.get() {
            return Ok(Interrupt(asked.clone()));
        }
        let asked: Arc<AtomicBool> = Arc::default();
        // In this order: the first Ctrl-C is not yet asked when the first of the two is called.
        let watched = flag::register_conditional_shutdown(SIGINT, STATUS, asked.clone())
            .and_then(|_| flag::register(SIGINT, asked.clone()));
        watched.map_err(|error| Failure::failed("cannot watch for Ctrl-C", error))?;
        Ok(Interrupt(ASKED.get_or_init(|| asked).clone()))
    }

    /// Whether Ctrl-C was pressed.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether Ctrl-C was pressed while something watched; says so the first time.
pub fn is_asked() -> bool {
    static SAID: Once = Once::new();
    let is_asked = ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed));
    if is_asked {
        SAID.call_once(|| {
            eprintln!("\nterrace: ending with what is finished; Ctrl-C again ends at once");
        });
    }
    is_asked
}

/// Whether what was finished is all: not behind a Ctrl-C.
///
/// # Errors
///
/// It is a part.
pub fn whole() -> Result<(), Failure> {
    if is_asked() {
        return Err(Failure::Partial("stopped by Ctrl-C: only what was finished is shown".into()));
    }
    Ok(())
}

/// Asks the process `number`, a child, to end as Ctrl-C would.
pub fn ask_to_end(number: u32) {
    // What cannot be asked has ended.
    let _ = Command::new("sh").args(["-c", &format!("kill -INT {number}")]).status();
}
