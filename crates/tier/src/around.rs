//! What a driver knows beside the table: the state of its devices, of memory and of home. Asked
//! only where the answer counts, since some answers have memory.

use terrace_page::PageId;
use terrace_policy::Tick;

/// The surroundings of a table. Asked, and told, under the driver's lock: no method waits.
///
/// What is provided is what a driver answers whose devices have no queues and never fail.
pub trait Around {
    /// The clock of the policies.
    fn now(&self) -> Tick;

    /// Whether the tier is still being filled with every page [S0 3.3.1].
    fn is_filling(&self) -> bool;

    /// Whether flash can be written.
    fn is_usable(&self) -> bool {
        true
    }

    /// Whether the flash is too busy for what can do without it [S0 3.3.2].
    fn is_throttled(&self) -> bool {
        false
    }

    /// Whether flash was sent all that it may be sent by now.
    fn is_over_budget(&self) -> bool {
        false
    }

    /// Whether a sharp checkpoint is under way [S0 3.2].
    fn is_sharp(&self) -> bool {
        false
    }

    /// Whether no page that home lacks may go to flash alone: during a sharp checkpoint, and while
    /// there are pages that cannot be made anew.
    fn wants_home(&self) -> bool {
        self.is_sharp()
    }

    /// Whether a home write of `page` is under way: there is at most one [sources.D3].
    fn is_going_home(&self, _page: PageId) -> bool {
        false
    }

    /// Whether the copy of `page` on flash may be written home now.
    fn may_go_home(&self, _page: PageId) -> bool {
        true
    }

    /// Takes the requests that memory has served of the page that leaves, since they were taken
    /// last. Asked by designs that count them.
    fn take_hits(&self) -> u32 {
        0
    }

    /// No slot can be given away: a restart that keeps some back may release them.
    fn slots_wanted(&self) {}

    /// Dirty slots are wanted clean ahead of need.
    fn cleaning_wanted(&self) {}

    /// An append log lets slots leave: the tier has been full once.
    fn was_full(&self) {}
}
