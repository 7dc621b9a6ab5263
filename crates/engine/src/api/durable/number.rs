//! Which waker in the log is a token's own.

/// The number of the waker that a token has put down, if it has. A copy of the token has none.
#[derive(Debug, Default)]
pub(super) struct OwnNumber(pub(super) Option<u64>);

impl Clone for OwnNumber {
    fn clone(&self) -> OwnNumber {
        OwnNumber::default()
    }
}
