//! To be opened.
