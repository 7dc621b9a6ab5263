//! How a pool is set up.

/// Switches that turn off one safety rule each, so that tests can show that they find it. All on
/// by default; nothing but a test turns one off.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The log is durable up to a page's LSN before the page is written anywhere.
    pub wal_before_page: bool,
    /// A page joins a BUF_WRITE batch only if it was not modified since the image was written.
    pub buf_write_join_rule: bool,
    /// The EOL of a BUF_WRITE batch is fixed before any page joins.
    pub buf_write_eol_rule: bool,
    /// Home is synced before a BUF_WRITE record is logged.
    pub sync_before_buf_write: bool,
    /// A dirty entry counts for the oldest dirty LSN until home was synced after its page's write.
    pub entry_until_sync: bool,
    /// At most one home write of a page is outstanding.
    pub in_flight_home_writes: bool,
    /// A page's dirty entry exists before its flash copy is invalidated and its record is appended.
    pub entry_before_invalidation: bool,
    /// Modifying a page invalidates its flash copy.
    pub invalidate_on_modify: bool,
    /// Dual writes: a slot is clean only after both writes finished.
    pub dw_clean_after_both: bool,
    /// Lazy cleaning: a dirty entry moves to flash only after the flash write finished.
    pub lc_entry_moves_after_flash_write: bool,
    /// The oldest dirty LSN covers pages that are dirty on flash only.
    pub oldest_covers_flash: bool,
    /// Pages are verified when they are read from a device.
    pub verify_reads: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            wal_before_page: true,
            buf_write_join_rule: true,
            buf_write_eol_rule: true,
            sync_before_buf_write: true,
            entry_until_sync: true,
            in_flight_home_writes: true,
            entry_before_invalidation: true,
            invalidate_on_modify: true,
            dw_clean_after_both: true,
            lc_entry_moves_after_flash_write: true,
            oldest_covers_flash: true,
            verify_reads: true,
        }
    }
}
