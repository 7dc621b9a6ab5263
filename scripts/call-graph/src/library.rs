//! What methods of the standard library hand on, as far as receivers' types depend on it.

use crate::types::Named;

/// Methods of the standard library that crates have under the same names. They count only where the
/// receiver's type is known.
const NAMES: [&str; 48] = [
    "min",
    "max",
    "iter",
    "push",
    "take",
    "insert",
    "sum",
    "load",
    "store",
    "add",
    "count",
    "get",
    "remove",
    "find",
    "first",
    "last",
    "next",
    "position",
    "append",
    "len",
    "is_empty",
    "pop",
    "contains",
    "clear",
    "swap",
    "join",
    "map",
    "split",
    "entry",
    "extend",
    "write",
    "read",
    "flush",
    "lock",
    "fill",
    "set",
    "replace",
    "get_mut",
    "iter_mut",
    "push_back",
    "push_front",
    "pop_front",
    "pop_back",
    "values",
    "retain",
    "drain",
    "range",
    "all",
];
/// Methods that hand on what they are called on.
const SAME: [&str; 38] = [
    "clone",
    "as_ref",
    "as_mut",
    "iter",
    "iter_mut",
    "into_iter",
    "map_err",
    "ok",
    "copied",
    "cloned",
    "as_deref",
    "as_deref_mut",
    "borrow",
    "borrow_mut",
    "rev",
    "filter",
    "skip",
    "take",
    "take_while",
    "skip_while",
    "peekable",
    "ok_or",
    "ok_or_else",
    "or_else",
    "or",
    "inspect",
    "chain",
    "drain",
    "to_vec",
    "step_by",
    "by_ref",
    "to_owned",
    "as_slice",
    "as_mut_slice",
    "into_boxed_slice",
    "cycle",
    "take_if",
    "collect",
];
/// Those that hand on one of many.
const ONE_OF: [&str; 19] = [
    "first",
    "first_mut",
    "last",
    "last_mut",
    "pop",
    "next",
    "next_back",
    "find",
    "pop_front",
    "pop_back",
    "min_by_key",
    "max_by_key",
    "min",
    "max",
    "min_by",
    "max_by",
    "peek",
    "nth",
    "reduce",
];
/// Those of maps and slices that hand on a value.
const VALUE: [&str; 6] = ["get", "get_mut", "remove", "swap_remove", "insert", "take"];
/// Those of locks and cells, which lend what they hold.
const LENDS: [&str; 10] = [
    "lock",
    "read",
    "write",
    "get",
    "get_mut",
    "get_or_init",
    "upgrade",
    "try_lock",
    "deref",
    "into_inner",
];
/// Those that take a value out of an `Option` or `Result`.
const UNWRAPS: [&str; 8] = [
    "unwrap",
    "expect",
    "unwrap_or_default",
    "unwrap_or",
    "unwrap_or_else",
    "get_or_insert_with",
    "get_or_insert",
    "unwrap_err",
];
/// Those that say a number, a truth or a text.
const LITERAL: [&str; 28] = [
    "len",
    "is_empty",
    "is_some",
    "is_none",
    "is_ok",
    "is_err",
    "count",
    "contains",
    "any",
    "all",
    "is_some_and",
    "is_none_or",
    "is_ok_and",
    "position",
    "rposition",
    "partition_point",
    "sum",
    "contains_key",
    "to_string",
    "load",
    "fetch_add",
    "fetch_sub",
    "cmp",
    "eq",
    "starts_with",
    "ends_with",
    "is_multiple_of",
    "capacity",
];
/// Those that hand on several of several.
const PARTS: [&str; 9] = [
    "chunks",
    "chunks_mut",
    "windows",
    "chunk_by",
    "chunks_exact",
    "split",
    "chunk_by_mut",
    "rchunks",
    "array_windows",
];

/// Whether the library has a method `name`, as likely as the crate.
pub fn has(name: &str) -> bool {
    NAMES.contains(&name)
}

/// What a function of the library makes of its argument.
pub enum Handed {
    Wrapped,
    Same,
    Unknown,
}

/// What the function at `path` makes of its first argument.
pub fn handed_by_path(path: &syn::Path) -> Handed {
    let mut names = path.segments.iter().rev().map(|segment| segment.ident.to_string());
    let (last, before) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
    match (before.as_str(), last.as_str()) {
        ("", "Some" | "Ok") => Handed::Wrapped,
        (_, "clone" | "take" | "replace" | "min" | "max" | "ref_eq" | "Reverse") => Handed::Same,
        (
            "Arc" | "Rc" | "Box" | "Mutex" | "LeafMutex" | "RefCell" | "Cell" | "RwLatch" | "Cow"
            | "ManuallyDrop" | "UnsafeCell",
            "new" | "from" | "pin",
        ) => Handed::Same,
        _ => Handed::Unknown,
    }
}

/// What a closure returns.
fn returned(named: Named) -> Named {
    match named {
        Named::Closure(_, returns) => *returns,
        _ => Named::Unknown,
    }
}

/// What the library's method `name` of `receiver` returns; `argument` has the types of its
/// arguments. `None` if that cannot be said.
pub fn handed_by(
    receiver: &Named,
    name: &str,
    argument: impl Fn(usize) -> Named,
    turbofish: Option<Named>,
) -> Option<Named> {
    if name == "collect"
        && let Some(declared) = turbofish.filter(|it| it.clone().element() != Named::Unknown)
    {
        return Some(declared);
    }
    if LITERAL.contains(&name) {
        return Some(Named::literal());
    }
    if let Some(handed) = handed_by_map(receiver, name) {
        return Some(handed);
    }
    let pair = |element| Named::Tuple(vec![element, argument(0).element()]);
    let element = receiver.clone().element();
    Some(match (receiver, name) {
        (Named::Unknown, _) if UNWRAPS.contains(&name) || SAME.contains(&name) => Named::Unknown,
        (Named::Wrapped(inner), name) if UNWRAPS.contains(&name) => (**inner).clone(),
        (Named::Wrapped(_), "as_deref" | "flatten" | "lock") => receiver.clone(),
        (named, "try_borrow" | "try_borrow_mut") => Named::wrapped(named.clone()),
        (Named::Wrapped(_), "map") => Named::wrapped(returned(argument(0))),
        (Named::Wrapped(_), "and_then") | (Named::Many(_), "find_map") => returned(argument(0)),
        (Named::Wrapped(_), "zip") => Named::wrapped(pair(element)),
        (_, "map_or" | "fold") => argument(0),
        (_, "map_or_else") => returned(argument(1)),
        (_, "then") => Named::wrapped(returned(argument(0))),
        (_, "then_some") => Named::wrapped(argument(0)),
        (Named::Many(inner), name) if ONE_OF.contains(&name) => Named::wrapped((**inner).clone()),
        (Named::Many(inner), "get" | "get_mut") => Named::wrapped((**inner).clone()),
        (Named::Many(inner), "remove" | "swap_remove") => (**inner).clone(),
        (Named::Many(_), "map") => Named::many(returned(argument(0))),
        (Named::Many(_), "filter_map" | "map_while" | "flat_map" | "scan") => {
            Named::many(returned(argument(0)).element())
        }
        (Named::Many(inner), "flatten") => Named::many(inner.clone().element()),
        (Named::Many(_), "enumerate") => Named::many(Named::Tuple(vec![Named::literal(), element])),
        (Named::Many(_), "zip") => Named::many(pair(element)),
        (Named::Many(_), "split_at" | "split_at_mut" | "partition") => {
            Named::Tuple(vec![receiver.clone(), receiver.clone()])
        }
        (Named::Many(_), "split_first" | "split_last") => {
            Named::wrapped(Named::Tuple(vec![element, receiver.clone()]))
        }
        (Named::Many(_), name) if PARTS.contains(&name) => Named::many(receiver.clone()),
        (Named::Of(key), _) if key.starts_with("::") => match name {
            "map" => Named::many(returned(argument(0))),
            name if SAME.contains(&name) || LENDS.contains(&name) => receiver.clone(),
            // Of another crate's type: of another crate, too, but for what it passes through.
            _ => Named::literal(),
        },
        (Named::Bound(traits), _) if traits.iter().all(|key| key.starts_with("::")) => match name {
            name if SAME.contains(&name) => receiver.clone(),
            _ if traits.is_empty() => return None,
            _ => Named::literal(),
        },
        (_, name) if SAME.contains(&name) => receiver.clone(),
        (Named::Of(_) | Named::Bound(_) | Named::Many(_), name) if LENDS.contains(&name) => {
            receiver.clone()
        }
        _ => return None,
    })
}

/// The same for a map, where the method is one of maps.
fn handed_by_map(receiver: &Named, name: &str) -> Option<Named> {
    let Named::Map(key, value) = receiver else { return None };
    let element = || receiver.clone().element();
    Some(match name {
        "values" | "values_mut" | "into_values" => Named::many((**value).clone()),
        "keys" | "into_keys" => Named::many((**key).clone()),
        "range" | "iter" | "iter_mut" | "into_iter" => Named::many(element()),
        "first_key_value" | "last_key_value" | "pop_first" | "pop_last" => {
            Named::wrapped(element())
        }
        "or_default" | "or_insert" | "or_insert_with" => (**value).clone(),
        name if VALUE.contains(&name) => Named::wrapped((**value).clone()),
        "entry" | "and_modify" | "lock" => receiver.clone(),
        _ => return None,
    })
}

/// With what the library's method `name` of `receiver` calls the closures among its arguments;
/// `first` is the type of the first.
pub fn taken_by(receiver: &Named, name: &str, first: &Named) -> Vec<Named> {
    let element = receiver.clone().element();
    let takes = |named: Vec<Named>| Named::Closure(named, Box::new(Named::Unknown));
    match name {
        "fold" | "try_fold" => {
            vec![Named::Unknown, takes(vec![first.clone(), element])]
        }
        "map_or" | "map_or_else" => vec![takes(vec![]), takes(vec![element])],
        "retain" if matches!(receiver, Named::Map(..)) => {
            let Named::Tuple(parts) = element else { return Vec::new() };
            vec![takes(parts)]
        }
        "chunk_by" | "sort_by" | "sort_unstable_by" | "max_by" | "min_by" | "reduce" => {
            vec![takes(vec![element.clone(), element])]
        }
        _ => vec![takes(vec![element])],
    }
}
