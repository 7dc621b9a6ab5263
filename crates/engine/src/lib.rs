//! To be opened.

#![forbid(unsafe_code)]
