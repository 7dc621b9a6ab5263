//! What a type is called, and what it stands for as a receiver.

use std::collections::HashMap;

use syn::{GenericArgument, PathArguments, ReturnType, Type, TypeParamBound};

use crate::modules::{Imports, ModuleId, Modules};

/// What dereferences to what it holds, or lends it out.
const TRANSPARENT: [&str; 21] = [
    "Arc",
    "Rc",
    "Box",
    "Ref",
    "RefMut",
    "Pin",
    "MutexGuard",
    "Guard",
    "Cow",
    "Mutex",
    "LeafMutex",
    "LeafGuard",
    "RwLatch",
    "RefCell",
    "Cell",
    "OnceCell",
    "OnceLock",
    "ManuallyDrop",
    "Weak",
    "UnsafeCell",
    "Reverse",
];
/// Types of the project that dereference to what they hold.
const LENDING: [&str; 2] = ["Apart", "Share"];
/// What an operator or a method of its own takes the value out of.
const WRAPPERS: [&str; 3] = ["Option", "Result", "LockResult"];
/// Whose elements a method or a loop hands on.
const COLLECTIONS: [&str; 9] = [
    "Vec",
    "VecDeque",
    "BTreeSet",
    "HashSet",
    "BinaryHeap",
    "Iter",
    "IntoIter",
    "Peekable",
    "IterMut",
];
/// Whose values are found by keys.
const MAPS: [&str; 2] = ["HashMap", "BTreeMap"];

/// A declared type, as far as calls need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// A type or trait of the crate, by its path; or of another, behind `::`.
    Of(String),
    /// What implements all of these.
    Bound(Vec<String>),
    /// An `Option` or `Result` of it.
    Wrapped(Box<Named>),
    /// Several of it, in a slice, array or `Vec`, or handed on by an iterator.
    Many(Box<Named>),
    /// Values by keys.
    Map(Box<Named>, Box<Named>),
    Tuple(Vec<Named>),
    /// A closure: what it takes and returns.
    Closure(Vec<Named>, Box<Named>),
    Unknown,
}

/// The type parameters in scope, with what each must be.
pub type Bounds = HashMap<String, Named>;

/// Where a type is written.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub modules: &'a Modules,
    pub module: ModuleId,
    /// What `Self` is.
    pub own: Option<&'a str>,
    pub bounds: &'a Bounds,
    /// What the function imports.
    pub imports: &'a Imports,
}

impl Named {
    /// A number, a string, or what else no crate gives methods to.
    pub fn literal() -> Named {
        Named::Of("::literal".to_string())
    }

    pub fn wrapped(inner: Named) -> Named {
        Named::Wrapped(Box::new(inner))
    }

    pub fn many(inner: Named) -> Named {
        Named::Many(Box::new(inner))
    }

    /// The type that `ty` declares.
    pub fn of(ty: &Type, place: Place<'_>) -> Named {
        match ty {
            Type::Reference(it) => Named::of(&it.elem, place),
            Type::Paren(it) => Named::of(&it.elem, place),
            Type::Group(it) => Named::of(&it.elem, place),
            Type::Ptr(it) => Named::of(&it.elem, place),
            Type::Slice(it) => Named::many(Named::of(&it.elem, place)),
            Type::Array(it) => Named::many(Named::of(&it.elem, place)),
            Type::Tuple(it) => {
                Named::Tuple(it.elems.iter().map(|ty| Named::of(ty, place)).collect())
            }
            Type::ImplTrait(it) => of_bounds(it.bounds.iter(), place),
            Type::TraitObject(it) => of_bounds(it.bounds.iter(), place),
            Type::BareFn(it) => {
                let takes = it.inputs.iter().map(|input| Named::of(&input.ty, place)).collect();
                Named::Closure(takes, Box::new(Named::returned(&it.output, place)))
            }
            Type::Path(it) if it.qself.is_none() => Named::of_path(&it.path, place),
            _ => Named::Unknown,
        }
    }

    fn of_path(path: &syn::Path, place: Place<'_>) -> Named {
        let Some(last) = path.segments.last() else { return Named::Unknown };
        let name = last.ident.to_string();
        if path.segments.first().is_some_and(|first| first.ident == "Self") {
            // An associated type may be anything.
            let own = place.own.filter(|_| path.segments.len() == 1);
            return own.map_or(Named::Unknown, |own| Named::Of(own.to_string()));
        }
        if let Some(bound) = path.get_ident().and_then(|it| place.bounds.get(&it.to_string())) {
            return bound.clone();
        }
        let arguments = arguments_of(&last.arguments);
        let nth = |at: usize| arguments.get(at).map_or(Named::Unknown, |ty| Named::of(ty, place));
        let segments: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if place.bounds.contains_key(&segments[0]) {
            return Named::Unknown;
        }
        if let Some(key) = place.modules.resolve(place.module, &segments, place.imports) {
            if let Some((module, ty)) = place.modules.alias(&key) {
                let (bounds, imports) = (Bounds::new(), Imports::default());
                let module = *module;
                let own = None;
                return Named::of(
                    ty,
                    Place { module, own, bounds: &bounds, imports: &imports, ..place },
                );
            }
            if LENDING.contains(&name.as_str()) {
                return nth(0);
            }
            // A mutex of the crate's own lends what it holds, too.
            return Named::Of(key);
        }
        match name.as_str() {
            name if TRANSPARENT.contains(&name) => nth(0),
            name if WRAPPERS.contains(&name) => Named::wrapped(nth(0)),
            name if COLLECTIONS.contains(&name) => Named::many(nth(0)),
            name if MAPS.contains(&name) => Named::Map(Box::new(nth(0)), Box::new(nth(1))),
            _ => Named::Of(format!("::{name}")),
        }
    }

    /// What a function returns.
    pub fn returned(output: &ReturnType, place: Place<'_>) -> Named {
        match output {
            ReturnType::Default => Named::Tuple(Vec::new()),
            ReturnType::Type(_, ty) => Named::of(ty, place),
        }
    }

    /// Whether it is a type of another crate.
    fn is_foreign(&self) -> bool {
        matches!(self, Named::Of(key) if key.starts_with("::"))
    }

    /// What `?`, `unwrap` or a pattern takes out of it: of what another crate returns, what is
    /// another crate's, too.
    pub fn unwrapped(self) -> Named {
        match self {
            Named::Wrapped(inner) => *inner,
            foreign if foreign.is_foreign() => foreign,
            _ => Named::Unknown,
        }
    }

    /// One of many.
    pub fn element(self) -> Named {
        match self {
            Named::Many(inner) | Named::Wrapped(inner) => *inner,
            Named::Map(key, value) => Named::Tuple(vec![*key, *value]),
            foreign if foreign.is_foreign() => foreign,
            Named::Tuple(_) | Named::Closure(..) => Named::Unknown,
            Named::Of(_) | Named::Bound(_) | Named::Unknown => Named::Unknown,
        }
    }

    /// What is found in it by an index or key.
    pub fn value(self) -> Named {
        match self {
            Named::Map(_, value) => *value,
            other => other.element(),
        }
    }
}

/// The type parameters of `generics`, those of `place` included.
pub fn bounds_of(generics: &syn::Generics, place: Place<'_>) -> Bounds {
    let mut bounds = place.bounds.clone();
    // A bound may name a parameter that comes later.
    for parameter in generics.type_params() {
        bounds.insert(parameter.ident.to_string(), Named::Bound(Vec::new()));
    }
    for _ in 0..2 {
        let known = bounds.clone();
        let place = Place { bounds: &known, ..place };
        for parameter in generics.type_params() {
            add_bound(&mut bounds, parameter.ident.to_string(), parameter.bounds.iter(), place);
        }
        for predicate in generics.where_clause.iter().flat_map(|clause| &clause.predicates) {
            if let syn::WherePredicate::Type(it) = predicate
                && let Type::Path(path) = &it.bounded_ty
                && let Some(name) = path.path.get_ident()
            {
                add_bound(&mut bounds, name.to_string(), it.bounds.iter(), place);
            }
        }
    }
    bounds
}

fn add_bound<'a>(
    all: &mut Bounds,
    name: String,
    bounds: impl Iterator<Item = &'a TypeParamBound> + Clone,
    place: Place<'_>,
) {
    let named = match (of_bounds(bounds, place), all.remove(&name)) {
        (Named::Bound(mut more), Some(Named::Bound(former))) => {
            more.extend(former);
            more.sort();
            more.dedup();
            Named::Bound(more)
        }
        (Named::Bound(_), Some(former)) => former,
        (named, _) => named,
    };
    all.insert(name, named);
}

fn of_bounds<'a>(
    bounds: impl Iterator<Item = &'a TypeParamBound> + Clone,
    place: Place<'_>,
) -> Named {
    let traits = bounds.filter_map(|bound| match bound {
        TypeParamBound::Trait(it) => Some(&it.path),
        _ => None,
    });
    // An iterator hands on many; a closure is called.
    if let Some(special) = traits.clone().find_map(|path| iterator_or_closure(path, place)) {
        return special;
    }
    let key = |path: &syn::Path| {
        let segments: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let key = place.modules.resolve(place.module, &segments, place.imports);
        key.unwrap_or_else(|| format!("::{}", segments.last().map_or("", String::as_str)))
    };
    Named::Bound(traits.map(key).collect())
}

fn iterator_or_closure(path: &syn::Path, place: Place<'_>) -> Option<Named> {
    match &path.segments.last()?.arguments {
        PathArguments::AngleBracketed(list) => {
            list.args.iter().find_map(|argument| match argument {
                GenericArgument::AssocType(it) if it.ident == "Item" => {
                    Some(Named::many(Named::of(&it.ty, place)))
                }
                _ => None,
            })
        }
        PathArguments::Parenthesized(it) => {
            let takes = it.inputs.iter().map(|ty| Named::of(ty, place)).collect();
            Some(Named::Closure(takes, Box::new(Named::returned(&it.output, place))))
        }
        PathArguments::None => None,
    }
}

fn arguments_of(arguments: &PathArguments) -> Vec<&Type> {
    let PathArguments::AngleBracketed(list) = arguments else { return Vec::new() };
    let types = list.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    });
    types.collect()
}
