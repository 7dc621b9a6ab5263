//! Macros of a crate: what looks like a call in their tokens.

use std::collections::{BTreeSet, HashMap};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::Item;

use crate::source::Source;

/// The rules of a crate's macros, by name.
#[derive(Default)]
pub struct Macros {
    rules: HashMap<String, TokenStream>,
    /// Those that are used in the place of items.
    makes_items: BTreeSet<String>,
}

/// A path in a macro's tokens.
pub struct Named {
    pub path: String,
    pub kind: Kind,
}

/// What a path is followed and preceded by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `.name(`
    Method,
    /// `path(`
    Call,
    Other,
}

impl Macros {
    pub fn of(sources: &[Source]) -> Macros {
        let mut all = Macros::default();
        for item in sources.iter().flat_map(|source| &source.items) {
            let Item::Macro(it) = item else { continue };
            match &it.ident {
                Some(name) => drop(all.rules.insert(name.to_string(), it.mac.tokens.clone())),
                None => {
                    let name = it.mac.path.segments.last().map(|last| last.ident.to_string());
                    all.makes_items.extend(name);
                }
            }
        }
        all
    }

    /// Whether the macro `name` is used in the place of items.
    pub fn makes_items(&self, name: &str) -> bool {
        self.makes_items.contains(name)
    }

    /// The names of what the rules of macro `name` call.
    pub fn names_in(&self, name: &str) -> BTreeSet<String> {
        let rules = self.rules.get(name).cloned().unwrap_or_default();
        let called = mentioned(rules).into_iter().filter(|named| named.kind != Kind::Other);
        called.filter_map(|named| named.path.rsplit("::").next().map(str::to_string)).collect()
    }
}

/// The paths in `tokens`, inner ones included.
pub fn mentioned(tokens: TokenStream) -> Vec<Named> {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < trees.len() {
        match &trees[at] {
            TokenTree::Group(it) => found.extend(mentioned(it.stream())),
            TokenTree::Ident(first) => {
                let begun = at;
                let mut path = first.to_string();
                while let Some([TokenTree::Punct(a), TokenTree::Punct(b), TokenTree::Ident(next)]) =
                    trees.get(at + 1..at + 4)
                    && a.as_char() == ':'
                    && b.as_char() == ':'
                {
                    path = format!("{path}::{next}");
                    at += 3;
                }
                let is_called = matches!(trees.get(at + 1), Some(TokenTree::Group(it))
                    if it.delimiter() == Delimiter::Parenthesis);
                let before = begun.checked_sub(1).map(|before| &trees[before]);
                let is_method = matches!(before, Some(TokenTree::Punct(it)) if it.as_char() == '.');
                let kind = match (is_called, is_method) {
                    (true, true) => Kind::Method,
                    (true, false) => Kind::Call,
                    (false, _) => Kind::Other,
                };
                found.push(Named { path, kind });
            }
            _ => (),
        }
        at += 1;
    }
    found
}
