//! Closing an engine.

use std::sync::atomic::Ordering;

use terrace_rt::{dead, now};

use super::{ANSWERS_MAX, CLOSE_PAUSE, CLOSE_PAUSE_MAX, Engine, Occasion};
use crate::Error;
use crate::reclaim::Work;

impl Engine {
    /// Whether `close` was called.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Refuses new transactions, waits for those that are open in other tasks, writes what the
    /// restart wants written, takes a last checkpoint, and stops. Only the first call does.
    ///
    /// # Errors
    ///
    /// Those of a checkpoint.
    pub(crate) fn close(&self) -> Result<(), Error> {
        self.closing.store(true, Ordering::Release);
        if dead() {
            return Ok(());
        }
        self.wait_for_transactions();
        // What closing changed would be on flash only, after a sharp checkpoint, too: then the next
        // opening sweeps.
        let known = match self.pool.needs_flash() {
            true => Vec::new(),
            false => self.trees.space.known_blocks(),
        };
        for tree in known {
            self.reclaim.offer(Work::Blocks(tree));
        }
        // A piece of work that meets the closing would leave a transaction open.
        self.reclaim.settle();
        self.reclaim.stop_soon();
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.checkpoint_wanted.notify_all();
        self.versions.wake_spilling();
        self.reclaim.stop();
        self.log.wake_writer();
        let flushed = self.log.check().and_then(|()| self.last_checkpoint());
        self.pool.shutdown();
        flushed.map_err(|error| self.log.check().err().unwrap_or(error))
    }

    /// Stops without writing anything: recovery failed, or the database is read only. Only the
    /// first call does.
    pub(crate) fn abandon(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.versions.wake_spilling();
        self.reclaim.stop();
        self.log.fail(Error::STOPPED);
        self.log.wake_writer();
        if !dead() {
            self.pool.shutdown();
        }
    }

    /// Waits, up to the time limit, until no other task has a transaction open. The caller's own
    /// ones are not waited for: they could not end meanwhile.
    fn wait_for_transactions(&self) {
        let deadline = now().saturating_add(self.lock_limits.close_timeout);
        let mut pause = CLOSE_PAUSE;
        let task = terrace_rt::task_id();
        let is_open = || self.locks.is_open_beside(task) || self.versions.is_open_beside(task);
        while is_open() && now() < deadline && !dead() {
            terrace_rt::sleep(pause.min(deadline.saturating_sub(now())));
            pause = (pause * 2).min(CLOSE_PAUSE_MAX);
        }
    }

    /// The background has ended: from here on nothing is written, and the devices are free for
    /// others, even while callers still hold transactions.
    pub(crate) fn release(&self) {
        self.log.fail(Error::Closed);
        self.log.wake_all_awaiting();
        let devices = [Some(&self.home), self.flash.as_ref(), Some(&self.log_device)];
        // What readers have just asked for is answered soon, unless the device is silent.
        let deadline = now().saturating_add(ANSWERS_MAX);
        for device in devices.into_iter().flatten() {
            let mut pause = CLOSE_PAUSE;
            while device.queued() > 0 && !device.has_failed() && now() < deadline && !dead() {
                terrace_rt::sleep(pause);
                pause = (pause * 2).min(CLOSE_PAUSE_MAX);
            }
            device.release();
        }
        self.versions.release_spill();
    }

    fn last_checkpoint(&self) -> Result<(), Error> {
        let mut boot = self.boot.lock();
        self.pool.flush_for_close()?;
        let is_clean = self.active().is_empty();
        let occasion = if is_clean { Occasion::Closed } else { Occasion::Running };
        self.take_checkpoint(&mut boot, occasion)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !dead() && !self.is_forked() {
            // No caller is left to get an error; recovery does what could not be done.
            let _closed = self.close();
        }
    }
}
